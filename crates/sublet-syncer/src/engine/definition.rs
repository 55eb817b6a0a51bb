//! A kind of the host as the tenant's API server defines it.

use super::ownership;
use serde_json::{Map, Value, json};
use sublet_api::marks;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::CUSTOM_RESOURCE_DEFINITIONS;

/// What those who made a definition say about it, for their tools.
const ANNOTATIONS: [&str; 2] = ["api-approved.kubernetes.io", "gateway.networking.k8s.io/"];

/// The tenant's definition after the host's. What converts between versions runs on the host alone, so
/// where that is needed the tenant has one version.
pub fn for_tenant(host: &Value, version: &str) -> Value {
    let mut spec = json!({});
    for field in ["group", "names", "scope", "versions"] {
        spec[field] = host["spec"][field].clone();
    }
    let converted = host.str_at("/spec/conversion/strategy") == Some("Webhook");
    if let Some(versions) = spec["versions"].as_array_mut() {
        versions.retain(|v| v["name"] == version || !converted && (v["served"] == true || v["storage"] == true));
        for v in versions {
            if converted {
                v["storage"] = json!(true);
            }
            drop_descriptions(&mut v["schema"]);
        }
    }
    let annotations = host.annotations().into_iter().flatten().filter(|(key, _)| ANNOTATIONS.iter().any(|a| key.starts_with(a)));
    let annotations: Map<String, Value> = annotations.map(|(k, v)| (k.clone(), v.clone())).collect();
    let mut definition = json!({
        "apiVersion": CUSTOM_RESOURCE_DEFINITIONS.api_version(), "kind": "CustomResourceDefinition",
        "metadata": {"name": host.name(), "annotations": annotations}, "spec": spec,
    });
    definition.set_label(marks::MANAGED_BY, marks::MANAGER);
    definition.set_annotation(marks::APPLIED, &ownership::digest(&definition));
    definition
}

/// Prose is most of a schema, and every tenant would hold it in memory.
fn drop_descriptions(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map.get("description").is_some_and(Value::is_string) {
                map.remove("description");
            }
            map.iter_mut()
                .filter(|(key, _)| !matches!(key.as_str(), "default" | "enum" | "example"))
                .for_each(|(_, v)| drop_descriptions(v));
        }
        Value::Array(items) => items.iter_mut().for_each(drop_descriptions),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(conversion: &str) -> Value {
        let version = |name: &str, storage: bool| {
            json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object", "description": "long", "properties": {
                "description": {"type": "string", "description": "of it", "default": "x"}}}}})
        };
        json!({
            "metadata": {"name": "things.example.com", "uid": "u", "annotations": {"api-approved.kubernetes.io": "yes", "other": "x"}},
            "spec": {"group": "example.com", "names": {"kind": "Thing"}, "scope": "Namespaced", "conversion": {"strategy": conversion},
                "versions": [version("v1", false), version("v1beta1", true)]},
            "status": {"conditions": []},
        })
    }

    #[test]
    fn the_tenants_definition_needs_nothing_of_the_host() {
        let converted = for_tenant(&host("Webhook"), "v1");
        assert_eq!(converted.array_at("/spec/versions").len(), 1);
        assert_eq!(converted.pointer("/spec/versions/0/storage"), Some(&json!(true)));
        assert!(converted["spec"]["conversion"].is_null() && converted["status"].is_null() && converted.annotation("other").is_none());
        assert_eq!(for_tenant(&host("None"), "v1").array_at("/spec/versions").len(), 2);
    }

    #[test]
    fn prose_goes_and_fields_stay() {
        let schema = for_tenant(&host("None"), "v1")["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
        assert_eq!(schema, json!({"type": "object", "properties": {"description": {"type": "string", "default": "x"}}}));
    }
}
