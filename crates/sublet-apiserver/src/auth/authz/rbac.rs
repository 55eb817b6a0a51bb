//! Role-based access control: additive rules, found through the bindings of the user.

use super::rule::Rule;
use super::tables::{RoleRef, Tables};
use super::{Authorizer, AuthzAttributes, Decision, Source};
use crate::admission::UserInfo;
use crate::reader::Reader;
use std::sync::Arc;
use sublet_machinery::ApiError;

pub(super) const GROUP: &str = "rbac.authorization.k8s.io";

pub struct Rbac {
    reader: Arc<dyn Reader>,
    tables: Tables,
}

/// The rules of a user in a namespace, and what kept others from being found.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    /// In the order in which their bindings were found; the same role may come twice.
    pub rules: Vec<Arc<[Rule]>>,
    pub errors: Vec<ApiError>,
}

impl Resolved {
    /// All errors in one text, as Go's aggregate shows them.
    pub fn error(&self) -> Option<String> {
        aggregate(self.errors.iter().map(|error| error.message.clone()))
    }
}

impl Rbac {
    pub fn new(reader: Arc<dyn Reader>) -> Self {
        Self { reader, tables: Tables::new() }
    }

    /// The rules that apply to the user: those of the cluster, and of the namespace unless it is empty.
    pub fn rules_for(&self, user: &UserInfo, namespace: &str) -> Resolved {
        let mut resolved = Resolved::default();
        self.visit(user, namespace, |_, rules| {
            match rules {
                Ok(rules) => resolved.rules.push(rules),
                Err(error) => resolved.errors.push(error),
            }
            None::<()>
        });
        resolved
    }

    /// The rules of the role that a binding in the namespace (empty for a cluster role binding) refers to.
    pub fn role_rules(&self, kind: &str, name: &str, namespace: &str) -> Result<Arc<[Rule]>, ApiError> {
        let (found, resource) = match kind {
            "Role" => (self.tables.roles.read(&*self.reader).get(namespace).and_then(|roles| roles.get(name)).cloned(), "role"),
            "ClusterRole" => (self.tables.cluster_roles.read(&*self.reader).get(name).cloned(), "clusterrole"),
            other => return Err(ApiError::bad_request(format!("unsupported role reference kind: {other:?}"))),
        };
        found.ok_or_else(|| ApiError::not_found(GROUP, resource, name))
    }

    /// Shows the rules of each binding of the user to `visitor`, until it answers something.
    fn visit<T>(
        &self,
        user: &UserInfo,
        namespace: &str,
        mut visitor: impl FnMut(&Arc<str>, Result<Arc<[Rule]>, ApiError>) -> Option<T>,
    ) -> Option<T> {
        let resolve = |role: &RoleRef, namespace: &str| self.role_rules(&role.kind, &role.name, namespace);
        let cluster = self.tables.cluster_role_bindings.read(&*self.reader);
        for (binding, description) in cluster.of_user(user) {
            if let Some(answer) = visitor(description, resolve(&binding.role, "")) {
                return Some(answer);
            }
        }
        if namespace.is_empty() {
            return None;
        }
        let namespaces = self.tables.role_bindings.read(&*self.reader);
        let bindings = namespaces.get(namespace).map_or(Vec::new(), |bindings| bindings.of_user(user));
        bindings.into_iter().find_map(|(binding, description)| visitor(description, resolve(&binding.role, namespace)))
    }
}

impl Authorizer for Rbac {
    fn authorize(&self, attributes: &AuthzAttributes<'_>) -> Decision {
        let mut errors = Vec::new();
        let allowed = self.visit(attributes.user, attributes.namespace, |description, rules| match rules {
            Ok(rules) => rules.iter().any(|rule| rule.matches(attributes)).then(|| description.clone()),
            Err(error) => {
                errors.push(error.message);
                None
            }
        });
        match allowed {
            Some(binding) => Decision::Allow(Source::Binding(binding)),
            None => Decision::NoOpinion(aggregate(errors).map(|text| format!("RBAC: {text}")).unwrap_or_default()),
        }
    }
}

