//! Watches.

use super::config_map;
use crate::harness::{Request, Transcript};
use serde_json::{Value, json};

fn labelled(name: &str, tier: &str) -> Value {
    let mut map = config_map(name, json!({"tier": tier}));
    map["metadata"]["labels"] = json!({"tier": tier});
    map
}

#[tokio::test]
async fn watch() {
    let mut t = Transcript::start("watch");
    t.namespace("watch").await;
    let maps = "/api/v1/namespaces/watch/configmaps";
    let start = t.client.send(&Request::get(maps)).await.str("/metadata/resourceVersion");
    t.given(maps, labelled("a", "front")).await;
    t.given(maps, labelled("b", "back")).await;
    t.client.send(&Request::patch("merge", format!("{maps}/b"), &json!({"metadata": {"labels": {"tier": "front"}}}))).await;
    t.client.send(&Request::patch("merge", format!("{maps}/a"), &json!({"data": {"more": "x"}}))).await;
    t.client.send(&Request::patch("merge", format!("{maps}/a"), &json!({"metadata": {"labels": {"tier": "back"}}}))).await;
    t.client.send(&Request::delete(format!("{maps}/b"))).await;
    t.note("All that happened since");
    t.watch(Request::get(format!("{maps}?watch=true&resourceVersion={start}")), 6).await;
    t.note("Entering and leaving a selection");
    t.watch(Request::get(format!("{maps}?watch=true&resourceVersion={start}&labelSelector=tier=front")), 5).await;
    t.watch(Request::get(format!("{maps}?watch=1&resourceVersion={start}&fieldSelector=metadata.name=b")), 3).await;
    t.note("The deprecated paths");
    t.watch(Request::get(format!("/api/v1/watch/namespaces/watch/configmaps?resourceVersion={start}")), 1).await;
    t.watch(Request::get(format!("/api/v1/watch/namespaces/watch/configmaps/b?resourceVersion={start}")), 1).await;
    t.note("From the present state");
    t.watch(Request::get(format!("{maps}?watch=true")), 1).await;
    t.watch(Request::get(format!("{maps}?watch=true&resourceVersion=0")), 1).await;
    t.note("Other forms");
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    t.watch(Request::get(format!("{maps}?watch=true&resourceVersion={start}")).accept(table), 2).await;
    let partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    t.watch(Request::get(format!("{maps}?watch=true&resourceVersion={start}")).accept(partial), 1).await;
    t.note("It ends in time");
    let (response, events) =
        t.client.lines(&Request::get(format!("{maps}?watch=true&timeoutSeconds=1&resourceVersion={start}")), 100).await;
    assert_eq!((response.status.as_u16(), events.len(), response.body.is_empty()), (200, 6, true));
    t.finish();
}

#[tokio::test]
async fn initial_events() {
    let mut t = Transcript::start("initial_events");
    t.namespace("initial").await;
    let maps = "/api/v1/namespaces/initial/configmaps";
    t.given(maps, labelled("a", "front")).await;
    let last = t.given(maps, labelled("b", "back")).await.str("/metadata/resourceVersion");
    let stream = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    t.watch(Request::get(format!("{maps}?{stream}&allowWatchBookmarks=true")), 3).await;
    t.watch(Request::get(format!("{maps}?{stream}&allowWatchBookmarks=true&resourceVersion={last}&labelSelector=tier=back")), 2).await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    t.watch(Request::get(format!("{maps}?{stream}&allowWatchBookmarks=true")).accept(table), 3).await;
    let partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    t.watch(Request::get(format!("{maps}?{stream}&allowWatchBookmarks=true")).accept(partial), 3).await;
    t.note("Without the past");
    let (_, events) = t
        .client
        .lines(&Request::get(format!("{maps}?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&timeoutSeconds=1")), 9)
        .await;
    assert!(events.is_empty(), "{events:?}");
    t.note("Refused");
    for query in [
        "watch=true&sendInitialEvents=true",
        "watch=true&sendInitialEvents=true&resourceVersionMatch=Exact",
        "watch=true&resourceVersionMatch=NotOlderThan",
        "watch=true&resourceVersionMatch=NotOlderThan&resourceVersion=5",
        "sendInitialEvents=true",
    ] {
        t.get(&format!("{maps}?{query}")).await;
    }
    t.refuse(Request::get(format!("{maps}?{stream}&resourceVersion=rubbish")), r#"resourceVersion: Invalid value: "rubbish""#).await;
    t.finish();
}

#[tokio::test]
async fn watch_is_refused() {
    let mut t = Transcript::start("watch_is_refused");
    t.namespace("watch-refused").await;
    let maps = "/api/v1/namespaces/watch-refused/configmaps";
    t.refuse(Request::get(format!("{maps}?watch=true&resourceVersion=rubbish")), r#"resourceVersion: Invalid value: "rubbish""#).await;
    t.get(&format!("{maps}?watch=true&timeoutSeconds=soon")).await;
    t.get(&format!("{maps}?watch=true&labelSelector=a%20b")).await;
    t.get(&format!("{maps}?watch=true&fieldSelector=data.x=y")).await;
    t.send(Request::get(format!("{maps}?watch=true")).accept("text/plain")).await;
    t.get("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews?watch=true").await;
    t.finish();
}
