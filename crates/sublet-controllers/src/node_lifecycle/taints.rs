//! Taints that follow from what is known of a node.

use super::READY;
use serde_json::{Map, Value, json};
use sublet_machinery::ObjectExt;

pub(super) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(super) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
const NO_SCHEDULE: &str = "NoSchedule";
pub(super) const NO_EXECUTE: &str = "NoExecute";

/// A condition, the status of it that taints, the taint.
const OF_CONDITIONS: [(&str, &str, &str); 6] = [
    (READY, "False", NOT_READY),
    (READY, "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// Labels under the names that they had once.
const FORMER_LABELS: [(&str, &str); 2] = [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

/// The taints of a node with those against scheduling as its conditions want them; `None`: they are so.
pub(super) fn follow_conditions(node: &Value, now: &str) -> Option<Vec<Value>> {
    let status = |kind: &str| node.condition(kind).and_then(|c| c["status"].as_str());
    let mut wanted: Vec<&str> =
        OF_CONDITIONS.into_iter().filter(|(kind, s, _)| status(kind) == Some(s)).map(|(_, _, taint)| taint).collect();
    if node.bool_at("/spec/unschedulable") == Some(true) {
        wanted.push(UNSCHEDULABLE);
    }
    let is_ours = |taint: &Value| {
        taint["effect"] == NO_SCHEDULE && (taint["key"] == UNSCHEDULABLE || OF_CONDITIONS.iter().any(|(_, _, t)| taint["key"] == *t))
    };
    let before = node.array_at("/spec/taints");
    let mut taints: Vec<Value> = before.iter().filter(|t| !is_ours(t) || wanted.iter().any(|w| t["key"] == *w)).cloned().collect();
    for key in wanted {
        if !before.iter().any(|t| is_ours(t) && t["key"] == key) {
            taints.push(json!({"key": key, "effect": NO_SCHEDULE, "timeAdded": now}));
        }
    }
    (taints != before).then_some(taints)
}

/// The taint that empties a node of this status, and the one that it excludes.
pub(super) fn evicting(ready: &str) -> Option<(&'static str, &'static str)> {
    match ready {
        "False" => Some((NOT_READY, UNREACHABLE)),
        "Unknown" => Some((UNREACHABLE, NOT_READY)),
        _ => None,
    }
}

pub(super) fn has_evicting(node: &Value, key: &str) -> bool {
    node.array_at("/spec/taints").iter().any(|t| t["key"] == key && t["effect"] == NO_EXECUTE)
}

/// The taints of a node with this one of those that empty it; `None`: they are so.
pub(super) fn with_evicting(node: &Value, key: Option<&str>, now: &str) -> Option<Vec<Value>> {
    let before = node.array_at("/spec/taints");
    let is_other = |t: &&Value| t["effect"] == NO_EXECUTE && [NOT_READY, UNREACHABLE].iter().any(|k| t["key"] == *k && key != Some(k));
    let mut taints: Vec<Value> = before.iter().filter(|t| !is_other(t)).cloned().collect();
    if let Some(key) = key.filter(|key| !has_evicting(node, key)) {
        taints.push(json!({"key": key, "effect": NO_EXECUTE, "timeAdded": now}));
    }
    (taints != before).then_some(taints)
}

/// Labels of former names that say something else than their successors.
pub(super) fn former_labels(node: &Value) -> Option<Map<String, Value>> {
    let differ = FORMER_LABELS.into_iter().filter_map(|(name, former)| {
        let value = node.label(name)?;
        (node.label(former) != Some(value)).then(|| (former.to_string(), json!(value)))
    });
    let labels: Map<String, Value> = differ.collect();
    (!labels.is_empty()).then_some(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(conditions: &[(&str, &str)], taints: &[(&str, &str)]) -> Value {
        let conditions: Vec<Value> = conditions.iter().map(|(kind, status)| json!({"type": kind, "status": status})).collect();
        let taints: Vec<Value> = taints.iter().map(|(key, effect)| json!({"key": key, "effect": effect})).collect();
        json!({"spec": {"taints": taints}, "status": {"conditions": conditions}})
    }

    fn shown(taints: Option<Vec<Value>>) -> Option<String> {
        let last = |t: &Value| {
            format!(
                "{}:{}",
                t["key"].as_str().unwrap_or_default().trim_start_matches("node.kubernetes.io/"),
                t["effect"].as_str().unwrap_or_default()
            )
        };
        taints.map(|taints| taints.iter().map(last).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn taints_against_scheduling_follow_conditions() {
        let check = |conditions: &[(&str, &str)], taints: &[(&str, &str)], expected: Option<&str>| {
            let node = node(conditions, taints);
            assert_eq!(shown(follow_conditions(&node, "now")).as_deref(), expected, "{node}");
        };
        check(&[("Ready", "True")], &[], None);
        check(&[], &[], None);
        check(&[("Ready", "False")], &[], Some("not-ready:NoSchedule"));
        check(
            &[("Ready", "Unknown")],
            &[(NOT_READY, "NoSchedule"), ("mine", "NoSchedule")],
            Some("mine:NoSchedule unreachable:NoSchedule"),
        );
        check(&[("Ready", "True"), ("DiskPressure", "True")], &[], Some("disk-pressure:NoSchedule"));
        check(&[("Ready", "True"), ("MemoryPressure", "Unknown")], &[], None);
        // Those that empty the node are another's.
        check(&[("Ready", "True")], &[(NOT_READY, "NoExecute"), (NOT_READY, "NoSchedule")], Some("not-ready:NoExecute"));
        let mut cordoned = node(&[("Ready", "True")], &[]);
        cordoned["spec"]["unschedulable"] = json!(true);
        assert_eq!(shown(follow_conditions(&cordoned, "now")).as_deref(), Some("unschedulable:NoSchedule"));
    }

    #[test]
    fn not_ready_and_unreachable_exclude_each_other() {
        let check = |taints: &[(&str, &str)], key: Option<&str>, expected: Option<&str>| {
            assert_eq!(shown(with_evicting(&node(&[], taints), key, "now")).as_deref(), expected, "{taints:?} {key:?}");
        };
        check(&[], None, None);
        check(&[("mine", "NoExecute")], Some(NOT_READY), Some("mine:NoExecute not-ready:NoExecute"));
        check(&[(NOT_READY, "NoExecute")], Some(NOT_READY), None);
        check(
            &[(NOT_READY, "NoExecute"), (NOT_READY, "NoSchedule")],
            Some(UNREACHABLE),
            Some("not-ready:NoSchedule unreachable:NoExecute"),
        );
        check(&[(UNREACHABLE, "NoExecute")], None, Some(""));
    }

    #[test]
    fn former_labels_follow_their_successors() {
        let labels = |labels: Value| former_labels(&json!({"metadata": {"labels": labels}})).map(Value::Object);
        assert_eq!(labels(json!({"kubernetes.io/os": "linux"})), Some(json!({"beta.kubernetes.io/os": "linux"})));
        assert_eq!(labels(json!({"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux"})), None);
        assert_eq!(labels(json!({"beta.kubernetes.io/arch": "arm64"})), None);
    }
}
