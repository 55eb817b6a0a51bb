//! What kubelets may do: the rules of the role `system:node`, and of objects in namespaces only those that
//! belong to the pods of their own node.

use super::rbac::Rbac;
use super::{AuthzAttributes, Decision, Source, has_group};
use crate::auth::{NODE_LEASES, NODE_PREFIX, NODES};
use crate::reader::Reader;
use serde_json::Value;
use std::sync::Arc;
use sublet_machinery::ObjectExt;

const NODE_ROLE: &str = "system:node";

/// Decides for the users of nodes; of others it has no opinion.
pub(super) fn authorize(reader: &dyn Reader, rbac: &Rbac, attributes: &AuthzAttributes<'_>) -> Decision {
    if !has_group(attributes.user, NODES) {
        return Decision::NoOpinion(String::new());
    }
    let Some(node) = attributes.user.name.strip_prefix(NODE_PREFIX) else { return Decision::NoOpinion(String::new()) };
    if node.is_empty() {
        return Decision::NoOpinion(format!("unknown node for user {:?}", attributes.user.name));
    }
    let refused = match (attributes.path, attributes.group, attributes.resource) {
        (Some(_), ..) => None,
        (_, "", "secrets" | "configmaps") => Some(read_object(reader, node, attributes)),
        (_, "", "persistentvolumeclaims") => Some(claim(reader, node, attributes)),
        (_, "", "persistentvolumes") | (_, "resource.k8s.io", "resourceclaims") | (_, "storage.k8s.io", "volumeattachments") => Some(
            only_verbs(attributes, &["get"], "can only get individual resources of this type")
                .or_else(|| related(reader, node, attributes)),
        ),
        (_, "", "serviceaccounts") => Some(service_account(reader, node, attributes)),
        (_, "coordination.k8s.io", "leases") => Some(lease(node, attributes)),
        (_, "", "nodes") if attributes.subresource.is_empty() => foreign_node(node, attributes).map(Some),
        (_, "", "pods") if attributes.verb == "get" && attributes.subresource.is_empty() => Some(related(reader, node, attributes)),
        (_, "storage.k8s.io", "csinodes") => Some(own_name(node, attributes, "CSINode")),
        _ => None,
    };
    match refused {
        Some(Some(reason)) => Decision::NoOpinion(reason),
        Some(None) => Decision::Allow(Source::Unconditional),
        None => {
            let rules = rbac.role_rules("ClusterRole", NODE_ROLE, "");
            let allowed = rules.is_ok_and(|rules| rules.iter().any(|rule| rule.matches(attributes)));
            if allowed { Decision::Allow(Source::Unconditional) } else { Decision::NoOpinion(String::new()) }
        }
    }
}

/// The reason of a refusal; `None` allows. So for all functions below.
fn read_object(reader: &dyn Reader, node: &str, attributes: &AuthzAttributes<'_>) -> Option<String> {
    let verbs = only_verbs(attributes, &["get", "list", "watch"], "can only read resources of this type");
    verbs.or_else(|| related(reader, node, attributes))
}

fn claim(reader: &dyn Reader, node: &str, attributes: &AuthzAttributes<'_>) -> Option<String> {
    if attributes.subresource == "status" {
        let allowed = ["update", "patch"].contains(&attributes.verb);
        return if allowed { related(reader, node, attributes) } else { Some("can only get/update/patch this type".into()) };
    }
    only_verbs(attributes, &["get"], "can only get individual resources of this type").or_else(|| related(reader, node, attributes))
}

fn service_account(reader: &dyn Reader, node: &str, attributes: &AuthzAttributes<'_>) -> Option<String> {
    match (attributes.verb, attributes.subresource) {
        ("get", "") => related(reader, node, attributes),
        ("create", "token") if !attributes.name.is_empty() => related(reader, node, attributes),
        ("create", _) => Some("can only create token subresource of serviceaccount".into()),
        _ => Some("can only create tokens for individual service accounts".into()),
    }
}

fn lease(node: &str, attributes: &AuthzAttributes<'_>) -> Option<String> {
    let verbs = ["get", "create", "update", "patch", "delete"];
    if !verbs.contains(&attributes.verb) {
        return Some("can only get, create, update, patch, or delete a node lease".into());
    }
    if attributes.namespace != NODE_LEASES {
        return Some(format!("can only access leases in the {NODE_LEASES:?} system namespace"));
    }
    // The name of what is created is in the body, which nobody has read yet.
    let own = attributes.verb == "create" || attributes.name == node;
    (!own).then(|| "can only access node lease with the same name as the requesting node".into())
}

