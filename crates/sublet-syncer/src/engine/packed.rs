//! Pods at rest, as text. A parsed pod is some fifty small maps and takes ten times the memory of its
//! text; local copies of many pods are read far more rarely than they are kept.

use crate::index;
use crate::resources::pod::wants_secret as wants_secret_of;
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::ObjectExt;

const SPEC: &str = "packedSpec";
const STATUS: &str = "packedStatus";
/// What the pod refers to, as keys of the index.
const USES: &str = "uses";
const WANTS_SECRET: &str = "wantsSecret";

/// Turns spec and status of a tenant's pod into text. What routing and indexes read stays in sight:
/// metadata, node and phase, references, and whether the pod wants a Secret.
pub(super) fn pack_tenant_pod(pod: &mut Value) {
    let uses: Vec<String> = index::references(pod).into_iter().map(|r| index::usage_key(r.resource, pod.namespace(), &r.name)).collect();
    let wants_secret = wants_secret_of(pod);
    pack(pod);
    pod[USES] = json!(uses);
    pod[WANTS_SECRET] = json!(wants_secret);
}

/// Turns spec and status of any pod into text, but for node and phase.
pub(super) fn pack(pod: &mut Value) {
    let (spec, status) = (pod["spec"].take(), pod["status"].take());
    let mut seen = json!({});
    if let Some(node) = spec.str_at("/nodeName") {
        seen["nodeName"] = json!(node);
    }
    pod["spec"] = seen;
    pod["status"] = json!({});
    if let Some(phase) = status.str_at("/phase") {
        pod["status"]["phase"] = json!(phase);
    }
    pod[SPEC] = json!(spec.to_string());
    pod[STATUS] = json!(status.to_string());
}

/// The pod as it was. Anything else comes back as it is.
pub(super) fn unpack(object: Arc<Value>) -> Arc<Value> {
    if object[SPEC].is_null() {
        return object;
    }
    let parse = |field: &str| object[field].as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null);
    let mut pod = json!({"metadata": object["metadata"], "spec": parse(SPEC), "status": parse(STATUS)});
    for field in ["apiVersion", "kind"] {
        pod[field] = object[field].clone();
    }
    Arc::new(pod)
}

/// The index keys of what a packed pod refers to.
pub(super) fn uses(pod: &Value) -> Vec<String> {
    pod[USES].as_array().into_iter().flatten().filter_map(|u| u.as_str().map(str::to_string)).collect()
}

/// The index keys of the Secrets that an Ingress refers to.
pub(super) fn certificates(ingress: &Value) -> Vec<String> {
    crate::resources::ingress::certificates(ingress).map(|name| index::usage_key(index::SECRETS, ingress.namespace(), name)).collect()
}

pub(super) fn wants_secret(pod: &Value) -> bool {
    pod[WANTS_SECRET] == true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_comes_back_as_it_was() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "n", "labels": {"x": "y"}},
            "spec": {"nodeName": "node-1", "containers": [{"name": "c", "envFrom": [{"configMapRef": {"name": "conf"}}]}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1"},
        });
        let mut packed = pod.clone();
        pack_tenant_pod(&mut packed);
        assert_eq!(uses(&packed), ["configmaps/n/conf"]);
        assert_eq!((packed.str_at("/spec/nodeName"), packed.str_at("/status/phase")), (Some("node-1"), Some("Running")));
        assert!(packed["spec"]["containers"].is_null() && !wants_secret(&packed));
        assert_eq!(*unpack(Arc::new(packed)), pod);
        let other = Arc::new(json!({"kind": "Service", "spec": {}}));
        assert!(Arc::ptr_eq(&unpack(other.clone()), &other));
    }
}
