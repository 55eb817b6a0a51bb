//! The four kinds of patches.

use super::{config_map, deployment, pod};
use crate::harness::{Request, Transcript};
use serde_json::json;

#[tokio::test]
async fn json_patch() {
    let mut t = Transcript::start("json_patch");
    t.namespace("json-patch").await;
    let maps = "/api/v1/namespaces/json-patch/configmaps";
    let a = &format!("{maps}/a");
    t.given(maps, config_map("a", json!({"one": "1", "two": "2"}))).await;
    t.patch("json", a, json!([{"op": "replace", "path": "/data/one", "value": "eins"}, {"op": "remove", "path": "/data/two"}])).await;
    t.patch("json", a, json!([{"op": "test", "path": "/data/one", "value": "eins"}, {"op": "add", "path": "/data/x~1y", "value": "z"}]))
        .await;
    t.patch(
        "json",
        a,
        json!([{"op": "copy", "from": "/data/one", "path": "/data/copy"}, {"op": "move", "from": "/data/copy", "path": "/data/moved"}]),
    )
    .await;
    t.note("Refused");
    t.patch("json", a, json!([{"op": "test", "path": "/data/one", "value": "wrong"}])).await;
    t.patch("json", a, json!([{"op": "remove", "path": "/data/absent"}])).await;
    t.patch("json", a, json!([{"op": "replace", "path": "/data/absent", "value": "x"}])).await;
    t.patch("json", a, json!([{"op": "add", "path": "/nowhere/deep", "value": "x"}])).await;
    t.patch("json", a, json!([{"op": "dance", "path": "/data/one"}])).await;
    t.patch("json", a, json!({"op": "add"})).await;
    t.patch("json", a, json!([{"op": "add", "path": "/data/one", "value": 1}])).await;
    t.patch("json", a, json!([{"op": "replace", "path": "/metadata/name", "value": "b"}])).await;
    t.patch("json", a, json!([{"op": "replace", "path": "/kind", "value": "Secret"}])).await;
    t.patch("json", &format!("{maps}/absent"), json!([])).await;
    t.send(Request::new(http::Method::PATCH, a.as_str()).body("application/json-patch+json", "[{")).await;
    let many: Vec<_> = (0..10_001).map(|_| json!({"op": "test", "path": "/data/one", "value": "eins"})).collect();
    t.send_for(Request::patch("json", a.as_str(), &json!(many)), &[]).await;
    t.finish();
}

#[tokio::test]
async fn merge_patch() {
    let mut t = Transcript::start("merge_patch");
    t.with_managed_fields();
    t.namespace("merge-patch").await;
    let maps = "/api/v1/namespaces/merge-patch/configmaps";
    let a = &format!("{maps}/a");
    let created = t.given(maps, config_map("a", json!({"one": "1", "two": "2"}))).await;
    t.patch("merge", a, json!({"data": {"one": null, "three": "3"}, "metadata": {"labels": {"x": "y"}}})).await;
    t.note("No change");
    t.patch("merge", a, json!({"data": {"three": "3"}})).await;
    t.note("With a version");
    t.patch("merge", a, json!({"metadata": {"resourceVersion": created.str("/metadata/resourceVersion")}, "data": {"late": "x"}})).await;
    t.patch("merge", a, json!({"metadata": {"uid": "6f1a2b3c-0000-4000-8000-000000000000"}})).await;
    t.note("Refused");
    t.patch("merge", a, json!(["list"])).await;
    t.patch("merge", a, json!({"data": ["list"]})).await;
    t.patch("merge", a, json!({"metadata": {"name": "b"}})).await;
    t.patch("merge", a, json!({"metadata": {"namespace": "default"}})).await;
    t.patch("merge", a, json!({"apiVersion": "v9"})).await;
    t.patch("merge", &format!("{maps}/absent"), json!({})).await;
    t.send(Request::new(http::Method::PATCH, a.as_str()).body("application/merge-patch+json", "{\"a\"")).await;
    t.send(Request::new(http::Method::PATCH, a.as_str()).body("application/json", "{}")).await;
    t.send(Request::new(http::Method::PATCH, a.as_str()).body("text/plain", "{}")).await;
    t.send(Request::new(http::Method::PATCH, a.as_str())).await;
    t.send(Request::patch("merge", format!("{a}?force=true"), &json!({}))).await;
    t.send(Request::new(http::Method::PATCH, maps).body("application/merge-patch+json", "{}")).await;
    t.finish();
}

