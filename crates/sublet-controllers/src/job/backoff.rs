//! How long to wait after failures, from what the finished pods tell.

use crate::kit::{pods, time};
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::ObjectExt;

const FIRST: Duration = Duration::from_secs(10);
const MAX: Duration = Duration::from_secs(600);

/// When a pod ended: as its containers tell, or the end of its readiness, or its deletion.
pub(super) fn finished_at(pod: &Value) -> Timestamp {
    let not_ready = || {
        let ready = pod.condition("Ready").filter(|c| c["status"] == "False")?;
        time::at(ready, "/lastTransitionTime")
    };
    let deleted = || {
        let grace = pod.i64_at("/metadata/deletionGracePeriodSeconds").unwrap_or(0);
        Some(time::plus_seconds(time::at(pod, "/metadata/deletionTimestamp")?, -grace))
    };
    containers_finished(pod).or_else(not_ready).or_else(deleted).or_else(|| time::created(pod)).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The end of the last container; `None` while one runs.
fn containers_finished(pod: &Value) -> Option<Timestamp> {
    let is_sidecar =
        |s: &&Value| pod.array_at("/spec/initContainers").iter().any(|c| c["name"] == s["name"] && c["restartPolicy"] == "Always");
    let statuses =
        pod.array_at("/status/containerStatuses").iter().chain(pod.array_at("/status/initContainerStatuses").iter().filter(is_sidecar));
    let mut last = None;
    for status in statuses {
        last = last.max(Some(time::at(status, "/state/terminated/finishedAt")?));
    }
    last
}

/// The rest of the pause after `failures` in a row, the last of them at `last`.
pub(super) fn remaining(failures: usize, last: Option<Timestamp>, now: Timestamp) -> Duration {
    let Some(last) = last.filter(|_| failures > 0) else { return Duration::ZERO };
    let doublings = u32::try_from(failures - 1).unwrap_or(u32::MAX).min(16);
    let pause = FIRST.saturating_mul(1 << doublings).min(MAX);
    let elapsed = Duration::try_from(now.duration_since(last)).unwrap_or(Duration::ZERO);
    pause.saturating_sub(elapsed)
}

/// The pause of a whole job: failures since the last success count.
pub(super) fn of_job(all: &[Arc<Value>], is_failed: impl Fn(&Value) -> bool, now: Timestamp) -> Duration {
    let last_success = all.iter().filter(|p| pods::phase(p) == "Succeeded").map(|p| finished_at(p)).max();
    let failures: Vec<Timestamp> =
        all.iter().filter(|p| is_failed(p)).map(|p| finished_at(p)).filter(|at| last_success.is_none_or(|s| *at > s)).collect();
    remaining(failures.len(), failures.iter().max().copied(), now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(phase: &str, finished: &str) -> Arc<Value> {
        let terminated = json!({"terminated": {"finishedAt": finished}});
        Arc::new(json!({"status": {"phase": phase, "containerStatuses": [{"name": "c", "state": terminated}]}}))
    }

    #[test]
    fn pauses_double_up_to_ten_minutes() {
        let last = "2026-01-01T00:00:00Z".parse().ok();
        let now: Timestamp = "2026-01-01T00:00:04Z".parse().expect("a time");
        let check = |failures, seconds| assert_eq!(remaining(failures, last, now).as_secs(), seconds);
        check(0, 0);
        check(1, 6);
        check(2, 16);
        check(3, 36);
        check(20, 596);
    }

    #[test]
    fn only_failures_after_the_last_success_count() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().expect("a time");
        let failed = |p: &Value| pods::phase(p) == "Failed";
        let all = [pod("Failed", "2026-01-01T00:00:10Z"), pod("Succeeded", "2026-01-01T00:00:20Z"), pod("Failed", "2026-01-01T00:00:55Z")];
        assert_eq!(of_job(&all, failed, now).as_secs(), 5);
        assert_eq!(of_job(&all[..2], failed, now).as_secs(), 0);
    }
}
