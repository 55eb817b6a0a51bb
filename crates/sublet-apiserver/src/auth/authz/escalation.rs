//! Nobody grants what they do not have: checks on writes of roles and bindings.

use super::rbac::{GROUP, aggregate};
use super::rule::{Rule, missing, quoted};
use super::{Authorization, Authorizer, AuthzAttributes, has_group};
use crate::admission::UserInfo;
use crate::auth::MASTERS;
use serde_json::Value;
use sublet_machinery::{ApiError, ObjectExt};

/// A write of a Role, ClusterRole, RoleBinding or ClusterRoleBinding.
pub struct RbacWrite<'a> {
    pub user: &'a UserInfo,
    /// `roles`, `clusterroles`, `rolebindings` or `clusterrolebindings`.
    pub resource: &'a str,
    /// Of the request; empty for cluster-scoped resources.
    pub namespace: &'a str,
    /// Of the request; empty on create.
    pub name: &'a str,
    pub object: &'a Value,
    pub old: Option<&'a Value>,
}

impl Authorization {
    /// Refuses a write that would give the user, or somebody else, more than the user has. Runs before the
    /// object is validated, for every user and in every mode.
    pub fn check_escalation(&self, write: &RbacWrite<'_>) -> Result<(), ApiError> {
        if has_group(write.user, MASTERS) || write.old.is_some_and(|old| only_garbage_collection(write.object, old)) {
            return Ok(());
        }
        match write.resource {
            "roles" | "clusterroles" => self.check_role(write),
            "rolebindings" | "clusterrolebindings" => self.check_binding(write),
            _ => Ok(()),
        }
    }

    fn check_role(&self, write: &RbacWrite<'_>) -> Result<(), ApiError> {
        let escalate = AuthzAttributes {
            namespace: write.namespace,
            name: write.name,
            ..AuthzAttributes::resource(write.user, "escalate", GROUP, write.resource)
        };
        if self.authorize(&escalate).allowed() {
            return Ok(());
        }
        let forbidden = |why: String| ApiError::forbidden(GROUP, write.resource, write.object.name(), why);
        self.confirm(write, &Rule::all_of(write.object)).map_err(forbidden)?;
        let aggregates = |role: &Value| !role.array_at("/aggregationRule/clusterRoleSelectors").is_empty();
        if write.resource == "clusterroles" && (aggregates(write.object) || write.old.is_some_and(aggregates)) {
            // It gathers whatever carries its labels, now and later.
            self.confirm(write, &Rule::everything())
                .map_err(|_| forbidden("must have cluster-admin privileges to use the aggregationRule".into()))?;
        }
        Ok(())
    }

    fn check_binding(&self, write: &RbacWrite<'_>) -> Result<(), ApiError> {
        let reference = |field: &str| write.object["roleRef"][field].as_str().unwrap_or_default();
        let (kind, name) = (reference("kind"), reference("name"));
        let resource = match kind {
            "Role" => "roles",
            "ClusterRole" => "clusterroles",
            _ => "",
        };
        let bind = AuthzAttributes {
            namespace: write.namespace,
            name,
            ..AuthzAttributes::resource(write.user, "bind", reference("apiGroup"), resource)
        };
        if !resource.is_empty() && self.authorize(&bind).allowed() {
            return Ok(());
        }
        let rules = self.rbac().role_rules(kind, name, write.namespace).map_err(|error| as_requested(error, write))?;
        self.confirm(write, &rules).map_err(|why| ApiError::forbidden(GROUP, write.resource, write.object.name(), why))
    }

    /// The error says what the user lacks.
    fn confirm(&self, write: &RbacWrite<'_>, wanted: &[Rule]) -> Result<(), String> {
        let resolved = self.rbac().rules_for(write.user, write.namespace);
        let held: Vec<&Rule> = resolved.rules.iter().flat_map(|rules| rules.iter()).collect();
        let missing = missing(&held, wanted);
        if missing.is_empty() {
            return Ok(());
        }
        let mut message = format!(
            "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            write.user.name,
            quoted(&write.user.groups),
            missing.join("\n")
        );
        if let Some(error) = aggregate(resolved.errors.into_iter().map(|error| as_requested(error, write).message)) {
            message.push_str(&format!("; resolution errors: [{error}]"));
        }
        Err(message)
    }
}