#[tokio::test]
async fn strategic_patch() {
    let mut t = Transcript::start("strategic_patch");
    t.namespace_for_pods("strategic").await;
    let deployments = "/apis/apps/v1/namespaces/strategic/deployments";
    let web = &format!("{deployments}/web");
    t.given(deployments, deployment("web", 1)).await;
    let shown = ["/spec/replicas", "/spec/strategy", "/spec/template", "/metadata/generation"];
    let container = |c| json!({"spec": {"template": {"spec": {"containers": [c]}}}});
    t.send_for(Request::patch("strategic", web.as_str(), &container(json!({"name": "main", "image": "busybox:2"}))), &shown).await;
    t.send_for(
        Request::patch("strategic", web.as_str(), &container(json!({"name": "side", "image": "nginx", "ports": [{"containerPort": 80}]}))),
        &shown,
    )
    .await;
    t.send_for(Request::patch("strategic", web.as_str(), &container(json!({"$patch": "delete", "name": "side"}))), &shown).await;
    t.send_for(
        Request::patch("strategic", web.as_str(), &json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}})),
        &shown,
    )
    .await;
    t.send_for(
        Request::patch(
            "strategic",
            web.as_str(),
            &json!({"spec": {"template": {"metadata": {"labels": {"$patch": "replace", "app": "web", "v": "2"}}}}}),
        ),
        &shown,
    )
    .await;
    t.note("Sets of plain values");
    let maps = "/api/v1/namespaces/strategic/configmaps";
    let mut map = config_map("set", json!({}));
    map["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b"]);
    t.given(maps, map).await;
    t.patch("strategic", &format!("{maps}/set"), json!({"metadata": {"finalizers": ["example.com/c"]}})).await;
    t.patch(
        "strategic",
        &format!("{maps}/set"),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a", "example.com/b"]}}),
    )
    .await;
    t.patch("strategic", &format!("{maps}/set"), json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/c"]}})).await;
    t.note("Refused");
    t.patch("strategic", web, container(json!({"image": "nameless"}))).await;
    t.patch("strategic", web, json!({"spec": {"replicas": "two"}})).await;
    t.patch("strategic", web, json!({"spec": {"selector": {"matchLabels": {"app": "other"}}}})).await;
    t.patch("strategic", web, json!({"$patch": "dance"})).await;
    t.finish();
}

#[tokio::test]
async fn apply() {
    let mut t = Transcript::start("apply");
    t.with_managed_fields();
    t.namespace("apply").await;
    let maps = "/api/v1/namespaces/apply/configmaps";
    let a = &format!("{maps}/a");
    t.patch("apply", &format!("{a}?fieldManager=one"), config_map("a", json!({"one": "1", "both": "1"}))).await;
    t.note("The same again");
    t.patch("apply", &format!("{a}?fieldManager=one"), config_map("a", json!({"one": "1", "both": "1"}))).await;
    t.note("A second manager shares, then conflicts, then forces");
    t.patch("apply", &format!("{a}?fieldManager=two"), config_map("a", json!({"two": "2", "both": "1"}))).await;
    t.patch("apply", &format!("{a}?fieldManager=two"), config_map("a", json!({"two": "2", "both": "2"}))).await;
    t.patch("apply", &format!("{a}?fieldManager=two&force=true"), config_map("a", json!({"two": "2", "both": "2"}))).await;
    t.note("What a manager leaves out goes, unless another has it");
    t.patch("apply", &format!("{a}?fieldManager=one"), config_map("a", json!({}))).await;
    t.note("Updates take over");
    t.patch("merge", &format!("{a}?fieldManager=hand"), json!({"data": {"two": "hand"}})).await;
    t.patch("apply", &format!("{a}?fieldManager=two"), config_map("a", json!({"two": "again"}))).await;
    t.note("YAML");
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml\ndata:\n  k: v\n";
    t.send(Request::new(http::Method::PATCH, format!("{maps}/yaml?fieldManager=one")).body("application/apply-patch+yaml", yaml)).await;
    t.note("Lists with keys");
    let apply = |ports| {
        let object =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": ports, "clusterIP": "None"}});
        Request::patch("apply", "/api/v1/namespaces/apply/services/s?fieldManager=one", &object)
    };
    t.send(apply(json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}]))).await;
    t.send(apply(json!([{"name": "b", "port": 2}, {"name": "c", "port": 3}]))).await;
    t.note("Refused");
    t.patch("apply", a, config_map("a", json!({}))).await;
    t.patch("apply", &format!("{a}?fieldManager=one"), config_map("b", json!({}))).await;
    t.patch("apply", &format!("{a}?fieldManager=one"), json!({"metadata": {"name": "a"}})).await;
    t.patch("apply", &format!("{a}?fieldManager=one"), json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})).await;
    t.patch(
        "apply",
        &format!("{a}?fieldManager=one"),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "managedFields": []}}),
    )
    .await;
    t.patch(
        "apply",
        &format!("{a}?fieldManager=one"),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": "1"}}),
    )
    .await;
    t.refuse(
        Request::patch(
            "apply",
            format!("{a}?fieldManager=one"),
            &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "dada": {}}),
        ),
        "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .dada: field not declared in schema",
    )
    .await;
    t.refuse(
        Request::patch(
            "apply",
            format!("{a}?fieldManager=one"),
            &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": 5}),
        ),
        "failed to create typed patch object (/a; /v1, Kind=ConfigMap): ",
    )
    .await;
    t.send(Request::new(http::Method::PATCH, format!("{a}?fieldManager=one")).body("application/apply-patch+yaml", "a: b: c")).await;
    t.patch("apply", "/api/v1/namespaces/nowhere/configmaps/a?fieldManager=one", config_map("a", json!({}))).await;
    t.note("Status");
    t.namespace_for_pods("apply-pods").await;
    t.given("/api/v1/namespaces/apply-pods/pods", pod("p")).await;
    let status = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": {"conditions": [{"type": "Mine", "status": "True"}]}});
    t.patch("apply", "/api/v1/namespaces/apply-pods/pods/p/status?fieldManager=one", status).await;
    t.finish();
}
