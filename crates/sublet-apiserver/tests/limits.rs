//! What is too much is answered with what upstream answers, and whoever asks for too much at once is told when to come
//! back.

mod common;

use async_trait::async_trait;
use bytes::Bytes;
use common::server;
use futures::stream;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use sublet_apiserver::admission::UserInfo;
use sublet_apiserver::hooks::{Allocation, ServiceAllocator};
use sublet_apiserver::http::Body;
use sublet_apiserver::server::{InProcess, Server};
use sublet_machinery::ApiError;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const BODY_BYTES_MAX: usize = 3 << 20;
const WATCHES_MAX: usize = 10_000;
/// Bodies of full size that may be on their way at once.
const BODIES_MAX: usize = 16;

fn request<B>(method: &str, path: &str, media_type: &str, body: B) -> Request<B> {
    let mut request = Request::builder().method(method).uri(path).header("content-type", media_type).body(body).expect("a request");
    let groups = vec!["system:masters".into(), "system:authenticated".into()];
    request.extensions_mut().insert(InProcess(Arc::new(UserInfo { name: "admin".into(), groups, ..UserInfo::default() })));
    request
}

async fn send(server: &Server, method: &str, path: &str, media_type: &str, body: impl Into<Bytes>) -> Response<Body> {
    server.handle(request(method, path, media_type, Full::new(body.into()))).await
}

fn config_map(more: &str) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a"}}{more}}}"#)
}

fn aliases() -> String {
    let mut text = String::from("apiVersion: v1\nkind: ConfigMap\nx0: &x0 [a,a,a,a,a,a,a,a,a]\n");
    for i in 1..9 {
        let before = format!("*x{}", i - 1);
        text.push_str(&format!("x{i}: &x{i} [{}]\n", vec![before; 9].join(",")));
    }
    text
}

fn operations(count: usize) -> String {
    Value::Array(vec![json!({"op": "add", "path": "/metadata/labels", "value": {}}); count]).to_string()
}

fn copies() -> String {
    let mut all = vec![json!({"op": "add", "path": "/data", "value": {"a": "x".repeat(100_000)}})];
    all.extend((0..400).map(|i| json!({"op": "copy", "from": "/data/a", "path": format!("/data/k{i}")})));
    Value::Array(all).to_string()
}

#[tokio::test]
async fn what_is_too_much_is_refused_as_upstream_refuses_it() {
    const JSON: &str = "application/json";
    const PATCH: &str = "application/json-patch+json";
    let server = server().await;
    assert_eq!(send(&server, "POST", CONFIG_MAPS, JSON, config_map("")).await.status(), 201);
    let (one, dry) = (format!("{CONFIG_MAPS}/a?dryRun=All"), format!("{CONFIG_MAPS}?dryRun=All"));
    let padded = |bytes: usize| format!("{}{}", config_map("").replace("\"a\"", "\"b\""), " ".repeat(bytes - config_map("").len()));
    let many = (0..10_000).map(|i| format!("{i:04}")).collect::<Vec<_>>().join(",");
    for (what, method, path, media_type, body, code) in [
        ("the largest body", "POST", &*dry, JSON, padded(BODY_BYTES_MAX), 201),
        ("a larger one", "POST", &*dry, JSON, padded(BODY_BYTES_MAX + 1), 413),
        ("nesting without end", "POST", &*dry, JSON, "[".repeat(1_000_000), 400),
        (
            "a million items of nothing",
            "POST",
            &*dry,
            JSON,
            config_map(&format!(r#","x":[{}0]"#, "0,".repeat(1_000_000))).replace("\"a\"", "\"c\""),
            201,
        ),
        ("as many operations as there may be", "PATCH", &*one, PATCH, operations(10_000), 200),
        ("one more", "PATCH", &*one, PATCH, operations(10_001), 413),
        ("copies that are too much in all", "PATCH", &*one, PATCH, copies(), 422),
        ("aliases of aliases", "POST", &*dry, "application/yaml", aliases(), 400),
        ("aliases that are applied", "PATCH", &format!("{CONFIG_MAPS}/a?fieldManager=f"), "application/apply-patch+yaml", aliases(), 400),
        ("a continue token of nothing", "GET", &format!("{CONFIG_MAPS}?limit=1&continue={}", "A".repeat(60_000)), JSON, String::new(), 400),
        ("a selector of ten thousand values", "GET", &format!("{CONFIG_MAPS}?labelSelector=app+in+({many})"), JSON, String::new(), 200),
    ] {
        assert_eq!(send(&server, method, path, media_type, body).await.status(), code, "{what}");
    }
    let lying = [&b"k8s\0"[..], &[0x12, 0xff, 0xff, 0xff, 0xff, 0x07].repeat(1000)].concat();
    assert_eq!(send(&server, "POST", CONFIG_MAPS, "application/vnd.kubernetes.protobuf", lying).await.status(), 400);
    // What claims to be compressed is read as it is: there is nothing to unpack.
    let mut compressed = request("POST", CONFIG_MAPS, JSON, Full::new(Bytes::from_static(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0])));
    compressed.headers_mut().insert("content-encoding", "gzip".parse().expect("a value"));
    assert_eq!(server.handle(compressed).await.status(), 400);
}

#[tokio::test]
async fn one_watch_too_many_is_told_to_come_back() {
    let server = server().await;
    let watch = || send(&server, "GET", "/api/v1/configmaps?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "", "");
    let mut open = Vec::new();
    for _ in 0..WATCHES_MAX {
        open.push(watch().await);
    }
    assert!(open.iter().all(|response| response.status() == 200));
    let refused = watch().await;
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().ok()), (429, Some("1")));
    open.pop();
    assert_eq!(watch().await.status(), 200);
}

