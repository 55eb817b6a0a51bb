//! CronJobs: jobs that start by the clock.

mod plan;
mod schedule;

use crate::kit::exec;
use async_trait::async_trait;
use plan::{Observed, Plan};
use schedule::Schedule;
use serde_json::Value;
use std::sync::Arc;
use sublet_machinery::{Gvk, ObjectExt};
use sublet_runtime::manager::{Mapping, map};
use sublet_runtime::resources::{CRON_JOBS, JOBS};
use sublet_runtime::{Change, ClientError, Controller, Ctx, DeleteOptions, EventKind, Key, Outcome, Reconciler};

const CRON_JOB: Gvk = Gvk::new("batch", "v1", "CronJob");
/// Before the name in the key of a cron job whose schedule changed: starts that the new schedule
/// would have had before are not made up for.
const RESCHEDULED: char = '~';

pub(crate) fn controller() -> Controller {
    Controller::new("cronjob-controller", CronJobs).watches(CRON_JOBS, cronjob_keys).watches(JOBS, map::owner("CronJob"))
}

fn cronjob_keys(change: &Change, _: &Mapping) -> Vec<Key> {
    let mut key = change.key();
    if let (Some(old), Some(new)) = (&change.old, &change.new)
        && ["/spec/schedule", "/spec/timeZone"].iter().any(|p| old.pointer(p) != new.pointer(p))
    {
        key.name.insert(0, RESCHEDULED);
    }
    vec![key]
}

struct CronJobs;

#[async_trait]
impl Reconciler for CronJobs {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let name = key.name.trim_start_matches(RESCHEDULED);
        let Some(cronjob) = ctx.informer(&CRON_JOBS).get(&key.namespace, name) else { return Outcome::Done };
        if key.name.starts_with(RESCHEDULED) {
            let pause = Schedule::of(&cronjob).ok().and_then(|s| plan::next_look(&cronjob, &s, ctx.clock.now()));
            ctx.queue().add_after(Key::new(&key.namespace, name), pause.unwrap_or_default());
            return Outcome::Done;
        }
        match sync(ctx, &cronjob).await {
            Ok(outcome) => outcome,
            Err(error) if exec::is_namespace_terminating(&error) => Outcome::Done,
            Err(error) => error.into(),
        }
    }
}

async fn sync(ctx: &Ctx, cronjob: &Arc<Value>) -> Result<Outcome, ClientError> {
    let mut jobs = ctx.informer(&JOBS).owned_by(cronjob.uid());
    jobs.retain(|j| j.controller_owner().is_some_and(|r| r["uid"] == cronjob.uid()));
    let missing = missing_jobs(ctx, cronjob, &jobs).await?;
    let mut plan = plan::plan(&Observed { cronjob, jobs: &jobs, missing: &missing, now: ctx.clock.now() });
    for event in std::mem::take(&mut plan.events) {
        ctx.events.record(cronjob, event.kind, event.reason, &event.message).await;
    }
    for job in std::mem::take(&mut plan.trim) {
        delete(ctx, cronjob, &job).await?;
    }
    for reference in std::mem::take(&mut plan.replace) {
        let name = reference["name"].as_str().unwrap_or_default();
        if let Some(job) = ctx.client.get_opt(&JOBS, cronjob.namespace(), name).await? {
            delete(ctx, cronjob, &job).await?;
        }
    }
    let failure = start(ctx, cronjob, &mut plan).await.err();
    exec::put_status(ctx, &CRON_JOBS, cronjob, plan.status).await?;
    if let Some(error) = failure {
        return Err(error);
    }
    Ok(plan.after.map_or(Outcome::Done, Outcome::After))
}

/// Active jobs that neither the local copy nor the server has.
async fn missing_jobs(ctx: &Ctx, cronjob: &Value, jobs: &[Arc<Value>]) -> Result<Vec<String>, ClientError> {
    let mut missing = Vec::new();
    for reference in cronjob.array_at("/status/active").iter().filter(|r| jobs.iter().all(|j| r["uid"] != j.uid())) {
        let name = reference["name"].as_str().unwrap_or_default();
        let live = ctx.client.get_opt(&JOBS, cronjob.namespace(), name).await?;
        if live.is_none_or(|j| reference["uid"] != j.uid()) {
            missing.push(reference["uid"].as_str().unwrap_or_default().to_string());
        }
    }
    Ok(missing)
}

async fn start(ctx: &Ctx, cronjob: &Value, plan: &mut Plan) -> Result<(), ClientError> {
    let Some((job, at)) = plan.start.take() else { return Ok(()) };
    let made = match exec::create(ctx, &JOBS, &job).await {
        Ok(made) => {
            ctx.events.record(cronjob, EventKind::Normal, "SuccessfulCreate", &format!("Created job {}", made.name())).await;
            made
        }
        // Made before a crash that kept it from the status; a foreign job of that name is let be.
        Err(error) if error.is_already_exists() => {
            let live = ctx.client.get(&JOBS, job.namespace(), job.name()).await?;
            if live.controller_owner().is_none_or(|r| r["uid"] != cronjob.uid()) {
                return Ok(());
            }
            live
        }
        Err(error) => {
            if !exec::is_namespace_terminating(&error) {
                ctx.events.record(cronjob, EventKind::Warning, "FailedCreate", &format!("Error creating job: {error}")).await;
            }
            return Err(error);
        }
    };
    plan.add_active(&made, at);
    Ok(())
}

async fn delete(ctx: &Ctx, cronjob: &Value, job: &Value) -> Result<(), ClientError> {
    match exec::delete(ctx, &JOBS, job, DeleteOptions::background()).await {
        Ok(()) => {
            ctx.events.record(cronjob, EventKind::Normal, "SuccessfulDelete", &format!("Deleted job {}", job.name())).await;
            Ok(())
        }
        Err(error) => {
            ctx.events.record(cronjob, EventKind::Warning, "FailedDelete", &format!("Deleted job: {error}")).await;
            Err(error)
        }
    }
}