/// Nodes read themselves alone; the role says what else they may do to nodes.
fn foreign_node(node: &str, attributes: &AuthzAttributes<'_>) -> Option<String> {
    match (attributes.verb, attributes.name) {
        ("get" | "list" | "watch", "") => Some(format!("node '{node}' cannot read all nodes, only its own Node object")),
        ("get" | "list" | "watch", name) if name != node => Some(format!("node '{node}' cannot read '{name}', only its own Node object")),
        _ => None,
    }
}

fn own_name(node: &str, attributes: &AuthzAttributes<'_>, kind: &str) -> Option<String> {
    let verbs = ["get", "create", "update", "patch", "delete"];
    if !verbs.contains(&attributes.verb) {
        return Some(format!("can only get, create, update, patch, or delete a {kind}"));
    }
    let own = attributes.verb == "create" || attributes.name == node;
    (!own).then(|| format!("can only access {kind} with the same name as the requesting node"))
}

fn only_verbs(attributes: &AuthzAttributes<'_>, verbs: &[&str], reason: &str) -> Option<String> {
    if !verbs.contains(&attributes.verb) {
        return Some(reason.into());
    }
    (!attributes.subresource.is_empty()).then(|| "cannot read subresource".into())
}

/// Refuses what no pod of the node has to do with.
fn related(reader: &dyn Reader, node: &str, attributes: &AuthzAttributes<'_>) -> Option<String> {
    let AuthzAttributes { resource, namespace, name, .. } = *attributes;
    if name.is_empty() {
        return Some("No Object name found".into());
    }
    let on_node = |namespace: &str| {
        let pods = reader.list("pods", Some(namespace)).into_iter();
        pods.filter(|pod| pod.str_at("/spec/nodeName") == Some(node)).collect::<Vec<Arc<Value>>>()
    };
    let found = match resource {
        "volumeattachments" => reader
            .get("volumeattachments.storage.k8s.io", "", name)
            .is_some_and(|attachment| attachment.str_at("/spec/nodeName") == Some(node)),
        "pods" => on_node(namespace).iter().any(|pod| pod.name() == name),
        "persistentvolumes" => reader.get("persistentvolumes", "", name).is_some_and(|volume| {
            let claim = |field: &str| volume["spec"]["claimRef"][field].as_str().unwrap_or_default();
            !claim("name").is_empty() && on_node(claim("namespace")).iter().any(|pod| refers(pod, "persistentvolumeclaims", claim("name")))
        }),
        "secrets" => {
            on_node(namespace).iter().any(|pod| refers(pod, resource, name))
                || secret_of_volume(reader, &on_node(namespace), namespace, name)
        }
        _ => on_node(namespace).iter().any(|pod| refers(pod, resource, name)),
    };
    (!found).then(|| format!("no relationship found between node '{node}' and this object"))
}

/// Whether the pod's spec names the object.
fn refers(pod: &Value, resource: &str, name: &str) -> bool {
    let spec = &pod["spec"];
    match resource {
        "serviceaccounts" => spec["serviceAccountName"] == name,
        "secrets" => {
            spec.array_at("/imagePullSecrets").iter().any(|secret| secret["name"] == name)
                || names_in(spec, &["secretRef", "secretKeyRef", "nodePublishSecretRef", "secret"], name)
        }
        "configmaps" => names_in(spec, &["configMapRef", "configMapKeyRef", "configMap"], name),
        "persistentvolumeclaims" => spec.array_at("/volumes").iter().any(|volume| {
            let generated = format!("{}-{}", pod.name(), volume["name"].as_str().unwrap_or_default());
            volume["persistentVolumeClaim"]["claimName"] == name || (volume["ephemeral"].is_object() && generated == name)
        }),
        "resourceclaims" => {
            let stated = spec.array_at("/resourceClaims").iter().any(|claim| claim["resourceClaimName"] == name);
            stated || pod.array_at("/status/resourceClaimStatuses").iter().any(|claim| claim["resourceClaimName"] == name)
        }
        _ => false,
    }
}

/// Whether a reference under one of the keys, however deep, names the object.
fn names_in(value: &Value, keys: &[&str], name: &str) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, inner)| {
            (keys.contains(&key.as_str()) && (inner["name"] == name || inner["secretName"] == name)) || names_in(inner, keys, name)
        }),
        Value::Array(list) => list.iter().any(|inner| names_in(inner, keys, name)),
        _ => false,
    }
}

