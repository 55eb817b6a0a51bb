//! What to do about an object of the bootstrap that may be there already.

use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

/// `"false"` on a role or binding: its owner has taken it over.
const RBAC_AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
/// `"true"` on a flow schema or priority level: its spec is the server's.
const FLOW_AUTOUPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    None,
    Create,
    Update(Value),
    /// An immutable field differs: delete, then create.
    Recreate,
}

/// Roles and bindings only gain what they lack, as upstream's reconciliation has it: a rule somebody added
/// stays, a default somebody removed comes back.
pub fn plan(existing: Option<&Value>, wanted: &Value) -> Change {
    let Some(existing) = existing else { return Change::Create };
    if existing.is_deleting() {
        return Change::None;
    }
    let mut updated = existing.clone();
    match wanted.kind() {
        "ClusterRole" | "Role" if may_update(existing) => {
            extend(&mut updated, wanted, "/rules");
            extend(&mut updated, wanted, "/aggregationRule/clusterRoleSelectors");
            merge_labels_and_annotations(&mut updated, wanted);
        }
        "ClusterRoleBinding" | "RoleBinding" if may_update(existing) => {
            if existing["roleRef"] != wanted["roleRef"] {
                return Change::Recreate;
            }
            extend(&mut updated, wanted, "/subjects");
            merge_labels_and_annotations(&mut updated, wanted);
        }
        "FlowSchema" | "PriorityLevelConfiguration" if existing.annotation(FLOW_AUTOUPDATE) == Some("true") => {
            updated["spec"] = wanted["spec"].clone();
        }
        // The address is the host's to give, and may be another one after the host's Service was lost.
        "Service" if existing["spec"]["clusterIP"] != wanted["spec"]["clusterIP"] => return Change::Recreate,
        "Service" => updated.set_at("/spec/ports", wanted["spec"]["ports"].clone()),
        "Endpoints" => updated["subsets"] = wanted["subsets"].clone(),
        "EndpointSlice" if existing["addressType"] != wanted["addressType"] => return Change::Recreate,
        "EndpointSlice" => {
            updated["endpoints"] = wanted["endpoints"].clone();
            updated["ports"] = wanted["ports"].clone();
        }
        "ConfigMap" if wanted.name() == "extension-apiserver-authentication" => updated["data"] = wanted["data"].clone(),
        _ => {}
    }
    if updated == *existing { Change::None } else { Change::Update(updated) }
}

fn may_update(existing: &Value) -> bool {
    existing.annotation(RBAC_AUTOUPDATE) != Some("false")
}

/// Adds the items of the wanted list that the other one does not have.
fn extend(updated: &mut Value, wanted: &Value, pointer: &str) {
    let mut items = updated.array_at(pointer).to_vec();
    let before = items.len();
    for item in wanted.array_at(pointer) {
        if !items.contains(item) {
            items.push(item.clone());
        }
    }
    if items.len() > before {
        updated.set_at(pointer, json!(items));
    }
}

fn merge_labels_and_annotations(updated: &mut Value, wanted: &Value) {
    for (key, value) in wanted.labels().into_iter().flatten() {
        updated.set_label(key, value.as_str().unwrap_or_default());
    }
    for (key, value) in wanted.annotations().into_iter().flatten() {
        updated.set_annotation(key, value.as_str().unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(rules: Value, annotation: &str) -> Value {
        json!({"kind": "ClusterRole", "metadata": {"name": "r", "annotations": {(RBAC_AUTOUPDATE): annotation}}, "rules": rules})
    }

    #[test]
    fn roles_gain_what_they_lack_unless_taken_over() {
        let (a, b) = (json!({"verbs": ["a"]}), json!({"verbs": ["b"]}));
        let wanted = role(json!([a]), "true");
        assert_eq!(plan(None, &wanted), Change::Create);
        assert_eq!(plan(Some(&wanted), &wanted), Change::None);
        assert_eq!(plan(Some(&role(json!([b]), "true")), &wanted), Change::Update(role(json!([b, a]), "true")));
        assert_eq!(plan(Some(&role(json!([b]), "false")), &wanted), Change::None);
    }

    #[test]
    fn a_binding_to_another_role_is_made_anew() {
        let binding = |role: &str| json!({"kind": "ClusterRoleBinding", "metadata": {"name": "b"}, "roleRef": {"name": role}});
        assert_eq!(plan(Some(&binding("x")), &binding("y")), Change::Recreate);
        assert_eq!(plan(Some(&binding("y")), &binding("y")), Change::None);
    }

    #[test]
    fn the_rest_is_created_once() {
        let namespace = |label: &str| json!({"kind": "Namespace", "metadata": {"name": "default", "labels": {"a": label}}});
        assert_eq!(plan(Some(&namespace("x")), &namespace("y")), Change::None);
    }
}
