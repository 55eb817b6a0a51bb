//! The status of a job and the finalizers of its pods: each finished pod is listed in the status
//! before it loses its finalizer, and counted after, so that none is counted twice or not at all.

use super::facts::{FINALIZER, Facts, Target, is_failed, is_indexed, limits_indexes, valid_index};
use super::indexes::Indexes;
use super::policy::{self, Failure};
use crate::kit::{conditions, count_at, pods};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use sublet_machinery::ObjectExt;
use sublet_runtime::clock::format_seconds;

/// Pods listed in one status, and finalizers removed in one step.
const UNCOUNTED_MAX: usize = 500;

/// What a step wants in the status besides the pods.
pub(super) struct Counts {
    pub(super) active: i64,
    pub(super) ready: i64,
    pub(super) terminating: i64,
}

/// The first status to write and the pods that may lose their finalizer then.
pub(super) struct Plan {
    pub(super) status: Value,
    pub(super) release: Vec<Arc<Value>>,
    /// More pods wait for their turn.
    pub(super) full: bool,
}

pub(super) fn condition(kind: &str, status: bool, reason: &str, message: &str, now: &str) -> Value {
    let word = if status { "True" } else { "False" };
    json!({"type": kind, "status": word, "reason": reason, "message": message, "lastProbeTime": now, "lastTransitionTime": now})
}

pub(super) fn plan(facts: &Facts, mut status: Value, counts: &Counts, target: Option<&Target>) -> Plan {
    set_count(&mut status, "active", counts.active);
    status["ready"] = json!(counts.ready);
    status["terminating"] = json!(counts.terminating);
    if !status["uncountedTerminatedPods"].is_object() {
        status["uncountedTerminatedPods"] = json!({});
    }
    let tracked: HashSet<&str> = facts.pods.iter().filter(|p| p.has_finalizer(FINALIZER)).map(|p| p.uid()).collect();
    settle(&mut status, |uid| !tracked.contains(uid));

    let (release, new_indexes, full) = list_finished(facts, &mut status, target);
    if is_indexed(facts.job) {
        let succeeded = facts.succeeded_before.with(&Indexes::of(new_indexes));
        set_count(&mut status, "succeeded", succeeded.len());
        set_text(&mut status, "completedIndexes", &succeeded.to_string());
        match &facts.failed_indexes {
            Some(failed) => status["failedIndexes"] = json!(failed.to_string()),
            None => _ = status.remove_at("/failedIndexes"),
        }
    }
    if let Some(target) = target.filter(|t| !t.announced) {
        let now = format_seconds(facts.now);
        conditions::replace(&mut status, condition(target.interim(), true, &target.reason, &target.message, &now));
    }
    Plan { status, release, full }
}

/// Lists pods that are done as uncounted; answers them, with the indexes that succeeded anew and
/// whether the list is full.
fn list_finished(facts: &Facts, status: &mut Value, target: Option<&Target>) -> (Vec<Arc<Value>>, Vec<i64>, bool) {
    let job = facts.job;
    let mut pods: Vec<&Arc<Value>> = facts.pods.iter().filter(|p| p.has_finalizer(FINALIZER)).collect();
    if is_indexed(job) {
        pods.sort_by_key(|p| valid_index(job, p));
    }
    let mut succeeded = uids(status, "succeeded");
    let mut failed = uids(status, "failed");
    let (mut release, mut new_indexes, mut full) = (Vec::new(), Vec::new(), false);
    for pod in pods {
        let has_failed = is_failed(job, pod);
        if !may_release(facts, pod, has_failed, target) {
            continue;
        }
        release.push(pod.clone());
        let uid = pod.uid().to_string();
        let index = valid_index(job, pod);
        if pods::phase(pod) == "Succeeded" && !failed.contains(&uid) {
            match index.filter(|_| is_indexed(job)) {
                Some(index) if !facts.succeeded_before.has(index) => new_indexes.push(index),
                None if !is_indexed(job) && !succeeded.contains(&uid) => succeeded.push(uid),
                _ => {}
            }
        } else if has_failed || target.is_some_and(|t| !t.success) {
            // With a job that fails, every pod that has not ended fails.
            let counts = policy::failure(job, pod) != Failure::Ignore;
            if counts && !failed.contains(&uid) && (!is_indexed(job) || index.is_some()) {
                failed.push(uid);
            }
        }
        if new_indexes.len() + succeeded.len() + failed.len() >= UNCOUNTED_MAX {
            full = true;
            break;
        }
    }
    put_uids(status, "succeeded", &succeeded);
    put_uids(status, "failed", &failed);
    (release, new_indexes, full)
}