#[tokio::test]
async fn bodies_that_do_not_end_leave_room_for_others() {
    let server = server().await;
    let endless = || {
        let first = stream::iter([Ok::<_, Infallible>(http_body::Frame::data(Bytes::from(vec![b' '; BODY_BYTES_MAX])))]);
        StreamBody::new(futures::StreamExt::chain(first, stream::pending())).boxed_unsync()
    };
    let mut open = tokio::task::JoinSet::new();
    for _ in 0..BODIES_MAX {
        let server = server.clone();
        let request = request("POST", CONFIG_MAPS, "application/json", endless());
        open.spawn(async move { server.handle(request).await.status() });
    }
    while tokio::time::timeout(Duration::from_millis(50), open.join_next()).await.is_ok() {}
    let refused = server.handle(request("POST", CONFIG_MAPS, "application/json", endless())).await;
    assert_eq!((refused.status().as_u16(), refused.headers().contains_key("retry-after")), (429, true));
    open.shutdown().await;
    assert_eq!(send(&server, "POST", CONFIG_MAPS, "application/json", config_map("")).await.status(), 201);
}

/// Changes that name no version are made anew as often as somebody else was faster: none of many at once is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn patches_of_one_object_at_once_are_all_made() {
    const WRITERS: usize = 100;
    const PATCHES: usize = 10;
    let server = server().await;
    assert_eq!(send(&server, "POST", CONFIG_MAPS, "application/json", config_map("")).await.status(), 201);
    let writers = (0..WRITERS).map(|writer| {
        let server = server.clone();
        tokio::spawn(async move {
            for patch in 0..PATCHES {
                let body = json!({"data": {format!("{writer}-{patch}"): "x"}}).to_string();
                let answer = send(&server, "PATCH", &format!("{CONFIG_MAPS}/a"), "application/merge-patch+json", body).await;
                assert_eq!(answer.status(), 200);
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.expect("every patch is made");
    }
    let answer = send(&server, "GET", &format!("{CONFIG_MAPS}/a"), "application/json", "").await;
    let body = answer.into_body().collect().await.expect("a body").to_bytes();
    let object: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(object["data"].as_object().map(serde_json::Map::len), Some(WRITERS * PATCHES));
}

/// Refuses the first change that it is asked about, which another writer overtakes in that moment.
struct Overtaken {
    server: Server,
    is_early: bool,
    asked: AtomicU32,
}

struct Nothing;

#[async_trait]
impl ServiceAllocator for Overtaken {
    fn is_early(&self) -> bool {
        self.is_early
    }

    async fn allocate(&self, _new: &mut Value, old: Option<&Value>, _dry_run: bool) -> Result<Box<dyn Allocation>, ApiError> {
        if old.is_some() && self.asked.fetch_add(1, Ordering::Relaxed) == 0 {
            let path = format!("{SERVICES}/a");
            let body = json!({"metadata": {"labels": {"by": "another"}}}).to_string();
            let overtaking = send(&self.server, "PATCH", &path, "application/merge-patch+json", body);
            assert_eq!(Box::pin(overtaking).await.status(), 200);
            return Err(ApiError::forbidden("", "services", "a", "judged by what is no more"));
        }
        Ok(Box::new(Nothing))
    }

    async fn release(&self, _service: &Value) {}
}

#[async_trait]
impl Allocation for Nothing {
    async fn commit(self: Box<Self>) {}
    async fn rollback(self: Box<Self>) {}
}

/// A host that had already given numbers to the faster of two writers refused the other one, whose change was to be
/// made anew.
#[tokio::test]
async fn a_refusal_over_an_old_state_counts_for_nothing() {
    for is_early in [true, false] {
        let server = server().await;
        server.set_service_allocator(Arc::new(Overtaken { server: server.clone(), is_early, asked: AtomicU32::new(0) }));
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
            "spec": {"ports": [{"port": 80}], "clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"]}});
        assert_eq!(send(&server, "POST", SERVICES, "application/json", service.to_string()).await.status(), 201);
        let body = json!({"spec": {"sessionAffinity": "ClientIP"}}).to_string();
        let answer = send(&server, "PATCH", &format!("{SERVICES}/a"), "application/merge-patch+json", body).await;
        assert_eq!(answer.status(), 200);
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        let object: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!((&object["metadata"]["labels"]["by"], &object["spec"]["sessionAffinity"]), (&json!("another"), &json!("ClientIP")));
    }
}
