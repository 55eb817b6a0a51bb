//! How large the values of a schema may be, and how small.

use sublet_machinery::{SchemaNode, ValueType};

/// The largest request, which bounds whatever a schema does not.
const REQUEST_BYTES_MAX: u64 = 3 * 1024 * 1024;

/// The most items, entries or bytes that a value of the schema has.
pub(super) fn elements_max(node: SchemaNode<'_>) -> u64 {
    let limits = node.limits.as_deref();
    let length = limits.and_then(|l| l.max_length);
    let text = length.map_or(REQUEST_BYTES_MAX - 2, |length| length.saturating_mul(4));
    if node.int_or_string {
        return text;
    }
    match node.value_type {
        ValueType::Array => {
            let stated = limits.and_then(|l| l.max_items);
            stated.unwrap_or_else(|| (REQUEST_BYTES_MAX - 2) / (node.items().map_or(0, size_min) + 1))
        }
        ValueType::Object => match node.additional() {
            Some(values) if node.properties.is_empty() => {
                limits.and_then(|l| l.max_properties).unwrap_or_else(|| (REQUEST_BYTES_MAX - 2) / (size_min(values) + 6))
            }
            _ => 0,
        },
        ValueType::String => match node.format.as_deref() {
            Some("byte") => length.unwrap_or(REQUEST_BYTES_MAX - 2),
            Some("duration" | "date-time") => 32,
            Some("date") => 12,
            _ if length.is_none() && !node.enums.is_empty() => {
                node.enums.iter().filter_map(|v| v.as_str()).map(|text| text.len() as u64).max().unwrap_or_default()
            }
            _ => text,
        },
        _ => 0,
    }
}

/// The least bytes that a value of the schema takes in JSON.
pub(crate) fn size_min(node: SchemaNode<'_>) -> u64 {
    if node.int_or_string {
        return 1;
    }
    match node.value_type {
        ValueType::Boolean => 4,
        ValueType::Integer | ValueType::Number => 1,
        ValueType::String => match node.format.as_deref() {
            Some("duration") => 3,
            Some("date") => 12,
            Some("date-time") => 21,
            _ => 2,
        },
        ValueType::Object if node.additional.is_none() => {
            let required = |name: &str| node.required.iter().any(|r| r.as_ref() == name);
            let members = node.properties.iter().filter(|(name, _)| required(name)).filter_map(|(name, id)| {
                let property = node.at(*id);
                let counts = property.default.is_none() && super::types::declare(property).is_some();
                counts.then(|| name.len() as u64 + size_min(property) + 4)
            });
            2 + members.sum::<u64>()
        }
        _ => 2,
    }
}
