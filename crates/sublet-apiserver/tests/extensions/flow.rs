//! Priority and fairness as clients see it.

use crate::support::Cluster;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_apiserver::admission::UserInfo;
use sublet_apiserver::http::Body;
use sublet_apiserver::server::InProcess;

const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";

async fn get_as(cluster: &Cluster, name: &str, path: &str) -> Response<Body> {
    let user = UserInfo { name: name.into(), groups: vec!["system:authenticated".into()], ..UserInfo::default() };
    let request = Request::get(path).extension(InProcess(Arc::new(user))).body(Full::new(Bytes::new())).expect("a request");
    cluster.server.handle(request).await
}

fn header<'r>(response: &'r Response<Body>, name: &str) -> &'r str {
    response.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
}

fn schema(level: &str, user: &str) -> Value {
    json!({"metadata": {"name": "throttled"}, "spec": {
        "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": 2,
        "rules": [{
            "subjects": [{"kind": "User", "user": {"name": user}}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]}],
        }],
    }})
}

#[tokio::test]
async fn a_level_without_seats_lets_one_in_and_tells_the_others_to_come_back() {
    let cluster = Cluster::start().await;
    let before = get_as(&cluster, "bob", "/version").await;
    let global = cluster.send("GET", &format!("{SCHEMAS}/global-default"), None).await.ok();
    assert_eq!(
        (before.status().as_u16(), header(&before, "x-kubernetes-pf-flowschema-uid")),
        (200, global["metadata"]["uid"].as_str().unwrap())
    );
    let limited = json!({"nominalConcurrencyShares": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}});
    let level = json!({"metadata": {"name": "none"}, "spec": {"type": "Limited", "limited": limited}});
    let level = cluster.create(LEVELS, level).await.ok();
    let schema = cluster.create(SCHEMAS, schema("none", "bob")).await.ok();
    let binding = json!({
        "metadata": {"name": "bob"}, "subjects": [{"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    });
    cluster.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await.ok();
    // One goes on where there is no seat: this one, which waits for a version that does not come.
    let waits = get_as(&cluster, "bob", "/api/v1/namespaces/default/configmaps?resourceVersion=999999");
    let others = async {
        let mut refused = get_as(&cluster, "bob", "/version").await;
        for _ in 0..1000 {
            if refused.status() == 429 {
                break;
            }
            tokio::task::yield_now().await;
            refused = get_as(&cluster, "bob", "/version").await;
        }
        refused
    };
    let (waited, refused) = tokio::join!(waits, others);
    assert_eq!(waited.status().as_u16(), 504);
    assert_eq!((refused.status().as_u16(), header(&refused, "retry-after")), (429, "1"));
    assert_eq!(header(&refused, "x-kubernetes-pf-flowschema-uid"), schema["metadata"]["uid"].as_str().unwrap());
    assert_eq!(header(&refused, "x-kubernetes-pf-prioritylevel-uid"), level["metadata"]["uid"].as_str().unwrap());
    let text = refused.into_body().collect().await.expect("a body").to_bytes();
    assert_eq!(&text[..], b"Too many requests, please try again later.\n");
    assert_eq!(get_as(&cluster, "eve", "/version").await.status(), 200);
    let metrics = cluster.send("GET", "/metrics", None).await.body;
    let line =
        r#"apiserver_flowcontrol_rejected_requests_total{flow_schema="throttled",priority_level="none",reason="concurrency-limit"} 1"#;
    assert!(metrics.as_str().unwrap().contains(line), "{metrics}");
}

#[tokio::test]
async fn schemas_tell_whether_their_level_exists() {
    let cluster = Cluster::start().await;
    let dangling = async || {
        let schema = cluster.send("GET", &format!("{SCHEMAS}/throttled"), None).await.ok();
        let condition = &schema["status"]["conditions"][0];
        (condition["type"].clone(), condition["status"].clone(), condition["reason"].clone())
    };
    cluster.create(SCHEMAS, schema("later", "bob")).await.ok();
    assert_eq!(dangling().await, (json!("Dangling"), json!("True"), json!("NotFound")));
    // Such a schema counts for nothing.
    assert_eq!(get_as(&cluster, "bob", "/version").await.status(), 200);
    let limited = json!({"nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}});
    cluster.create(LEVELS, json!({"metadata": {"name": "later"}, "spec": {"type": "Limited", "limited": limited}})).await.ok();
    assert_eq!(dangling().await, (json!("Dangling"), json!("False"), json!("Found")));
}

#[tokio::test]
async fn what_the_server_needs_comes_back() {
    let cluster = Cluster::start().await;
    cluster.send("DELETE", &format!("{SCHEMAS}/exempt"), None).await.ok();
    cluster.send("DELETE", &format!("{LEVELS}/global-default"), None).await.ok();
    cluster.send("GET", &format!("{SCHEMAS}/exempt"), None).await.ok();
    cluster.send("GET", &format!("{LEVELS}/global-default"), None).await.ok();
}
