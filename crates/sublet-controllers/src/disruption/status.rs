//! The arithmetic of a budget.

use crate::kit::{conditions, intstr, pods, time};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::ObjectExt;
use sublet_runtime::clock::format_seconds;

/// How long a pod that was allowed to be evicted counts as gone without being gone.
const DELETION_SECONDS: i64 = 120;

pub(super) struct Observed<'a> {
    pub(super) budget: &'a Value,
    pub(super) pods: &'a [Arc<Value>],
    /// How many pods there should be.
    pub(super) expected: i64,
    pub(super) now: Timestamp,
}

/// The number of pods that should be follows from their controllers, not from the pods that are.
pub(super) fn needs_scale(budget: &Value) -> bool {
    budget.pointer("/spec/maxUnavailable").is_some_and(|v| !v.is_null())
        || budget.pointer("/spec/minAvailable").is_some_and(Value::is_string)
}

pub(super) fn next(observed: &Observed) -> Value {
    let Observed { budget, pods, now, .. } = observed;
    let at = |key: &str| budget.pointer(&format!("/spec/{key}")).filter(|v| !v.is_null());
    let (expected, desired) = match (at("maxUnavailable"), at("minAvailable")) {
        (Some(max), _) => (observed.expected, (observed.expected - intstr::scaled(Some(max), observed.expected, true).unwrap_or(0)).max(0)),
        (None, Some(min)) => (observed.expected, intstr::scaled(Some(min), observed.expected, true).unwrap_or(0)),
        (None, None) => (0, 0),
    };
    let disrupted = still_disrupted(budget, pods, *now);
    let is_healthy = |pod: &Value| !pod.is_deleting() && !disrupted.contains_key(pod.name()) && pods::is_ready(pod);
    let healthy = pods.iter().filter(|p| is_healthy(p)).count() as i64;
    // A budget without pods allows nothing: its first pods may come before it is looked at again.
    let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };

    let mut status = json!({"currentHealthy": healthy, "desiredHealthy": desired, "disruptionsAllowed": allowed, "expectedPods": expected});
    if budget.generation() != 0 {
        status["observedGeneration"] = json!(budget.generation());
    }
    if !disrupted.is_empty() {
        status["disruptedPods"] = Value::Object(disrupted);
    }
    let (is_true, reason) = if allowed > 0 { (true, "SufficientPods") } else { (false, "InsufficientPods") };
    set_condition(&mut status, budget, is_true, reason, "", budget.generation(), *now);
    status
}

/// When the number cannot be told, nothing may be evicted.
pub(super) fn fail_safe(budget: &Value, problem: &str, now: Timestamp) -> Value {
    let mut status = budget.get("status").cloned().unwrap_or(json!({}));
    for key in ["currentHealthy", "desiredHealthy", "expectedPods"] {
        if status[key].is_null() {
            status[key] = json!(0);
        }
    }
    status["disruptionsAllowed"] = json!(0);
    let observed = status["observedGeneration"].as_i64().unwrap_or(0);
    set_condition(&mut status, budget, false, "SyncFailed", problem, observed, now);
    status
}

/// Evicted pods that are still there, as long as they may take to go.
fn still_disrupted(budget: &Value, pods: &[Arc<Value>], now: Timestamp) -> Map<String, Value> {
    let noted = budget.object_at("/status/disruptedPods");
    let going = |name: &str| pods.iter().any(|p| p.name() == name && !p.is_deleting());
    let is_recent = |at: &Value| at.as_str().and_then(time::parse).is_some_and(|at| time::plus_seconds(at, DELETION_SECONDS) >= now);
    noted.into_iter().flatten().filter(|(name, at)| going(name) && is_recent(at)).map(|(n, at)| (n.clone(), at.clone())).collect()
}

/// When the first of the evicted pods counts again.
pub(super) fn recheck(status: &Value, now: Timestamp) -> Option<Duration> {
    let times = status.object_at("/disruptedPods")?.values().filter_map(|at| time::parse(at.as_str()?));
    // A moment later, for the last second still counts as gone.
    times.min().map(|at| time::until(now, time::plus_seconds(at, DELETION_SECONDS + 1)))
}

