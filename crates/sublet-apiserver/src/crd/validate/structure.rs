//! Structural schemas: types are stated outside of `allOf`, `anyOf`, `oneOf` and `not`, metadata is left
//! alone, and whatever is judged inside of them is described outside.

use super::super::view::text;
use serde_json::{Map, Value, json};
use sublet_machinery::{FieldError, FieldPath};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// All breaches, in the order of their text as upstream sorts them.
pub(super) fn validate(schema: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    invariants(schema, Level::Root, path, &mut errors);
    complete(schema, Some(schema), path, path, &mut errors);
    errors.sort_by_key(ToString::to_string);
    errors
}

/// Whether the schema says nothing that has no place in a structural one.
pub(super) fn is_convertible(schema: &Value) -> bool {
    const UNSUPPORTED: [&str; 7] = ["id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"];
    let own = UNSUPPORTED.iter().all(|key| schema.get(key).is_none())
        && !schema["items"].is_array()
        && schema["x-kubernetes-preserve-unknown-fields"] != false;
    own && ["items", "not", "additionalProperties"].iter().all(|key| schema.get(key).is_none_or(is_convertible))
        && ["allOf", "anyOf", "oneOf"].iter().all(|key| branches(schema, key).all(|(_, branch)| is_convertible(branch)))
        && members(schema, "properties").all(|(_, property)| is_convertible(property))
}

fn flag(schema: &Value, key: &str) -> bool {
    schema[key] == true
}

fn members<'a>(schema: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    schema[key].as_object().into_iter().flat_map(Map::iter)
}

fn branches<'a>(schema: &'a Value, key: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    schema[key].as_array().into_iter().flatten().enumerate()
}

fn invariants(schema: &Value, level: Level, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type");
    match schema.get("items") {
        Some(items) => invariants(items, Level::Item, &path.child("items"), errors),
        None if kind == "array" => errors.push(FieldError::required(&path.child("items"), "must be specified")),
        None => {}
    }
    for (name, property) in members(schema, "properties") {
        invariants(property, Level::Field, &path.child("properties").key(name), errors);
    }
    if let Some(additional) = schema.get("additionalProperties") {
        let path = path.child("additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(&path, "must not be used at the root"));
        }
        if additional.is_object() {
            invariants(additional, Level::Field, &path, errors);
        }
    }
    extensions(schema, path, errors);
    let int_or_string = json!([{"type": "integer"}, {"type": "string"}]);
    let skip_any_of = schema["anyOf"] == int_or_string;
    let skip_first = schema.pointer("/allOf/0/anyOf") == Some(&int_or_string);
    validations(schema, skip_any_of, skip_first, path, errors);
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    type_is_stated(schema, level, path, errors);
    if embedded && schema.get("additionalProperties").is_some() {
        let path = path.child("additionalProperties");
        errors.push(FieldError::forbidden(&path, "must not be used if x-kubernetes-embedded-resource is set"));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(&path.child("type"), kind, "must be object at the root"));
    }
    metadata(schema, level, path, errors);
    let is_open = flag(schema, "x-kubernetes-preserve-unknown-fields");
    if embedded && !is_open && members(schema, "properties").next().is_none() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(&path.child("properties"), detail));
    }
}

fn extensions(schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if flag(schema, "x-kubernetes-int-or-string") {
        for key in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
            if flag(schema, key) {
                errors.push(FieldError::invalid(&path.child(key), true, "must be false if x-kubernetes-int-or-string is true"));
            }
        }
    }
}

fn type_is_stated(schema: &Value, level: Level, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type");
    let path = path.child("type");
    if flag(schema, "x-kubernetes-embedded-resource") && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if kind.is_empty() { FieldError::required(&path, detail) } else { FieldError::invalid(&path, kind, detail) });
        return;
    }
    let may_be_empty = flag(schema, "x-kubernetes-int-or-string") || flag(schema, "x-kubernetes-preserve-unknown-fields");
    if kind.is_empty() && !may_be_empty {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(&path, detail));
    }
}

