//! The common ways in which status and the rest are kept apart.

use super::edit::{copy_or_remove, fill};
use serde_json::Value;

/// An update of `/status` of most kinds: labels, annotations and the like may change with it,
/// everything else beside status stays.
pub(crate) fn keep_spec(new: &mut Value, old: &Value) {
    let keys: Vec<String> = [&*new, old].into_iter().filter_map(Value::as_object).flat_map(|m| m.keys().cloned()).collect();
    for key in keys {
        if !matches!(key.as_str(), "metadata" | "status" | "apiVersion" | "kind") {
            copy_or_remove(new, old, &key);
        }
    }
    for key in ["generation", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        copy_or_remove(&mut new["metadata"], &old["metadata"], key);
    }
}

/// Fills counters that are never left out of a status.
pub(crate) fn zero_counters(object: &mut Value, counters: &[&str]) {
    let status = super::edit::ensure(object, "status");
    for counter in counters {
        fill(status, counter, 0);
    }
}

/// Replaces whatever status the client sent by an empty one.
pub(crate) fn empty_status(object: &mut Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert("status".into(), Value::Object(serde_json::Map::new()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_status_update_may_label_but_not_change_the_spec() {
        let old = json!({"metadata": {"name": "a", "generation": 2}, "spec": {"x": 1}, "status": {"y": 1}});
        let mut new =
            json!({"metadata": {"name": "a", "generation": 9, "labels": {"k": "v"}}, "spec": {"x": 2}, "status": {"y": 2}, "extra": 1});
        keep_spec(&mut new, &old);
        assert_eq!(new, json!({"metadata": {"name": "a", "generation": 2, "labels": {"k": "v"}}, "spec": {"x": 1}, "status": {"y": 2}}));
    }
}
