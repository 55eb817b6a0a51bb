//! The smallest merge patch between two values.

use serde_json::{Map, Value};

/// The merge patch that makes `wanted` of `current`, or `None` when they are equal. Lists are
/// replaced as a whole; null and absent are the same.
pub fn merge_patch(current: &Value, wanted: &Value) -> Option<Value> {
    match (current, wanted) {
        (Value::Null, Value::Object(_)) => merge_patch(&Value::Object(Map::new()), wanted),
        (Value::Object(current), Value::Object(wanted)) => {
            let mut patch = Map::new();
            for (key, value) in wanted {
                let before = current.get(key).unwrap_or(&Value::Null);
                if let Some(change) = merge_patch(before, value) {
                    patch.insert(key.clone(), change);
                }
            }
            for (key, before) in current {
                if !before.is_null() && !wanted.contains_key(key) {
                    patch.insert(key.clone(), Value::Null);
                }
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        _ => (!same(current, wanted)).then(|| wanted.clone()),
    }
}

/// Equality in which null and absent are the same, at any depth: one server writes `"lastProbeTime":
/// null` where another writes nothing.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let null = &Value::Null;
            a.iter().all(|(key, value)| same(value, b.get(key).unwrap_or(null)))
                && b.iter().all(|(key, value)| value.is_null() || a.contains_key(key))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_patch_holds_what_differs_and_nothing_else() {
        let check = |current: Value, wanted: Value, expected: Value| {
            assert_eq!(merge_patch(&current, &wanted).unwrap_or(json!("same")), expected);
        };
        check(json!({"a": 1, "b": {"c": 2}}), json!({"a": 1, "b": {"c": 2}}), json!("same"));
        check(json!({"a": 1, "b": {"c": 2}}), json!({"b": {"c": 3, "d": null}}), json!({"a": null, "b": {"c": 3}}));
        check(json!({"l": [1]}), json!({"l": [1, 2]}), json!({"l": [1, 2]}));
        check(Value::Null, json!({"a": 1, "b": {"c": null}}), json!({"a": 1}));
        check(Value::Null, json!({"a": null}), json!("same"));
        check(json!({"l": [{"a": 1}]}), json!({"l": [{"a": 1, "b": null}]}), json!("same"));
        check(json!({"l": [{"a": 1, "b": 2}]}), json!({"l": [{"a": 1, "b": null}]}), json!({"l": [{"a": 1, "b": null}]}));
    }
}
