//! The Go names of types, which clients see in messages about wrong types.

use crate::schema::{SchemaNode, ValueType};

/// `v1.PodSpec`, `[]v1.Container`, `map[string]string`, `int32`.
pub(super) fn type_name(node: SchemaNode<'_>) -> String {
    if let Some(name) = &node.go_type {
        return name.to_string();
    }
    if node.int_or_string {
        return "int32".into();
    }
    match node.value_type {
        ValueType::Array => format!("[]{}", node.items().map_or_else(|| "interface {}".into(), type_name)),
        ValueType::Object | ValueType::Any => match (&node.type_name, node.additional()) {
            (Some(name), _) => {
                let mut parts = name.rsplit('.');
                let (kind, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                format!("{package}.{kind}")
            }
            (None, Some(values)) => format!("map[string]{}", type_name(values)),
            (None, None) => "map[string]interface {}".into(),
        },
        ValueType::String if node.format.as_deref() == Some("byte") => "[]uint8".into(),
        ValueType::String => "string".into(),
        ValueType::Integer if node.format.as_deref() == Some("int32") => "int32".into(),
        ValueType::Integer => "int64".into(),
        ValueType::Number => "float64".into(),
        ValueType::Boolean => "bool".into(),
    }
}

/// `PodSpec`.
pub(super) fn short_name(node: SchemaNode<'_>) -> String {
    node.type_name.as_deref().and_then(|name| name.rsplit('.').next()).unwrap_or_default().to_string()
}

/// What upstream's converter from untyped values says; `found` is a JSON type as its decoder names it.
pub(super) fn restore_error(found: &str, node: SchemaNode<'_>) -> String {
    let of = match found {
        "object" => "map",
        "array" => "slice",
        "string" | "bool" => found,
        number if number.trim_start_matches("number").contains(['.', 'e', 'E']) => "float64",
        _ => "int64",
    };
    let wanted = type_name(node);
    let is_bytes = node.value_type == ValueType::String && wanted.starts_with("[]");
    match node.value_type {
        _ if node.int_or_string => format!("unrecognized type: {wanted}"),
        ValueType::Array => format!("cannot restore slice from {of}"),
        ValueType::String if is_bytes => format!("cannot restore slice from {of}"),
        ValueType::Object | ValueType::Any if node.properties.is_empty() => format!("cannot restore map from {of}"),
        ValueType::Object | ValueType::Any => format!("cannot restore struct from: {of}"),
        // Go converts numbers to texts, and never cuts a fraction off.
        ValueType::String if of == "int64" => format!("cannot convert int64 to {wanted}"),
        ValueType::Integer if of == "float64" => format!("cannot convert float64 to {wanted}"),
        ValueType::String => "unrecognized type: string".into(),
        _ => format!("unrecognized type: {wanted}"),
    }
}
