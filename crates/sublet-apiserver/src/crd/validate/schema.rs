//! The `openAPIV3Schema` of a definition.

use super::super::view::{strings, text};
use super::{defaults, not_supported, structure};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use sublet_machinery::{FieldError, FieldPath, ValueType, structural};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const META_FIELDS: [&str; 3] = ["metadata", "kind", "apiVersion"];

/// Validates the schema of a version, or the one that all versions share.
pub(super) fn validate(schema: &Value, has_status: bool, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if has_status {
        errors.extend(validate_root_with_status(schema, path));
    }
    if schema["nullable"] == true {
        errors.push(FieldError::forbidden(&path.child("nullable"), "nullable cannot be true at the root"));
    }
    // Some schemas cannot even be brought into the structural form; the walk below says why.
    if structure::is_convertible(schema) {
        let structure_errors = structure::validate(schema, path);
        let is_structural = structure_errors.is_empty();
        errors.extend(structure_errors);
        if is_structural {
            errors.extend(defaults::validate(schema, path));
        }
    }
    let mut walker = Walker { errors: Vec::new() };
    let before = errors.len();
    walker.walk(Some(schema), path, &Place { is_root: true, inside_meta: false, no_defaults: None });
    errors.extend(walker.errors);
    if errors.len() == before && !structure::is_convertible(schema) {
        errors.push(FieldError::invalid(path, "", "OpenAPIV3Schema 'schema' is not supported"));
    }
    if errors.is_empty() {
        errors.extend(super::super::rules::validate(schema, path));
    }
    errors
}

/// With a status subresource, status is judged by its own part of the schema, so nothing may be judged
/// across the whole object.
fn validate_root_with_status(schema: &Value, path: &FieldPath) -> Vec<FieldError> {
    // Go's names of the members that are allowed, as the message shows them.
    const ALLOWED: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern \
                           MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example \
                           XPreserveUnknownFields XValidations]";
    const FORBIDDEN: [&str; 22] = [
        "$ref",
        "$schema",
        "additionalItems",
        "definitions",
        "dependencies",
        "id",
        "patternProperties",
        "additionalProperties",
        "allOf",
        "anyOf",
        "default",
        "enum",
        "maxProperties",
        "minProperties",
        "not",
        "nullable",
        "oneOf",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
    ];
    let kind = text(schema, "type");
    if !kind.is_empty() && kind != "object" {
        let detail = r#"only "object" is allowed as the type at the root of the schema if the status subresource is enabled"#;
        return vec![FieldError::invalid(&path.child("type"), kind, detail)];
    }
    if FORBIDDEN.iter().any(|key| schema.get(key).is_some_and(|v| *v != false)) {
        let detail = format!("only {ALLOWED} fields are allowed at the root of the schema if the status subresource is enabled");
        return vec![FieldError::invalid(path, schema.clone(), detail)];
    }
    Vec::new()
}

/// Where in the schema the walk is.
#[derive(Clone)]
struct Place {
    is_root: bool,
    /// Inside of `metadata`, `kind` or `apiVersion`, of the root or an embedded resource.
    inside_meta: bool,
    /// Why defaults are forbidden here.
    no_defaults: Option<String>,
}

struct Walker {
    errors: Vec<FieldError>,
}

impl Walker {
    fn walk(&mut self, schema: Option<&Value>, path: &FieldPath, place: &Place) {
        let Some(schema) = schema.filter(|s| s.is_object()) else { return };
        self.own(schema, path, place);
        let below = Place { is_root: false, ..place.clone() };
        if let Some(additional) = schema.get("additionalProperties") {
            let path = path.child("additionalProperties");
            if schema["properties"].as_object().is_some_and(|p| !p.is_empty()) && *additional != true {
                self.errors.push(FieldError::forbidden(&path, "additionalProperties and properties are mutual exclusive"));
            }
            let mut below = below.clone();
            if place.inside_meta {
                below.no_defaults = Some("inside additionalProperties applying to object metadata".into());
            }
            self.walk(Some(additional), &path, &below);
        }
        let is_resource = place.is_root || schema["x-kubernetes-embedded-resource"] == true;
        for (name, property) in schema["properties"].as_object().into_iter().flat_map(Map::iter) {
            let mut below = below.clone();
            if is_resource && META_FIELDS.contains(&name.as_str()) {
                below.inside_meta = true;
                if place.is_root {
                    below.no_defaults = Some(format!("in top-level {name}"));
                }
            }
            self.walk(Some(property), &path.child("properties").key(name), &below);
        }
        self.walk(schema.get("not"), &path.child("not"), &below);
        for key in ["allOf", "oneOf", "anyOf"] {
            for (index, branch) in schema[key].as_array().into_iter().flatten().enumerate() {
                self.walk(Some(branch), &path.child(key).index(index), &below);
            }
        }
        self.walk(schema.get("items"), &path.child("items"), &below);
        self.extensions(schema, path);
        self.rules(schema, path);
    }

