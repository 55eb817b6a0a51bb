//! Predicates over pods.

use super::{count_at, time};
use jiff::Timestamp;
use serde_json::Value;
use std::time::Duration;
use sublet_machinery::ObjectExt;

/// Pods by the name of their node.
pub(crate) const BY_NODE: &str = "node";

/// Lets pods be found by their node; to be called before the informer runs.
pub(crate) fn index_by_node(informer: &sublet_runtime::Informer) {
    informer.add_index(BY_NODE, |pod| match node(pod) {
        "" => Vec::new(),
        name => vec![name.to_string()],
    });
}

pub(crate) fn phase(pod: &Value) -> &str {
    pod.str_at("/status/phase").unwrap_or_default()
}

pub(crate) fn node(pod: &Value) -> &str {
    pod.str_at("/spec/nodeName").unwrap_or_default()
}

/// Succeeded or failed: it will not run again.
pub(crate) fn is_terminal(pod: &Value) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

pub(crate) fn is_active(pod: &Value) -> bool {
    !is_terminal(pod) && !pod.is_deleting()
}

/// On its way out but not finished.
pub(crate) fn is_terminating(pod: &Value) -> bool {
    !is_terminal(pod) && pod.is_deleting()
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    pod.is_condition_true("Ready")
}

/// When the pod became ready; `None` when it is not ready or does not say since when.
pub(crate) fn ready_since(pod: &Value) -> Option<Timestamp> {
    let ready = pod.condition("Ready").filter(|c| c["status"] == "True")?;
    time::at(ready, "/lastTransitionTime")
}

/// Ready for at least `min_ready_seconds`.
pub(crate) fn is_available(pod: &Value, min_ready_seconds: i64, now: Timestamp) -> bool {
    if !is_ready(pod) {
        return false;
    }
    min_ready_seconds == 0 || ready_since(pod).is_some_and(|since| time::plus_seconds(since, min_ready_seconds) <= now)
}

/// When the next of the ready pods becomes available.
pub(crate) fn next_availability<'a>(pods: impl IntoIterator<Item = &'a Value>, min_ready_seconds: i64, now: Timestamp) -> Option<Duration> {
    if min_ready_seconds <= 0 {
        return None;
    }
    let at = pods.into_iter().filter_map(ready_since).map(|since| time::plus_seconds(since, min_ready_seconds));
    at.filter(|at| *at > now).min().map(|at| time::until(now, at))
}

/// The most restarts of a container, and of a sidecar.
pub(crate) fn max_restarts(pod: &Value) -> (i64, i64) {
    let regular = pod.array_at("/status/containerStatuses").iter().map(|s| count_at(s, "/restartCount")).max().unwrap_or(0);
    let is_sidecar =
        |name: &Value| pod.array_at("/spec/initContainers").iter().any(|c| c["name"] == *name && c["restartPolicy"] == "Always");
    let statuses = pod.array_at("/status/initContainerStatuses").iter();
    let sidecar = statuses.filter(|s| is_sidecar(&s["name"])).map(|s| count_at(s, "/restartCount")).max().unwrap_or(0);
    (regular, sidecar)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn availability_waits_for_min_ready_seconds() {
        let pod = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        let at = |text: &str| text.parse().expect("a time");
        assert!(is_available(&pod, 0, at("2026-01-01T00:00:00Z")));
        assert!(!is_available(&pod, 10, at("2026-01-01T00:00:09Z")));
        assert!(is_available(&pod, 10, at("2026-01-01T00:00:10Z")));
        assert_eq!(next_availability([&pod], 10, at("2026-01-01T00:00:04Z")), Some(Duration::from_secs(6)));
        assert_eq!(next_availability([&pod], 10, at("2026-01-01T00:00:10Z")), None);
    }
}
