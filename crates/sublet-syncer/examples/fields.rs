//! Prints the field names of the synced kinds, for `tests/facts/fields.txt`:
//! `fields OPENAPI_V3_DIR VERSION=CRD_FILE...`, the folder `api/openapi-spec/v3` of a Kubernetes release, and
//! definitions of kinds beyond it with the version that is synced (`v1=gateways.yaml`).

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
    for argument in std::env::args().skip(2) {
        let (version, file) = argument.split_once('=').context("usage: VERSION=CRD_FILE")?;
        let definition: Value = serde_saphyr::from_str(&std::fs::read_to_string(file)?)?;
        let versions = definition["spec"]["versions"].as_array().context("a definition has versions")?;
        let schema = versions.iter().find(|v| v["name"] == version).context("no such version")?;
        let kind = definition["spec"]["names"]["kind"].as_str().context("a definition has a kind")?;
        print_defined(kind, &schema["schema"]["openAPIV3Schema"]);
    }
    Ok(())
}

/// Types inside a definition have no names: they are given those of their paths.
fn print_defined(name: &str, schema: &Value) {
    let mut below = Vec::new();
    let mut line = name.to_string();
    for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
        let (list, element) = if schema["type"] == "array" { ("[]", &schema["items"]) } else { ("", schema) };
        let named = element["properties"].is_object().then(|| format!("{name}{}{}", field[..1].to_uppercase(), &field[1..]));
        line.push_str(&format!(" {field}:{list}{}", named.as_deref().unwrap_or_default()));
        below.extend(named.map(|n| (n, element)));
    }
    println!("{line}");
    for (name, schema) in below {
        print_defined(&name, schema);
    }
}

fn reference(schema: &Value) -> Option<String> {
    let direct = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str())?;
    Some(short(direct.rsplit('/').next()?).to_string())
}

fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}
