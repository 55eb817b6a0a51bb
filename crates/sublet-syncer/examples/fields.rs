//! Prints the field names of the synced kinds, for `tests/facts/fields.txt`:
//! `fields OPENAPI_V3_DIR`, the folder `api/openapi-spec/v3` of a Kubernetes release.

use anyhow::Context;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const FILES: [&str; 4] = [
    "api__v1_openapi.json",
    "apis__discovery.k8s.io__v1_openapi.json",
    "apis__networking.k8s.io__v1_openapi.json",
    "apis__policy__v1_openapi.json",
];
const ROOTS: [&str; 9] =
    ["Pod", "Service", "EndpointSlice", "ConfigMap", "Secret", "PersistentVolumeClaim", "Ingress", "NetworkPolicy", "PodDisruptionBudget"];

fn main() -> anyhow::Result<()> {
    let folder = std::env::args().nth(1).context("usage: fields OPENAPI_V3_DIR")?;
    let mut types: BTreeMap<String, Value> = BTreeMap::new();
    for file in FILES {
        let text = std::fs::read_to_string(format!("{folder}/{file}"))?;
        let document: Value = serde_json::from_str(&text)?;
        for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
            types.insert(short(name).to_string(), schema.clone());
        }
    }
    let mut wanted: BTreeSet<String> = ROOTS.iter().map(|r| (*r).to_string()).collect();
    let mut done = BTreeSet::new();
    while let Some(name) = wanted.pop_first() {
        let Some(properties) = types.get(&name).and_then(|t| t["properties"].as_object()) else { continue };
        if name == "ObjectMeta" || !done.insert(name.clone()) {
            continue;
        }
        let mut line = name;
        for (field, schema) in properties {
            let (list, element) = if schema["type"] == "array" { ("[]", &schema["items"]) } else { ("", schema) };
            let type_name = reference(element).filter(|t| types.get(t).is_some_and(|t| t["properties"].is_object())).unwrap_or_default();
            line.push_str(&format!(" {field}:{list}{type_name}"));
            wanted.insert(type_name);
        }
        println!("{line}");
    }
    Ok(())
}

fn reference(schema: &Value) -> Option<String> {
    let direct = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str())?;
    Some(short(direct.rsplit('/').next()?).to_string())
}

fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}
