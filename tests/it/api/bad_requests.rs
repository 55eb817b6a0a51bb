//! Bad input: each a clear 4xx, as upstream gives it.

use super::{config_map, deployment};
use crate::harness::{Request, Transcript};
use http::Method;
use serde_json::json;

#[tokio::test]
async fn bodies() {
    let mut t = Transcript::start("bodies");
    t.namespace("bodies").await;
    let maps = "/api/v1/namespaces/bodies/configmaps";
    let raw = |media_type: &str, body: &[u8]| Request::new(Method::POST, maps).body(media_type, body.to_vec());
    for body in [
        "",
        "{",
        "nonsense",
        "null",
        "[]",
        "5",
        "\"text\"",
        "{}",
        "{\"kind\":5}",
        "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":[]}",
    ] {
        t.send(raw("application/json", body.as_bytes())).await;
    }
    t.send(raw("application/json", b"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"}} trailing")).await;
    t.send(raw("application/json", b"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"\xff\xfe\"}}")).await;
    t.note("Wrong types");
    let typed = |part: &str| format!("{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"a\"}},{part}}}");
    for part in [
        "\"data\":5",
        "\"data\":[\"a\"]",
        "\"data\":{\"a\":1}",
        "\"data\":{\"a\":{}}",
        "\"binaryData\":{\"a\":\"!!\"}",
        "\"immutable\":\"yes\"",
    ] {
        t.send(raw("application/json", typed(part).as_bytes())).await;
    }
    let labels = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"a":1}}}"#;
    t.send(raw("application/json", labels.as_bytes())).await;
    let time = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","creationTimestamp":"yesterday"}}"#;
    t.send(raw("application/json", time.as_bytes())).await;
    let deployments = "/apis/apps/v1/namespaces/bodies/deployments";
    for (pointer, value) in [
        ("/spec/replicas", json!(1.5)),
        ("/spec/replicas", json!(3_000_000_000_i64)),
        ("/spec/template/spec/containers/0/resources", json!({"limits": {"cpu": "a lot"}})),
        ("/spec/template/spec/containers", json!({})),
        ("/spec/template/spec/containers/0/ports", json!([{"containerPort": "http"}])),
        ("/spec/template/spec/terminationGracePeriodSeconds", json!("long")),
    ] {
        let mut object = deployment("web", 1);
        if object.pointer(pointer).is_none() {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            object.pointer_mut(parent).unwrap()[key] = json!(null);
        }
        *object.pointer_mut(pointer).unwrap() = value;
        t.post(deployments, object).await;
    }
    t.note("Nothing came of it");
    t.get(maps).await;
    t.finish();
}

#[tokio::test]
async fn sizes() {
    let mut t = Transcript::start("sizes");
    t.namespace("sizes").await;
    let maps = "/api/v1/namespaces/sizes/configmaps";
    t.note("Too large for a ConfigMap, for a request");
    t.send_for(Request::post(maps, &config_map("large", json!({"x": "y".repeat(1_100_000)}))), &[]).await;
    t.send_for(Request::post(maps, &config_map("huge", json!({"x": "y".repeat(4_000_000)}))), &[]).await;
    t.send_for(Request::patch("merge", format!("{maps}/huge"), &json!({"data": {"x": "y".repeat(4_000_000)}})), &[]).await;
    t.send_for(Request::delete(format!("{maps}/huge")).json(&json!({"x": "y".repeat(4_000_000)})), &[]).await;
    t.note("Too many annotations, labels too long");
    let mut map = config_map("annotated", json!({}));
    map["metadata"]["annotations"] = json!({"a": "b".repeat(300_000)});
    t.send_for(Request::post(maps, &map), &[]).await;
    let mut map = config_map("labelled", json!({}));
    map["metadata"]["labels"] = json!({"a": "b".repeat(64), "c".repeat(64): "d"});
    t.send_for(Request::post(maps, &map), &[]).await;
    t.finish();
}

#[tokio::test]
async fn depth() {
    let t = Transcript::start("depth");
    t.namespace("depth").await;
    let maps = "/api/v1/namespaces/depth/configmaps";
    // Nesting beyond any parser's patience is refused, and the server lives on.
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        let body = format!("{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"deep\"}},\"data\":{deep}}}");
        for (method, path, media_type) in [
            (Method::POST, maps.to_string(), "application/json"),
            (Method::POST, maps.to_string(), "application/yaml"),
            (Method::PATCH, format!("{maps}/deep"), "application/merge-patch+json"),
            (Method::PATCH, format!("{maps}/deep?fieldManager=x"), "application/apply-patch+yaml"),
        ] {
            let response = t.client.send(&Request::new(method, path).body(media_type, body.clone())).await;
            assert!((400..500).contains(&response.status.as_u16()), "{media_type}: {} {}", response.status, response.text());
        }
    }
    let alive = t.client.send(&Request::get("/readyz")).await;
    assert_eq!(alive.text(), "ok");
}

#[tokio::test]
async fn selectors() {
    let mut t = Transcript::start("selectors");
    t.namespace("selectors").await;
    let maps = "/api/v1/namespaces/selectors/configmaps";
    for bad in ["a%20b", "a=b=c", "%2C", "a%20in%20b", "a%20in%20(", "-bad=x", "a=!", "a%3Eb", "!", "x%2Fy%2Fz=1"] {
        t.get(&format!("{maps}?labelSelector={bad}")).await;
    }
    for bad in ["metadata.name", "data.x=y", "spec.nodeName=x", "metadata.name=a%5C", "=x"] {
        t.get(&format!("{maps}?fieldSelector={bad}")).await;
    }
    t.get("/api/v1/namespaces/selectors/pods?fieldSelector=spec.colour=red").await;
    t.get("/api/v1/namespaces/selectors/pods?fieldSelector=spec.nodeName=x").await;
    t.get("/apis/apps/v1/namespaces/selectors/deployments?fieldSelector=spec.replicas=1").await;
    t.finish();
}

