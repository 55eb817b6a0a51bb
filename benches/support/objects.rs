//! The objects that are made.

use serde_json::{Value, json};

pub fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

pub fn virtual_cluster(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "sublet.dev/v1alpha1", "kind": "VirtualCluster", "metadata": {"name": name, "namespace": namespace}, "spec": {}})
}

/// A pod that asks for little; the same for both ways.
pub fn pod(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": "bench"}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10.2", "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}],
        },
    })
}

pub fn config_map(namespace: &str, name: &str) -> Value {
    let text = "x".repeat(200);
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}, "data": {"a": text, "b": text}})
}
