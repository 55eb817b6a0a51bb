//! Conditions in a status: a list with one entry per type.

use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

pub(crate) fn find<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status.array_at("/conditions").iter().find(|c| c["type"] == kind)
}

pub(crate) fn is_true(status: &Value, kind: &str) -> bool {
    find(status, kind).is_some_and(|c| c["status"] == "True")
}

pub(crate) fn remove(status: &mut Value, kind: &str) {
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.retain(|c| c["type"] != kind);
        if conditions.is_empty() {
            status.remove_at("/conditions");
        }
    }
}

/// Puts `condition` at the end, in the place of the one of its type.
pub(crate) fn replace(status: &mut Value, condition: Value) {
    let kind = condition["type"].as_str().unwrap_or_default().to_string();
    remove(status, &kind);
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.push(condition);
    } else {
        status["conditions"] = json!([condition]);
    }
}

/// Puts `condition` in the place of the one of its type, or at the end. It keeps its transition time while its status stays.
pub(crate) fn put(status: &mut Value, mut condition: Value) {
    let all = status.get_mut("conditions").and_then(Value::as_array_mut);
    let Some(current) = all.and_then(|all| all.iter_mut().find(|c| c["type"] == condition["type"])) else {
        return replace(status, condition);
    };
    if current["status"] == condition["status"] {
        condition["lastTransitionTime"] = current["lastTransitionTime"].clone();
    }
    *current = condition;
}

/// The rule of deployments and replica sets: a condition with the same status and reason stays as it
/// is; with the same status it keeps its transition time.
pub(crate) fn set(status: &mut Value, mut condition: Value) {
    if let Some(current) = find(status, condition["type"].as_str().unwrap_or_default())
        && current["status"] == condition["status"]
    {
        if current["reason"] == condition["reason"] {
            return;
        }
        condition["lastTransitionTime"] = current["lastTransitionTime"].clone();
    }
    replace(status, condition);
}

/// A condition without `lastUpdateTime`; empty reason and message are left out.
pub(crate) fn new(kind: &str, is_true: bool, reason: &str, message: &str, now: &str) -> Value {
    let mut condition = json!({"type": kind, "status": if is_true { "True" } else { "False" }, "lastTransitionTime": now});
    for (key, text) in [("reason", reason), ("message", message)] {
        if !text.is_empty() {
            condition[key] = json!(text);
        }
    }
    condition
}
