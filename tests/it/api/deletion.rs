//! Delete and deletecollection: preconditions, finalizers, grace, propagation.

use super::{config_map, deployment, pod};
use crate::harness::{Request, Transcript};
use serde_json::{Value, json};

fn guarded(name: &str, finalizers: &[&str]) -> Value {
    let mut map = config_map(name, json!({}));
    map["metadata"]["finalizers"] = json!(finalizers);
    map
}

#[tokio::test]
async fn delete() {
    let mut t = Transcript::start("delete");
    t.namespace("delete").await;
    let maps = "/api/v1/namespaces/delete/configmaps";
    let options = |options: Value, name: &str| Request::delete(format!("{maps}/{name}")).json(&options);
    for name in ["a", "b", "c", "d"] {
        t.given(maps, config_map(name, json!({}))).await;
    }
    t.delete(&format!("{maps}/a")).await;
    t.delete(&format!("{maps}/a")).await;
    t.note("Preconditions");
    let live = t.client.send(&Request::get(format!("{maps}/b"))).await;
    t.send(options(json!({"preconditions": {"uid": "6f1a2b3c-0000-4000-8000-000000000000"}}), "b")).await;
    t.send(options(json!({"preconditions": {"resourceVersion": "1"}}), "b")).await;
    let good = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {
        "uid": live.str("/metadata/uid"), "resourceVersion": live.str("/metadata/resourceVersion")}});
    t.send(options(good, "b")).await;
    t.note("Options");
    t.send(options(json!({"propagationPolicy": "Sideways"}), "c")).await;
    t.send(options(json!({"propagationPolicy": "Orphan", "orphanDependents": true}), "c")).await;
    t.delete(&format!("{maps}/c?propagationPolicy=Sideways")).await;
    t.send(options(json!({"gracePeriodSeconds": "soon"}), "c")).await;
    t.delete(&format!("{maps}/c?gracePeriodSeconds=soon")).await;
    t.send(options(json!({"kind": "ConfigMap", "apiVersion": "v1"}), "c")).await;
    t.send(options(json!({"kind": "DeleteOptions", "apiVersion": "apps/v1"}), "c")).await;
    t.send(Request::delete(format!("{maps}/d")).body("application/json", "{")).await;
    t.send(options(json!({"unknown": 1}), "d")).await;
    t.finish();
}

#[tokio::test]
async fn finalizers() {
    let mut t = Transcript::start("finalizers");
    t.namespace("finalizers").await;
    let maps = "/api/v1/namespaces/finalizers/configmaps";
    let a = &format!("{maps}/a");
    t.given(maps, guarded("a", &["example.com/one", "example.com/two"])).await;
    t.delete(a).await;
    t.delete(a).await;
    t.note("While it goes, finalizers are not added");
    t.patch("merge", a, json!({"metadata": {"finalizers": ["example.com/one", "example.com/new"]}})).await;
    t.patch("merge", a, json!({"data": {"still": "writable"}})).await;
    t.patch("merge", a, json!({"metadata": {"deletionTimestamp": null}})).await;
    t.patch("merge", a, json!({"metadata": {"finalizers": ["example.com/two"]}})).await;
    t.post(maps, config_map("a", json!({}))).await;
    t.note("The last one removes the object");
    t.patch("merge", a, json!({"metadata": {"finalizers": null}})).await;
    t.get(a).await;
    t.finish();
}

#[tokio::test]
async fn propagation() {
    let mut t = Transcript::start("propagation");
    t.namespace("propagation").await;
    let maps = "/api/v1/namespaces/propagation/configmaps";
    let deployments = "/apis/apps/v1/namespaces/propagation/deployments";
    for name in ["orphan", "foreground", "background", "query"] {
        t.given(deployments, deployment(name, 1)).await;
    }
    let shown = ["/kind", "/status", "/metadata/finalizers", "/metadata/deletionTimestamp", "/metadata/deletionGracePeriodSeconds"];
    for (name, policy) in [("orphan", "Orphan"), ("foreground", "Foreground"), ("background", "Background")] {
        let options = json!({"propagationPolicy": policy});
        t.send_for(Request::delete(format!("{deployments}/{name}")).json(&options), &shown).await;
        t.send_for(Request::get(format!("{deployments}/{name}")), &shown).await;
    }
    t.send_for(Request::delete(format!("{deployments}/query?propagationPolicy=Foreground")), &shown).await;
    t.note("A later policy replaces an earlier one");
    t.send_for(Request::delete(format!("{deployments}/foreground")).json(&json!({"propagationPolicy": "Orphan"})), &shown).await;
    t.send_for(Request::delete(format!("{deployments}/orphan")).json(&json!({"propagationPolicy": "Background"})), &shown).await;
    t.note("Owner references as given");
    let owner = t.given(maps, config_map("owner", json!({}))).await;
    let mut owned = config_map("owned", json!({}));
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.str("/metadata/uid"), "blockOwnerDeletion": true}]);
    t.post(maps, owned).await;
    t.finish();
}

