//! Objects through the wire and back.

use super::*;
use serde_json::{Value, json};

fn round_trip(object: &Value) -> Value {
    decode(&encode(object).unwrap(), None).unwrap()
}

#[test]
fn a_pod_reads_back_as_go_shows_it() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "labels": {"x": "y"}, "creationTimestamp": "2026-01-02T03:04:05Z", "managedFields": [{
            "manager": "m", "operation": "Update", "fieldsV1": {"f:spec": {}}}]},
        "spec": {
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "500m"}}, "env": [{"name": "E"}],
                "livenessProbe": {"httpGet": {"port": "web"}, "periodSeconds": 5}, "ports": [{"containerPort": 80}]}],
            "volumes": [{"name": "v", "configMap": {"name": "cm", "defaultMode": 420}}],
            "hostNetwork": true, "priority": -7, "enableServiceLinks": false,
        },
        "status": {},
    });
    assert_eq!(round_trip(&pod), pod);
}

#[test]
fn structs_are_shown_where_go_shows_them() {
    let mut deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {"selector": {}, "template": {"spec": {"containers": [{"name": "a"}]}}, "replicas": 0}});
    let shown = round_trip(&deployment);
    deployment["spec"]["strategy"] = json!({});
    deployment["spec"]["template"]["metadata"] = json!({});
    deployment["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({});
    deployment["status"] = json!({});
    assert_eq!(shown, deployment);
}