    /// What the schema itself may not say.
    fn own(&mut self, schema: &Value, path: &FieldPath, place: &Place) {
        let kind = text(schema, "type");
        if !kind.is_empty() && !TYPES.contains(&kind) {
            self.errors.push(not_supported(&path.child("type"), kind, &TYPES));
        }
        if let (Some(why), true) = (&place.no_defaults, schema.get("default").is_some()) {
            self.errors.push(FieldError::forbidden(&path.child("default"), format!("must not be set {why}")));
        }
        for key in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
            if schema.get(key).is_some() {
                self.errors.push(FieldError::forbidden(&path.child(key), format!("{key} is not supported")));
            }
        }
        if kind == "null" {
            let detail = "type cannot be set to null, use nullable as an alternative";
            self.errors.push(FieldError::forbidden(&path.child("type"), detail));
        }
        if schema["items"].is_array() {
            self.errors.push(FieldError::forbidden(&path.child("items"), "items must be a schema object and not an array"));
        }
        if place.inside_meta && schema["x-kubernetes-embedded-resource"] == true {
            let path = path.child("x-kubernetes-embedded-resource");
            self.errors.push(FieldError::forbidden(&path, "must not be used inside of resource meta"));
        }
        if schema["uniqueItems"] == true {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.errors.push(FieldError::forbidden(&path.child("uniqueItems"), detail));
        }
    }

    fn extensions(&mut self, schema: &Value, path: &FieldPath) {
        let key = "x-kubernetes-preserve-unknown-fields";
        if schema.get(key) == Some(&Value::Bool(false)) {
            self.errors.push(FieldError::invalid(&path.child(key), false, "must be true or undefined"));
        }
        if let Some(map_type) = schema["x-kubernetes-map-type"].as_str() {
            self.type_must_be(schema, "object", "must be object if x-kubernetes-map-type is specified", path);
            if !matches!(map_type, "atomic" | "granular") {
                self.errors.push(not_supported(&path.child("x-kubernetes-map-type"), map_type, &["atomic", "granular"]));
            }
        }
        let list_type = schema["x-kubernetes-list-type"].as_str();
        let keys = strings(&schema["x-kubernetes-list-map-keys"]);
        if let Some(list_type) = list_type {
            let is_array = self.type_must_be(schema, "array", "must be array if x-kubernetes-list-type is specified", path);
            if is_array && list_type == "set" {
                self.set_items(&schema["items"], &path.child("items"));
            }
            if !matches!(list_type, "atomic" | "set" | "map") {
                self.errors.push(not_supported(&path.child("x-kubernetes-list-type"), list_type, &["atomic", "set", "map"]));
            }
        }
        if !keys.is_empty() && list_type != Some("map") {
            let (path, detail) = (path.child("x-kubernetes-list-type"), "must be map if x-kubernetes-list-map-keys is non-empty");
            self.errors.push(match list_type {
                None => FieldError::required(&path, detail),
                Some(other) => FieldError::invalid(&path, other, detail),
            });
        }
        if list_type == Some("map") {
            self.list_map(schema, &keys, path);
        }
        self.keyed_items(schema, list_type.unwrap_or_default(), &keys, path);
    }

    fn type_must_be(&mut self, schema: &Value, wanted: &str, detail: &str, path: &FieldPath) -> bool {
        let (kind, path) = (text(schema, "type"), path.child("type"));
        match kind {
            "" => self.errors.push(FieldError::required(&path, detail)),
            kind if kind != wanted => self.errors.push(FieldError::invalid(&path, kind, detail)),
            _ => {}
        }
        kind == wanted
    }

    /// Items of a set are compared as a whole, so they must be atomic.
    fn set_items(&mut self, items: &Value, path: &FieldPath) {
        let (list_type, map_type) = (items["x-kubernetes-list-type"].as_str(), items["x-kubernetes-map-type"].as_str());
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        match text(items, "type") {
            "array" if list_type.is_some_and(|t| t != "atomic") => {
                self.errors.push(FieldError::invalid(&path.child("x-kubernetes-list-type"), list_type, detail));
            }
            "object" if map_type != Some("atomic") => {
                // Upstream shows the list type here.
                self.errors.push(FieldError::invalid(&path.child("x-kubernetes-map-type"), list_type, detail));
            }
            _ => {}
        }
    }

    fn list_map(&mut self, schema: &Value, keys: &[String], path: &FieldPath) {
        let keys_path = path.child("x-kubernetes-list-map-keys");
        if keys.is_empty() {
            self.errors.push(FieldError::required(&keys_path, "must not be empty if x-kubernetes-list-type is map"));
        }
        let Some(items) = schema.get("items").filter(|i| i.is_object()) else {
            if schema.get("items").is_none() {
                let detail = "must have a schema if x-kubernetes-list-type is map";
                self.errors.push(FieldError::required(&path.child("items"), detail));
            }
            return;
        };
        let path = path.child("items");
        let kind = text(items, "type");
        if kind != "object" {
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            self.errors.push(FieldError::invalid(&path.child("type"), kind, detail));
            return;
        }
        for (index, key) in keys.iter().enumerate() {
            match items["properties"].get(key).map(|p| text(p, "type")) {
                Some("array" | "object") => {
                    let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    self.errors.push(FieldError::invalid(&path.child("properties").key(key).child("type"), kind, detail));
                }
                Some(_) => {}
                None => {
                    self.errors.push(FieldError::invalid(&keys_path, keys.to_vec(), "entries must all be names of item properties"));
                }
            }
            if keys[..index].contains(key) {
                self.errors.push(FieldError::invalid(&keys_path, keys.to_vec(), "must not contain duplicate entries"));
            }
        }
    }

    /// Items that are found by key or value are never null, and neither are keys.
    fn keyed_items(&mut self, schema: &Value, list_type: &str, keys: &[String], path: &FieldPath) {
        let items = &schema["items"];
        if !items.is_object() || !matches!(list_type, "set" | "map") {
            return;
        }
        let path = path.child("items");
        if items["nullable"] == true {
            let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
            self.errors.push(FieldError::forbidden(&path.child("nullable"), detail));
        }
        if list_type != "map" {
            return;
        }
        let required = strings(&items["required"]);
        for key in keys {
            let Some(property) = items["properties"].get(key) else { continue };
            let path = path.child("properties").key(key);
            if !required.contains(key) && property.get("default").is_none() {
                let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                self.errors.push(FieldError::required(&path.child("default"), detail));
            }
            if property["nullable"] == true {
                let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                self.errors.push(FieldError::forbidden(&path.child("nullable"), detail));
            }
        }
    }

    /// The form of CEL rules; what they say is checked when the rest is right.
    fn rules(&mut self, schema: &Value, path: &FieldPath) {
        const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
        let has_newline = |text: &str| text.contains(['\n', '\r']);
        for (index, rule) in schema["x-kubernetes-validations"].as_array().into_iter().flatten().enumerate() {
            let path = path.child("x-kubernetes-validations").index(index);
            let (expression, message, field) = (text(rule, "rule").trim(), text(rule, "message"), text(rule, "fieldPath"));
            if expression.is_empty() {
                self.errors.push(FieldError::required(&path.child("rule"), "rule is not specified"));
            } else if !message.is_empty() && message.trim().is_empty() {
                self.errors.push(FieldError::invalid(&path.child("message"), message, "must be non-empty if specified"));
            } else if has_newline(message.trim()) {
                self.errors.push(FieldError::invalid(&path.child("message"), message, "must not contain line breaks"));
            } else if has_newline(expression) && message.trim().is_empty() {
                let detail = "message must be specified if rule contains line breaks";
                self.errors.push(FieldError::required(&path.child("message"), detail));
            }
            let message_expression = text(rule, "messageExpression");
            if !message_expression.is_empty() && message_expression.trim().is_empty() {
                let detail = "messageExpression must be non-empty if specified";
                self.errors.push(FieldError::required(&path.child("messageExpression"), detail));
            }
            if let Some(reason) = rule["reason"].as_str().filter(|r| !REASONS.contains(r)) {
                self.errors.push(not_supported(&path.child("reason"), reason, &REASONS));
            }
            let path = path.child("fieldPath");
            if !field.is_empty() && field.trim().is_empty() {
                self.errors.push(FieldError::invalid(&path, field, "must be non-empty if specified"));
            }
            if has_newline(field) {
                self.errors.push(FieldError::invalid(&path, field, "must not contain line breaks"));
            }
            if !field.is_empty() && super::field_path(field, structural::build_plain(schema).node(), true).is_err() {
                self.errors.push(FieldError::invalid(&path, field, "must be a valid path"));
            }
        }
    }
}

