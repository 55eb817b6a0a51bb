//! The three kinds of patch that change an object by a document: JSON patch, merge patch and strategic
//! merge patch. Server-side apply is in [`crate::apply`].

pub mod json_patch;
pub mod merge_patch;
pub mod strategic;

use crate::error::ApiError;
use serde_json::Value;
use std::fmt::Write as _;

/// What upstream answers when a well-formed patch does not fit the object. The client learns no more.
fn rejected() -> ApiError {
    ApiError::unprocessable()
}

/// A value as Go's `%v` prints it, for messages that show one.
pub(crate) fn go_text(value: &Value) -> String {
    let mut text = String::new();
    write_go_text(value, &mut text);
    text
}

fn write_go_text(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                write_go_text(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push_str("map[");
            for (i, (key, item)) in map.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                write_go_text(item, out);
            }
            out.push(']');
        }
        plain => write!(out, "{plain}").expect("writing to a String"),
    }
}

/// The Go type of a decoded value, for messages that name one.
pub(crate) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
