//! Create, get, list, update: what holds for every kind.

use super::{config_map, pod};
use crate::harness::{Request, Transcript};
use serde_json::json;

const MAPS: &str = "/api/v1/namespaces/objects/configmaps";

#[tokio::test]
async fn create() {
    let mut t = Transcript::start("create");
    t.with_managed_fields();
    t.namespace("objects").await;
    t.post(MAPS, config_map("a", json!({"key": "value"}))).await;
    t.post(MAPS, config_map("a", json!({}))).await;
    t.note("The system's fields are the system's");
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "system", "uid": "6f1a2b3c-0000-4000-8000-000000000000", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7,
        "deletionTimestamp": "2001-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5, "selfLink": "/x", "labels": {}, "annotations": {"a": "b"},
        "finalizers": [], "ownerReferences": [],
    }});
    t.post(MAPS, body).await;
    t.note("Field managers");
    t.post(&format!("{MAPS}?fieldManager=tester"), config_map("managed", json!({"a": "b"}))).await;
    t.post(&format!("{MAPS}?fieldManager={}", "x".repeat(129)), config_map("long", json!({}))).await;
    t.finish();
}

#[tokio::test]
async fn create_is_refused() {
    let mut t = Transcript::start("create_is_refused");
    t.namespace("refused").await;
    let maps = "/api/v1/namespaces/refused/configmaps";
    let object = |metadata| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    t.post(maps, object(json!({}))).await;
    t.post(maps, object(json!({"name": "Upper_Case"}))).await;
    t.post(maps, object(json!({"name": "x".repeat(254)}))).await;
    t.post(maps, object(json!({"name": "a", "namespace": "default"}))).await;
    t.refuse(
        Request::post(maps, &object(json!({"name": "a", "resourceVersion": "1"}))),
        "resourceVersion should not be set on objects to be created",
    )
    .await;
    t.post(maps, object(json!({"name": "a", "labels": {"bad key": "x", "ok": "bad value!"}}))).await;
    t.post(maps, object(json!({"name": "a", "annotations": {"Bad/Key/": "x"}}))).await;
    t.post(maps, object(json!({"name": "a", "finalizers": ["nodomain", "bad name/x"]}))).await;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "", "uid": "", "controller": true});
    t.post(maps, object(json!({"name": "a", "ownerReferences": [owner, {"apiVersion": "a/b/c", "kind": "", "name": "x", "uid": "y", "controller": true}]}))).await;
    t.note("Elsewhere");
    t.post("/api/v1/namespaces/nowhere/configmaps", object(json!({"name": "a"}))).await;
    t.post("/api/v1/configmaps", object(json!({"name": "a"}))).await;
    t.post("/api/v1/namespaces/refused/namespaces", object(json!({"name": "a"}))).await;
    t.note("Another kind");
    t.post(maps, json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})).await;
    t.post(maps, json!({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "a"}})).await;
    t.post(maps, json!({"kind": "ConfigMap", "metadata": {"name": "a"}})).await;
    t.post(maps, json!({"apiVersion": "v1", "metadata": {"name": "no-kind"}})).await;
    t.post(maps, json!({"metadata": {"name": "neither"}})).await;
    t.note("Several errors at once");
    t.namespace_for_pods("refused-pods").await;
    let mut bad = pod("bad");
    bad["spec"]["restartPolicy"] = json!("Sometimes");
    bad["spec"]["containers"] = json!([{"name": "a", "ports": [{"containerPort": 70000}]}, {"name": "a", "image": "x"}]);
    t.post("/api/v1/namespaces/refused-pods/pods", bad).await;
    t.finish();
}

#[tokio::test]
async fn generated_names() {
    let mut t = Transcript::start("generated_names");
    t.namespace("generated").await;
    let maps = "/api/v1/namespaces/generated/configmaps";
    let object = |metadata| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    let created = t.client.send(&Request::post(maps, &object(json!({"generateName": "web-"})))).await;
    let name = created.str("/metadata/name");
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    assert_eq!(created.str("/metadata/generateName"), "web-");
    let long = t.client.send(&Request::post(maps, &object(json!({"generateName": "x".repeat(80)})))).await;
    assert_eq!(long.str("/metadata/name").len(), 63);
    t.post(maps, object(json!({"generateName": "a-", "name": "named"}))).await;
    t.mask.pattern("Bad_[a-z0-9]{5}", "Bad_<random>");
    t.post(maps, object(json!({"generateName": "Bad_"}))).await;
    t.finish();
}

