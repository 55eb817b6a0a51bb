//! What is known about a job: its counts, its indexes, and whether it is to end.

use super::backoff;
use super::indexes::Indexes;
use super::policy::{self, Failure};
use crate::kit::{conditions, count_at, pods, time};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::ObjectExt;

pub(super) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
pub(super) const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
pub(super) const INDEX_IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// Why a job ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) success: bool,
    pub(super) reason: String,
    pub(super) message: String,
    /// The interim condition stands in the status already.
    pub(super) announced: bool,
}

impl Target {
    fn new(success: bool, reason: &str, message: impl Into<String>) -> Self {
        Self { success, reason: reason.into(), message: message.into(), announced: false }
    }

    pub(super) fn completions_reached() -> Self {
        Self::new(true, "CompletionsReached", "Reached expected number of succeeded pods")
    }

    /// The condition that announces the end, before finalizers are removed.
    pub(super) fn interim(&self) -> &'static str {
        if self.success { "SuccessCriteriaMet" } else { "FailureTarget" }
    }

    pub(super) fn last(&self) -> &'static str {
        if self.success { "Complete" } else { "Failed" }
    }

    fn announced(status: &Value) -> Option<Self> {
        [true, false].into_iter().find_map(|success| {
            let mut target = Self::new(success, "", "");
            let condition = conditions::find(status, target.interim()).filter(|c| c["status"] == "True")?;
            target.reason = condition["reason"].as_str().unwrap_or_default().into();
            target.message = condition["message"].as_str().unwrap_or_default().into();
            target.announced = true;
            Some(target)
        })
    }
}

pub(super) struct Facts<'a> {
    pub(super) job: &'a Value,
    pub(super) pods: &'a [Arc<Value>],
    pub(super) active: Vec<Arc<Value>>,
    pub(super) terminating: i64,
    pub(super) succeeded: i64,
    pub(super) target: Option<Target>,
    /// Succeeded indexes that the status has, and those with what is new.
    pub(super) succeeded_before: Indexes,
    pub(super) succeeded_indexes: Indexes,
    pub(super) failed_indexes: Option<Indexes>,
    /// By index, the failed pod whose replacement is to know of its failures.
    pub(super) to_replace: BTreeMap<i64, Arc<Value>>,
    pub(super) now: Timestamp,
}

pub(super) fn is_suspended(job: &Value) -> bool {
    job.bool_at("/spec/suspend").unwrap_or(false)
}

pub(super) fn is_indexed(job: &Value) -> bool {
    job.str_at("/spec/completionMode") == Some("Indexed")
}

pub(super) fn is_finished(job: &Value) -> bool {
    job.get("status").is_some_and(|s| conditions::is_true(s, "Complete") || conditions::is_true(s, "Failed"))
}

pub(super) fn limits_indexes(job: &Value) -> bool {
    job.pointer("/spec/backoffLimitPerIndex").is_some_and(Value::is_i64)
}

/// Pods on their way out are replaced only when they have failed.
pub(super) fn replaces_only_failed(job: &Value) -> bool {
    job.str_at("/spec/podReplacementPolicy") == Some("Failed")
}

pub(super) fn is_failed(job: &Value, pod: &Value) -> bool {
    let phase = pods::phase(pod);
    // A deleted pod may never come to the phase Failed.
    phase == "Failed" || (!replaces_only_failed(job) && pod.is_deleting() && phase != "Succeeded")
}

pub(super) fn index_of(pod: &Value) -> Option<i64> {
    pod.annotation(INDEX)?.parse().ok().filter(|i| *i >= 0)
}

/// The index of a pod, if it is one that the job has.
pub(super) fn valid_index(job: &Value, pod: &Value) -> Option<i64> {
    index_of(pod).filter(|i| *i < count_at(job, "/spec/completions"))
}

fn noted(pod: &Value, annotation: &str) -> i64 {
    pod.annotation(annotation).and_then(|n| n.parse::<i32>().ok()).filter(|n| *n >= 0).map_or(0, i64::from)
}

pub(super) fn index_failures(pod: &Value) -> i64 {
    noted(pod, INDEX_FAILURES)
}

pub(super) fn index_ignored(pod: &Value) -> i64 {
    noted(pod, INDEX_IGNORED)
}

impl<'a> Facts<'a> {
    pub(super) fn new(job: &'a Value, pods: &'a [Arc<Value>], now: Timestamp) -> Self {
        let active: Vec<Arc<Value>> = pods.iter().filter(|p| pods::is_active(p)).cloned().collect();
        let terminating = pods.iter().filter(|p| pods::is_terminating(p)).count() as i64;
        let mut facts = Self {
            job,
            pods,
            active,
            terminating,
            succeeded: 0,
            target: Target::announced(&job["status"]),
            succeeded_before: Indexes::default(),
            succeeded_indexes: Indexes::default(),
            failed_indexes: None,
            to_replace: BTreeMap::new(),
            now,
        };
        facts.succeeded = facts.count("succeeded", |p| pods::phase(p) == "Succeeded");
        let failed = facts.count("failed", |p| is_failed(job, p) && policy::failure(job, p) != Failure::Ignore);
        if facts.target.is_none() {
            facts.target = facts.policy_failure().or_else(|| facts.limit_failure(failed));
        }
        if is_indexed(job) {
            facts.look_at_indexes();
        }
        facts
    }