/// Collects `unrecognized format "x"`, and sets of items that cannot be merged.
pub(super) fn warnings(schema: &Value, formats: &mut Vec<String>, sets: &mut BTreeSet<String>) {
    let (format, kind) = (text(schema, "format"), text(schema, "type"));
    let value_type = match kind {
        "" => ValueType::Any,
        "string" => ValueType::String,
        "integer" => ValueType::Integer,
        "number" => ValueType::Number,
        _ => ValueType::Object,
    };
    if !format.is_empty() && !structural::format::is_enforced(format, value_type) {
        formats.push(format!("unrecognized format {format:?}"));
    }
    let item = text(&schema["items"], "type");
    if schema["x-kubernetes-list-type"] == "set" && matches!(item, "object" | "array") {
        sets.insert(format!(
            "x-kubernetes-list-type: set for items of type {item:?} is not supported by server-side apply or CEL validation rules"
        ));
    }
    for key in ["items", "not", "additionalProperties"] {
        if let Some(below) = schema.get(key).filter(|s| s.is_object()) {
            warnings(below, formats, sets);
        }
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        schema[key].as_array().into_iter().flatten().for_each(|below| warnings(below, formats, sets));
    }
    schema["properties"].as_object().into_iter().flat_map(Map::values).for_each(|below| warnings(below, formats, sets));
}
