//! Which pods to make or to give up while a job runs.

use super::backoff;
use super::facts::{Facts, is_indexed, is_suspended, limits_indexes, replaces_only_failed, valid_index};
use crate::kit::exec::BURST_PODS_MAX;
use crate::kit::{count_at, pods, rank};
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::ObjectExt;

#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Keep,
    Delete(Vec<Arc<Value>>),
    /// Pods without an index.
    Create(usize),
    CreateIndexes(Vec<i64>),
    /// Failures are followed by a pause.
    Wait(Duration),
}

pub(super) fn decide(facts: &Facts) -> Step {
    let active = facts.active.len() as i64;
    if is_suspended(facts.job) {
        return if active > 0 { Step::Delete(facts.active.clone()) } else { Step::Keep };
    }
    let parallelism = facts.job.i64_at("/spec/parallelism").unwrap_or(1);
    let wanted = match facts.job.i64_at("/spec/completions") {
        // One success ends the work: what runs may finish, nothing new starts.
        None if facts.succeeded > 0 => active,
        None => parallelism,
        Some(completions) => (completions - facts.succeeded).min(parallelism).max(0),
    };
    let doomed = to_remove(facts, usize::try_from(active - wanted).unwrap_or(0));
    if !doomed.is_empty() {
        return Step::Delete(doomed);
    }
    let occupied = if replaces_only_failed(facts.job) { facts.terminating } else { 0 };
    let missing = usize::try_from(wanted - occupied - active).unwrap_or(0).min(BURST_PODS_MAX);
    if missing == 0 {
        return Step::Keep;
    }
    if !limits_indexes(facts.job) {
        let pause = facts.pause();
        if !pause.is_zero() {
            return Step::Wait(pause);
        }
    }
    if is_indexed(facts.job) { create_indexes(facts, missing) } else { Step::Create(missing) }
}

fn create_indexes(facts: &Facts, count: usize) -> Step {
    let mut taken = facts.succeeded_indexes.with(&facts.indexes(&facts.active));
    if replaces_only_failed(facts.job) {
        let terminating: Vec<Arc<Value>> = facts.pods.iter().filter(|p| pods::is_terminating(p)).cloned().collect();
        taken = taken.with(&facts.indexes(&terminating));
    }
    if let Some(failed) = &facts.failed_indexes {
        taken = taken.with(failed);
    }
    let pending = taken.gaps(count, count_at(facts.job, "/spec/completions"));
    if !limits_indexes(facts.job) {
        return Step::CreateIndexes(pending);
    }
    // Each index has a pause of its own.
    let pause = |index: &i64| match facts.to_replace.get(index) {
        Some(pod) => {
            let failures = super::facts::index_failures(pod) + super::facts::index_ignored(pod) + 1;
            backoff::remaining(usize::try_from(failures).unwrap_or(1), Some(backoff::finished_at(pod)), facts.now)
        }
        None => Duration::ZERO,
    };
    let (ready, waiting): (Vec<i64>, Vec<i64>) = pending.into_iter().partition(|i| pause(i).is_zero());
    match (ready.is_empty(), waiting.iter().map(pause).min()) {
        (true, Some(shortest)) => Step::Wait(shortest),
        _ => Step::CreateIndexes(ready),
    }
}

/// Pods with an index that another has or that the job lacks, and at least `count` pods in all.
fn to_remove(facts: &Facts, count: usize) -> Vec<Arc<Value>> {
    let mut ranked: Vec<rank::Ranked> = facts.active.iter().map(|pod| rank::Ranked { pod: pod.clone(), neighbours: 0 }).collect();
    rank::sort_for_deletion(&mut ranked, facts.now);
    let sorted: Vec<Arc<Value>> = ranked.into_iter().map(|r| r.pod).collect();
    let mut removed: Vec<Arc<Value>> = Vec::new();
    if is_indexed(facts.job) {
        let mut seen = HashSet::new();
        // Of several pods with one index the last to be given up stays.
        removed.extend(sorted.iter().rev().filter(|p| valid_index(facts.job, p).is_none_or(|i| !seen.insert(i))).cloned());
    }
    let surplus = count.saturating_sub(removed.len());
    let rest: Vec<Arc<Value>> = sorted.into_iter().filter(|p| removed.iter().all(|r| r.uid() != p.uid())).take(surplus).collect();
    removed.extend(rest);
    removed.truncate(BURST_PODS_MAX);
    removed
}
