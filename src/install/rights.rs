//! Who may do what. Nobody here is cluster-admin, and nobody holds a right that no code path uses.
//!
//! Three roles: the operator reads `VirtualCluster` objects and namespaces and binds the tenant role in
//! the namespaces of virtual clusters; a shard reads `VirtualCluster` objects and the shared kinds of the
//! host; the tenant role is all that is ever done inside the namespace of a virtual cluster, and is
//! granted there alone.

use super::labels;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use sublet_machinery::Gvr;
use sublet_syncer::{HostCache, resources::TO_HOST};

pub const OPERATOR: &str = "sublet-operator";
pub const SHARD: &str = "sublet-shard";
/// The `ClusterRole` that is bound in the namespace of every virtual cluster.
pub const TENANT_ROLE: &str = "sublet-tenant";

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

fn named(group: &str, resource: &str, name: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "resourceNames": [name], "verbs": verbs})
}

const RBAC: &str = "rbac.authorization.k8s.io";

pub fn objects(namespace: &str) -> Vec<Value> {
    let account = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": namespace, "labels": labels(component(name))},
        })
    };
    let mut all = vec![account(OPERATOR), account(SHARD)];
    all.push(cluster_role(OPERATOR, operator_rules()));
    all.push(cluster_role(SHARD, shard_rules()));
    all.push(cluster_role(TENANT_ROLE, tenant_rules()));
    all.extend(people());
    for name in [OPERATOR, SHARD] {
        all.push(json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": name, "labels": labels(component(name))},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }));
    }
    all.push(json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "Role",
        "metadata": {"name": OPERATOR, "namespace": namespace, "labels": labels("operator")},
        "rules": home_rules(),
    }));
    all.push(json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding",
        "metadata": {"name": OPERATOR, "namespace": namespace, "labels": labels("operator")},
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": OPERATOR},
        "subjects": [{"kind": "ServiceAccount", "name": OPERATOR, "namespace": namespace}],
    }));
    all.extend(HostCache::shared_kinds_within().flat_map(|(home, gvr)| read_within(namespace, home, gvr)));
    all
}

/// The right of shards to read a kind in one namespace of the host.
fn read_within(namespace: &str, home: &str, gvr: &Gvr) -> [Value; 2] {
    let name = format!("{SHARD}-{}", gvr.resource);
    let metadata = json!({"name": name, "namespace": home, "labels": labels("shard")});
    [
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": metadata,
            "rules": [rule(&gvr.group, &[&gvr.resource], READ)],
        }),
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": SHARD, "namespace": namespace}],
        }),
    ]
}

fn component(account: &str) -> &'static str {
    if account == OPERATOR { "operator" } else { "shard" }
}

fn cluster_role(name: &str, rules: Vec<Value>) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels(component(name))},
        "rules": rules,
    })
}

/// What the operator does outside its own namespace.
fn operator_rules() -> Vec<Value> {
    vec![
        rule(sublet_api::GROUP, &["virtualclusters"], &["get", "list", "watch", "patch"]),
        rule(sublet_api::GROUP, &["virtualclusters/status"], &["patch"]),
        rule(sublet_api::GROUP, &["virtualclusters/finalizers"], &["update"]),
        // A namespace is claimed by a label.
        rule("", &["namespaces"], &["get", "list", "watch", "patch"]),
        // Rights inside a namespace come by this binding alone, to this role alone: without `escalate`,
        // `bind` on one name is all that can be handed out.
        rule(RBAC, &["rolebindings"], &["get", "create", "patch", "delete"]),
        named(RBAC, "clusterroles", TENANT_ROLE, &["bind"]),
        named("apiextensions.k8s.io", "customresourcedefinitions", "virtualclusters.sublet.dev", &["get"]),
    ]
}

/// What the operator does in its own namespace.
fn home_rules() -> Vec<Value> {
    vec![
        rule("coordination.k8s.io", &["leases"], &["get", "create", "patch"]),
        rule("", &["services"], &["get", "list", "create", "patch", "delete"]),
        rule("networking.k8s.io", &["ingresses"], &["get", "list", "create", "patch", "delete"]),
        rule("discovery.k8s.io", &["endpointslices"], &["delete"]),
        rule("", &["pods"], &["get", "list"]),
        rule("apps", &["statefulsets"], &["get", "list", "create", "patch", "delete"]),
        rule("", &["persistentvolumeclaims"], &["get", "list", "delete"]),
        rule("", &["events"], &["create", "patch"]),
    ]
}

