//! Small steps that defaulting and preparation are written in. A null counts as missing, as it does
//! once an object has passed through upstream's types.

use serde_json::{Map, Value};

/// Sets `key` when it is missing.
pub(crate) fn fill(object: &mut Value, key: &str, value: impl Into<Value>) {
    if let Some(map) = object.as_object_mut()
        && map.get(key).is_none_or(Value::is_null)
    {
        map.insert(key.into(), value.into());
    }
}

/// Sets `key` when it is missing or holds the zero value of its type (`""`, `0`, `[]`): the fields that
/// upstream keeps by value, where missing and zero are one.
pub(crate) fn fill_zero(object: &mut Value, key: &str, value: impl Into<Value>) {
    if let Some(map) = object.as_object_mut()
        && map.get(key).is_none_or(is_zero)
    {
        map.insert(key.into(), value.into());
    }
}

/// The map under `key`, made when missing.
pub(crate) fn ensure<'a>(object: &'a mut Value, key: &str) -> &'a mut Value {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    fill(object, key, Value::Object(Map::new()));
    &mut object[key]
}

/// The object under `key`, if there is one.
pub(crate) fn child<'a>(object: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    object.get_mut(key).filter(|v| v.is_object())
}

/// The objects of the list under `key`.
pub(crate) fn items<'a>(object: &'a mut Value, key: &str) -> std::slice::IterMut<'a, Value> {
    object.get_mut(key).and_then(Value::as_array_mut).map(Vec::as_mut_slice).unwrap_or_default().iter_mut()
}

pub(crate) fn remove(object: &mut Value, key: &str) -> Option<Value> {
    object.as_object_mut()?.remove(key)
}

/// Copies `key` from `from`, or removes it where `from` has none.
pub(crate) fn copy_or_remove(to: &mut Value, from: &Value, key: &str) {
    let Some(map) = to.as_object_mut() else { return };
    match from.get(key) {
        Some(value) => map.insert(key.into(), value.clone()),
        None => map.remove(key),
    };
}

/// Null, false, zero, and empty strings, lists and maps.
pub(crate) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(m) => m.is_empty(),
    }
}

/// The time now, for the few fields that strategies stamp (as upstream's strategies do).
pub(crate) fn now() -> String {
    let now = jiff::Timestamp::now();
    jiff::fmt::temporal::DateTimePrinter::new().precision(Some(0)).timestamp_to_string(&now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn zero_values_are_filled_only_where_upstream_has_no_pointer() {
        let mut object = json!({"a": 0, "b": 0, "c": null});
        fill(&mut object, "a", 1);
        fill_zero(&mut object, "b", 1);
        fill(&mut object, "c", 1);
        assert_eq!(object, json!({"a": 0, "b": 1, "c": 1}));
    }

    #[test]
    fn the_time_has_whole_seconds() {
        let now = now();
        assert_eq!(now.len(), "2026-01-01T00:00:00Z".len(), "{now}");
    }
}