    /// Counted, listed as uncounted, or new.
    fn count(&self, what: &str, is_new: impl Fn(&Value) -> bool) -> i64 {
        let uncounted = self.job.array_at(&format!("/status/uncountedTerminatedPods/{what}"));
        let is_listed = |pod: &Value| uncounted.iter().any(|u| *u == *pod.uid());
        let new = self.pods.iter().filter(|p| self.is_tracked(p) && !is_listed(p) && is_new(p)).count();
        count_at(self.job, &format!("/status/{what}")) + (uncounted.len() + new) as i64
    }

    /// Not yet counted in the status, and of an index that the job has.
    pub(super) fn is_tracked(&self, pod: &Value) -> bool {
        pod.has_finalizer(FINALIZER) && (!is_indexed(self.job) || valid_index(self.job, pod).is_some())
    }

    fn policy_failure(&self) -> Option<Target> {
        self.pods.iter().filter(|p| is_failed(self.job, p)).find_map(|p| match policy::failure(self.job, p) {
            Failure::FailJob(message) => Some(Target::new(false, "PodFailurePolicy", message)),
            _ => None,
        })
    }

    fn limit_failure(&self, failed: i64) -> Option<Target> {
        let limit = self.job.i64_at("/spec/backoffLimit").unwrap_or(6);
        if failed > limit || self.restarts_exceed(limit) {
            return Some(Target::new(false, "BackoffLimitExceeded", "Job has reached the specified backoff limit"));
        }
        self.deadline()
            .filter(|at| *at <= self.now)
            .map(|_| Target::new(false, "DeadlineExceeded", "Job was active longer than specified deadline"))
    }

    /// When a job that runs is out of time.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        let seconds = self.job.i64_at("/spec/activeDeadlineSeconds").filter(|_| !is_suspended(self.job))?;
        Some(time::plus_seconds(time::at(self.job, "/status/startTime")?, seconds))
    }

    /// Restarts in place count as failures, too.
    fn restarts_exceed(&self, limit: i64) -> bool {
        if self.job.str_at("/spec/template/spec/restartPolicy") != Some("OnFailure") {
            return false;
        }
        let restarts: i64 = self
            .pods
            .iter()
            .filter(|p| matches!(pods::phase(p), "Running" | "Pending"))
            .flat_map(|p| p.array_at("/status/initContainerStatuses").iter().chain(p.array_at("/status/containerStatuses")))
            .map(|s| count_at(s, "/restartCount"))
            .sum();
        if limit == 0 { restarts > 0 } else { restarts >= limit }
    }

    fn look_at_indexes(&mut self) {
        let job = self.job;
        let completions = count_at(job, "/spec/completions");
        let new =
            |is: &dyn Fn(&Value) -> bool| Indexes::of(self.pods.iter().filter(|p| self.is_tracked(p) && is(p)).filter_map(|p| index_of(p)));
        let succeeded = new(&|p| pods::phase(p) == "Succeeded");
        let failed = limits_indexes(job).then(|| new(&|p| is_index_failed(job, p)));
        self.succeeded_before = Indexes::parse(job.str_at("/status/completedIndexes").unwrap_or_default(), completions);
        self.succeeded_indexes = self.succeeded_before.with(&succeeded);
        self.succeeded = self.succeeded_indexes.len();
        if let Some(failed) = failed {
            let failed = Indexes::parse(job.str_at("/status/failedIndexes").unwrap_or_default(), completions).with(&failed);
            if self.target.is_none() {
                self.target = self.index_failure(&failed, completions);
            }
            self.failed_indexes = Some(failed);
            self.to_replace = self.find_to_replace();
        }
        if self.target.is_none() {
            self.target = policy::success(job, &self.succeeded_indexes).map(|message| Target::new(true, "SuccessPolicy", message));
        }
    }

    fn index_failure(&self, failed: &Indexes, completions: i64) -> Option<Target> {
        if self.job.i64_at("/spec/maxFailedIndexes").is_some_and(|max| failed.len() > max) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return Some(Target::new(false, "MaxFailedIndexesExceeded", message));
        }
        let all_done = failed.len() > 0 && failed.len() + self.succeeded_indexes.len() >= completions;
        all_done.then(|| Target::new(false, "FailedIndexes", "Job has failed indexes"))
    }

    fn find_to_replace(&self) -> BTreeMap<i64, Arc<Value>> {
        let active = self.indexes(&self.active);
        let mut found: BTreeMap<i64, Arc<Value>> = BTreeMap::new();
        for pod in self.pods.iter().filter(|p| self.is_tracked(p) && is_failed(self.job, p)) {
            let Some(index) = index_of(pod) else { continue };
            let is_settled =
                self.succeeded_indexes.has(index) || active.has(index) || self.failed_indexes.as_ref().is_some_and(|f| f.has(index));
            let rank = |p: &Value| (index_failures(p) + index_ignored(p), backoff::finished_at(p));
            if !is_settled && found.get(&index).is_none_or(|other| rank(other) <= rank(pod)) {
                found.insert(index, pod.clone());
            }
        }
        found
    }

    pub(super) fn indexes(&self, pods: &[Arc<Value>]) -> Indexes {
        Indexes::of(pods.iter().filter_map(|p| index_of(p)))
    }

    /// The pause of the whole job after failures.
    pub(super) fn pause(&self) -> Duration {
        backoff::of_job(self.pods, |p| is_failed(self.job, p), self.now)
    }
}

fn is_index_failed(job: &Value, pod: &Value) -> bool {
    if !is_failed(job, pod) {
        return false;
    }
    match policy::failure(job, pod) {
        Failure::FailIndex => true,
        Failure::Ignore => false,
        Failure::Count | Failure::FailJob(_) => index_failures(pod) >= count_at(job, "/spec/backoffLimitPerIndex"),
    }
}
