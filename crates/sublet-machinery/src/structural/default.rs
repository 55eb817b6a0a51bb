//! Defaults stated by the schema.

use crate::schema::SchemaNode;
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

fn replace_null(value: &mut Value, node: SchemaNode<'_>) {
    if value.is_null()
        && !node.nullable
        && let Some(stated) = &node.default
    {
        *value = stated.clone();
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
}