/// Upstream's role registry names the resource of the request in whatever it does not find.
fn as_requested(error: ApiError, write: &RbacWrite<'_>) -> ApiError {
    if error.code == 404 { ApiError::not_found(GROUP, write.resource, &error.name) } else { error }
}

/// The garbage collector takes owners and finalizers away without holding the rights of the role.
fn only_garbage_collection(new: &Value, old: &Value) -> bool {
    let strip = |object: &Value| {
        let mut object = object.clone();
        let metadata = object.metadata_mut();
        for key in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
            metadata.remove(key);
        }
        object
    };
    strip(new) == strip(old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::authz::Mode;
    use crate::auth::testing::{FakeReader, user};
    use serde_json::json;

    fn authorization(rules: Value) -> Authorization {
        let reader = FakeReader::default();
        reader.put("clusterroles.rbac.authorization.k8s.io", json!({"metadata": {"name": "held"}, "rules": rules}));
        for (binding, role) in [("b", "held"), ("c", "missing")] {
            reader.put(
                "clusterrolebindings.rbac.authorization.k8s.io",
                json!({"metadata": {"name": binding}, "roleRef": {"kind": "ClusterRole", "name": role},
                    "subjects": [{"kind": "User", "name": "dave"}]}),
            );
        }
        Authorization::new(vec![Mode::Rbac], std::sync::Arc::new(reader))
    }

    fn check(authorization: &Authorization, resource: &str, object: &Value) -> Result<(), String> {
        let user = user("dave", &["g1", "system:authenticated"]);
        let write = RbacWrite { user: &user, resource, namespace: "default", name: "", object, old: None };
        authorization.check_escalation(&write).map_err(|error| error.message)
    }

    #[test]
    fn roles_grant_only_what_their_writer_holds() {
        let authorization = authorization(json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]));
        let role = |rules: Value| json!({"metadata": {"name": "r"}, "rules": rules});
        assert_eq!(check(&authorization, "roles", &role(json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]))), Ok(()));
        let wanted = role(json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "secrets"]}]));
        assert_eq!(
            check(&authorization, "roles", &wanted).unwrap_err(),
            "roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"dave\" (groups=[\"g1\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}; resolution errors: [roles.rbac.authorization.k8s.io \"missing\" not found]"
        );
        let aggregating = json!({"metadata": {"name": "r"}, "aggregationRule": {"clusterRoleSelectors": [{}]}});
        assert!(
            check(&authorization, "clusterroles", &aggregating)
                .unwrap_err()
                .ends_with("cluster-admin privileges to use the aggregationRule")
        );
    }

    #[test]
    fn bindings_need_the_rules_or_the_verb_bind() {
        let binding = |role: &str| json!({"metadata": {"name": "rb"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}});
        let without = authorization(json!([]));
        assert_eq!(check(&without, "rolebindings", &binding("held")), Ok(()), "a role without rules grants nothing");
        assert_eq!(
            check(&without, "rolebindings", &binding("nope")).unwrap_err(),
            "rolebindings.rbac.authorization.k8s.io \"nope\" not found"
        );
        let with =
            authorization(json!([{"verbs": ["bind"], "apiGroups": [GROUP], "resources": ["clusterroles"], "resourceNames": ["nope"]}]));
        assert_eq!(check(&with, "rolebindings", &binding("nope")), Ok(()));
    }

    #[test]
    fn the_verb_escalate_and_the_garbage_collector_pass() {
        let role =
            json!({"metadata": {"name": "r", "finalizers": ["f"]}, "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]});
        let escalate = authorization(json!([{"verbs": ["escalate"], "apiGroups": [GROUP], "resources": ["roles"]}]));
        assert_eq!(check(&escalate, "roles", &role), Ok(()));
        assert!(check(&escalate, "clusterroles", &role).is_err());
        let user = user("dave", &[]);
        let mut released = role.clone();
        released.remove_at("/metadata/finalizers");
        let write = RbacWrite { user: &user, resource: "clusterroles", namespace: "", name: "r", object: &released, old: Some(&role) };
        assert_eq!(escalate.check_escalation(&write), Ok(()));
    }
}
