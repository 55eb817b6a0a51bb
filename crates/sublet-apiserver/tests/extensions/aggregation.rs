//! API servers behind APIServices.

use crate::support::{Cluster, Webhooks};
use serde_json::{Value, json};
use std::time::Duration;

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

async fn available(cluster: &Cluster, status: &str) -> Value {
    for _ in 0..100 {
        let api = cluster.send("GET", &format!("{SERVICES}/v1.toys.example.com"), None).await.ok();
        if api["status"]["conditions"][0]["status"] == status {
            return api["status"]["conditions"][0].clone();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the APIService never became available: {status}");
}

#[tokio::test]
async fn requests_for_a_group_reach_its_server_and_discovery_shows_it() {
    let cluster = Cluster::start().await;
    let hooks = Webhooks::start(|path, _| match path {
        "/apis/toys.example.com/v1" => {
            let toys = json!({"name": "toys", "singularName": "toy", "namespaced": true, "kind": "Toy", "verbs": ["get", "list"]});
            (200, json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "toys.example.com/v1", "resources": [toys]}))
        }
        "/apis/toys.example.com/v1/namespaces/default/toys" => (200, json!({"kind": "ToyList", "items": []})),
        "/openapi/v3/apis/toys.example.com/v1" => (200, json!({"openapi": "3.0.0", "paths": {}})),
        _ => (404, json!("nothing here")),
    })
    .await;
    let spec = json!({
        "group": "toys.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
        "service": {"namespace": "default", "name": "hook", "port": 443}, "caBundle": hooks.ca_bundle,
    });
    cluster.create(SERVICES, json!({"metadata": {"name": "v1.toys.example.com"}, "spec": spec})).await.ok();
    let condition = available(&cluster, "False").await;
    assert_eq!(
        (&condition["reason"], &condition["message"]),
        (&json!("ServiceNotFound"), &json!("service/hook in \"default\" is not present"))
    );
    let toys = "/apis/toys.example.com/v1/namespaces/default/toys";
    assert_eq!(cluster.send("GET", toys, None).await.code.as_u16(), 503);
    // The group is there, and what it has is not known; everything else is.
    let groups = cluster.send("GET", "/apis", None).await.ok();
    assert!(groups["groups"].as_array().expect("groups").iter().any(|g| g["name"] == "toys.example.com"));
    hooks.as_service(&cluster).await;
    let condition = available(&cluster, "True").await;
    assert_eq!((&condition["reason"], &condition["message"]), (&json!("Passed"), &json!("all checks passed")));
    assert_eq!(cluster.send("GET", toys, None).await.ok()["kind"], "ToyList");
    let (_, told) = hooks.asked().into_iter().rfind(|(path, _)| path == toys).expect("was asked");
    assert_eq!((&told["headers"]["x-remote-user"], &told["method"]), (&json!("admin"), &json!("GET")));
    let listed = cluster.send("GET", "/apis/toys.example.com/v1", None).await.ok();
    assert_eq!(listed["resources"][0]["name"], "toys");
    let index = cluster.send("GET", "/openapi/v3", None).await.ok();
    assert_eq!(index["paths"]["apis/toys.example.com/v1"]["serverRelativeURL"], "/openapi/v3/apis/toys.example.com/v1");
    assert_eq!(cluster.send("GET", "/openapi/v3/apis/toys.example.com/v1", None).await.ok()["openapi"], "3.0.0");
    let group = cluster.send("GET", "/apis/toys.example.com", None).await.ok();
    assert_eq!(group["preferredVersion"]["version"], "v1");
    cluster.send("DELETE", &format!("{SERVICES}/v1.toys.example.com"), None).await.ok();
    for _ in 0..100 {
        if cluster.send("GET", toys, None).await.code.as_u16() == 404 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the group stays");
}
