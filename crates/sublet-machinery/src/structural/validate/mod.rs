//! Values against the validations of an OpenAPI schema, with the errors kube-openapi reports.
//!
//! Every check of a value may add problems and counts as a match when it could be made at all: among
//! the alternatives of `anyOf` and `oneOf` the problems of the one with most matches are shown, as
//! upstream does.

mod combine;
mod number;
mod pattern;
mod problem;
mod types;

use super::correlate::{Correlated, OldItems};
use super::format;
use crate::error::{FieldError, FieldErrorKind, FieldPath};
use crate::schema::{Limits, SchemaNode};
use problem::{Outcome, Problem};
use serde_json::Value;

/// Validates a value; `path` is where it stands in its object.
pub fn validate(value: &Value, node: SchemaNode<'_>, path: &FieldPath) -> Vec<FieldError> {
    check(value, node, "", None).into_errors(path)
}

/// Validates a new value; problems of parts that did not change are forgiven.
pub fn validate_update(value: &Value, old: &Value, node: SchemaNode<'_>, path: &FieldPath) -> Vec<FieldError> {
    let correlated = Correlated { new: value, old, node };
    check_child(value, node, "", Some(correlated)).into_errors(path)
}

/// For built-in kinds without rules of their own: what the schema alone says about missing and
/// unsupported values.
pub fn validate_required_and_enums(value: &Value, node: SchemaNode<'_>, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    built_in(value, node, path, &mut errors);
    errors
}

/// A member or item: with an old value at its place, problems count only after a change.
fn check_child(value: &Value, node: SchemaNode<'_>, path: &str, old: Option<Correlated<'_>>) -> Outcome {
    let mut outcome = check(value, node, path, old);
    if !outcome.problems.is_empty() && old.is_some_and(Correlated::unchanged) {
        outcome.problems.clear();
    }
    outcome
}

fn check(value: &Value, node: SchemaNode<'_>, path: &str, old: Option<Correlated<'_>>) -> Outcome {
    let mut outcome = Outcome::default();
    if value.is_null() {
        outcome.merge(types::check_null(node, path));
        outcome.merge(check_enum(value, node, path));
        return outcome;
    }
    if types::is_stated(node) {
        outcome.count(types::check(value, node, path));
    }
    outcome.count(combine::check(value, node, path, old));
    let limits = node.limits.as_deref();
    match value {
        Value::String(text) => {
            outcome.count(limits.map_or_else(Outcome::default, |l| check_string(text, l, path)));
            if let Some(format) = node.format.as_deref() {
                outcome.count(check_format(text, format, path));
            }
        }
        Value::Number(number) => outcome.count(number::check(number, node, path)),
        Value::Array(items) => outcome.count(check_items(items, node, path, old)),
        _ => {}
    }
    outcome.count(check_enum(value, node, path));
    if let Value::Object(map) = value {
        outcome.count(check_members(map, node, path, old));
    }
    outcome.matches += 1;
    outcome
}

fn check_string(text: &str, limits: &Limits, path: &str) -> Outcome {
    let length = text.chars().count() as u64;
    if let Some(max) = limits.max_length.filter(|max| length > *max) {
        let message = format!("{path} in body should be at most {max} chars long");
        return Problem::new(FieldErrorKind::TooLong, path, message).limit(max).into();
    }
    if let Some(min) = limits.min_length.filter(|min| length < *min) {
        return Problem::invalid(path, Value::from(text), format!("{path} in body should be at least {min} chars long")).into();
    }
    if let Some(pattern) = limits.pattern.as_deref() {
        match pattern::is_match(pattern, text) {
            Ok(true) => {}
            Ok(false) => return Problem::invalid(path, Value::from(text), format!("{path} in body should match '{pattern}'")).into(),
            Err(error) => {
                let message = format!("{path} in body should match '{pattern}, but pattern is invalid: {error}'");
                return Problem::invalid(path, Value::from(text), message).into();
            }
        }
    }
    Outcome::default()
}

fn check_format(text: &str, format: &str, path: &str) -> Outcome {
    if format::is_valid(format, text) {
        return Outcome::default();
    }
    Problem::wrong_type(path, Value::from(text), format!("{path} in body must be of type {format}: {text:?}")).into()
}

fn check_enum(value: &Value, node: SchemaNode<'_>, path: &str) -> Outcome {
    if node.enums.is_empty() || node.enums.iter().any(|allowed| !allowed.is_null() && problem::equal(value, allowed)) {
        return Outcome::default();
    }
    let message = format!("{path} in body should be one of {:?}", node.enums);
    Problem::new(FieldErrorKind::NotSupported, path, message).value(value.clone()).allowed(node.enums.clone()).into()
}