fn set_condition(status: &mut Value, budget: &Value, is_true: bool, reason: &str, message: &str, observed: i64, now: Timestamp) {
    let word = if is_true { "True" } else { "False" };
    let mut condition = json!({"type": "DisruptionAllowed", "status": word, "reason": reason, "message": message, "lastTransitionTime": format_seconds(now)});
    if observed != 0 {
        condition["observedGeneration"] = json!(observed);
    }
    status["conditions"] = json!(budget.array_at("/status/conditions"));
    conditions::put(status, condition);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:10:00Z".parse().expect("a time")
    }

    fn pods(ready: usize, unready: usize) -> Vec<Arc<Value>> {
        let pod = |i: usize, status: &str| {
            Arc::new(json!({"metadata": {"name": format!("p{i}")}, "status": {"conditions": [{"type": "Ready", "status": status}]}}))
        };
        (0..ready).map(|i| pod(i, "True")).chain((ready..ready + unready).map(|i| pod(i, "False"))).collect()
    }

    fn budget(spec: Value) -> Value {
        json!({"metadata": {"generation": 1}, "spec": spec})
    }

    /// (healthy, desired, allowed, expected)
    fn check(spec: Value, ready: usize, unready: usize, expected: i64, wanted: [i64; 4]) {
        let status = next(&Observed { budget: &budget(spec.clone()), pods: &pods(ready, unready), expected, now: now() });
        let counts = ["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"].map(|k| status[k].as_i64().unwrap_or(-1));
        assert_eq!(counts, wanted, "{spec}");
    }

    #[test]
    fn what_may_go_is_what_is_healthy_beyond_what_is_desired() {
        check(json!({"minAvailable": 3}), 4, 1, 5, [4, 3, 1, 5]);
        check(json!({"minAvailable": 3}), 2, 0, 2, [2, 3, 0, 2]);
        check(json!({"minAvailable": "28%"}), 8, 0, 10, [8, 3, 5, 10]);
        check(json!({"maxUnavailable": 1}), 1, 0, 1, [1, 0, 1, 1]);
        check(json!({"maxUnavailable": "30%"}), 9, 1, 10, [9, 7, 2, 10]);
        check(json!({"maxUnavailable": 10}), 3, 0, 3, [3, 0, 3, 3]);
        check(json!({"minAvailable": 0}), 0, 0, 0, [0, 0, 0, 0]);
    }

    #[test]
    fn evicted_pods_count_as_gone_for_two_minutes() {
        let mut budget = budget(json!({"minAvailable": 1}));
        budget["status"] =
            json!({"disruptedPods": {"p0": "2026-01-01T00:09:00Z", "p1": "2026-01-01T00:01:00Z", "gone": "2026-01-01T00:09:00Z"}});
        let status = next(&Observed { budget: &budget, pods: &pods(3, 0), expected: 3, now: now() });
        assert_eq!(status["disruptedPods"], json!({"p0": "2026-01-01T00:09:00Z"}));
        assert_eq!((status["currentHealthy"].as_i64(), recheck(&status, now())), (Some(2), Some(Duration::from_secs(61))));
    }

    #[test]
    fn the_condition_keeps_its_time_until_the_answer_changes() {
        let first = next(&Observed { budget: &budget(json!({"minAvailable": 1})), pods: &pods(2, 0), expected: 2, now: now() });
        let mut budget = budget(json!({"minAvailable": 1}));
        budget["status"] = first.clone();
        let later = "2026-01-01T00:20:00Z".parse().expect("a time");
        let same = next(&Observed { budget: &budget, pods: &pods(3, 0), expected: 3, now: later });
        assert_eq!(same["conditions"], first["conditions"]);
        let failed = fail_safe(&budget, "no idea", later);
        assert_eq!((failed["disruptionsAllowed"].as_i64(), failed["conditions"][0]["reason"].as_str()), (Some(0), Some("SyncFailed")));
    }
}