/// One text as it is; several in brackets, repeats dropped.
pub(super) fn aggregate(errors: impl IntoIterator<Item = String>) -> Option<String> {
    let mut unique: Vec<String> = Vec::new();
    for error in errors {
        if !unique.contains(&error) {
            unique.push(error);
        }
    }
    match unique.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::authz::{Authorization, Mode};
    use crate::auth::testing::{FakeReader, user};
    use serde_json::{Value, json};

    const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
    const CLUSTER_ROLE_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";

    fn pods_role(name: &str, verbs: &[&str]) -> Value {
        json!({"metadata": {"name": name, "namespace": "y"}, "rules": [{"verbs": verbs, "apiGroups": [""], "resources": ["pods"]}]})
    }

    fn binding(name: &str, kind: &str, role: &str, subject: Value) -> Value {
        json!({"metadata": {"name": name, "namespace": "y"}, "roleRef": {"kind": kind, "name": role}, "subjects": [subject]})
    }

    #[test]
    fn subjects_are_users_groups_and_service_accounts() {
        let reader = Arc::new(FakeReader::default());
        reader.put("roles.rbac.authorization.k8s.io", pods_role("reader", &["get"]));
        let rbac = Rbac::new(reader.clone());
        let may = |who: &UserInfo, namespace: &str| {
            rbac.authorize(&AuthzAttributes { namespace, ..AuthzAttributes::resource(who, "get", "", "pods") }).reason()
        };
        let (bob, member) = (user("bob", &[]), user("eve", &["team"]));
        let account = user("system:serviceaccount:y:builder", &[]);
        assert_eq!(may(&bob, "y"), "");
        let bind = |name: &str, subject| reader.put("rolebindings.rbac.authorization.k8s.io", binding(name, "Role", "reader", subject));
        bind("a", json!({"kind": "User", "name": "bob"}));
        bind("b", json!({"kind": "Group", "name": "team"}));
        bind("c", json!({"kind": "ServiceAccount", "name": "builder"}));
        assert_eq!(may(&bob, "y"), r#"RBAC: allowed by RoleBinding "a/y" of Role "reader" to User "bob""#);
        assert_eq!(may(&member, "y"), r#"RBAC: allowed by RoleBinding "b/y" of Role "reader" to Group "team""#);
        assert_eq!(may(&account, "y"), r#"RBAC: allowed by RoleBinding "c/y" of Role "reader" to ServiceAccount "builder/y""#);
        assert_eq!((may(&bob, "z"), may(&bob, "")), (String::new(), String::new()));
        reader.remove("roles.rbac.authorization.k8s.io", "y", "reader");
        assert_eq!(may(&bob, "y"), r#"RBAC: role.rbac.authorization.k8s.io "reader" not found"#);
    }

    #[test]
    fn refusals_read_as_upstream_writes_them() {
        let reader = Arc::new(FakeReader::default());
        for missing in ["missing", "missing2"] {
            reader.put(CLUSTER_ROLE_BINDINGS, binding(missing, "ClusterRole", missing, json!({"kind": "User", "name": "bob"})));
        }
        reader.put(CLUSTER_ROLES, pods_role("reader", &["get"]));
        let authorization = Authorization::new(vec![Mode::Rbac], reader);
        let (bob, odd) = (user("bob", &[]), user("bo<b", &[]));
        let check = |attributes: AuthzAttributes<'_>, expected: &str| {
            assert_eq!(authorization.check(&attributes).unwrap_err().message, expected);
        };
        let deployments = AuthzAttributes { namespace: "y", name: "x", ..AuthzAttributes::resource(&bob, "get", "apps", "deployments") };
        check(
            deployments,
            r#"deployments.apps "x" is forbidden: User "bob" cannot get resource "deployments" in API group "apps" in the namespace "y": rbac: RBAC: [clusterrole.rbac.authorization.k8s.io "missing" not found, clusterrole.rbac.authorization.k8s.io "missing2" not found]"#,
        );
        let log = AuthzAttributes { subresource: "log", namespace: "y", ..AuthzAttributes::resource(&odd, "get", "", "pods") };
        check(log, r#"pods is forbidden: User "bo&lt;b" cannot get resource "pods/log" in API group "" in the namespace "y""#);
        check(
            AuthzAttributes::resource(&odd, "list", "", "nodes"),
            r#"nodes is forbidden: User "bo&lt;b" cannot list resource "nodes" in API group "" at the cluster scope"#,
        );
        check(AuthzAttributes::path(&odd, "get", "/metrics"), r#"forbidden: User "bo&lt;b" cannot get path "/metrics""#);
    }

    #[test]
    fn masters_need_no_rule() {
        let authorization = Authorization::new(vec![Mode::Rbac], Arc::new(FakeReader::default()));
        let admin = user("admin", &["system:masters"]);
        assert_eq!(
            authorization.authorize(&AuthzAttributes::resource(&admin, "delete", "", "nodes")),
            Decision::Allow(Source::Unconditional)
        );
    }
}
