//! How answers are written: tables, metadata alone, YAML, compressed.

use super::{config_map, deployment, pod};
use crate::harness::{Request, Transcript};
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use std::io::Read as _;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

#[tokio::test]
async fn tables() {
    let mut t = Transcript::start("tables");
    t.namespace_for_pods("tables").await;
    let maps = "/api/v1/namespaces/tables/configmaps";
    t.given(maps, config_map("a", json!({"x": "y"}))).await;
    t.given("/apis/apps/v1/namespaces/tables/deployments", deployment("web", 3)).await;
    t.given("/api/v1/namespaces/tables/pods", pod("p")).await;
    // Ages differ from run to run; what is fresh is a few seconds old.
    for age in 0..60 {
        t.mask.add(format!("{age}s"), "<age>");
    }
    t.send(Request::get(maps).accept(TABLE)).await;
    t.send(Request::get(format!("{maps}/a")).accept(TABLE)).await;
    t.send(Request::get(format!("{maps}?includeObject=None")).accept(TABLE)).await;
    t.send(Request::get(format!("{maps}?includeObject=Object")).accept(TABLE)).await;
    t.send(Request::get(format!("{maps}?includeObject=Some")).accept(TABLE)).await;
    t.send(Request::get("/apis/apps/v1/namespaces/tables/deployments?includeObject=None").accept(TABLE)).await;
    t.send(Request::get("/api/v1/namespaces/tables/pods?includeObject=None").accept(TABLE)).await;
    t.send(Request::get("/api/v1/namespaces/tables/secrets").accept(TABLE)).await;
    t.send(Request::post(maps, &config_map("created", json!({}))).accept(TABLE)).await;
    t.send(Request::delete(format!("{maps}/created")).accept(TABLE)).await;
    t.send(Request::get(format!("{maps}/absent")).accept(TABLE)).await;
    t.finish();
}

#[tokio::test]
async fn partial_metadata() {
    let mut t = Transcript::start("partial_metadata");
    t.namespace("partial").await;
    let maps = "/api/v1/namespaces/partial/configmaps";
    t.given(maps, config_map("a", json!({"x": "y"}))).await;
    t.send(Request::get(format!("{maps}/a")).accept(METADATA)).await;
    t.send(Request::get(maps).accept(METADATA_LIST)).await;
    t.send(Request::get(maps).accept(METADATA)).await;
    t.send(Request::get(format!("{maps}/a")).accept(METADATA_LIST)).await;
    t.send(Request::patch("merge", format!("{maps}/a"), &json!({"metadata": {"labels": {"l": "1"}}})).accept(METADATA)).await;
    t.note("Forms that nobody has");
    t.send(Request::get(maps).accept("application/json;as=Picture;v=v1;g=meta.k8s.io")).await;
    t.send(Request::get(maps).accept("application/json;as=Picture;v=v1;g=meta.k8s.io,application/json")).await;
    t.send(Request::get(maps).accept("image/png")).await;
    t.send(Request::get(maps).accept("image/png, */*")).await;
    t.finish();
}

#[tokio::test]
async fn yaml() {
    let mut t = Transcript::start("yaml");
    t.namespace("yaml").await;
    let maps = "/api/v1/namespaces/yaml/configmaps";
    let yaml =
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: text\ndata:\n  text: |\n    two\n    lines\n  yes: \"yes\"\n  number: \"1\"\n";
    let request = Request::new(http::Method::POST, maps).body("application/yaml", yaml);
    let created = t.send(request).await.json();
    // YAML 1.1 has it that `yes` is true.
    assert_eq!(created["data"], json!({"text": "two\nlines\n", "true": "yes", "number": "1"}));
    let answer = t.client.send(&Request::get(format!("{maps}/text")).accept("application/yaml")).await;
    assert_eq!(answer.header("content-type").as_deref(), Some("application/yaml"));
    let parsed: Value = serde_saphyr::from_str(&answer.text()).unwrap();
    assert_eq!((&parsed["data"], &parsed["kind"]), (&created["data"], &created["kind"]));
    t.note("Errors too");
    let error = t.client.send(&Request::get(format!("{maps}/absent")).accept("application/yaml")).await;
    assert_eq!((error.status.as_u16(), error.header("content-type").as_deref()), (404, Some("application/yaml")));
    assert_eq!(serde_saphyr::from_str::<Value>(&error.text()).unwrap()["reason"], "NotFound");
    t.note("Bad YAML");
    t.send(Request::new(http::Method::POST, maps).body("application/yaml", "a: [")).await;
    t.send(Request::new(http::Method::POST, maps).body("application/yaml", "- a\n- b\n")).await;
    t.send(Request::new(http::Method::POST, maps).body("application/yaml", "just text")).await;
    t.note("Pretty JSON");
    let pretty = t.client.send(&Request::get(format!("{maps}/text?pretty=true"))).await.text();
    assert!(pretty.starts_with("{\n  \""), "{pretty}");
    t.finish();
}

#[tokio::test]
async fn compressed() {
    let t = Transcript::start("compressed");
    t.namespace("gzip").await;
    let maps = "/api/v1/namespaces/gzip/configmaps";
    t.given(maps, config_map("big", json!({"x": "y".repeat(200_000)}))).await;
    t.given(maps, config_map("small", json!({}))).await;
    let small = t.client.send(&Request::get(format!("{maps}/small")).header("accept-encoding", "gzip")).await;
    assert_eq!(small.header("content-encoding"), None);
    let plain = t.client.send(&Request::get(format!("{maps}/big"))).await;
    assert_eq!(plain.header("content-encoding"), None);
    let big = t.client.send(&Request::get(format!("{maps}/big")).header("accept-encoding", "deflate, gzip")).await;
    assert_eq!(big.header("content-encoding").as_deref(), Some("gzip"));
    assert!(big.body.len() < 10_000);
    let mut text = String::new();
    GzDecoder::new(&*big.body).read_to_string(&mut text).unwrap();
    assert_eq!(text, plain.text());
}
