//! The status of a deployment and whether its rollout gets on (deployment/progress.go, 1.37).

use super::replicas::{max_unavailable, sum, wanted};
use crate::kit::{conditions, count_at, time};
use jiff::Timestamp;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;
use sublet_runtime::clock::format_seconds;

pub(super) const CREATE_FAILED: &str = "ReplicaSetCreateError";
pub(super) const CREATED: &str = "NewReplicaSetCreated";
pub(super) const FOUND: &str = "FoundNewReplicaSet";
const UPDATED: &str = "ReplicaSetUpdated";
const COMPLETE: &str = "NewReplicaSetAvailable";
pub(super) const TIMED_OUT: &str = "ProgressDeadlineExceeded";
pub(super) const PAUSED: &str = "DeploymentPaused";
pub(super) const RESUMED: &str = "DeploymentResumed";

pub(super) fn condition(kind: &str, status: &str, reason: &str, message: &str, now: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastUpdateTime": now, "lastTransitionTime": now})
}

pub(super) fn has_deadline(deployment: &Value) -> bool {
    deployment.i64_at("/spec/progressDeadlineSeconds").is_some_and(|s| s != i64::from(i32::MAX))
}

/// The counts and the Available condition; other conditions are kept.
pub(super) fn counts(deployment: &Value, new: Option<&Value>, old: &[Value], now: Timestamp) -> Value {
    let all = || old.iter().chain(new);
    let available = sum(all(), "/status/availableReplicas");
    let optional = [
        ("observedGeneration", deployment.generation()),
        ("replicas", sum(all(), "/status/replicas")),
        ("updatedReplicas", sum(new, "/status/replicas")),
        ("readyReplicas", sum(all(), "/status/readyReplicas")),
        ("availableReplicas", available),
        ("unavailableReplicas", (sum(all(), "/spec/replicas") - available).max(0)),
    ];
    let mut status = json!({});
    for (key, count) in optional.into_iter().filter(|(_, count)| *count != 0) {
        status[key] = json!(count);
    }
    if let Some(terminating) = terminating(all()) {
        status["terminatingReplicas"] = json!(terminating);
    }
    for key in ["collisionCount", "conditions"] {
        if let Some(value) = deployment.pointer(&format!("/status/{key}")) {
            status[key] = value.clone();
        }
    }
    let now = format_seconds(now);
    let condition = if available >= wanted(deployment) - max_unavailable(deployment) {
        condition("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.", &now)
    } else {
        condition("Available", "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.", &now)
    };
    conditions::set(&mut status, condition);
    status
}

/// Unknown as long as a set that has been looked at does not tell.
fn terminating<'a>(sets: impl Iterator<Item = &'a Value>) -> Option<i64> {
    let mut total = 0;
    for set in sets {
        match set.i64_at("/status/terminatingReplicas") {
            Some(count) => total += count,
            None if count_at(set, "/status/observedGeneration") == 0 => {}
            None => return None,
        }
    }
    Some(total)
}

pub(super) fn is_complete(deployment: &Value, status: &Value) -> bool {
    let all = wanted(deployment);
    ["/updatedReplicas", "/replicas", "/availableReplicas"].iter().all(|p| count_at(status, p) == all)
        && count_at(status, "/observedGeneration") >= deployment.generation()
}

fn is_progressing(before: &Value, after: &Value) -> bool {
    let grew = |pointer: &str| count_at(after, pointer) > count_at(before, pointer);
    let old_replicas = |status: &Value| count_at(status, "/replicas") - count_at(status, "/updatedReplicas");
    grew("/updatedReplicas") || grew("/readyReplicas") || grew("/availableReplicas") || old_replicas(after) < old_replicas(before)
}

fn has_timed_out(deployment: &Value, status: &Value, now: Timestamp) -> bool {
    let Some(condition) = conditions::find(status, "Progressing") else { return false };
    match condition["reason"].as_str().unwrap_or_default() {
        COMPLETE => false,
        TIMED_OUT => true,
        _ => deadline(deployment, condition).is_some_and(|at| at < now),
    }
}

fn deadline(deployment: &Value, condition: &Value) -> Option<Timestamp> {
    let since = time::at(condition, "/lastUpdateTime")?;
    Some(time::plus_seconds(since, count_at(deployment, "/spec/progressDeadlineSeconds")))
}