fn may_release(facts: &Facts, pod: &Value, has_failed: bool, target: Option<&Target>) -> bool {
    if facts.job.is_deleting() || target.is_some() || pods::phase(pod) == "Succeeded" {
        return true;
    }
    // A failed pod of an index waits until its replacement has taken over its count of failures.
    let is_needed = limits_indexes(facts.job)
        && valid_index(facts.job, pod).and_then(|i| facts.to_replace.get(&i)).is_some_and(|p| p.uid() == pod.uid());
    has_failed && !is_needed
}

/// Moves listed pods that have lost their finalizer into the counts.
pub(super) fn settle(status: &mut Value, is_released: impl Fn(&str) -> bool) {
    for what in ["succeeded", "failed"] {
        let listed = uids(status, what);
        let (done, left): (Vec<String>, Vec<String>) = listed.into_iter().partition(|uid| is_released(uid));
        if !done.is_empty() {
            let count = count_at(status, &format!("/{what}")) + done.len() as i64;
            set_count(status, what, count);
            put_uids(status, what, &left);
        }
    }
}

/// Ends the job, once all its pods are counted and gone; answers whether it ended.
pub(super) fn finish(status: &mut Value, target: &Target, terminating: i64, now: &str) -> bool {
    let waits = !uids(status, "succeeded").is_empty() || !uids(status, "failed").is_empty() || terminating > 0;
    if waits {
        return false;
    }
    conditions::replace(status, condition(target.last(), true, &target.reason, &target.message, now));
    if target.success {
        status["completionTime"] = json!(now);
    }
    true
}

/// Sets the condition if it is there or becomes true; answers whether it changed.
pub(super) fn ensure_condition(status: &mut Value, kind: &str, is_true: bool, reason: &str, message: &str, now: &str) -> bool {
    let fresh = condition(kind, is_true, reason, message, now);
    let Some(list) = status.get_mut("conditions").and_then(Value::as_array_mut) else {
        if is_true {
            status["conditions"] = json!([fresh]);
        }
        return is_true;
    };
    match list.iter_mut().find(|c| c["type"] == kind) {
        Some(current) => {
            let same = ["status", "reason", "message"].iter().all(|k| current[*k] == fresh[*k]);
            if !same {
                *current = fresh;
            }
            !same
        }
        None if is_true => {
            list.push(fresh);
            true
        }
        None => false,
    }
}

fn uids(status: &Value, what: &str) -> Vec<String> {
    let listed = status.array_at(&format!("/uncountedTerminatedPods/{what}"));
    listed.iter().filter_map(|u| u.as_str().map(str::to_string)).collect()
}

fn put_uids(status: &mut Value, what: &str, uids: &[String]) {
    if uids.is_empty() {
        status.remove_at(&format!("/uncountedTerminatedPods/{what}"));
    } else {
        status["uncountedTerminatedPods"][what] = json!(uids);
    }
}

/// Counts of zero and empty texts are left out, as upstream writes them.
fn set_count(status: &mut Value, key: &str, count: i64) {
    if count == 0 {
        status.remove_at(&format!("/{key}"));
    } else {
        status[key] = json!(count);
    }
}

fn set_text(status: &mut Value, key: &str, text: &str) {
    if text.is_empty() {
        status.remove_at(&format!("/{key}"));
    } else {
        status[key] = json!(text);
    }
}