fn check_items(items: &[Value], node: SchemaNode<'_>, path: &str, old: Option<Correlated<'_>>) -> Outcome {
    let mut outcome = Outcome::default();
    if let Some(schema) = node.items() {
        let old_items = old.map(Correlated::old_items);
        for (index, item) in items.iter().enumerate() {
            let old = old_item(old, old_items.as_ref(), item);
            outcome.merge(check_child(item, schema, &format!("{path}[{index}]"), old));
        }
    }
    let size = items.len() as u64;
    if let Some(limits) = node.limits.as_deref() {
        if let Some(min) = limits.min_items.filter(|min| size < *min) {
            outcome.merge(Problem::invalid(path, size, format!("{path} in body should have at least {min} items")));
        }
        if let Some(max) = limits.max_items.filter(|max| size > *max) {
            let message = format!("{path} in body should have at most {max} items");
            outcome.merge(Problem::new(FieldErrorKind::TooMany, path, message).value(size).limit(max));
        }
        if limits.unique_items && items.iter().enumerate().any(|(i, item)| items[..i].contains(item)) {
            outcome.merge(Problem::new(FieldErrorKind::Invalid, path, format!("{path} in body shouldn't contain duplicates")));
        }
    }
    outcome.matches += 1;
    outcome
}

/// Items are correlated by the structural schema, whichever branch is being checked.
fn old_item<'a>(list: Option<Correlated<'a>>, old_items: Option<&OldItems<'a>>, item: &'a Value) -> Option<Correlated<'a>> {
    let (list, old_items) = (list?, old_items?);
    Some(Correlated { new: item, old: old_items.find(item)?, node: list.node.items()? })
}

fn check_members(map: &serde_json::Map<String, Value>, node: SchemaNode<'_>, path: &str, old: Option<Correlated<'_>>) -> Outcome {
    let mut outcome = Outcome::default();
    let size = map.len() as u64;
    if let Some(limits) = node.limits.as_deref() {
        if let Some(min) = limits.min_properties.filter(|min| size < *min) {
            outcome.merge(Problem::invalid(path, size, format!("{path} in body should have at least {min} properties")));
        }
        if let Some(max) = limits.max_properties.filter(|max| size > *max) {
            let message = format!("{path} in body should have at most {max} properties");
            outcome.merge(Problem::new(FieldErrorKind::TooMany, path, message).value(size).limit(max));
        }
    }
    let child = |key: &str| {
        // Old and new object are converted to the same kind and version, so a change of these is not visible.
        let old = if path.is_empty() && matches!(key, "apiVersion" | "kind") { None } else { old };
        old.and_then(|o| o.key(key))
    };
    if let Some(values) = node.additional() {
        for (key, value) in map.iter().filter(|(key, _)| !node.properties.contains_key(key.as_str())) {
            outcome.merge(check_child(value, values, &format!("{path}.{key}"), child(key)));
        }
    }
    for (name, id) in &node.properties {
        if let Some(value) = map.get(name.as_ref()) {
            let path = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
            outcome.merge(check_child(value, node.at(*id), &path, child(name)));
        }
    }
    for name in &node.required {
        if !map.contains_key(name.as_ref()) {
            let path = format!("{path}.{name}");
            let message = format!("{path} in body is required");
            outcome.merge(Problem::new(FieldErrorKind::Required, &path, message));
        }
    }
    outcome
}

fn built_in(value: &Value, node: SchemaNode<'_>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            for name in &node.required {
                let is_empty = map.get(name.as_ref()).is_none_or(|v| v.is_null() || v == "");
                if is_empty {
                    errors.push(FieldError::required(&path.child(name), ""));
                }
            }
            for (key, value) in map {
                if let Some(property) = node.property(key) {
                    built_in(value, property, &path.child(key), errors);
                } else if let Some(values) = node.additional() {
                    built_in(value, values, &path.key(key), errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(node) = node.items() {
                for (index, item) in items.iter().enumerate() {
                    built_in(item, node, &path.index(index), errors);
                }
            }
        }
        Value::String(text) if !text.is_empty() && !node.enums.is_empty() && !node.enums.contains(value) => {
            let supported: Vec<&str> = node.enums.iter().filter_map(Value::as_str).collect();
            errors.push(FieldError::not_supported(path, text.as_str(), &supported));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