#[tokio::test]
async fn grace() {
    let mut t = Transcript::start("grace");
    t.namespace_for_pods("grace").await;
    let pods = "/api/v1/namespaces/grace/pods";
    let shown = ["/kind", "/metadata/name", "/metadata/generation", "/metadata/deletionGracePeriodSeconds", "/metadata/deletionTimestamp"];
    t.note("A pod that runs nowhere goes at once");
    t.given(pods, pod("idle")).await;
    t.send_for(Request::delete(format!("{pods}/idle")), &shown).await;
    t.send_for(Request::get(format!("{pods}/idle")), &shown).await;
    t.note("One on a node has time");
    let mut on_node = pod("busy");
    on_node["spec"]["nodeName"] = json!("node-1");
    t.given(pods, on_node).await;
    t.send_for(Request::delete(format!("{pods}/busy")), &shown).await;
    t.send_for(Request::get(format!("{pods}/busy")), &shown).await;
    t.note("Less time later, not more");
    t.send_for(Request::delete(format!("{pods}/busy?gracePeriodSeconds=60")), &shown).await;
    t.send_for(Request::delete(format!("{pods}/busy?gracePeriodSeconds=5")), &shown).await;
    t.send_for(Request::delete(format!("{pods}/busy")).json(&json!({"gracePeriodSeconds": -7})), &shown).await;
    t.send_for(Request::delete(format!("{pods}/busy?gracePeriodSeconds=0")), &shown).await;
    t.send_for(Request::get(format!("{pods}/busy")), &shown).await;
    t.finish();
}

#[tokio::test]
async fn delete_collection() {
    let mut t = Transcript::start("delete_collection");
    t.namespace("collection").await;
    let maps = "/api/v1/namespaces/collection/configmaps";
    for name in ["a", "b", "c"] {
        let mut map = config_map(name, json!({}));
        map["metadata"]["labels"] = json!({"keep": if name == "a" { "yes" } else { "no" }});
        t.given(maps, map).await;
    }
    t.given(maps, guarded("guarded", &["example.com/x"])).await;
    t.delete(&format!("{maps}?labelSelector=keep=no")).await;
    t.get(&format!("{maps}?labelSelector=keep")).await;
    t.delete(&format!("{maps}?labelSelector=a%20b")).await;
    t.send(Request::delete(maps).json(&json!({"propagationPolicy": "Sideways"}))).await;
    t.delete(maps).await;
    t.get(maps).await;
    t.delete("/api/v1/configmaps").await;
    t.delete("/api/v1/namespaces").await;
    t.delete("/api/v1/namespaces/collection/services").await;
    t.finish();
}

#[tokio::test]
async fn namespaces() {
    let mut t = Transcript::start("namespaces");
    t.post("/api/v1/namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "going"}})).await;
    t.given("/api/v1/namespaces/going/configmaps", config_map("a", json!({}))).await;
    t.delete("/api/v1/namespaces/going").await;
    t.post("/api/v1/namespaces/going/configmaps", config_map("late", json!({}))).await;
    t.patch("merge", "/api/v1/namespaces/going/configmaps/a", json!({"data": {"a": "b"}})).await;
    t.delete("/api/v1/namespaces/default").await;
    t.delete("/api/v1/namespaces/kube-system").await;
    t.delete("/api/v1/namespaces/absent").await;
    t.post("/api/v1/namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "With.Dots"}})).await;
    t.post("/api/v1/namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x".repeat(64)}})).await;
    t.note("Finalize");
    let mut going = t.client.send(&Request::get("/api/v1/namespaces/going")).await.json();
    going["spec"]["finalizers"] = json!([]);
    t.send(Request::put("/api/v1/namespaces/going/finalize", &going)).await;
    t.get("/api/v1/namespaces/going").await;
    t.finish();
}
