//! Lists in pages, and lists at a version.

use super::config_map;
use crate::harness::{Request, Transcript};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::json;

#[tokio::test]
async fn paging() {
    let mut t = Transcript::start("paging");
    t.namespace("paging").await;
    let maps = "/api/v1/namespaces/paging/configmaps";
    for name in ["a", "b", "c", "d", "e"] {
        t.given(maps, config_map(name, json!({}))).await;
    }
    let shown = ["/metadata", "/items/0/metadata/name", "/items/1/metadata/name", "/items/2/metadata/name"];
    let first = t.send_for(Request::get(format!("{maps}?limit=2")), &shown).await;
    t.note("Pages stay at the version of the first");
    t.client.send(&Request::delete(format!("{maps}/c"))).await;
    t.given(maps, config_map("bb", json!({}))).await;
    let second = t.send_for(Request::get(format!("{maps}?limit=2&continue={}", first.str("/metadata/continue"))), &shown).await;
    t.send_for(Request::get(format!("{maps}?limit=2&continue={}", second.str("/metadata/continue"))), &shown).await;
    t.send_for(Request::get(format!("{maps}?continue={}", first.str("/metadata/continue"))), &shown).await;
    t.note("Limits at the edge");
    t.send_for(Request::get(format!("{maps}?limit=5")), &shown[..1]).await;
    t.send_for(Request::get(format!("{maps}?limit=500")), &shown[..1]).await;
    t.send_for(Request::get(format!("{maps}?limit=0")), &shown[..1]).await;
    t.send_for(Request::get(format!("{maps}?limit=-1")), &shown[..1]).await;
    t.get(&format!("{maps}?limit=many")).await;
    t.note("With selectors nobody counts what is left");
    t.send_for(Request::get(format!("{maps}?limit=1&fieldSelector=metadata.name!=a")), &["/metadata", "/items/0/metadata/name"]).await;
    t.note("Rubbish");
    let token = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
    for bad in [
        "rubbish".to_string(),
        "!!!".to_string(),
        token("{}"),
        token("no json"),
        token(r#"{"v":"meta.k8s.io/v2","rv":5,"start":"a\u0000"}"#),
        token(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a\u0000"}"#),
        token(r#"{"v":"meta.k8s.io/v1","rv":5,"start":""}"#),
        token(r#"{"v":"meta.k8s.io/v1","rv":5,"start":"../../secrets"}"#),
    ] {
        t.mask.add(
            bad.clone(),
            format!("<{}>", String::from_utf8_lossy(&BASE64_URL_SAFE_NO_PAD.decode(&bad).unwrap_or(bad.clone().into_bytes()))),
        );
        t.get(&format!("{maps}?limit=2&continue={bad}")).await;
    }
    t.get(&format!("{maps}?limit=2&continue={}&resourceVersion=5", first.str("/metadata/continue"))).await;
    t.get(&format!("{maps}?limit=2&continue={}&resourceVersionMatch=Exact", first.str("/metadata/continue"))).await;
    t.finish();
}

#[tokio::test]
async fn versions() {
    let mut t = Transcript::start("versions");
    t.namespace("versions").await;
    let maps = "/api/v1/namespaces/versions/configmaps";
    let first = t.given(maps, config_map("a", json!({}))).await.str("/metadata/resourceVersion");
    let second = t.given(maps, config_map("b", json!({}))).await.str("/metadata/resourceVersion");
    let shown = ["/metadata", "/items/0/metadata/name", "/items/1/metadata/name"];
    for query in [
        "resourceVersion=0".to_string(),
        format!("resourceVersion={second}"),
        format!("resourceVersion={second}&resourceVersionMatch=NotOlderThan"),
        format!("resourceVersion={first}&resourceVersionMatch=Exact"),
        format!("resourceVersion={second}&resourceVersionMatch=Exact&limit=1"),
        "resourceVersion=0&resourceVersionMatch=NotOlderThan".to_string(),
        "resourceVersion=0&resourceVersionMatch=Exact".to_string(),
        "resourceVersionMatch=Exact".to_string(),
        "resourceVersionMatch=Nearly&resourceVersion=5".to_string(),
        "resourceVersion=rubbish".to_string(),
        "resourceVersion=-1".to_string(),
    ] {
        t.send_for(Request::get(format!("{maps}?{query}")), &shown).await;
    }
    t.note("Of one object");
    t.send_for(Request::get(format!("{maps}/a?resourceVersion=0")), &["/metadata/name"]).await;
    t.send_for(Request::get(format!("{maps}/a?resourceVersion={second}")), &["/metadata/name"]).await;
    t.refuse(Request::get(format!("{maps}/a?resourceVersion=rubbish")), r#"resourceVersion: Invalid value: "rubbish""#).await;
    t.note("The future");
    t.send_for(Request::get(format!("{maps}?resourceVersion=999999999&timeoutSeconds=1")), &shown).await;
    t.finish();
}
