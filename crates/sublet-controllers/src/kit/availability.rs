//! Counts of the pods of a workload, as its status shows them.

use super::pods;
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) ready: i64,
    pub(crate) available: i64,
}

pub(crate) fn count(all: &[Arc<Value>], min_ready_seconds: i64, now: Timestamp) -> Counts {
    let mut counts = Counts::default();
    for pod in all {
        if pods::is_ready(pod) {
            counts.ready += 1;
            counts.available += i64::from(pods::is_available(pod, min_ready_seconds, now));
        }
    }
    counts
}
