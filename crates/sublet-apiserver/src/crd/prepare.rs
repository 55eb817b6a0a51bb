//! What the server fills in on a CustomResourceDefinition before it is validated.

use super::view;
use serde_json::{Map, Value, json};
use sublet_machinery::ObjectExt;

/// Defaults of the kind. Idempotent.
pub fn default(crd: &mut Value) {
    let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let kind = spec.get("names").and_then(|n| n["kind"].as_str()).unwrap_or_default().to_string();
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let is_empty = |names: &Map<String, Value>, key: &str| names.get(key).is_none_or(|v| v == "" || v.is_null());
        if is_empty(names, "singular") && !kind.is_empty() {
            names.insert("singular".into(), json!(kind.to_lowercase()));
        }
        if is_empty(names, "listKind") && !kind.is_empty() {
            names.insert("listKind".into(), json!(format!("{kind}List")));
        }
    }
    let conversion = spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
    if let Some(service) = conversion.pointer_mut("/webhook/clientConfig/service").and_then(Value::as_object_mut) {
        service.entry("port").or_insert_with(|| json!(443));
    }
    // Go writes these two of every version.
    for version in spec.get_mut("versions").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(version) = version.as_object_mut() {
            for key in ["served", "storage"] {
                version.entry(key).or_insert(json!(false));
            }
            if let Some(schema) = version.get_mut("schema").and_then(|s| s.get_mut("openAPIV3Schema")) {
                clean_schema(schema);
            }
        }
    }
    let stored = crd.array_at("/status/storedVersions").is_empty();
    if stored && let Some(version) = view::storage_version(crd).map(str::to_string) {
        crd.set_at("/status/storedVersions", json!([version]));
    }
}

/// Clears what clients may not set. `old` is the stored object of an update of the main resource.
pub fn prepare(crd: &mut Value, old: Option<&Value>) {
    let status = match old {
        Some(old) => old.get("status").cloned().unwrap_or_else(|| json!({})),
        // What Go writes for a status that nobody has set.
        None => json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null}),
    };
    crd["status"] = status;
    if let Some(version) = view::storage_version(crd).map(str::to_string)
        && !crd.array_at("/status/storedVersions").iter().any(|v| v == version.as_str())
    {
        let mut stored = crd.array_at("/status/storedVersions").to_vec();
        stored.push(json!(version));
        crd.set_at("/status/storedVersions", Value::Array(stored));
    }
    match old {
        None => {
            crd.metadata_mut().insert("generation".into(), json!(1));
        }
        Some(old) if old.get("spec") != crd.get("spec") => {
            let generation = old.generation() + 1;
            crd.metadata_mut().insert("generation".into(), json!(generation));
        }
        Some(_) => {}
    }
}

/// An update of `/status` keeps the spec, and of the metadata what status may not change.
pub fn prepare_status_update(new: &mut Value, old: &Value) {
    new["spec"] = old["spec"].clone();
    for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation", "uid", "creationTimestamp"] {
        match old["metadata"].get(key).cloned() {
            Some(value) => new["metadata"][key] = value,
            None => {
                new.metadata_mut().remove(key);
            }
        }
    }
}

/// The members of JSONSchemaProps.
const SCHEMA_KEYS: [&str; 44] = [
    "$ref",
    "$schema",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "default",
    "definitions",
    "dependencies",
    "description",
    "enum",
    "example",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "externalDocs",
    "format",
    "id",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "nullable",
    "oneOf",
    "pattern",
    "patternProperties",
    "properties",
    "required",
    "title",
    "type",
    "uniqueItems",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];

/// Texts that say something even when they are empty.
const POINTERS: [&str; 3] = ["$ref", "x-kubernetes-list-type", "x-kubernetes-map-type"];

/// Maps that say nothing when they are empty; to have `dependencies` is wrong in any case.
const MAPS: [&str; 3] = ["definitions", "patternProperties", "properties"];

/// Drops what Go's type of a schema does not have, and what it leaves out when it is empty. Schemas
/// below `items` and `additionalProperties` are read by code of their own, so no strict reader sees them.
fn clean_schema(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    map.retain(|key, value| {
        let is_empty = match value {
            Value::Null => true,
            Value::String(text) => text.is_empty() && !POINTERS.contains(&key.as_str()),
            Value::Bool(flag) => !*flag && !matches!(key.as_str(), "additionalProperties" | "x-kubernetes-preserve-unknown-fields"),
            Value::Array(items) => items.is_empty(),
            Value::Object(map) => map.is_empty() && MAPS.contains(&key.as_str()),
            _ => false,
        };
        SCHEMA_KEYS.contains(&key.as_str()) && (!is_empty || key == "default" && !value.is_null())
    });
    for (key, value) in map {
        match key.as_str() {
            "items" | "additionalProperties" | "not" => clean_schema(value),
            "allOf" | "anyOf" | "oneOf" => value.as_array_mut().into_iter().flatten().for_each(clean_schema),
            "properties" => value.as_object_mut().into_iter().flat_map(Map::values_mut).for_each(clean_schema),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_conversion_have_defaults() {
        let mut crd = json!({"spec": {"names": {"kind": "Foo", "plural": "foos"}, "versions": [{"name": "v1", "storage": true}]}});
        default(&mut crd);
        assert_eq!(crd["spec"]["names"], json!({"kind": "Foo", "plural": "foos", "singular": "foo", "listKind": "FooList"}));
        assert_eq!(crd["spec"]["conversion"], json!({"strategy": "None"}));
        assert_eq!(crd["status"]["storedVersions"], json!(["v1"]));
    }

    #[test]
    fn a_new_storage_version_is_remembered_and_status_is_not_the_clients() {
        let spec = |storage: &str| {
            let versions = ["v1", "v2"].map(|v| json!({"name": v, "storage": v == storage}));
            json!({"versions": versions})
        };
        let mut crd = json!({"metadata": {}, "spec": spec("v1"), "status": {"storedVersions": ["v9"]}});
        prepare(&mut crd, None);
        assert_eq!(crd["status"]["storedVersions"], json!(["v1"]));
        let old = crd.clone();
        crd["spec"] = spec("v2");
        crd["status"] = json!({});
        prepare(&mut crd, Some(&old));
        assert_eq!(crd["status"]["storedVersions"], json!(["v1", "v2"]));
        assert_eq!(crd.generation(), 2);
    }

    #[test]
    fn schemas_keep_only_what_their_type_has() {
        let mut schema = json!({"type": "array", "nullable": false, "items": {"type": "string", "x-foo": 1, "default": ""}});
        clean_schema(&mut schema);
        assert_eq!(schema, json!({"type": "array", "items": {"type": "string", "default": ""}}));
    }
}
