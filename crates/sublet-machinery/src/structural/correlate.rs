//! Which old value a new one replaces. Rules that an unchanged part of an object breaks do not stand in
//! the way of an update (ratcheting), and transition rules compare the two.

use crate::schema::{ListType, SchemaNode, ValueType};
use serde_json::Value;
use std::collections::HashMap;

/// A new value, the old value at its place, and their schema.
#[derive(Clone, Copy, Debug)]
pub struct Correlated<'a> {
    pub new: &'a Value,
    pub old: &'a Value,
    pub node: SchemaNode<'a>,
}

/// The old items of a list by their keys; empty unless the list is a map.
pub struct OldItems<'a> {
    by_key: HashMap<String, &'a Value>,
    node: SchemaNode<'a>,
}

impl<'a> OldItems<'a> {
    pub fn new(old: Option<&'a Value>, node: SchemaNode<'a>) -> Self {
        let mut by_key = HashMap::new();
        if node.value_type == ValueType::Array
            && node.list_type == ListType::Map
            && let Some(Value::Array(items)) = old
        {
            for item in items {
                if let Some(key) = list_key(item, node) {
                    by_key.entry(key).or_insert(item);
                }
            }
        }
        Self { by_key, node }
    }

    /// The old item with the keys of `item`.
    pub fn find(&self, item: &Value) -> Option<&'a Value> {
        if self.by_key.is_empty() {
            return None;
        }
        self.by_key.get(&list_key(item, self.node)?).copied()
    }
}

/// The keys of an item of a list map as one text; `None` when one is missing or no scalar.
fn list_key(item: &Value, node: SchemaNode<'_>) -> Option<String> {
    let map = item.as_object()?;
    let mut text = String::new();
    for key in &node.list_map_keys {
        let value = map.get(key.as_ref())?;
        if !(value.is_string() || value.is_number() || value.is_boolean()) {
            return None;
        }
        text.push('\0');
        text.push_str(&value.to_string());
    }
    (!text.is_empty()).then_some(text)
}

impl<'a> Correlated<'a> {
    /// The same member on both sides, if the schema knows it.
    pub fn key(self, key: &str) -> Option<Self> {
        let (new, old) = (self.new.as_object()?.get(key)?, self.old.as_object()?.get(key)?);
        Some(Self { new, old, node: self.node.field(key)? })
    }

    /// The old items of a list map.
    pub fn old_items(self) -> OldItems<'a> {
        OldItems::new(Some(self.old), self.node)
    }

    /// Whether nothing changed, as far as the schema can tell. Metadata always counts as changed.
    pub fn unchanged(self) -> bool {
        match (self.new, self.old) {
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len() && new.keys().all(|key| self.key(key).is_some_and(Self::unchanged)) && !self.is_metadata()
            }
            (Value::Array(new), Value::Array(old)) => {
                if new.len() != old.len() {
                    return false;
                }
                let (ListType::Map, Some(items)) = (self.node.list_type, self.node.items()) else { return new == old };
                let old_items = self.old_items();
                new.iter().all(|item| old_items.find(item).is_some_and(|old| Correlated { new: item, old, node: items }.unchanged()))
            }
            (new, old) => new == old,
        }
    }

    fn is_metadata(self) -> bool {
        self.node.type_name.as_deref().is_some_and(|name| name.ends_with(".ObjectMeta"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::build_plain;
    use super::*;
    use serde_json::json;

    #[test]
    fn list_maps_are_compared_by_key_and_other_lists_as_they_are() {
        let schema = build_plain(&json!({"type": "object", "properties": {
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}},
            "atomic": {"type": "array", "items": {"type": "integer"}},
        }}));
        let check = |new: Value, old: Value, expected: bool| {
            assert_eq!(Correlated { new: &new, old: &old, node: schema.node() }.unchanged(), expected, "{new} {old}");
        };
        check(json!({"map": [{"k": "a", "v": 1}, {"k": "b", "v": 2}]}), json!({"map": [{"k": "b", "v": 2}, {"k": "a", "v": 1}]}), true);
        check(json!({"map": [{"k": "a", "v": 1}]}), json!({"map": [{"k": "a", "v": 2}]}), false);
        check(json!({"atomic": [1, 2]}), json!({"atomic": [2, 1]}), false);
        check(json!({"atomic": [1, 2]}), json!({"atomic": [1, 2]}), true);
        // A member that the schema does not know cannot be compared.
        check(json!({"free": 1}), json!({"free": 1}), false);
    }
}
