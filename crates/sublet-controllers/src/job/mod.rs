//! Jobs: pods that run to completion, each counted exactly once.

mod backoff;
mod facts;
mod indexes;
mod manage;
mod orphans;
mod pods;
mod policy;
mod track;

pub(crate) use orphans::controller as orphaned_pods;

use crate::kit::claim::{self, Claimant};
use crate::kit::{count_at, exec, pods as kit_pods, time, watch};
use async_trait::async_trait;
use facts::{FINALIZER, Facts, Target, is_suspended};
use futures::future::join_all;
use manage::Step;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::{Gvk, ObjectExt};
use sublet_runtime::manager::map;
use sublet_runtime::resources::{JOBS, PODS};
use sublet_runtime::{ClientError, Controller, Ctx, EventKind, Key, Outcome, Reconciler};
use track::Counts;

const JOB: Gvk = Gvk::new("batch", "v1", "Job");
const CONTROLLER_NAME: &str = "kubernetes.io/job-controller";

pub(crate) fn controller() -> Controller {
    Controller::new("job-controller", Jobs).watches(JOBS, map::itself).watches(PODS, watch::dependents("Job", JOBS, watch::label_selector))
}

fn is_managed_elsewhere(job: &Value) -> bool {
    job.str_at("/spec/managedBy").is_some_and(|m| m != CONTROLLER_NAME)
}

struct Jobs;

#[async_trait]
impl Reconciler for Jobs {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let Some(job) = ctx.informer(&JOBS).get_key(key) else { return Outcome::Done };
        if is_managed_elsewhere(&job) || facts::is_finished(&job) {
            return Outcome::Done;
        }
        match sync(ctx, &job).await {
            Ok(outcome) => outcome,
            Err(error) if exec::is_namespace_terminating(&error) => Outcome::Done,
            Err(error) => error.into(),
        }
    }
}

/// What managing the pods came to.
struct Managed {
    counts: Counts,
    target: Option<Target>,
    wait: Option<Duration>,
    failure: Option<ClientError>,
}

async fn sync(ctx: &Ctx, job: &Arc<Value>) -> Result<Outcome, ClientError> {
    let selector = watch::label_selector(job);
    let claimant = Claimant { owner: job, gvr: &JOBS, gvk: &JOB, finalizer: Some(FINALIZER) };
    let candidates = claim::candidates(&ctx.informer(&PODS), job);
    let pods = claim::claim(ctx, &claimant, &PODS, candidates, |p| selector.matches_object(p)).await?;
    let now = ctx.clock.now();

    let mut status = job.get("status").filter(|s| s.is_object()).cloned().unwrap_or(json!({}));
    if status["startTime"].is_null() && !is_suspended(job) {
        status["startTime"] = json!(ctx.clock.rfc3339());
    }
    let mut started = job.as_ref().clone();
    started["status"] = status.clone();
    let facts = Facts::new(&started, &pods, now);

    let managed = if facts.target.is_some() { end_active(ctx, &facts).await } else { manage(ctx, &facts, &mut status).await };
    let Some(managed) = managed else {
        // The pods just made or given up bring this key back.
        return Ok(Outcome::Done);
    };
    track_pods(ctx, job, &facts, status, &managed).await?;
    if let Some(error) = managed.failure {
        return Err(error);
    }
    let deadline = facts.deadline().filter(|_| managed.target.is_none()).map(|at| time::until(now, at));
    Ok(deadline.into_iter().chain(managed.wait).min().map_or(Outcome::Done, Outcome::After))
}

fn counts(facts: &Facts) -> Counts {
    let ready = facts.active.iter().filter(|p| kit_pods::is_ready(p)).count() as i64;
    Counts { active: facts.active.len() as i64, ready, terminating: facts.terminating }
}

/// Deletes what still runs of a job that is to end. The pods keep their finalizers until counted.
async fn end_active(ctx: &Ctx, facts: &Facts<'_>) -> Option<Managed> {
    let results = join_all(facts.active.iter().map(|pod| exec::delete_pod(ctx, facts.job, pod))).await;
    let mut counts = counts(facts);
    let mut failure = None;
    for (pod, result) in facts.active.iter().zip(results) {
        match result {
            Ok(()) => {
                counts.active -= 1;
                counts.terminating += 1;
                counts.ready -= i64::from(kit_pods::is_ready(pod));
            }
            Err(error) => failure = Some(error),
        }
    }
    // A job with pods that run is not at its end.
    let target = facts.target.clone().filter(|_| failure.is_none());
    Some(Managed { counts, target, wait: None, failure })
}

