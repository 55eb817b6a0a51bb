//! What the controllers share: predicates over pods, claims by owner reference, conditions, and the
//! executor that applies plans.

pub(crate) mod availability;
pub(crate) mod claim;
pub(crate) mod conditions;
pub(crate) mod discovery;
pub(crate) mod exec;
pub(crate) mod history;
pub(crate) mod intstr;
pub(crate) mod metadata;
pub(crate) mod node_fit;
pub(crate) mod pods;
pub(crate) mod rank;
pub(crate) mod selector;
pub(crate) mod template;
pub(crate) mod time;
pub(crate) mod watch;

/// The JSON number of a count; absent reads as zero.
pub(crate) fn count_at(object: &serde_json::Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(serde_json::Value::as_i64).unwrap_or_default()
}
