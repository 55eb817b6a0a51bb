//! What floods are answered beyond their limits: status, reason and when to come back, as upstream has them.

use super::config_map;
use crate::harness::{Request, Server, Transcript, eventually, upstream};
use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};
use sublet_fuzz::nested_aliases;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";

fn definition(schema: Value) -> Value {
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "floods.limits.example.com"},
        "spec": {
            "group": "limits.example.com", "scope": "Namespaced", "names": {"plural": "floods", "kind": "Flood"}, "versions": [version],
        },
    })
}

fn operations(count: usize) -> Value {
    (0..count).map(|i| json!({"op": "add", "path": format!("/data/k{i}"), "value": "v"})).collect()
}

fn copies(count: usize) -> Value {
    let first = json!({"op": "add", "path": "/data", "value": {"a": "x".repeat(100_000)}});
    let copy = |i: usize| json!({"op": "copy", "from": "/data/a", "path": format!("/data/k{i}")});
    std::iter::once(first).chain((0..count).map(copy)).collect()
}

#[tokio::test]
async fn bodies_beyond_their_limits() {
    let mut t = Transcript::start("floods_of_bodies");
    t.namespace("floods").await;
    let maps = "/api/v1/namespaces/floods/configmaps";
    t.given(maps, config_map("a", json!({"x": "y"}))).await;
    let raw = |media_type: &str, body: &[u8]| Request::new(Method::POST, maps).body(media_type, body.to_vec());
    t.note("A byte more than a request may have");
    t.send_for(raw("application/json", " ".repeat((3 << 20) + 1).as_bytes()), &[]).await;
    t.note("Media types that nobody speaks");
    for media_type in ["text/plain", "application/cbor-seq", "multipart/form-data"] {
        t.send_for(raw(media_type, b"{}"), &[]).await;
    }
    t.send_for(Request::new(Method::PATCH, format!("{maps}/a")).body("application/x-patch", b"{}".to_vec()), &[]).await;
    t.send_for(Request::get(maps).accept("image/png"), &[]).await;
    t.note("Aliases of aliases, lengths that lie, what is packed");
    let yaml = t.send_for(raw("application/yaml", nested_aliases().as_bytes()), &["/status"]).await;
    assert_eq!(yaml.status.as_u16(), 400);
    let lying = [&b"k8s\0"[..], &[0x12, 0xff, 0xff, 0xff, 0xff, 0x07].repeat(1000)].concat();
    t.send_for(raw("application/vnd.kubernetes.protobuf", &lying), &[]).await;
    t.send_for(raw("application/json", &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0]).header("content-encoding", "gzip"), &[]).await;
    t.note("Patches of too many operations, of too much that is copied, that nest too deep");
    let patched = format!("{maps}/a?dryRun=All");
    t.send_for(Request::patch("json", patched.clone(), &operations(10_001)), &[]).await;
    t.send_for(Request::patch("json", patched.clone(), &copies(40)), &[]).await;
    let deep = format!("{}1{}", "{\"a\":".repeat(20_000), "}".repeat(20_000));
    t.send_for(Request::new(Method::PATCH, patched).body("application/merge-patch+json", deep.into_bytes()), &[]).await;
    t.note("Nothing came of it");
    t.send_for(Request::get(maps), &["/items/0/data", "/items/1/metadata/name"]).await;
    t.finish();
}

/// JSON that nests without end is refused with the same code and reason. How it is said differs: here the nesting ends
/// much earlier, and not at a certain byte.
#[tokio::test]
async fn json_that_nests_without_end() {
    let server = Server::for_api();
    let client = server.client();
    let maps = "/api/v1/namespaces/default/configmaps";
    for body in ["[".repeat(1_000_000), format!("{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"x\":{}", "[".repeat(20_000))] {
        let answer = client.send(&Request::new(Method::POST, maps).body("application/json", body.into_bytes())).await;
        assert_eq!((answer.status.as_u16(), answer.str("/reason")), (400, "BadRequest".into()));
        assert!(answer.str("/message").contains("exceeded max depth"), "{}", answer.text());
    }
}

