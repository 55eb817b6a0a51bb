//! The type of a value, with the quirks of kube-openapi about formats.

use super::problem::{Outcome, Problem};
use crate::schema::{SchemaNode, ValueType};
use serde_json::Value;

pub(super) fn is_stated(node: SchemaNode<'_>) -> bool {
    !names(node).is_empty() || node.format.is_some()
}

fn names(node: SchemaNode<'_>) -> &'static [&'static str] {
    if node.int_or_string {
        return &["integer", "string"];
    }
    match node.value_type {
        ValueType::Any => &[],
        ValueType::Object => &["object"],
        ValueType::Array => &["array"],
        ValueType::String => &["string"],
        ValueType::Integer => &["integer"],
        ValueType::Number => &["number"],
        ValueType::Boolean => &["boolean"],
    }
}

pub(super) fn check_null(node: SchemaNode<'_>, path: &str) -> Outcome {
    let names = names(node);
    if names.is_empty() || node.nullable {
        return Outcome { problems: Vec::new(), matches: 1 };
    }
    mismatch(path, &names.join(","), "null")
}

pub(super) fn check(value: &Value, node: SchemaNode<'_>, path: &str) -> Outcome {
    let wanted = names(node);
    let passed = Outcome { problems: Vec::new(), matches: 1 };
    // The JSON type and what Go's type would be called as a format.
    let (found, format) = match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
        Value::Number(n) if n.is_f64() => ("number", "float64"),
        Value::Number(_) => ("integer", "int64"),
    };
    let is_text_or_list = matches!(value, Value::String(_) | Value::Array(_));
    let is_whole_float = found == "number" && wanted.contains(&"integer") && value.as_f64().is_some_and(is_json_integer);
    let is_integer_as_number = found == "integer" && wanted.contains(&"number");
    let fits = wanted.contains(&found) || is_whole_float || is_integer_as_number;
    if let Some(stated) = node.format.as_deref() {
        if !is_text_or_list && !fits && format != stated {
            return mismatch(path, stated, format);
        }
        if is_text_or_list && !wanted.contains(&"number") && !wanted.contains(&"integer") {
            return passed;
        }
    }
    if fits { passed } else { mismatch(path, &wanted.join(","), found) }
}

fn mismatch(path: &str, wanted: &str, found: &str) -> Outcome {
    Problem::wrong_type(path, found, format!("{path} in body must be of type {wanted}: {found:?}")).into()
}

/// Whole, and small enough to be exact.
fn is_json_integer(value: f64) -> bool {
    const EXACT_MAX: f64 = 9_007_199_254_740_991.0;
    value.fract() == 0.0 && value.abs() <= EXACT_MAX
}