/// The whole status of a deployment whose rollout is under way; `deployment.status` is the status before.
pub(super) fn rollout_status(deployment: &Value, new: Option<&Value>, old: &[Value], now: Timestamp) -> Value {
    let before = deployment.get("status").cloned().unwrap_or(json!({}));
    let mut status = counts(deployment, new, old, now);
    let current = conditions::find(&before, "Progressing");
    let was_complete =
        count_at(&status, "/replicas") == count_at(&status, "/updatedReplicas") && current.is_some_and(|c| c["reason"] == COMPLETE);
    let subject = match new {
        Some(set) => format!("ReplicaSet \"{}\"", set.name()),
        None => format!("Deployment \"{}\"", deployment.name()),
    };
    let written = format_seconds(now);
    if !has_deadline(deployment) {
        conditions::remove(&mut status, "Progressing");
    } else if !was_complete {
        if is_complete(deployment, &status) {
            let message = format!("{subject} has successfully progressed.");
            conditions::set(&mut status, condition("Progressing", "True", COMPLETE, &message, &written));
        } else if is_progressing(&before, &status) {
            let message = format!("{subject} is progressing.");
            let mut progress = condition("Progressing", "True", UPDATED, &message, &written);
            if let Some(current) = current.filter(|c| c["status"] == "True") {
                progress["lastTransitionTime"] = current["lastTransitionTime"].clone();
            }
            // Each sign of progress starts the deadline anew, so the condition is written even with the same reason.
            conditions::replace(&mut status, progress);
        } else if has_timed_out(deployment, &status, now) {
            let message = format!("{subject} has timed out progressing.");
            conditions::set(&mut status, condition("Progressing", "False", TIMED_OUT, &message, &written));
        }
    }
    match replica_failure(new, old) {
        Some(failure) => conditions::set(&mut status, failure),
        None => conditions::remove(&mut status, "ReplicaFailure"),
    }
    status
}

fn replica_failure(new: Option<&Value>, old: &[Value]) -> Option<Value> {
    let of = |set: &Value| conditions::find(&set["status"], "ReplicaFailure").cloned();
    let mut failure = new.and_then(of).or_else(|| old.iter().find_map(of))?;
    failure["lastUpdateTime"] = failure["lastTransitionTime"].clone();
    Some(failure)
}

/// When to look whether the deadline has passed, if nothing happens before.
pub(super) fn next_check(deployment: &Value, status: &Value) -> Option<Timestamp> {
    let current = conditions::find(status, "Progressing")?;
    if !has_deadline(deployment) || is_complete(deployment, status) || current["reason"] == TIMED_OUT {
        return None;
    }
    // A second more, for timestamps carry whole seconds.
    deadline(deployment, current).map(|at| time::plus_seconds(at, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(status: Value) -> Value {
        json!({
            "metadata": {"name": "d", "generation": 1}, "status": status,
            "spec": {"replicas": 2, "progressDeadlineSeconds": 60, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}},
        })
    }

    fn set(replicas: i64, available: i64) -> Value {
        json!({
            "metadata": {"name": "d-1"}, "spec": {"replicas": replicas},
            "status": {"observedGeneration": 1, "replicas": replicas, "readyReplicas": available, "availableReplicas": available, "terminatingReplicas": 0},
        })
    }

    fn progressing(reason: &str, updated: &str) -> Value {
        condition("Progressing", "True", reason, "", updated)
    }

    fn reason_at(deployment: &Value, set: &Value, now: &str) -> String {
        let status = rollout_status(deployment, Some(set), &[], now.parse().expect("a time"));
        conditions::find(&status, "Progressing").map(|c| c["reason"].as_str().unwrap_or_default().to_string()).unwrap_or_default()
    }

    #[test]
    fn progress_completion_and_time_out_are_told_apart() {
        let before = json!({"replicas": 2, "updatedReplicas": 2, "unavailableReplicas": 2, "conditions": [progressing(CREATED, "2026-01-01T00:00:00Z")]});
        let deployment = deployment(before);
        assert_eq!(reason_at(&deployment, &set(2, 1), "2026-01-01T00:00:30Z"), UPDATED);
        assert_eq!(reason_at(&deployment, &set(2, 2), "2026-01-01T00:05:00Z"), COMPLETE);
        assert_eq!(reason_at(&deployment, &set(2, 0), "2026-01-01T00:01:00Z"), CREATED);
        assert_eq!(reason_at(&deployment, &set(2, 0), "2026-01-01T00:01:01Z"), TIMED_OUT);
    }

    #[test]
    fn a_complete_rollout_is_not_measured_again() {
        let before = json!({"replicas": 2, "updatedReplicas": 2, "conditions": [progressing(COMPLETE, "2026-01-01T00:00:00Z")]});
        assert_eq!(reason_at(&deployment(before), &set(2, 0), "2026-01-01T09:00:00Z"), COMPLETE);
    }

    #[test]
    fn counts_leave_out_zeros_as_upstream_does() {
        let status = counts(&deployment(json!({})), Some(&set(2, 1)), &[], "2026-01-01T00:00:00Z".parse().expect("a time"));
        let expected = json!({
            "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 1, "availableReplicas": 1,
            "unavailableReplicas": 1, "terminatingReplicas": 0,
            "conditions": [condition("Available", "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.", "2026-01-01T00:00:00Z")],
        });
        assert_eq!(status, expected);
    }
}
