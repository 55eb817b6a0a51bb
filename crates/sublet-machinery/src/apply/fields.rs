//! Which fields a value has, as a set of paths, and whether the value fits its type.

use super::path::PathElement;
use super::set::FieldSet;
use super::types::{Elements, ScalarType, Shape, Type};
use crate::patch::{go_text, go_type};
use serde_json::Value;

/// The paths of all fields of a value that can be owned.
pub(super) fn fields_of(value: &Value, of: Type<'_>) -> FieldSet {
    collect(value, of).1
}

/// Whether the value itself is a field, and the fields below it.
pub(super) fn collect(value: &Value, of: Type<'_>) -> (bool, FieldSet) {
    let mut below = FieldSet::new();
    match of.shape(Some(value)) {
        Shape::Scalar => return (true, below),
        Shape::Map if of.is_atomic_map() => return (true, below),
        Shape::List if of.elements() == Elements::Atomic => return (true, below),
        Shape::Map => {
            for (key, value) in value.as_object().into_iter().flatten() {
                let (mut member, children) = collect(value, of.field(key).unwrap_or(Type::Deduced));
                member |= value.is_null() || value.as_object().is_some_and(|m| m.is_empty()) || of.declared(key).is_none();
                below.push(PathElement::field(key), member, children);
            }
        }
        Shape::List => {
            let items = value.as_array().map_or(&[][..], Vec::as_slice);
            let mut steps: Vec<(PathElement, &Value)> = items.iter().filter_map(|i| Some((of.step(i).ok()?, i))).collect();
            steps.sort_by(|a, b| a.0.cmp(&b.0));
            for twins in steps.chunk_by(|a, b| a.0 == b.0) {
                let (step, item) = &twins[0];
                // Elements that cannot be told apart are owned as one.
                let children = if twins.len() == 1 { collect(item, of.item()).1 } else { FieldSet::new() };
                below.push(step.clone(), true, children);
            }
        }
    }
    (false, below)
}

/// Whether every element of the lists that are merged can be told by its keys.
pub(super) fn has_steps(value: &Value, of: Type<'_>) -> bool {
    match (of.shape(Some(value)), value) {
        (Shape::Map, Value::Object(map)) if !of.is_atomic_map() => {
            map.iter().all(|(key, value)| of.field(key).is_none_or(|field| has_steps(value, field)))
        }
        (Shape::List, Value::Array(items)) if of.elements() != Elements::Atomic => {
            items.iter().all(|item| of.step(item).is_ok() && has_steps(item, of.item()))
        }
        _ => true,
    }
}

/// Adds the declared maps and lists on the way to a field: they are there because of it.
pub(super) fn with_named_parents(set: &FieldSet, of: Option<Type<'_>>) -> FieldSet {
    let mut out = FieldSet::new();
    for node in &set.nodes {
        let (mut member, mut below) = (node.member, None);
        match (&node.element, of) {
            (PathElement::Field(name), Some(of)) => {
                let declared = of.declared(name);
                member |= declared.is_some() && !node.children.is_empty();
                below = declared.or_else(|| of.field(name));
            }
            (PathElement::Key(_), Some(of)) => below = Some(of.item()),
            _ => {}
        }
        out.push(node.element.clone(), member, with_named_parents(&node.children, below));
    }
    out
}

/// What does not fit, each with its path.
pub(super) fn validate(value: &Value, of: Type<'_>) -> Result<(), String> {
    let mut errors = Vec::new();
    validate_at(value, of, &mut String::new(), &mut errors);
    match errors.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("errors:\n  {}", many.join("\n  "))),
    }
}

fn validate_at(value: &Value, of: Type<'_>, path: &mut String, errors: &mut Vec<String>) {
    if value.is_null() {
        return;
    }
    match (of.shape(Some(value)), value) {
        (Shape::Map, Value::Object(map)) => {
            for (key, value) in map {
                let length = path.len();
                path.push('.');
                path.push_str(key);
                match of.field(key) {
                    Some(field) => validate_at(value, field, path, errors),
                    None => report("field not declared in schema".into(), path, errors),
                }
                path.truncate(length);
            }
        }
        (Shape::List, Value::Array(items)) => validate_list(items, of, path, errors),
        (Shape::Map, other) => report(format!("expected map, got &{{{}}}", go_text(other)), path, errors),
        (Shape::List, other) => report(format!("expected list, got &{{{}}}", go_text(other)), path, errors),
        (Shape::Scalar, value) => validate_scalar(value, of, path, errors),
    }
}

fn validate_list(items: &[Value], of: Type<'_>, path: &mut String, errors: &mut Vec<String>) {
    let mut seen = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        let step = if of.elements() == Elements::Atomic {
            PathElement::Index(i64::try_from(i).unwrap_or(i64::MAX))
        } else {
            match of.step(item) {
                Ok(step) => step,
                Err(error) => return report(format!("element {i}: {error}"), path, errors),
            }
        };
        let length = path.len();
        path.push_str(&step.to_string());
        validate_at(item, of.item(), path, errors);
        path.truncate(length);
        seen.push(step);
    }
    seen.sort();
    for twins in seen.chunk_by(|a, b| a == b).filter(|t| t.len() > 1) {
        report(format!("duplicate entries for key {}", twins[0]), path, errors);
    }
}

fn validate_scalar(value: &Value, of: Type<'_>, path: &str, errors: &mut Vec<String>) {
    let shown = || format!("&{{{}}}", go_text(value));
    let wrong = match (of.scalar(), value) {
        (Some(ScalarType::Numeric), Value::Number(_))
        | (Some(ScalarType::String), Value::String(_))
        | (Some(ScalarType::Boolean), Value::Bool(_))
        | (None, Value::Number(_) | Value::String(_) | Value::Bool(_)) => return,
        (Some(ScalarType::Numeric), _) => format!("expected numeric (int or float), got {}", go_type(value)),
        (Some(ScalarType::String), _) => format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_text(value)),
        (Some(ScalarType::Boolean), _) => format!("expected boolean, got {}", shown()),
        (None, _) => format!("expected any scalar, got {}", shown()),
    };
    report(wrong, path, errors);
}

fn report(message: String, path: &str, errors: &mut Vec<String>) {
    errors.push(if path.is_empty() { message } else { format!("{path}: {message}") });
}