#[tokio::test]
async fn update() {
    let mut t = Transcript::start("update");
    t.with_managed_fields();
    t.namespace("update").await;
    let maps = "/api/v1/namespaces/update/configmaps";
    let a = &format!("{maps}/a");
    let created = t.post(maps, config_map("a", json!({"key": "1"}))).await.json();
    t.note("With and without a version");
    let mut changed = created.clone();
    changed["data"]["key"] = json!("2");
    t.put(a, changed.clone()).await;
    t.put(a, changed).await;
    t.put(a, config_map("a", json!({"key": "3"}))).await;
    t.note("No change, no new version");
    t.put(a, config_map("a", json!({"key": "3"}))).await;
    t.note("Preconditions and names");
    let mut other_uid = config_map("a", json!({}));
    other_uid["metadata"]["uid"] = json!("6f1a2b3c-0000-4000-8000-000000000000");
    t.put(a, other_uid).await;
    t.put(a, config_map("b", json!({}))).await;
    t.put(a, json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"nameless": "yes"}})).await;
    t.put(&format!("{maps}/absent"), config_map("absent", json!({}))).await;
    t.put(a, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}})).await;
    let wrong = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": "no number"}});
    t.refuse(Request::put(a, &wrong), "").await;
    t.note("What is immutable");
    t.put(a, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "immutable": true, "data": {"x": "y"}})).await;
    t.put(a, config_map("a", json!({"x": "z"}))).await;
    t.note("Kinds that must name a version, and kinds that updates create");
    t.post("/apis/coordination.k8s.io/v1/namespaces/update/leases", lease()).await;
    t.put("/apis/coordination.k8s.io/v1/namespaces/update/leases/l", lease()).await;
    t.put("/apis/coordination.k8s.io/v1/namespaces/update/leases/new", {
        let mut new = lease();
        new["metadata"]["name"] = json!("new");
        new
    })
    .await;
    t.finish();
}

fn lease() -> serde_json::Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {"holderIdentity": "x", "leaseDurationSeconds": 10}})
}

#[tokio::test]
async fn dry_run() {
    let mut t = Transcript::start("dry_run");
    t.namespace("dry").await;
    let maps = "/api/v1/namespaces/dry/configmaps";
    t.given(maps, config_map("a", json!({"key": "1"}))).await;
    t.post(&format!("{maps}?dryRun=All"), config_map("new", json!({}))).await;
    t.post(&format!("{maps}?dryRun=All"), config_map("a", json!({}))).await;
    t.post(&format!("{maps}?dryRun=Some"), config_map("new", json!({}))).await;
    t.post(&format!("{maps}?dryRun="), config_map("new", json!({}))).await;
    t.put(&format!("{maps}/a?dryRun=All"), config_map("a", json!({"key": "2"}))).await;
    t.patch("merge", &format!("{maps}/a?dryRun=All"), json!({"data": {"key": "3"}})).await;
    t.patch("apply", &format!("{maps}/applied?dryRun=All&fieldManager=x"), config_map("applied", json!({"key": "4"}))).await;
    t.delete(&format!("{maps}/a?dryRun=All")).await;
    t.send(Request::delete(format!("{maps}/a")).json(&json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]}))).await;
    t.send(Request::delete(format!("{maps}/a")).json(&json!({"dryRun": ["Nearly"]}))).await;
    t.delete(&format!("{maps}?dryRun=All")).await;
    t.note("Nothing happened");
    t.get(maps).await;
    t.finish();
}

#[tokio::test]
async fn lists() {
    let mut t = Transcript::start("lists");
    t.namespace("lists").await;
    let maps = "/api/v1/namespaces/lists/configmaps";
    for (name, tier) in [("a", "front"), ("b", "back"), ("c", "back")] {
        let mut map = config_map(name, json!({"key": name}));
        map["metadata"]["labels"] = json!({"tier": tier, name: ""});
        t.given(maps, map).await;
    }
    t.get(maps).await;
    for selector in
        ["tier=back", "tier!=back", "tier%20in%20(front,other)", "tier%20notin%20(front)", "a", "!a", "tier=back,c", "nothing=x"]
    {
        t.send_for(
            Request::get(format!("{maps}?labelSelector={selector}")),
            &["/items/0/metadata/name", "/items/1/metadata/name", "/items/2/metadata/name"],
        )
        .await;
    }
    for selector in
        ["metadata.name=b", "metadata.name!=b", "metadata.namespace=lists", "metadata.name=b,metadata.namespace=other", "metadata.name==c"]
    {
        t.send_for(
            Request::get(format!("{maps}?fieldSelector={selector}")),
            &["/items/0/metadata/name", "/items/1/metadata/name", "/items/2/metadata/name"],
        )
        .await;
    }
    t.note("Empty and unknown places");
    t.get("/api/v1/namespaces/nowhere/configmaps").await;
    t.get("/api/v1/configmaps?fieldSelector=metadata.namespace=lists,metadata.name=a").await;
    t.get("/api/v1/namespaces/lists/configmaps/absent").await;
    t.get("/api/v1/namespaces/nowhere/configmaps/absent").await;
    t.get("/apis/apps/v1/namespaces/lists/deployments/absent").await;
    t.finish();
}
