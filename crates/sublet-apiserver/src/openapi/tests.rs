use super::*;
use crate::registry::{Registry, Snapshot, builtin_rows};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;

fn builtin() -> Arc<Snapshot> {
    Registry::new(builtin_rows()).snapshot()
}

fn v2() -> Value {
    let mut out = Vec::new();
    write_v2_document(&builtin(), &mut out).expect("memory can be written");
    serde_json::from_slice(&out).expect("JSON")
}

fn v3(name: &str) -> Value {
    let mut out = Vec::new();
    assert!(write_v3_document(name, &builtin(), &mut out).expect("memory can be written"), "{name}");
    serde_json::from_slice(&out).expect("JSON")
}

/// Without descriptions, and with lists of words in one order.
fn bare(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, value)| *key != "description" || !value.is_string());
            Value::Object(kept.map(|(key, value)| (key.clone(), bare(value))).collect())
        }
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(bare).collect();
            if items.iter().all(Value::is_string) {
                items.sort_by_key(Value::to_string);
            }
            Value::Array(items)
        }
        other => other.clone(),
    }
}

fn hash(text: &str) -> String {
    Sha256::digest(text).iter().take(8).map(|b| format!("{b:02x}")).collect()
}

/// The hash is that of the same lines made from the document of a 1.37.2 server.
#[test]
fn operations_are_upstreams() {
    let document = v2();
    let mut lines = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("an item").iter().filter(|(method, _)| *method != "parameters") {
            let kind = &operation["x-kubernetes-group-version-kind"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
            let words = [&operation["operationId"], &operation["x-kubernetes-action"], &kind["group"], &kind["version"], &kind["kind"]];
            lines.push(format!("{method} {path} {}", words.map(text).join(" ")));
        }
    }
    lines.sort();
    assert_eq!(document["paths"].as_object().map(serde_json::Map::len), Some(432));
    assert_eq!((lines.len(), hash(&lines.join("\n")).as_str()), (OPERATIONS, OPERATIONS_HASH));
}

/// The hash is that of the definitions of a 1.37.2 server without their descriptions.
#[test]
fn definitions_are_upstreams() {
    let definitions = bare(&v2()["definitions"]);
    assert_eq!(definitions.as_object().map(serde_json::Map::len), Some(624));
    assert_eq!(hash(&definitions.to_string()), DEFINITIONS_HASH);
}

#[test]
fn version_3_has_a_document_per_group_version() {
    let names = v3_document_names(&builtin());
    assert_eq!(names.len(), 49);
    for name in &names {
        assert!(has_v3_document(name, &builtin()), "{name}");
    }
    assert!(!has_v3_document("apis/nope/v1", &builtin()));
}

#[test]
fn references_of_version_3_lead_somewhere() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str).map(str::to_string));
                map.values().for_each(|v| references(v, found));
            }
            Value::Array(items) => items.iter().for_each(|v| references(v, found)),
            _ => {}
        }
    }
    for name in v3_document_names(&builtin()) {
        let document = v3(&name);
        let mut found = Vec::new();
        references(&document, &mut found);
        for reference in found {
            assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{name}: {reference}");
        }
    }
}

#[test]
fn apply_can_be_seen_to_validate_fields() {
    let document = v3("apis/apps/v1");
    let patch = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    let names: Vec<&str> = patch["parameters"].as_array().expect("parameters").iter().filter_map(|p| p["name"].as_str()).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Deployment");
    let protocol = &v3("api/v1")["components"]["schemas"]["io.k8s.api.core.v1.ContainerPort"]["properties"]["protocol"];
    assert_eq!(protocol["default"], "TCP");
}

/// A client compares the published root with what it gave: it must not gain the marks of a resource inside of another.
#[test]
fn the_root_of_a_custom_resource_says_what_its_definition_says() {
    let schema = json!({"type": "object", "description": "Foo", "properties": {"spec": {"type": "object", "properties": {
        "template": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}}});
    let crd = json!({
        "metadata": {"name": "foos.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
        "status": {"conditions": [{"type": "Established", "status": "True"}, {"type": "NamesAccepted", "status": "True"}],
            "acceptedNames": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"}},
    });
    let [row] = &crate::crd::rows(&crd)[..] else { panic!("one version is served") };
    let types = types::Types::load();
    for version in [Version::V2, Version::V3] {
        let writer = custom::Writer { version, descriptions: &types.descriptions };
        let [(_, kind), _] = writer.types(row);
        let mut keys: Vec<&String> = kind.as_object().expect("an object").keys().collect();
        keys.sort();
        assert_eq!(keys, ["description", "properties", "type", "x-kubernetes-group-version-kind"]);
        assert_eq!(kind["properties"]["spec"]["properties"]["template"]["x-kubernetes-embedded-resource"], true);
    }
}

const OPERATIONS: usize = 866;
const OPERATIONS_HASH: &str = "bb3961dabfddd14c";
const DEFINITIONS_HASH: &str = "1462b6b369ed2d0c";