#[tokio::test]
async fn queries_beyond_their_limits() {
    let mut t = Transcript::start("floods_of_queries");
    let maps = "/api/v1/namespaces/default/configmaps";
    for query in [
        format!("limit=1&continue={}", "A".repeat(6_000)),
        format!("labelSelector={}+in+(x)", "a".repeat(100)),
        "labelSelector=a+in+(x".into(),
        "fieldSelector=spec.x%3Da".into(),
        "fieldSelector=%3D%3D%3D".into(),
        "resourceVersion=x".into(),
        "resourceVersion=99999999999999999999".into(),
        "limit=x".into(),
        "timeout=abc".into(),
        "resourceVersionMatch=Exact".into(),
    ] {
        t.send_for(Request::get(format!("{maps}?{query}")), &[]).await;
    }
    t.note("Names that nobody knows");
    for path in ["/apis/nope.example.com/v1/things", "/api/v1/things", "/api/v9/pods", "/nope"] {
        t.send_for(Request::get(path), &[]).await;
    }
    t.note("Tokens that nobody gave");
    t.send_for(Request::get(maps).token(&"x".repeat(10_000)), &[]).await;
    t.send_for(Request::get(maps).token("e30.e30.e30"), &[]).await;
    t.finish();
}

#[tokio::test]
async fn definitions_beyond_their_limits() {
    let mut t = Transcript::start("floods_of_definitions");
    let rule = json!([{"rule": "self.all(x, self.all(y, x == y))"}]);
    let items = json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": rule});
    let costly = json!({"type": "object", "properties": {"a": {"type": "array", "items": items}}});
    let answer = t.send_for(Request::post(DEFINITIONS, &definition(costly)), &[]).await;
    assert_eq!(answer.status.as_u16(), 422);
    let pattern = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=b)"}}});
    // What is wrong with it is said in the words of each one's library.
    t.refuse(Request::post(DEFINITIONS, &definition(pattern)), "must be a valid regular expression, but isn't").await;
    t.finish();
}

/// A level without seats lets one in at a time and, without a queue, tells the others to come back, as upstream's does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_level_that_is_full_says_when_to_come_back() {
    let server = Server::for_api();
    let client = server.client();
    let group = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let api_version = "flowcontrol.apiserver.k8s.io/v1";
    let limited =
        json!({"nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}});
    let level = json!({"apiVersion": api_version, "kind": "PriorityLevelConfiguration", "metadata": {"name": "nothing"},
        "spec": {"type": "Limited", "limited": limited}});
    let rules = json!([{"subjects": [{"kind": "User", "user": {"name": "alice"}}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]}]}]);
    let schema = json!({"apiVersion": api_version, "kind": "FlowSchema", "metadata": {"name": "nothing"},
        "spec": {"priorityLevelConfiguration": {"name": "nothing"}, "matchingPrecedence": 5, "rules": rules}});
    for (resource, object) in [("prioritylevelconfigurations", level), ("flowschemas", schema)] {
        let made = client.send(&Request::post(format!("{group}/{resource}"), &object)).await;
        assert_eq!(made.status.as_u16(), 201, "{}", made.text());
    }
    let asked = Request::get("/api/v1/namespaces/default/configmaps").token("alice-token");
    let mut answers = Vec::new();
    let told = async || {
        answers = join_all((0..24).map(|_| client.send(&asked))).await;
        answers.iter().any(|a| a.status.as_u16() == 429)
    };
    eventually("alice is told to come back", told).await;
    assert!(answers.iter().any(|a| a.status.as_u16() == 403), "one at a time is let in, to be told that she may not read");
    let refused = answers.iter().find(|a| a.status.as_u16() == 429).unwrap();
    assert_eq!(
        (refused.header("retry-after").as_deref(), refused.text().as_str()),
        (Some("1"), "Too many requests, please try again later.\n")
    );
    // The others have seats.
    assert_eq!(client.send(&Request::get("/api/v1/namespaces/default/configmaps")).await.status.as_u16(), 200);
    for resource in ["flowschemas", "prioritylevelconfigurations"] {
        client.send(&Request::delete(format!("{group}/{resource}/nothing"))).await;
    }
}

/// Headers have smaller bounds here than upstream's megabyte; the code is the same.
#[tokio::test]
async fn headers_beyond_their_limits() {
    if upstream().is_some() {
        return;
    }
    let server = Server::for_api();
    let client = server.client();
    let maps = "/api/v1/namespaces/default/configmaps";
    let long = Request::get(maps).header("x-flood", &"f".repeat(300_000));
    let many = (0..200).fold(Request::get(maps), |request, i| request.header(&format!("x-flood-{i}"), "f"));
    let path = Request::get(format!("{maps}?x={}", "a".repeat(300_000)));
    for request in [long, many, path] {
        if let Ok(answer) = client.try_send(&request).await {
            assert_eq!(answer.status.as_u16(), 431);
        }
        assert_eq!(client.send(&Request::get(maps)).await.status.as_u16(), 200, "the next one is served");
    }
}
