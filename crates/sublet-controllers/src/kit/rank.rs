//! Which pods to delete first: the order of upstream's `ActivePodsWithRanks` (controller_utils.go, 1.37).

use super::{pods, time};
use jiff::Timestamp;
use serde_json::Value;
use std::cmp::Ordering;
use std::sync::Arc;
use sublet_machinery::ObjectExt;

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// A pod with the number of related pods on its node.
pub(crate) struct Ranked {
    pub(crate) pod: Arc<Value>,
    pub(crate) neighbours: usize,
}

/// Sorts so that the pods to delete first come first.
pub(crate) fn sort_for_deletion(ranked: &mut [Ranked], now: Timestamp) {
    ranked.sort_by(|a, b| compare(a, b, now));
}

fn compare(a: &Ranked, b: &Ranked, now: Timestamp) -> Ordering {
    let (x, y) = (&a.pod, &b.pod);
    let assigned = |p: &Value| !pods::node(p).is_empty();
    assigned(x)
        .cmp(&assigned(y))
        .then_with(|| phase_order(x).cmp(&phase_order(y)))
        .then_with(|| pods::is_ready(x).cmp(&pods::is_ready(y)))
        .then_with(|| deletion_cost(x).cmp(&deletion_cost(y)))
        .then_with(|| b.neighbours.cmp(&a.neighbours))
        .then_with(|| if pods::is_ready(x) { younger_first(x, y, pods::ready_since, now) } else { Ordering::Equal })
        .then_with(|| pods::max_restarts(y).cmp(&pods::max_restarts(x)))
        .then_with(|| younger_first(x, y, time::created, now))
        // Among equals the order is arbitrary but the same for every look.
        .then_with(|| x.uid().cmp(y.uid()))
}

/// Ages are compared on a logarithmic scale, so that old pods of about the same age are all alike.
fn younger_first(x: &Value, y: &Value, since: impl Fn(&Value) -> Option<Timestamp>, now: Timestamp) -> Ordering {
    match (since(x), since(y)) {
        (x_since, y_since) if x_since == y_since => Ordering::Equal,
        (None, _) => Ordering::Less,
        (_, None) => Ordering::Greater,
        (Some(x_since), Some(y_since)) => log_age(x_since, now).cmp(&log_age(y_since, now)).then_with(|| x.uid().cmp(y.uid())),
    }
}

fn log_age(since: Timestamp, now: Timestamp) -> i64 {
    let nanoseconds = now.duration_since(since).as_nanos();
    if nanoseconds > 0 { i64::from(nanoseconds.ilog2()) } else { -1 }
}

fn phase_order(pod: &Value) -> u8 {
    match pods::phase(pod) {
        "Pending" => 0,
        "Unknown" => 1,
        "Running" => 2,
        _ => 0,
    }
}

fn deletion_cost(pod: &Value) -> i32 {
    let Some(text) = pod.annotation(DELETION_COST) else { return 0 };
    // As upstream: a leading plus or zeros make the value invalid, and an invalid one counts as zero.
    text.parse::<i32>().ok().filter(|cost| cost.to_string() == text).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, node: &str, phase: &str, ready: Option<&str>, cost: Option<&str>) -> Value {
        let mut pod = json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": node}, "status": {"phase": phase},
        });
        if let Some(since) = ready {
            pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]);
        }
        if let Some(cost) = cost {
            pod.set_annotation(DELETION_COST, cost);
        }
        pod
    }

    fn order(pods: Vec<(Value, usize)>) -> Vec<String> {
        let mut ranked: Vec<Ranked> = pods.into_iter().map(|(p, neighbours)| Ranked { pod: Arc::new(p), neighbours }).collect();
        sort_for_deletion(&mut ranked, "2026-02-01T00:00:00Z".parse().expect("a time"));
        ranked.iter().map(|r| r.pod.name().to_string()).collect()
    }

    #[test]
    fn what_serves_least_goes_first() {
        let old = Some("2026-01-01T00:00:00Z");
        let young = Some("2026-01-31T23:59:00Z");
        let names = order(vec![
            (pod("old", "n1", "Running", old, None), 1),
            (pod("young", "n1", "Running", young, None), 1),
            (pod("crowded", "n2", "Running", old, None), 2),
            (pod("cheap", "n1", "Running", old, Some("-5")), 1),
            (pod("unready", "n1", "Running", None, Some("100")), 1),
            (pod("pending", "n1", "Pending", None, None), 1),
            (pod("unassigned", "", "Pending", None, None), 1),
        ]);
        assert_eq!(names, ["unassigned", "pending", "unready", "cheap", "crowded", "young", "old"]);
    }

    #[test]
    fn an_unreadable_deletion_cost_counts_as_zero() {
        let check = |text: &str, cost| assert_eq!(deletion_cost(&pod("p", "", "", None, Some(text))), cost, "{text}");
        check("10", 10);
        check("-10", -10);
        check("+10", 0);
        check("010", 0);
        check("ten", 0);
    }
}