fn metadata(schema: &Value, level: Level, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let checked = level == Level::Root || flag(schema, "x-kubernetes-embedded-resource");
    let properties = path.child("properties");
    for key in ["kind", "apiVersion"] {
        if let Some(property) = schema["properties"].get(key).filter(|p| checked && text(p, "type") != "string") {
            errors.push(FieldError::invalid(&properties.key(key).child("type"), text(property, "type"), "must be string"));
        }
    }
    let Some(metadata) = schema["properties"].get("metadata") else { return };
    let path = properties.key("metadata");
    if checked && text(metadata, "type") != "object" {
        errors.push(FieldError::invalid(&path.child("type"), text(metadata, "type"), "must be object"));
    }
    let only_names = members(metadata, "properties").all(|(name, _)| name == "name" || name == "generateName");
    let others = metadata.as_object().is_some_and(|m| m.keys().any(|k| !matches!(k.as_str(), "type" | "properties" | "default")));
    if level == Level::Root && (others || !only_names) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(&path, detail));
    }
}

fn validations(schema: &Value, skip_any_of: bool, skip_first: bool, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if !skip_any_of {
        for (index, branch) in branches(schema, "anyOf") {
            nested(branch, false, &path.child("anyOf").index(index), errors);
        }
    }
    for (index, branch) in branches(schema, "allOf") {
        nested(branch, skip_first && index == 0, &path.child("allOf").index(index), errors);
    }
    for (index, branch) in branches(schema, "oneOf") {
        nested(branch, false, &path.child("oneOf").index(index), errors);
    }
    if let Some(branch) = schema.get("not").filter(|n| n.is_object()) {
        nested(branch, false, &path.child("not"), errors);
    }
    let pattern = text(schema, "pattern");
    if !pattern.is_empty()
        && let Err(why) = sublet_machinery::pattern::check(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(FieldError::invalid(&path.child("pattern"), pattern, detail));
    }
}

/// Inside of a junctor only values are judged; nothing is described.
fn nested(schema: &Value, skip_any_of: bool, path: &FieldPath, errors: &mut Vec<FieldError>) {
    validations(schema, skip_any_of, false, path, errors);
    if let Some(items) = schema.get("items").filter(|i| i.is_object()) {
        nested(items, false, &path.child("items"), errors);
    }
    for (name, property) in members(schema, "properties") {
        nested(property, false, &path.child("properties").key(name), errors);
    }
    let mut forbid = |key: &str, detail: &str| {
        if schema.get(key).is_some_and(|v| *v != false) {
            errors.push(FieldError::forbidden(&path.child(key), detail));
        }
    };
    forbid("type", "must be empty to be structural");
    forbid("additionalProperties", "must be undefined to be structural");
    forbid("default", "must be undefined to be structural");
    forbid("title", "must be empty to be structural");
    forbid("description", "must be empty to be structural");
    forbid("nullable", "must be false to be structural");
    forbid("x-kubernetes-preserve-unknown-fields", "must be false to be structural");
    forbid("x-kubernetes-embedded-resource", "must be false to be structural");
    forbid("x-kubernetes-int-or-string", "must be false to be structural");
    forbid("x-kubernetes-list-map-keys", "must be empty to be structural");
    forbid("x-kubernetes-list-type", "must be undefined to be structural");
    forbid("x-kubernetes-map-type", "must be undefined to be structural");
    forbid("x-kubernetes-validations", "must be empty to be structural");
    if schema["properties"].get("metadata").is_some() {
        errors.push(FieldError::forbidden(&path.child("properties").key("metadata"), "must not be specified in a nested context"));
    }
}

/// What `judged` looks at inside of its junctors must be described by `described`.
fn complete(judged: &Value, described: Option<&Value>, at: &FieldPath, from: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(branch) = judged.get("not").filter(|n| n.is_object()) {
        complete_nested(branch, described, at, &from.child("not"), errors);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, branch) in branches(judged, key) {
            complete_nested(branch, described, at, &from.child(key).index(index), errors);
        }
    }
}

fn complete_nested(judged: &Value, described: Option<&Value>, at: &FieldPath, from: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(described) = described else {
        errors.push(FieldError::required(at, format!("because it is defined in {from}")));
        return;
    };
    complete(judged, Some(described), at, from, errors);
    if let Some(items) = judged.get("items").filter(|i| i.is_object()) {
        complete_nested(items, described.get("items"), &at.child("items"), &from.child("items"), errors);
    }
    for (name, property) in members(judged, "properties") {
        let (at, from) = (at.child("properties").key(name), from.child("properties").key(name));
        complete_nested(property, described["properties"].get(name), &at, &from, errors);
    }
}
