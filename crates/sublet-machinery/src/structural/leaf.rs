//! Scalars of built-in types: what a JSON scalar becomes under its schema.

use super::scan::float_value;
use crate::schema::{Node, SchemaNode, ValueType};
use base64::Engine as _;
use serde_json::{Map, Value};

/// Why a scalar is refused.
pub(super) enum Wrong {
    /// The JSON type, as Go names it: `string`, `number`, `number 1.5`, `bool`.
    Type(String),
    /// A message of its own: the type is right, the content is not.
    Content(String),
}

const QUANTITY_MESSAGE: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Values of which the schema says nothing are kept as they are.
pub(super) fn is_free_form(node: SchemaNode<'_>) -> bool {
    let bare = node.properties.is_empty() && node.additional.is_none() && !node.int_or_string;
    node.preserve_unknown && node.properties.is_empty() || bare && matches!(node.value_type, ValueType::Any | ValueType::Object)
}

pub(super) fn is_map_or_struct(node: SchemaNode<'_>) -> bool {
    matches!(node.value_type, ValueType::Object | ValueType::Any) && !node.int_or_string
}

pub(super) fn string(node: SchemaNode<'_>, text: String) -> Result<Value, Wrong> {
    if node.int_or_string {
        return Ok(Value::String(text));
    }
    if node.value_type != ValueType::String {
        return Err(Wrong::Type("string".into()));
    }
    match format(node) {
        "byte" => match base64::engine::general_purpose::STANDARD.decode(&text) {
            Ok(_) => Ok(Value::String(text)),
            Err(_) => Err(Wrong::Content(base64_message(&text))),
        },
        "quantity" if !is_quantity(&text) => Err(Wrong::Content(QUANTITY_MESSAGE.into())),
        "date-time" if text.parse::<jiff::Timestamp>().is_err() => Err(Wrong::Content(time_message(&text, is_micro_time(node)))),
        _ => Ok(Value::String(text)),
    }
}

pub(super) fn number(node: SchemaNode<'_>, text: &str) -> Result<Value, Wrong> {
    let precise = || Wrong::Type(format!("number {text}"));
    if node.int_or_string {
        return text.parse::<i32>().map(Value::from).map_err(|_| precise());
    }
    match node.value_type {
        ValueType::Integer if format(node) == "int32" => text.parse::<i32>().map(Value::from).map_err(|_| precise()),
        ValueType::Integer => text.parse::<i64>().map(Value::from).map_err(|_| precise()),
        ValueType::Number => text.parse().ok().and_then(float_value).ok_or_else(precise),
        // A quantity may be written as a bare number; its text is kept.
        ValueType::String if format(node) == "quantity" => Ok(Value::String(text.into())),
        _ => Err(Wrong::Type("number".into())),
    }
}

pub(super) fn boolean(node: SchemaNode<'_>, value: bool) -> Result<Value, Wrong> {
    match node.value_type {
        ValueType::Boolean => Ok(Value::Bool(value)),
        ValueType::String if format(node) == "quantity" => Err(Wrong::Content(QUANTITY_MESSAGE.into())),
        _ => Err(Wrong::Type("bool".into())),
    }
}

/// Go's zero value, which stands for `null` in lists and maps.
pub(super) fn zero(node: SchemaNode<'_>) -> Value {
    if node.int_or_string {
        return Value::from(0);
    }
    match node.value_type {
        ValueType::Object if !is_free_form(node) && !node.properties.is_empty() => Value::Object(Map::new()),
        ValueType::String if format(node) == "quantity" => Value::String("0".into()),
        ValueType::String if format(node) != "date-time" => Value::String(String::new()),
        ValueType::Integer | ValueType::Number => Value::from(0),
        ValueType::Boolean => Value::Bool(false),
        _ => Value::Null,
    }
}

fn format(node: SchemaNode<'_>) -> &str {
    let node: &Node = node.get();
    node.format.as_deref().unwrap_or_default()
}

/// `[+-]?[0-9.]+` and a suffix that Kubernetes knows. The value itself is judged by validation.
fn is_quantity(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = unsigned.len() - unsigned.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, suffix) = unsigned.split_at(digits);
    if !number.contains(|c: char| c.is_ascii_digit()) || number.matches('.').count() > 1 {
        return false;
    }
    match suffix {
        "" | "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "E" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei" => true,
        _ => suffix.strip_prefix(['e', 'E']).is_some_and(|exponent| exponent.parse::<i32>().is_ok()),
    }
}

fn is_micro_time(node: SchemaNode<'_>) -> bool {
    node.type_name.as_deref().is_some_and(|name| name.ends_with(".MicroTime"))
}

/// What Go says about a text that is no time of RFC 3339: the first part of the layout that does not fit.
fn time_message(text: &str, micro: bool) -> String {
    let layout = if micro { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
    const PARTS: [(&str, usize); 11] =
        [("2006", 4), ("-", 1), ("01", 2), ("-", 1), ("02", 2), ("T", 1), ("15", 2), (":", 1), ("04", 2), (":", 1), ("05", 2)];
    let what = format!("parsing time {text:?} as {layout:?}");
    let mut rest = text;
    for (part, length) in PARTS {
        let fits = match rest.get(..length) {
            Some(found) if length > 1 => found.bytes().all(|b| b.is_ascii_digit()),
            Some(found) => found == part,
            None => false,
        };
        if !fits {
            return format!("{what}: cannot parse {rest:?} as {part:?}");
        }
        rest = &rest[length..];
    }
    let fraction = rest.strip_prefix('.').map_or(rest, |digits| digits.trim_start_matches(|c: char| c.is_ascii_digit()));
    match fraction.strip_prefix('Z') {
        Some("") => format!("parsing time {text:?}: day out of range"),
        Some(extra) => format!("parsing time {text:?}: extra text: {extra:?}"),
        None => format!("{what}: cannot parse {fraction:?} as \"Z07:00\""),
    }
}

/// Where Go's decoder stops.
fn base64_message(text: &str) -> String {
    format!("illegal base64 data at input byte {}", base64_fault(text.as_bytes()))
}

fn base64_fault(text: &[u8]) -> usize {
    let is_line_end = |b: &u8| matches!(b, b'\r' | b'\n');
    // The place in a group of four letters.
    let mut place = 0;
    for (at, byte) in text.iter().enumerate().filter(|(_, b)| !is_line_end(b)) {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => place = (place + 1) % 4,
            b'=' if place >= 2 => {
                let mut rest = text.iter().enumerate().skip(at + 1).filter(|(_, b)| !is_line_end(b));
                if place == 2 {
                    match rest.next() {
                        None => return text.len(),
                        Some((_, b'=')) => {}
                        Some((next, _)) => return next,
                    }
                }
                return rest.next().map_or(text.len(), |(trailing, _)| trailing);
            }
            _ => return at,
        }
    }
    text.len() - place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_told_from_other_text() {
        for good in ["1", "1.5", "-1", "+100m", "1Ki", "1e3", "1E-3", ".5", "5."] {
            assert!(is_quantity(good), "{good}");
        }
        for bad in ["", "x", "1x", "1.2.3", "1e", "ki", "1ki", "1KI", "."] {
            assert!(!is_quantity(bad), "{bad}");
        }
    }
}
