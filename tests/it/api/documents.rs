//! Health, version, discovery, headers.

use crate::harness::{Credential, Request, Transcript};
use serde_json::Value;

#[tokio::test]
async fn health() {
    let mut t = Transcript::start("health");
    for path in ["/healthz", "/livez", "/readyz", "/readyz/", "/livez/ping", "/readyz/etcd", "/healthz/nothing"] {
        t.send(Request::get(path).with(Credential::Nobody)).await;
    }
    t.note("Nobody sees more than health and version");
    for path in ["/api", "/apis", "/metrics", "/openapi/v2", "/api/v1/namespaces", "/", "/.well-known/openid-configuration"] {
        t.send(Request::get(path).with(Credential::Nobody)).await;
    }
    t.note("Methods");
    t.send(Request::new(http::Method::POST, "/healthz")).await;
    t.send(Request::new(http::Method::HEAD, "/healthz")).await;
    t.send(Request::new(http::Method::HEAD, "/api/v1/namespaces/default")).await;
    let version = t.client.send(&Request::get("/version").with(Credential::Nobody)).await;
    assert_eq!((version.str("/major"), version.str("/minor")), ("1".into(), "37".into()));
    assert!(version.str("/gitVersion").starts_with("v1.37.2"));
    t.finish();
}

#[tokio::test]
async fn discovery() {
    let mut t = Transcript::start("discovery");
    t.get("/apis/apps").await;
    t.get("/apis/policy/v1").await;
    t.get("/apis/nothing.example.com").await;
    t.get("/apis/apps/v9").await;
    t.get("/api/v2").await;
    t.note("Names and verbs of the core group");
    let core = t.client.send(&Request::get("/api/v1")).await.json();
    t.note(&names(&core["resources"]));
    let groups = t.client.send(&Request::get("/apis")).await.json();
    let own = groups["groups"].as_array().unwrap().iter().filter(|g| !g["name"].as_str().unwrap().ends_with("example.com"));
    t.note(&own.map(|g| format!("{} {}", g["name"], g["versions"])).collect::<Vec<_>>().join("\n"));
    t.note("Aggregated");
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    for path in ["/api", "/apis"] {
        let response = t.client.send(&Request::get(path).accept(aggregated)).await;
        assert_eq!(response.header("content-type").as_deref(), Some(aggregated));
        assert!(response.header("etag").is_some());
        let etag = response.header("etag").unwrap();
        t.mask.add(etag.clone(), "<etag>");
        t.send(Request::get(path).accept(aggregated).header("if-none-match", &etag)).await;
    }
    t.finish();
}

/// `kubectl apply` of a List failed: it reads version 2, which was JSON under the name of protobuf.
#[tokio::test]
async fn openapi_version_2_in_protobuf() {
    let t = Transcript::start("openapi_v2_protobuf");
    let media_type = |at: &str| format!("application/com.github.proto-openapi.spec.v2{at}v1.0+protobuf");
    for (accept, expected) in [
        (media_type("@"), media_type(".")),
        (media_type("."), media_type(".")),
        (format!("application/json, {}", media_type("@")), "application/json".into()),
        ("*/*".into(), "application/json".into()),
    ] {
        let response = t.client.send(&Request::get("/openapi/v2").accept(&accept)).await;
        assert_eq!(response.header("content-type"), Some(expected), "{accept}");
        let swagger = if accept.ends_with("protobuf") && !accept.contains("json") { b"\x0a\x032.0".as_slice() } else { b"{".as_slice() };
        assert!(response.body.starts_with(swagger), "{accept}");
    }
}

fn names(resources: &Value) -> String {
    let line = |r: &Value| format!("{} {} {} {} {}", r["name"], r["kind"], r["namespaced"], r["verbs"], r["shortNames"]);
    resources.as_array().unwrap().iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Headers in which the servers differ: there is no audit log and no flow control by priority here, and discovery can
/// be cached.
fn differs(header: &str) -> bool {
    header.starts_with("x-kubernetes-pf-")
        || matches!(header, "date" | "content-length" | "transfer-encoding" | "audit-id" | "x-content-type-options" | "etag" | "vary")
}

#[tokio::test]
async fn headers() {
    let mut t = Transcript::start("headers");
    let requests = [
        Request::get("/api/v1/namespaces/default"),
        Request::get("/api/v1/namespaces/nothing"),
        Request::get("/healthz"),
        Request::get("/version"),
        Request::get("/api"),
        Request::get("/apis/apps/v1"),
        Request::get("/nothing"),
        Request::get("/api/v1/namespaces?watch=true&timeoutSeconds=1&resourceVersion=0"),
        Request::get("/api/v1/namespaces").token("alice-token"),
        Request::get("/api/v1/namespaces").token("no-token"),
    ];
    for request in requests {
        let response = t.client.send(&request).await;
        let mut lines: Vec<String> = response
            .headers
            .iter()
            .filter(|(name, _)| !differs(name.as_str()))
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        lines.sort();
        t.note(&format!("{} {} {}\n{}", request.method, request.path, response.status.as_u16(), lines.join("\n")));
    }
    t.finish();
}