#[tokio::test]
async fn paths() {
    let mut t = Transcript::start("paths");
    t.namespace("paths").await;
    for path in [
        "/nothing",
        "/api/v1/nothing",
        "/api/v1/namespaces/paths/nothing",
        "/api/v1/namespaces/paths/configmaps/a/nothing",
        "/api/v2/namespaces",
        "/apis/apps/v1/nothing",
        "/apis/apps/v9/deployments",
        "/apis/nothing.example.com/v1/things",
        "/api/v1/namespaces/paths/nodes",
        "/api/v1/namespaces/paths/configmaps/a/b/c/d",
        "/api/v1/nodes/n/nothing",
        "/apis/apps/v1/deployments/web",
        "/api/v1//namespaces",
    ] {
        t.get(path).await;
    }
    t.note("Methods");
    let map = config_map("a", json!({}));
    t.send(Request::post("/api/v1/namespaces/paths/configmaps/a", &map)).await;
    t.send(Request::put("/api/v1/namespaces/paths/configmaps", &map)).await;
    t.send(Request::put("/api/v1/componentstatuses/x", &map)).await;
    t.send(Request::post("/api/v1/configmaps", &map)).await;
    t.send(Request::new(Method::PUT, "/apis/apps/v1")).await;
    t.send(Request::new(Method::OPTIONS, "/api/v1/namespaces")).await;
    t.send(Request::new(Method::from_bytes(b"BREW").unwrap(), "/api/v1/namespaces")).await;
    t.send(Request::get("/apis/authentication.k8s.io/v1/tokenreviews")).await;
    t.send(Request::delete("/apis/authorization.k8s.io/v1/subjectaccessreviews")).await;
    t.send(Request::get("/api/v1/namespaces/paths/pods/p/eviction")).await;
    t.note("Media types");
    let raw = |media_type: &str| Request::new(Method::POST, "/api/v1/namespaces/paths/configmaps").body(media_type, map.to_string());
    for media_type in ["text/plain", "application/xml", "application/json; charset=utf-8", "multipart/form-data", "nonsense"] {
        t.send_for(raw(media_type), &["/metadata/name"]).await;
    }
    t.send(Request::put("/api/v1/namespaces/paths/configmaps/a", &map).header("content-type", "text/plain")).await;
    for accept in ["text/plain", "application/xml", "application/json;q=0.5", "text/html", "nonsense"] {
        t.send_for(Request::get("/api/v1/namespaces/paths").accept(accept), &["/kind"]).await;
    }
    t.note("Parameters");
    for query in ["timeoutSeconds=x", "limit=x", "allowWatchBookmarks=x", "unknown=1"] {
        t.send_for(Request::get(format!("/api/v1/namespaces/paths/configmaps?{query}")), &["/kind"]).await;
    }
    t.finish();
}

#[tokio::test]
async fn encodings() {
    let mut t = Transcript::start("encodings");
    t.namespace("encodings").await;
    t.given("/api/v1/namespaces/encodings/configmaps", config_map("a.b", json!({}))).await;
    for path in [
        "/api/v1/namespaces/encodings/configmaps/a%2Eb",
        "/api/v1/namespaces/encodings/configmaps/a%2Fb",
        "/api/v1/namespaces/encodings/configmaps/a%20b",
        "/api/v1/namespaces/encodings/configmaps/%C3%A4",
        "/api/v1/namespaces/encodings/configmaps/",
        "/api/v1/namespaces/encodings/configmaps/a.b/",
        "/api/v1/namespaces/encodings/configmaps/A.B",
        "/api/v1/namespaces/encodings/configmaps/..",
        "/api/v1/namespaces/encodings/configmaps/../secrets",
        "/api/v1/namespaces/enc%6Fdings/configmaps/a.b",
        "/api/v1/namespaces//configmaps/a.b",
        "/api/v1/NAMESPACES/encodings/configmaps/a.b",
        "/API/v1/namespaces",
    ] {
        t.send_for(Request::get(path), &["/metadata/name", "/kind"]).await;
    }
    t.note("Parameters");
    for query in [
        "fieldSelector=metadata.name%3Da.b",
        "fieldSelector=metadata.name=a.b&fieldSelector=metadata.name=x",
        "limit=1;x=2",
        "%zz=1",
        "labelSelector",
    ] {
        t.send_for(
            Request::get(format!("/api/v1/namespaces/encodings/configmaps?{query}")),
            &["/items/0/metadata/name", "/items/1/metadata/name"],
        )
        .await;
    }
    t.finish();
}

#[tokio::test]
async fn patch_bodies() {
    let mut t = Transcript::start("patch_bodies");
    t.namespace("patch-bodies").await;
    let a = "/api/v1/namespaces/patch-bodies/configmaps/a";
    t.given("/api/v1/namespaces/patch-bodies/configmaps", config_map("a", json!({"k": "v"}))).await;
    let types = [
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
    ];
    for media_type in types {
        for body in ["", "null", "5", "\"text\"", "[]", "{}", "[5]", "[{}]", "[null]", "{\"data\":{\"k\":null}} x"] {
            let path = if media_type.ends_with("yaml") { format!("{a}?fieldManager=x") } else { a.to_string() };
            let request = Request::new(Method::PATCH, path).body(media_type, body.to_string());
            let response = t.client.send(&request).await;
            // What is said about rubbish differs by the decoder that finds it; whether it is refused does not.
            t.note(&format!("{media_type} {body:?}: {}", response.status.as_u16()));
        }
    }
    t.get(a).await;
    t.finish();
}
