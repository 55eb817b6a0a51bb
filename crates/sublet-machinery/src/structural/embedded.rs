//! Embedded resources must be resources.

use crate::error::{FieldError, FieldPath};
use crate::schema::SchemaNode;
use serde_json::{Map, Value};

/// Checks `apiVersion`, `kind` and the name of every embedded resource below the value (and of the value
/// itself, if its schema says that it is one).
pub fn validate_embedded(value: &Value, node: SchemaNode<'_>, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(value, node, path, &mut errors);
    errors
}

fn walk(value: &Value, node: SchemaNode<'_>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            if node.embedded_resource {
                check(map, path, errors);
            }
            for (key, value) in map {
                if let Some(property) = node.property(key) {
                    walk(value, property, &path.child(key), errors);
                } else if let Some(values) = node.additional() {
                    walk(value, values, &path.key(key), errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(node) = node.items() {
                for (index, item) in items.iter().enumerate() {
                    walk(item, node, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

fn check(map: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for key in ["apiVersion", "kind"] {
        let path = path.child(key);
        match map.get(key) {
            None => errors.push(FieldError::required(&path, "")),
            Some(Value::String(text)) if text.is_empty() => errors.push(FieldError::invalid(&path, "", "must not be empty")),
            Some(Value::String(text)) if key == "apiVersion" && text.matches('/').count() > 1 => {
                let detail = format!("unexpected GroupVersion string: {text}");
                errors.push(FieldError::invalid(&path, text.as_str(), detail));
            }
            Some(Value::String(text)) if key == "kind" && !is_kind(text) => {
                let detail = "may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric \
                              characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. \
                              'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
                errors.push(FieldError::invalid(&path, text.as_str(), detail));
            }
            Some(Value::String(_)) => {}
            Some(other) => errors.push(FieldError::invalid(&path, other.clone(), "must be a string")),
        }
    }
    let name = map.get("metadata").and_then(|m| m["name"].as_str()).unwrap_or_default();
    let path = path.child("metadata").child("name");
    if matches!(name, "." | "..") {
        errors.push(FieldError::invalid(&path, name, format!("may not be '{name}'")));
    }
    for c in ["/", "%"] {
        if name.contains(c) {
            errors.push(FieldError::invalid(&path, name, format!("may not contain '{c}'")));
        }
    }
}

fn is_kind(text: &str) -> bool {
    let bytes = text.as_bytes();
    text.len() <= 63
        && bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
}

#[cfg(test)]
mod tests {
    use super::super::build_plain;
    use super::*;
    use serde_json::json;

    #[test]
    fn embedded_resources_need_a_kind() {
        let schema =
            build_plain(&json!({"type": "object", "properties": {"e": {"type": "object", "x-kubernetes-embedded-resource": true}}}));
        let check = |value: Value| -> Vec<String> {
            validate_embedded(&value, schema.node(), &FieldPath::new("spec")).iter().map(ToString::to_string).collect()
        };
        assert_eq!(check(json!({"e": {}})), ["spec.e.apiVersion: Required value", "spec.e.kind: Required value"]);
        assert_eq!(
            check(json!({"e": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a/b"}}})),
            ["spec.e.metadata.name: Invalid value: \"a/b\": may not contain '/'"]
        );
        assert!(check(json!({"e": {"apiVersion": "v1", "kind": "Pod"}})).is_empty());
    }
}
