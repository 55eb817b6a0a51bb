//! What decisions read beside nodes and pods.

use serde_json::Value;
use std::sync::Arc;

/// Reads from local copies; nothing here waits.
pub(crate) struct World<'a> {
    pub(crate) namespace: &'a dyn Fn(&str) -> Option<Arc<Value>>,
    pub(crate) claim: &'a dyn Fn(&str, &str) -> Option<Arc<Value>>,
    pub(crate) volume: &'a dyn Fn(&str) -> Option<Arc<Value>>,
    pub(crate) volumes: &'a dyn Fn() -> Vec<Arc<Value>>,
    pub(crate) class: &'a dyn Fn(&str) -> Option<Arc<Value>>,
    pub(crate) budgets: &'a dyn Fn(&str) -> Vec<Arc<Value>>,
    /// Volumes promised to a claim whose binding is on its way.
    pub(crate) promised: &'a dyn Fn(&str) -> bool,
}