/// What a shard does outside the namespaces of its tenants.
fn shard_rules() -> Vec<Value> {
    let mut rules =
        vec![rule(sublet_api::GROUP, &["virtualclusters"], READ), rule(sublet_api::GROUP, &["virtualclusters/status"], &["patch"])];
    let mut shared: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for gvr in HostCache::shared_kinds() {
        shared.entry(gvr.group.to_string()).or_default().push(gvr.resource.to_string());
    }
    // `kubectl top nodes` in tenants, for the nodes that they see.
    rules.push(rule("metrics.k8s.io", &["nodes"], &["get", "list"]));
    // Kinds that not every host serves are defined in tenants as they are on the host.
    let definitions: Vec<String> = HostCache::definitions().collect();
    rules.push(json!({"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "resourceNames": definitions, "verbs": ["get"]}));
    rules.extend(shared.into_iter().map(|(group, resources)| json!({"apiGroups": [group], "resources": resources, "verbs": READ})));
    rules
}

/// What is done for a tenant in its namespace.
fn tenant_rules() -> Vec<Value> {
    let mut written: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for kind in TO_HOST {
        let resources = written.entry(kind.group).or_default();
        if !resources.contains(&kind.resource) {
            resources.push(kind.resource);
        }
    }
    let mut rules: Vec<Value> = written.into_iter().map(|(group, resources)| rule(group, &resources, WRITE)).collect();
    rules.extend([
        // Changes of a running pod, and its end.
        rule("", &["pods/ephemeralcontainers", "pods/resize", "pods/status"], &["patch"]),
        rule("", &["pods/eviction"], &["create"]),
        rule("", &["persistentvolumeclaims/status", "services/status"], &["patch"]),
        // Streams, each behind the tenant's own authorization and after a lookup of the tenant's own pod.
        rule("", &["pods/log"], &["get"]),
        rule("", &["pods/exec", "pods/attach", "pods/portforward"], &["get", "create"]),
        rule("", &["pods/proxy"], &["get", "create", "update", "patch", "delete"]),
        rule("metrics.k8s.io", &["pods"], &["get", "list"]),
        // What happens to copies is told to the tenant; the operator tells of the cluster itself.
        rule("", &["events"], &["get", "list", "watch", "create", "patch"]),
        // When a quota changes, what it refused is tried again.
        rule("", &["resourcequotas"], READ),
    ]);
    rules
}

/// Roles for people of the host: viewing comes with `view`, the rest is given on purpose.
fn people() -> Vec<Value> {
    let mut viewer = cluster_role("sublet-viewer", vec![rule(sublet_api::GROUP, &["virtualclusters"], READ)]);
    viewer["metadata"]["labels"] = labels("people");
    viewer["metadata"]["labels"][format!("{RBAC}/aggregate-to-view")] = json!("true");
    let mut editor = cluster_role("sublet-editor", vec![rule(sublet_api::GROUP, &["virtualclusters"], WRITE)]);
    editor["metadata"]["labels"] = labels("people");
    vec![editor, viewer]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether rules allow something.
    fn allows(rules: &[Value], group: &str, resource: &str, verb: &str) -> bool {
        let has = |list: &Value, item: &str| list.as_array().unwrap().iter().any(|i| i == item || i == "*");
        rules.iter().any(|r| {
            r["resourceNames"].is_null() && has(&r["apiGroups"], group) && has(&r["resources"], resource) && has(&r["verbs"], verb)
        })
    }

    #[test]
    fn nobody_reads_secrets_or_writes_workloads_of_the_whole_cluster() {
        for rules in [operator_rules(), shard_rules()] {
            for resource in ["secrets", "configmaps", "pods", "services", "pods/exec"] {
                for verb in ["get", "list", "watch", "create", "patch", "delete"] {
                    assert!(!allows(&rules, "", resource, verb), "{resource} {verb}");
                }
            }
            assert!(!allows(&rules, RBAC, "clusterroles", "bind") && !allows(&rules, RBAC, "clusterroles", "escalate"));
            assert!(!rules.iter().any(|r| r.to_string().contains("\"*\"")));
        }
    }

    #[test]
    fn every_synced_kind_can_be_written_in_the_namespace_of_its_tenant() {
        let rules = tenant_rules();
        for kind in TO_HOST {
            assert!(allows(&rules, kind.group, kind.resource, "create"), "{}", kind.resource);
        }
        assert!(allows(&shard_rules(), "", "nodes", "watch"));
    }
}
