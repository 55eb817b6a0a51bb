//! Whether a pod may run on a node: node selector, required node affinity, taints.

use serde_json::{Map, Value};
use sublet_machinery::ObjectExt;

/// The node selector and the required node affinity of a pod spec.
pub(crate) fn matches_affinity(pod_spec: &Value, node: &Value) -> bool {
    let label = |key: &str| node.label(key);
    let selected = pod_spec.object_at("/nodeSelector").is_none_or(|s| s.iter().all(|(k, v)| label(k) == v.as_str()));
    let terms = pod_spec.pointer("/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms");
    selected && terms.and_then(Value::as_array).is_none_or(|terms| terms.iter().any(|t| matches_term(t, node)))
}

/// A term without any requirement matches nothing.
fn matches_term(term: &Value, node: &Value) -> bool {
    let (expressions, fields) = (term.array_at("/matchExpressions"), term.array_at("/matchFields"));
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    expressions.iter().all(|e| matches_requirement(e, e["key"].as_str().and_then(|k| node.label(k))))
        && fields.iter().all(|f| f["key"] == "metadata.name" && matches_requirement(f, Some(node.name())))
}

fn matches_requirement(requirement: &Value, value: Option<&str>) -> bool {
    let listed = |value: &str| requirement.array_at("/values").iter().any(|v| v == value);
    let compare = || {
        let limit: i64 = requirement.array_at("/values").first()?.as_str()?.parse().ok()?;
        Some(value?.parse::<i64>().ok()?.cmp(&limit))
    };
    match requirement["operator"].as_str().unwrap_or_default() {
        "In" => value.is_some_and(listed),
        "NotIn" => value.is_none_or(|v| !listed(v)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare() == Some(std::cmp::Ordering::Greater),
        "Lt" => compare() == Some(std::cmp::Ordering::Less),
        _ => false,
    }
}

/// Every taint with one of the effects is tolerated.
pub(crate) fn tolerates(tolerations: &[Value], node: &Value, effects: &[&str]) -> bool {
    let counts = |taint: &&Value| effects.iter().any(|e| taint["effect"] == *e);
    node.array_at("/spec/taints").iter().filter(counts).all(|taint| tolerations.iter().any(|t| tolerates_taint(t, taint)))
}

pub(crate) fn tolerates_taint(toleration: &Value, taint: &Value) -> bool {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_string();
    let same_or_any = |key: &str| text(toleration, key).is_empty() || text(toleration, key) == text(taint, key);
    if !same_or_any("effect") || !same_or_any("key") {
        return false;
    }
    match text(toleration, "operator").as_str() {
        "Exists" => true,
        "" | "Equal" => text(toleration, "value") == text(taint, "value"),
        _ => false,
    }
}

/// Adds a toleration, in the place of one for the same taints.
pub(crate) fn add_toleration(tolerations: &mut Vec<Value>, toleration: Map<String, Value>) {
    let toleration = Value::Object(toleration);
    let same = |t: &Value| ["key", "operator", "effect", "value"].iter().all(|k| t.get(*k) == toleration.get(*k));
    match tolerations.iter().position(same) {
        Some(at) => tolerations[at] = toleration,
        None => tolerations.push(toleration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn terms_are_alternatives_and_requirements_must_all_hold() {
        let node = json!({"metadata": {"name": "n1", "labels": {"zone": "a", "cores": "8"}}});
        let check = |terms: Value, expected: bool| {
            let spec =
                json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
            assert_eq!(matches_affinity(&spec, &node), expected, "{spec}");
        };
        let expression = |key: &str, operator: &str, values: Value| json!({"key": key, "operator": operator, "values": values});
        check(json!([{"matchExpressions": [expression("zone", "In", json!(["a", "b"]))]}]), true);
        check(
            json!([{"matchExpressions": [expression("zone", "NotIn", json!(["a"]))]}, {"matchExpressions": [expression("cores", "Gt", json!(["4"]))]}]),
            true,
        );
        check(json!([{"matchExpressions": [expression("cores", "Lt", json!(["4"])), expression("zone", "Exists", json!([]))]}]), false);
        check(json!([{"matchFields": [expression("metadata.name", "In", json!(["n1"]))]}]), true);
        check(json!([{"matchFields": [expression("metadata.name", "In", json!(["n2"]))]}]), false);
        check(json!([{}]), false);
        assert!(
            matches_affinity(&json!({"nodeSelector": {"zone": "a"}}), &node)
                && !matches_affinity(&json!({"nodeSelector": {"zone": "b"}}), &node)
        );
    }

    #[test]
    fn taints_need_a_toleration_each() {
        let node =
            json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}, {"key": "x", "effect": "PreferNoSchedule"}]}});
        let check =
            |tolerations: Value, expected| assert_eq!(tolerates(tolerations.as_array().expect("a list"), &node, &["NoSchedule"]), expected);
        check(json!([]), false);
        check(json!([{"operator": "Exists"}]), true);
        check(json!([{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}]), true);
        check(json!([{"key": "k", "value": "w"}]), false);
        check(json!([{"key": "k", "operator": "Exists", "effect": "NoExecute"}]), false);
    }
}
