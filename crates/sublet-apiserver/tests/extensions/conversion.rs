//! Custom resources whose versions are converted by a webhook.

use crate::support::{Cluster, Webhooks};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const V1: &str = "/apis/example.com/v1/namespaces/default/links";
const V2: &str = "/apis/example.com/v2/namespaces/default/links";

/// `hostPort: "a:1"` in v1 is `host: a` and `port: "1"` in v2.
fn convert(object: &Value, version: &str) -> Value {
    let mut object = object.clone();
    if object["apiVersion"] == version {
        return object;
    }
    object["apiVersion"] = json!(version);
    let spec = object["spec"].clone();
    object["spec"] = match version {
        "example.com/v1" => {
            json!({"hostPort": format!("{}:{}", spec["host"].as_str().unwrap_or_default(), spec["port"].as_str().unwrap_or_default())})
        }
        _ => {
            let (host, port) = spec["hostPort"].as_str().and_then(|t| t.split_once(':')).unwrap_or_default();
            json!({"host": host, "port": port})
        }
    };
    object["metadata"]["labels"] = json!({"converted": "yes"});
    object["metadata"]["finalizers"] = json!(["forged.example.com/x"]);
    object
}

async fn definition(cluster: &Cluster, hooks: &Webhooks) {
    let version = |name: &str, storage: bool, fields: &[&str]| {
        let properties: serde_json::Map<String, Value> = fields.iter().map(|f| (f.to_string(), json!({"type": "string"}))).collect();
        let selectable: Vec<Value> = fields.iter().map(|f| json!({"jsonPath": format!(".spec.{f}")})).collect();
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}, "selectableFields": selectable})
    };
    let crd = json!({"metadata": {"name": "links.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "links", "singular": "link", "kind": "Link", "listKind": "LinkList"},
        "versions": [version("v1", true, &["hostPort"]), version("v2", false, &["host", "port"])],
        "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": hooks.client("/convert"), "conversionReviewVersions": ["v1"]}},
    }});
    cluster.create(DEFINITIONS, crd).await.ok();
}

#[tokio::test]
async fn objects_are_read_and_written_in_every_version() {
    let cluster = Cluster::start().await;
    let broken = Arc::new(AtomicBool::new(false));
    let is_broken = broken.clone();
    let hooks = Webhooks::start(move |_, review| {
        let request = &review["request"];
        let version = request["desiredAPIVersion"].as_str().unwrap_or_default();
        let converted: Vec<Value> = request["objects"].as_array().into_iter().flatten().map(|o| convert(o, version)).collect();
        let result = if is_broken.load(Ordering::Relaxed) {
            json!({"status": "Failure", "message": "no more"})
        } else {
            json!({"status": "Success"})
        };
        let response = json!({"uid": request["uid"], "convertedObjects": converted, "result": result});
        (200, json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": response}))
    })
    .await;
    definition(&cluster, &hooks).await;
    let one = json!({"kind": "Link", "apiVersion": "example.com/v1", "metadata": {"name": "one"}, "spec": {"hostPort": "a:1"}});
    cluster.create(V1, one).await.ok();
    assert!(hooks.asked().is_empty(), "the stored version needs nobody");
    let two = json!({"kind": "Link", "apiVersion": "example.com/v2", "metadata": {"name": "two"}, "spec": {"host": "b", "port": "2"}});
    let made = cluster.create(V2, two).await.ok();
    assert_eq!((&made["apiVersion"], &made["spec"]), (&json!("example.com/v2"), &json!({"host": "b", "port": "2"})));
    let stored = cluster.send("GET", &format!("{V1}/two"), None).await.ok();
    assert_eq!((&stored["spec"], &stored["apiVersion"]), (&json!({"hostPort": "b:2"}), &json!("example.com/v1")));
    assert_eq!(stored["metadata"]["finalizers"], Value::Null, "converters have no say about metadata but labels");
    let got = cluster.send("GET", &format!("{V2}/one"), None).await.ok();
    assert_eq!((&got["spec"], &got["metadata"]["labels"]), (&json!({"host": "a", "port": "1"}), &json!({"converted": "yes"})));
    let asked = hooks.asked().len();
    let list = cluster.send("GET", V2, None).await.ok();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2));
    assert!(list["items"].as_array().expect("items").iter().all(|item| item["apiVersion"] == "example.com/v2"));
    assert_eq!(hooks.asked().len(), asked + 1, "one question for all of a list");
    let selected = cluster.send("GET", &format!("{V2}?fieldSelector=spec.host%3Da"), None).await.ok();
    assert_eq!(selected["items"][0]["metadata"]["name"], "one");
    assert_eq!(selected["items"].as_array().map(Vec::len), Some(1));
    let patched = cluster.send("PATCH", &format!("{V2}/one"), Some(json!({"spec": {"port": "9"}}))).await.ok();
    assert_eq!(patched["spec"], json!({"host": "a", "port": "9"}));
    assert_eq!(cluster.send("GET", &format!("{V1}/one"), None).await.ok()["spec"]["hostPort"], "a:9");
    broken.store(true, Ordering::Relaxed);
    let refused = cluster.send("GET", &format!("{V2}/one"), None).await;
    refused.refused(500, "conversion webhook for example.com/v1, Kind=Link failed: no more");
    cluster.send("GET", &format!("{V1}/one"), None).await.ok();
}

#[tokio::test]
async fn watches_show_the_version_that_was_asked_for() {
    let cluster = Cluster::start().await;
    let hooks = Webhooks::start(|_, review| {
        let request = &review["request"];
        let version = request["desiredAPIVersion"].as_str().unwrap_or_default();
        let converted: Vec<Value> = request["objects"].as_array().into_iter().flatten().map(|o| convert(o, version)).collect();
        let response = json!({"uid": request["uid"], "convertedObjects": converted, "result": {"status": "Success"}});
        (200, json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": response}))
    })
    .await;
    definition(&cluster, &hooks).await;
    let mut watch = cluster.open(&format!("{V2}?watch=true&fieldSelector=spec.host%3Da")).await;
    for (name, host_port) in [("other", "b:1"), ("one", "a:1")] {
        let object = json!({"kind": "Link", "apiVersion": "example.com/v1", "metadata": {"name": name}, "spec": {"hostPort": host_port}});
        cluster.create(V1, object).await.ok();
    }
    let frame = watch.frame().await.expect("an event").expect("no error").into_data().expect("data");
    let event: Value = serde_json::from_slice(&frame).expect("JSON");
    assert_eq!((&event["type"], &event["object"]["spec"]), (&json!("ADDED"), &json!({"host": "a", "port": "1"})));
}