/// `None`: pods were made or given up, look again.
async fn manage(ctx: &Ctx, facts: &Facts<'_>, status: &mut Value) -> Option<Managed> {
    let job = facts.job;
    let mut managed = Managed { counts: counts(facts), target: None, wait: None, failure: None };
    let enough = match job.i64_at("/spec/completions") {
        Some(completions) => facts.succeeded >= completions,
        None => facts.succeeded > 0,
    };
    let is_done = enough && managed.counts.active == 0;
    if !is_done && !job.is_deleting() && note_suspension(ctx, job, status).await {
        // Told before it is acted on: pods may end before anybody looks again.
        return Some(managed);
    }
    let step = if job.is_deleting() { Step::Keep } else { manage::decide(facts) };
    match step {
        Step::Keep => {}
        Step::Wait(pause) => managed.wait = Some(pause),
        Step::Delete(doomed) => {
            managed.failure = give_up(ctx, job, &doomed).await.err();
            managed.failure.as_ref()?;
        }
        Step::Create(count) => {
            let (_, result) = exec::create_pods(ctx, job, &vec![pods::plain(job); count]).await;
            managed.failure = result.err();
            managed.failure.as_ref()?;
        }
        Step::CreateIndexes(indexes) if indexes.is_empty() => {}
        Step::CreateIndexes(indexes) => {
            let new: Vec<Value> = indexes.into_iter().map(|i| pods::indexed(facts, i)).collect();
            let (_, result) = exec::create_pods(ctx, job, &new).await;
            managed.failure = result.err();
            managed.failure.as_ref()?;
        }
    }
    if is_done {
        managed.target = Some(Target::completions_reached());
    }
    Some(managed)
}

/// Pods given up early do not count as failed: they lose their finalizer first.
async fn give_up(ctx: &Ctx, job: &Value, doomed: &[Arc<Value>]) -> Result<(), ClientError> {
    let one = |pod: Arc<Value>| async move {
        exec::untrack(ctx, &pod, FINALIZER).await?;
        exec::delete_pod(ctx, job, &pod).await
    };
    join_all(doomed.iter().cloned().map(one)).await.into_iter().collect()
}

/// Answers whether the job was suspended or resumed since the last look.
async fn note_suspension(ctx: &Ctx, job: &Value, status: &mut Value) -> bool {
    let now = ctx.clock.rfc3339();
    if is_suspended(job) {
        let changed = track::ensure_condition(status, "Suspended", true, "JobSuspended", "Job suspended", &now);
        if changed {
            status.remove_at("/startTime");
            ctx.events.record(job, EventKind::Normal, "Suspended", "Job suspended").await;
        }
        return changed;
    }
    let changed = track::ensure_condition(status, "Suspended", false, "JobResumed", "Job resumed", &now);
    if changed {
        // The deadline of a resumed job starts anew.
        status["startTime"] = json!(now);
        ctx.events.record(job, EventKind::Normal, "Resumed", "Job resumed").await;
    }
    changed
}

/// Writes the status, lets counted pods go, and writes what came of it.
async fn track_pods(ctx: &Ctx, job: &Arc<Value>, facts: &Facts<'_>, status: Value, managed: &Managed) -> Result<(), ClientError> {
    let target = managed.target.as_ref();
    let plan = track::plan(facts, status, &managed.counts, target);
    let mut current = put(ctx, job, plan.status).await?;
    let results = join_all(plan.release.iter().map(|pod| exec::untrack(ctx, pod, FINALIZER))).await;
    let mut failure = None;
    let mut kept: HashSet<String> = facts.pods.iter().filter(|p| p.has_finalizer(FINALIZER)).map(|p| p.uid().to_string()).collect();
    for (pod, result) in plan.release.iter().zip(results) {
        match result {
            Ok(()) => _ = kept.remove(pod.uid()),
            Err(error) => failure = Some(error),
        }
    }
    let mut status = current["status"].clone();
    track::settle(&mut status, |uid| !kept.contains(uid));
    let ended = failure.is_none()
        && !plan.full
        && target.is_some_and(|t| track::finish(&mut status, t, managed.counts.terminating, &ctx.clock.rfc3339()));
    current = put(ctx, &current, status).await?;
    if let Some(error) = failure {
        return Err(error);
    }
    if let Some(target) = target.filter(|_| ended) {
        report_end(ctx, &current, target).await;
    }
    Ok(())
}

/// Writes the status unless it stands there already, and answers the job with it.
async fn put(ctx: &Ctx, job: &Arc<Value>, status: Value) -> Result<Arc<Value>, ClientError> {
    if job.get("status") == Some(&status) {
        return Ok(job.clone());
    }
    let mut changed = job.as_ref().clone();
    changed["status"] = status;
    Ok(Arc::new(exec::update_status(ctx, &JOBS, &changed).await?))
}

async fn report_end(ctx: &Ctx, job: &Value, target: &Target) {
    if !target.success {
        return ctx.events.record(job, EventKind::Warning, &target.reason, &target.message).await;
    }
    if job.i64_at("/spec/completions").is_some_and(|c| count_at(job, "/status/succeeded") > c) {
        let message = "Too many succeeded pods running after completion count reached";
        ctx.events.record(job, EventKind::Warning, "TooManySucceededPods", message).await;
    }
    ctx.events.record(job, EventKind::Normal, "Completed", "Job completed").await;
}

#[cfg(test)]
mod tests;
