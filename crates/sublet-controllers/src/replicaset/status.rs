//! The status of a set.

use super::{count_at, pods};
use crate::kit::availability::{self, Counts};
use crate::kit::{conditions, selector::Selector};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::ObjectExt;
use sublet_runtime::clock::format_seconds;

/// `failure` is why pods could not be made or deleted.
pub(super) fn next(set: &Value, active: &[Arc<Value>], terminating: Option<i64>, failure: Option<String>, now: Timestamp) -> Value {
    debug_assert!(active.iter().all(|p| pods::is_active(p)));
    let template = Selector::parse(Some(&json!({"matchLabels": set["spec"]["template"]["metadata"]["labels"]})));
    let fully_labeled = active.iter().filter(|p| template.matches_object(p)).count() as i64;
    let Counts { ready, available } = availability::count(active, count_at(set, "/spec/minReadySeconds"), now);

    let mut status = json!({"replicas": active.len()});
    let optional = [
        ("fullyLabeledReplicas", fully_labeled),
        ("readyReplicas", ready),
        ("availableReplicas", available),
        ("observedGeneration", set.generation()),
    ];
    for (key, count) in optional.into_iter().filter(|(_, count)| *count != 0) {
        status[key] = json!(count);
    }
    if let Some(terminating) = terminating {
        status["terminatingReplicas"] = json!(terminating);
    }
    if !set.array_at("/status/conditions").is_empty() {
        status["conditions"] = set["status"]["conditions"].clone();
    }
    match failure {
        None => conditions::remove(&mut status, "ReplicaFailure"),
        Some(message) if conditions::find(&status, "ReplicaFailure").is_none() => {
            let wanted = count_at(set, "/spec/replicas");
            let reason = if (active.len() as i64) < wanted { "FailedCreate" } else { "FailedDelete" };
            conditions::replace(&mut status, conditions::new("ReplicaFailure", true, reason, &message, &format_seconds(now)));
        }
        Some(_) => {}
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(ready: bool, label: &str) -> Arc<Value> {
        let status = if ready { "True" } else { "False" };
        Arc::new(json!({
            "metadata": {"labels": {"app": label}},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        }))
    }

    fn set(replicas: i64, status: Value) -> Value {
        json!({
            "metadata": {"generation": 3}, "status": status,
            "spec": {"replicas": replicas, "template": {"metadata": {"labels": {"app": "x"}}}},
        })
    }

    fn now() -> Timestamp {
        "2026-01-01T00:01:00Z".parse().expect("a time")
    }

    #[test]
    fn counts_are_those_of_active_pods() {
        let status = next(&set(3, json!({})), &[pod(true, "x"), pod(false, "x"), pod(true, "y")], Some(1), None, now());
        let expected = json!({
            "replicas": 3, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
            "terminatingReplicas": 1, "observedGeneration": 3,
        });
        assert_eq!(status, expected);
    }

    #[test]
    fn a_failure_is_a_condition_until_it_is_over() {
        let failed = next(&set(1, json!({})), &[], None, Some("no quota".into()), now());
        let condition = json!([{
            "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "no quota",
            "lastTransitionTime": "2026-01-01T00:01:00Z",
        }]);
        assert_eq!(failed["conditions"], condition);
        let again = next(&set(1, failed.clone()), &[], None, Some("other".into()), now());
        assert_eq!(again["conditions"], condition);
        let well = next(&set(1, failed), &[pod(true, "x")], None, None, now());
        assert!(well.get("conditions").is_none());
    }
}
