//! Roles and bindings as tables: read from JSON when they change, not when somebody asks.

use super::rule::Rule;
use crate::admission::UserInfo;
use crate::auth::service_account_user;
use crate::reader::Derived;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use sublet_machinery::ObjectExt;

pub(super) const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
pub(super) const ROLES: &str = "roles.rbac.authorization.k8s.io";
const CLUSTER_ROLE_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";
const ROLE_BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";

/// One derived table per resource, so that a change of one does not make the others anew.
pub(super) struct Tables {
    pub cluster_roles: Derived<HashMap<String, Arc<[Rule]>>>,
    /// By namespace, then name.
    pub roles: Derived<HashMap<String, HashMap<String, Arc<[Rule]>>>>,
    pub cluster_role_bindings: Derived<Bindings>,
    pub role_bindings: Derived<HashMap<String, Bindings>>,
}

impl Tables {
    pub fn new() -> Self {
        Self {
            cluster_roles: Derived::new([CLUSTER_ROLES], |[objects]| objects.iter().map(|r| (r.name().to_string(), rules(r))).collect()),
            roles: Derived::new([ROLES], |[objects]| {
                let mut roles: HashMap<String, HashMap<_, _>> = HashMap::new();
                for role in objects {
                    roles.entry(role.namespace().to_string()).or_default().insert(role.name().to_string(), rules(role));
                }
                roles
            }),
            cluster_role_bindings: Derived::new([CLUSTER_ROLE_BINDINGS], |[objects]| Bindings::new(objects, "")),
            role_bindings: Derived::new([ROLE_BINDINGS], |[objects]| {
                let mut namespaces: HashMap<String, Vec<Arc<Value>>> = HashMap::new();
                for binding in objects {
                    namespaces.entry(binding.namespace().to_string()).or_default().push(binding.clone());
                }
                namespaces.into_iter().map(|(namespace, bindings)| (namespace.clone(), Bindings::new(&bindings, &namespace))).collect()
            }),
        }
    }
}

fn rules(role: &Value) -> Arc<[Rule]> {
    Rule::all_of(role).into()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RoleRef {
    pub kind: String,
    pub name: String,
}

pub(super) struct Binding {
    pub role: RoleRef,
    /// One description per subject.
    descriptions: Vec<Arc<str>>,
}

/// The bindings of the cluster or of one namespace, in the order of their names.
pub(super) struct Bindings {
    bindings: Vec<Binding>,
    /// User name to (binding, subject).
    users: HashMap<String, Vec<(usize, usize)>>,
    groups: HashMap<String, Vec<(usize, usize)>>,
}

impl Bindings {
    fn new(objects: &[Arc<Value>], namespace: &str) -> Self {
        let mut objects: Vec<&Arc<Value>> = objects.iter().collect();
        objects.sort_by_key(|object| object.name());
        let mut made = Self { bindings: Vec::with_capacity(objects.len()), users: HashMap::new(), groups: HashMap::new() };
        for (index, object) in objects.into_iter().enumerate() {
            let role = RoleRef {
                kind: object.str_at("/roleRef/kind").unwrap_or_default().to_string(),
                name: object.str_at("/roleRef/name").unwrap_or_default().to_string(),
            };
            let mut descriptions = Vec::new();
            for (subject_index, subject) in object.array_at("/subjects").iter().enumerate() {
                descriptions.push(describe(object, namespace, &role, subject).into());
                let name = subject["name"].as_str().unwrap_or_default();
                let at = (index, subject_index);
                match subject["kind"].as_str() {
                    Some("User") => made.users.entry(name.to_string()).or_default().push(at),
                    Some("Group") => made.groups.entry(name.to_string()).or_default().push(at),
                    Some("ServiceAccount") => {
                        let namespace = subject["namespace"].as_str().filter(|n| !n.is_empty()).unwrap_or(namespace);
                        if !namespace.is_empty() {
                            made.users.entry(service_account_user(namespace, name)).or_default().push(at);
                        }
                    }
                    _ => {}
                }
            }
            made.bindings.push(Binding { role, descriptions });
        }
        made
    }

    /// The bindings that apply to the user, each once, with the description of its first subject that does.
    pub fn of_user(&self, user: &UserInfo) -> Vec<(&Binding, &Arc<str>)> {
        let by_group = user.groups.iter().filter_map(|group| self.groups.get(group));
        let mut found: Vec<(usize, usize)> = self.users.get(&user.name).into_iter().chain(by_group).flatten().copied().collect();
        found.sort_unstable();
        found.dedup_by_key(|(binding, _)| *binding);
        found.into_iter().map(|(binding, subject)| (&self.bindings[binding], &self.bindings[binding].descriptions[subject])).collect()
    }
}

/// `RoleBinding "name/namespace" of Role "reader" to User "bob"`
fn describe(binding: &Value, namespace: &str, role: &RoleRef, subject: &Value) -> String {
    let (kind, name) = (subject["kind"].as_str().unwrap_or_default(), subject["name"].as_str().unwrap_or_default());
    let subject = if kind == "ServiceAccount" {
        let namespace = subject["namespace"].as_str().filter(|n| !n.is_empty()).unwrap_or(namespace);
        format!("{name}/{namespace}")
    } else {
        name.to_string()
    };
    let source = if namespace.is_empty() {
        format!("ClusterRoleBinding {:?}", binding.name())
    } else {
        format!("RoleBinding {:?}", format!("{}/{namespace}", binding.name()))
    };
    format!("{source} of {} {:?} to {kind} {subject:?}", role.kind, role.name)
}
