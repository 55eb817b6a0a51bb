//! Defaults must fit the schema they stand in.

use super::super::rules::Rules;
use serde_json::{Map, Value};
use sublet_machinery::{FieldError, FieldPath, structural};

/// Checks every default below, except inside of `additionalProperties` where none is allowed.
pub(super) fn validate(schema: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, path, &mut errors);
    errors
}

fn walk(schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(default) = schema.get("default").filter(|d| !d.is_null()) {
        errors.extend(check(default, schema, &path.child("default")));
    }
    if let Some(items) = schema.get("items").filter(|i| i.is_object()) {
        walk(items, &path.child("items"), errors);
    }
    for (name, property) in schema["properties"].as_object().into_iter().flat_map(Map::iter) {
        walk(property, &path.child("properties").key(name), errors);
    }
}

fn check(default: &Value, schema: &Value, path: &FieldPath) -> Vec<FieldError> {
    let typed = structural::build_plain(schema);
    let node = typed.node();
    let mut errors = Vec::new();
    let mut pruned = default.clone();
    structural::prune_value(&mut pruned, node);
    if pruned != *default {
        errors.push(FieldError::invalid(path, default.clone(), "must not have unknown fields"));
    }
    // Each kind of check makes sense only on what passed the one before.
    let mut found = structural::validate_embedded(default, node, path);
    if found.is_empty() {
        found = structural::validate(default, node, path);
    }
    if found.is_empty() {
        found = Rules::validate_default(node, default, path);
    }
    errors.extend(found);
    errors
}
