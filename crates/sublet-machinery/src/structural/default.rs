//! Defaults stated by the schema, and what Go leaves out.

use crate::schema::{NodeId, Schema, SchemaNode, ValueType};
use serde_json::Value;

/// Fills in the defaults of missing members, and of nulls that their schema does not allow.
pub fn default(value: &mut Value, node: SchemaNode<'_>) {
    match value {
        Value::Object(map) => {
            for (name, id) in &node.properties {
                let property = node.at(*id);
                let Some(stated) = &property.default else { continue };
                match map.get(name.as_ref()) {
                    None => {}
                    Some(Value::Null) if !property.nullable => {}
                    Some(_) => continue,
                }
                map.insert(name.to_string(), stated.clone());
            }
            for (key, value) in map.iter_mut() {
                if let Some(property) = node.property(key) {
                    default(value, property);
                } else if let Some(additional) = node.additional() {
                    replace_null(value, additional);
                    default(value, additional);
                }
            }
        }
        Value::Array(items) => {
            if let Some(node) = node.items() {
                for item in items {
                    replace_null(item, node);
                    default(item, node);
                }
            }
        }
        _ => {}
    }
}

/// Whether any value of the schema can be filled in.
pub fn has_defaults(schema: &Schema) -> bool {
    let mut ids = 0..schema.table.len();
    ids.any(|id| schema.table.node(NodeId::try_from(id).expect("ids are counted in their type")).default.is_some())
}

fn replace_null(value: &mut Value, node: SchemaNode<'_>) {
    if value.is_null()
        && !node.nullable
        && let Some(stated) = &node.default
    {
        *value = stated.clone();
    }
}

/// Drops empty lists and maps from optional fields of built-in kinds: their Go types have `omitempty`.
pub fn omit_empty(value: &mut Value, node: SchemaNode<'_>) {
    match value {
        Value::Object(map) => {
            map.retain(|key, value| {
                let Some(field) = node.field(key) else { return true };
                omit_empty(value, field);
                let is_optional = node.properties.contains_key(key.as_str()) && !node.required.iter().any(|name| **name == *key);
                !is_optional || !holds_nothing(value, field)
            });
        }
        Value::Array(items) => {
            if let Some(node) = node.items() {
                items.iter_mut().for_each(|item| omit_empty(item, node));
            }
        }
        _ => {}
    }
}

/// An empty struct is something, and so is what has no type.
fn holds_nothing(value: &Value, node: SchemaNode<'_>) -> bool {
    match value {
        Value::Array(items) => items.is_empty() && node.value_type == ValueType::Array,
        Value::Object(map) => map.is_empty() && node.properties.is_empty() && node.additional.is_some(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::build_plain;
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_fill_what_is_missing_at_every_depth() {
        let schema = build_plain(&json!({"type": "object", "properties": {
            "a": {"type": "string", "default": "A"},
            "b": {"type": "object", "default": {}, "properties": {"c": {"type": "integer", "default": 5}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"d": {"type": "string", "default": "D"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"e": {"type": "boolean", "default": true}}}},
            "n": {"type": "string", "nullable": true, "default": "N"},
            "o": {"type": "string", "default": "O"},
            "p": {"type": "object", "properties": {"q": {"type": "string", "default": "Q"}}},
        }}));
        let mut value = json!({"list": [{}, {"d": "x"}], "map": {"k": {}}, "n": null, "o": null});
        default(&mut value, schema.node());
        assert_eq!(
            value,
            json!({"a": "A", "b": {"c": 5}, "list": [{"d": "D"}, {"d": "x"}], "map": {"k": {"e": true}}, "n": null, "o": "O"})
        );
    }
    #[test]
    fn empty_lists_and_maps_are_left_out() {
        let schema = build_plain(&json!({"type": "object", "required": ["rules"], "properties": {
            "rules": {"type": "array", "items": {"type": "string"}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"args": {"type": "array", "items": {"type": "string"}}}}},
            "map": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}},
            "struct": {"type": "object", "properties": {"map": {"type": "object", "additionalProperties": {"type": "string"}}}},
            "any": {},
        }}));
        let mut value = json!({"rules": [], "list": [{"args": []}], "map": {"k": []}, "struct": {"map": {}}, "any": []});
        omit_empty(&mut value, schema.node());
        assert_eq!(value, json!({"rules": [], "list": [{}], "map": {"k": []}, "struct": {}, "any": []}));
        let mut value = json!({"list": [], "map": {}, "struct": {}, "any": {}});
        omit_empty(&mut value, schema.node());
        assert_eq!(value, json!({"struct": {}, "any": {}}));
    }
}
