//! Lists that are sets or maps must not repeat a value or key.

use crate::error::{FieldError, FieldPath};
use crate::schema::{ListType, SchemaNode};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Reports every first repetition, at every depth.
pub fn validate_lists(value: &Value, node: SchemaNode<'_>, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check(value, node, path, &mut errors);
    errors
}

fn check(value: &Value, node: SchemaNode<'_>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if let Some(property) = node.property(key) {
                    check(value, property, &path.child(key), errors);
                } else if let Some(values) = node.additional() {
                    check(value, values, &path.key(key), errors);
                }
            }
        }
        Value::Array(items) => {
            match node.list_type {
                ListType::Atomic => {}
                ListType::Set => {
                    errors.extend(repeated(items.iter().map(Value::to_string)).map(|i| duplicate(path, i, items[i].clone())));
                }
                ListType::Map => check_map(items, node, path, errors),
            }
            if let Some(node) = node.items() {
                for (index, item) in items.iter().enumerate() {
                    check(item, node, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

fn check_map(items: &[Value], node: SchemaNode<'_>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(index) = items.iter().position(|item| !(item.is_object() || item.is_null())) {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(&path.index(index), items[index].clone(), detail));
        return;
    }
    let keys: Vec<Value> = items.iter().map(|item| Value::Object(key_of(item, node))).collect();
    errors.extend(repeated(keys.iter().map(Value::to_string)).map(|i| duplicate(path, i, keys[i].clone())));
}

fn key_of(item: &Value, node: SchemaNode<'_>) -> Map<String, Value> {
    let Some(map) = item.as_object() else { return Map::new() };
    node.list_map_keys.iter().filter_map(|key| map.get(key.as_ref()).map(|value| (key.to_string(), value.clone()))).collect()
}

fn duplicate(path: &FieldPath, index: usize, value: Value) -> FieldError {
    FieldError::duplicate(&path.index(index), value)
}

/// The index of the second appearance of each text that appears more than once.
fn repeated(texts: impl Iterator<Item = String>) -> impl Iterator<Item = usize> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut found = Vec::new();
    for (index, text) in texts.enumerate() {
        let times = seen.entry(text).or_default();
        *times += 1;
        if *times == 2 {
            found.push(index);
        }
    }
    found.into_iter()
}

#[cfg(test)]
mod tests {
    use super::super::build_plain;
    use super::*;
    use serde_json::json;

    fn check(schema: Value, value: Value, expected: &[&str]) {
        let schema = build_plain(&schema);
        let texts: Vec<String> = validate_lists(&value, schema.node(), &FieldPath::root()).iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn repetitions_are_told_once_each() {
        check(
            json!({"type": "object", "properties": {"s": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}}}),
            json!({"s": ["a", "b", "a", "a", "b"]}),
            &["s[2]: Duplicate value: \"a\"", "s[4]: Duplicate value: \"b\""],
        );
        let map = json!({"type": "object", "additionalProperties": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["a", "b"], "items": {"type": "object", "properties": {"a": {"type": "string"}}}}});
        check(
            map.clone(),
            json!({"m": [{"a": "1", "b": 2}, {"a": "1", "b": 2, "c": 3}]}),
            &["[m][1]: Duplicate value: {\"a\":\"1\",\"b\":2}"],
        );
        check(map, json!({"m": [{}, {"a": "1"}, {}]}), &["[m][2]: Duplicate value: {}"]);
    }
}
