//! Taking fields out of a value.

use super::path::PathElement;
use super::set::FieldSet;
use super::types::{Elements, Shape, Type};
use serde_json::{Map, Value};

/// The value without the fields in `unwanted`. Atomic values have no fields of their own.
/// `None` is what remains of a map or list without fields.
pub(super) fn remove(value: &Value, unwanted: &FieldSet, of: Type<'_>) -> Option<Value> {
    if unwanted.is_empty() {
        return Some(value.clone());
    }
    match (of.shape(Some(value)), value) {
        (Shape::Map, Value::Object(map)) if !of.is_atomic_map() => {
            let mut out = Map::new();
            for (key, value) in map {
                match unwanted.get_field(key) {
                    Some(node) if node.member => {}
                    Some(node) => {
                        let rest = remove(value, &node.children, of.field(key).unwrap_or(Type::Deduced));
                        out.insert(key.clone(), rest.unwrap_or(Value::Null));
                    }
                    None => {
                        out.insert(key.clone(), value.clone());
                    }
                }
            }
            (!out.is_empty()).then_some(Value::Object(out))
        }
        (Shape::List, Value::Array(items)) if of.elements() != Elements::Atomic => {
            let mut out = Vec::with_capacity(items.len());
            for item in items {
                let node = of.step(item).ok().and_then(|step: PathElement| unwanted.get(&step));
                match node {
                    Some(node) if node.member => {}
                    Some(node) => out.push(remove(item, &node.children, of.item()).unwrap_or(Value::Null)),
                    None => out.push(item.clone()),
                }
            }
            (!out.is_empty()).then_some(Value::Array(out))
        }
        (Shape::Scalar, value) => Some(value.clone()),
        _ => None,
    }
}
