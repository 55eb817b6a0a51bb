//! The HTTP API by route; every expectation is what a kube-apiserver said to the same requests.

mod admission;
mod bad_requests;
mod certificates;
mod custom_resources;
mod deletion;
mod documents;
mod field_validation;
mod floods;
mod forms;
mod kinds;
mod objects;
mod paging;
mod patches;
mod protobuf;
mod subresources;
mod users;
mod watches;

use serde_json::{Value, json};

pub fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

/// A pod in its smallest form.
pub fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "main", "image": "busybox"}]},
    })
}

pub fn deployment(name: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "busybox:1"}]}},
        },
    })
}