/// Secrets by which CSI drivers mount the volumes of the pods.
fn secret_of_volume(reader: &dyn Reader, pods: &[Arc<Value>], namespace: &str, name: &str) -> bool {
    let claims =
        pods.iter().flat_map(|pod| pod.array_at("/spec/volumes").iter().filter_map(|v| v["persistentVolumeClaim"]["claimName"].as_str()));
    let volumes = claims.filter_map(|claim| reader.get("persistentvolumeclaims", namespace, claim)).filter_map(|claim| {
        let volume = claim.str_at("/spec/volumeName")?;
        reader.get("persistentvolumes", "", volume)
    });
    volumes.into_iter().any(|volume| {
        let csi = volume.object_at("/spec/csi");
        csi.into_iter()
            .flatten()
            .any(|(key, secret)| key.ends_with("SecretRef") && secret["name"] == name && secret["namespace"] == namespace)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::UserInfo;
    use crate::auth::testing::{FakeReader, user};
    use serde_json::json;

    fn decide(attributes: AuthzAttributes<'_>) -> Result<(), String> {
        let reader = Arc::new(FakeReader::default());
        let pod = |name: &str, node: &str, secret: &str| {
            json!({"metadata": {"namespace": "y", "name": name}, "spec": {"nodeName": node, "serviceAccountName": name,
                "containers": [{"envFrom": [{"secretRef": {"name": secret}}]}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": secret}}, {"projected": {"sources": [{"configMap": {"name": "cm"}}]}}]}})
        };
        reader.put("pods", pod("mine", "n1", "a"));
        reader.put("pods", pod("other", "n2", "b"));
        reader.put("persistentvolumes", json!({"metadata": {"name": "pv-a"}, "spec": {"claimRef": {"namespace": "y", "name": "a"}}}));
        reader.put("persistentvolumes", json!({"metadata": {"name": "pv-b"}, "spec": {"claimRef": {"namespace": "y", "name": "b"}}}));
        let rules = json!([{"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["services"]}]);
        reader.put("clusterroles.rbac.authorization.k8s.io", json!({"metadata": {"name": "system:node"}, "rules": rules}));
        let rbac = Rbac::new(reader.clone());
        let decision = authorize(&*reader, &rbac, &attributes);
        if decision.allowed() { Ok(()) } else { Err(decision.reason()) }
    }

    fn node() -> UserInfo {
        user("system:node:n1", &[NODES])
    }

    #[test]
    fn nodes_reach_what_their_pods_refer_to() {
        let node = node();
        let get = |resource, name| AuthzAttributes { namespace: "y", name, ..AuthzAttributes::resource(&node, "get", "", resource) };
        let unrelated = || Err("no relationship found between node 'n1' and this object".to_string());
        assert_eq!(decide(get("secrets", "a")), Ok(()));
        assert_eq!(decide(get("secrets", "b")), unrelated());
        assert_eq!(decide(get("configmaps", "cm")), Ok(()));
        assert_eq!(decide(get("persistentvolumeclaims", "b")), unrelated());
        assert_eq!(decide(AuthzAttributes { namespace: "", ..get("persistentvolumes", "pv-a") }), Ok(()));
        assert_eq!(decide(AuthzAttributes { namespace: "", ..get("persistentvolumes", "pv-b") }), unrelated());
        assert_eq!(decide(AuthzAttributes { verb: "list", ..get("secrets", "") }), Err("No Object name found".into()));
        assert_eq!(decide(AuthzAttributes { verb: "update", ..get("secrets", "a") }), Err("can only read resources of this type".into()));
        assert_eq!(decide(AuthzAttributes { verb: "create", subresource: "token", ..get("serviceaccounts", "mine") }), Ok(()));
        assert_eq!(decide(AuthzAttributes { verb: "create", subresource: "token", ..get("serviceaccounts", "other") }), unrelated());
    }

    #[test]
    fn the_rest_is_as_the_role_says() {
        let (node, bob) = (node(), user("bob", &[]));
        assert_eq!(decide(AuthzAttributes::resource(&node, "list", "", "services")), Ok(()));
        assert_eq!(decide(AuthzAttributes::resource(&node, "delete", "", "services")), Err(String::new()));
        let read_node = |name| AuthzAttributes { name, ..AuthzAttributes::resource(&node, "get", "", "nodes") };
        assert_eq!(decide(read_node("n2")), Err("node 'n1' cannot read 'n2', only its own Node object".into()));
        let read_pod = |name| AuthzAttributes { namespace: "y", name, ..AuthzAttributes::resource(&node, "get", "", "pods") };
        assert_eq!((decide(read_pod("mine")).is_ok(), decide(read_pod("other")).is_ok()), (true, false));
        assert_eq!(decide(AuthzAttributes::resource(&bob, "list", "", "services")), Err(String::new()));
        let lease = |namespace, name| AuthzAttributes {
            namespace,
            name,
            ..AuthzAttributes::resource(&node, "update", "coordination.k8s.io", "leases")
        };
        assert_eq!(decide(lease(NODE_LEASES, "n1")), Ok(()));
        assert!(decide(lease(NODE_LEASES, "n2")).is_err());
        assert!(decide(lease("y", "n1")).is_err());
    }
}
