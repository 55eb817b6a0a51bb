//! StatefulSets: pods with a name, a place in line and volumes of their own.

mod claims;
mod identity;
mod plan;

use crate::kit::claim::{self, Claimant};
use crate::kit::history::{self, History};
use crate::kit::{count_at, exec, pods, watch};
use async_trait::async_trait;
use plan::{Act, Observed, Plan};
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::{Gvk, ObjectExt};
use sublet_runtime::manager::map;
use sublet_runtime::resources::{CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS};
use sublet_runtime::{ClientError, Controller, Ctx, DeleteOptions, EventKind, Key, Outcome, Reconciler};

const STATEFUL_SET: Gvk = Gvk::new("apps", "v1", "StatefulSet");

pub(crate) fn controller() -> Controller {
    Controller::new("statefulset-controller", StatefulSets)
        .watches(STATEFUL_SETS, map::itself)
        .watches(PODS, watch::dependents("StatefulSet", STATEFUL_SETS, watch::label_selector))
        .watches(CONTROLLER_REVISIONS, watch::dependents("StatefulSet", STATEFUL_SETS, watch::label_selector))
        .reads(PERSISTENT_VOLUME_CLAIMS)
}

struct StatefulSets;

#[async_trait]
impl Reconciler for StatefulSets {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let Some(set) = ctx.informer(&STATEFUL_SETS).get_key(key) else { return Outcome::Done };
        match sync(ctx, &set).await {
            Ok(outcome) => outcome,
            Err(error) if exec::is_namespace_terminating(&error) => Outcome::Done,
            Err(error) => error.into(),
        }
    }
}

async fn sync(ctx: &Ctx, set: &Arc<Value>) -> Result<Outcome, ClientError> {
    let selector = watch::label_selector(set);
    let claimant = Claimant { owner: set, gvr: &STATEFUL_SETS, gvk: &STATEFUL_SET, finalizer: None };
    let revisions = if set.is_deleting() {
        return status_only(ctx, set, &claimant).await;
    } else {
        history::sync(ctx, &claimant, |r| selector.matches_object(r), &[history::HASH_LABEL]).await?
    };
    let is_member = |p: &Value| selector.matches_object(p) && identity::parent(p) == set.name();
    let pods = claim::claim(ctx, &claimant, &PODS, claim::candidates(&ctx.informer(&PODS), set), is_member).await?;
    let claims = ctx.informer(&PERSISTENT_VOLUME_CLAIMS);
    let now = ctx.clock.now();
    let plan = observed(set, &revisions, &pods).plan(&|name| claims.get(set.namespace(), name), now);
    let Plan { acts, status } = plan;
    let changes_pods = acts.iter().any(Act::changes_pods);
    let result = execute(ctx, set, acts).await;
    if result.is_ok() && changes_pods {
        // The changed pods bring this key back; the status is written with them in it.
        return Ok(Outcome::Done);
    }
    exec::put_status(ctx, &STATEFUL_SETS, set, status).await?;
    result?;
    trim_history(ctx, set, &revisions, &pods).await?;
    Ok(match pods::next_availability(pods.iter().map(AsRef::as_ref), count_at(set, "/spec/minReadySeconds"), now) {
        Some(delay) => Outcome::After(delay),
        None => Outcome::Done,
    })
}

fn observed<'a>(set: &'a Value, revisions: &'a History, pods: &'a [Arc<Value>]) -> Observed<'a> {
    let current = set.str_at("/status/currentRevision").unwrap_or_default();
    let current = revisions.all.iter().find(|r| r.name() == current).unwrap_or(&revisions.update);
    Observed { set, current, update: &revisions.update, collisions: revisions.collisions, pods }
}

/// A set on its way out keeps its status true and does nothing else.
async fn status_only(ctx: &Ctx, set: &Value, claimant: &Claimant<'_>) -> Result<Outcome, ClientError> {
    let all = history::claim(ctx, claimant, |_| true).await?;
    let named = |pointer: &str| all.iter().find(|r| Some(r.name()) == set.str_at(pointer)).cloned();
    let (Some(current), Some(update)) = (named("/status/currentRevision"), named("/status/updateRevision")) else {
        return Ok(Outcome::Done);
    };
    let mut pods = ctx.informer(&PODS).owned_by(set.uid());
    pods.retain(|p| p.controller_owner().is_some_and(|r| r["uid"] == set.uid()));
    let collisions = count_at(set, "/status/collisionCount");
    let observed = Observed { set, current: &current, update: &update, collisions, pods: &pods };
    exec::put_status(ctx, &STATEFUL_SETS, set, observed.status(ctx.clock.now())).await?;
    Ok(Outcome::Done)
}

async fn execute(ctx: &Ctx, set: &Value, acts: Vec<Act>) -> Result<(), ClientError> {
    for act in acts {
        match act {
            Act::CreateClaim { claim, pod } => create_claim(ctx, set, &claim, &pod).await?,
            Act::UpdateClaim(claim) => _ = exec::update(ctx, &PERSISTENT_VOLUME_CLAIMS, &claim).await?,
            Act::CreatePod(pod) => {
                let result = exec::create(ctx, &PODS, &pod).await;
                if !result.as_ref().is_err_and(ClientError::is_already_exists) {
                    report(ctx, set, &pod, "create", result.as_ref().err()).await;
                }
                result?;
            }
            Act::UpdatePod(pod) => {
                let result = exec::update(ctx, &PODS, &pod).await;
                report(ctx, set, &pod, "update", result.as_ref().err()).await;
                result?;
            }
            Act::DeletePod(pod) => {
                let result = exec::delete(ctx, &PODS, &pod, DeleteOptions::default()).await;
                report(ctx, set, &pod, "delete", result.as_ref().err()).await;
                result?;
            }
            Act::Warn { reason, message } => ctx.events.record(set, EventKind::Warning, reason, &message).await,
        }
    }
    Ok(())
}

async fn create_claim(ctx: &Ctx, set: &Value, claim: &Value, pod: &str) -> Result<(), ClientError> {
    match exec::create(ctx, &PERSISTENT_VOLUME_CLAIMS, claim).await {
        Ok(_) => {
            let message = format!("Create Claim {} Pod {pod} in StatefulSet {} success", claim.name(), set.name());
            ctx.events.record(set, EventKind::Normal, "SuccessfulCreate", &message).await;
            Ok(())
        }
        Err(error) => {
            if !error.is_already_exists() && !exec::is_namespace_terminating(&error) {
                let message = format!("Create Claim {} for Pod {pod} in StatefulSet {} failed error: {error}", claim.name(), set.name());
                ctx.events.record(set, EventKind::Warning, "FailedCreate", &message).await;
            }
            Err(error)
        }
    }
}

async fn report(ctx: &Ctx, set: &Value, pod: &Value, verb: &'static str, error: Option<&ClientError>) {
    let (title, good, bad) = match verb {
        "create" => ("Create", "SuccessfulCreate", "FailedCreate"),
        "update" => ("Update", "SuccessfulUpdate", "FailedUpdate"),
        _ => ("Delete", "SuccessfulDelete", "FailedDelete"),
    };
    match error {
        None => {
            let message = format!("{title} Pod {} in StatefulSet {} successful", pod.name(), set.name());
            ctx.events.record(set, EventKind::Normal, good, &message).await;
        }
        Some(error) if error.is_conflict() || exec::is_namespace_terminating(error) => {}
        Some(error) => {
            let message = format!("{title} Pod {} in StatefulSet {} failed error: {error}", pod.name(), set.name());
            ctx.events.record(set, EventKind::Warning, bad, &message).await;
        }
    }
}

/// Deletes old revisions that neither the set nor a pod is at.
async fn trim_history(ctx: &Ctx, set: &Value, revisions: &History, pods: &[Arc<Value>]) -> Result<(), ClientError> {
    let limit = set.i64_at("/spec/revisionHistoryLimit").unwrap_or(10);
    let is_alive = |revision: &Value| {
        let name = Some(revision.name());
        name == Some(revisions.update.name())
            || name == set.str_at("/status/currentRevision")
            || pods.iter().any(|p| p.label(history::POD_LABEL) == name)
    };
    for revision in history::surplus(&revisions.all, limit, is_alive) {
        exec::delete(ctx, &CONTROLLER_REVISIONS, &revision, DeleteOptions::default()).await?;
    }
    Ok(())
}

/// A status value without the counts that are zero.
fn counts(pairs: &[(&str, i64)]) -> Value {
    let mut status = json!({});
    for (key, count) in pairs.iter().filter(|(_, count)| *count != 0) {
        status[*key] = json!(count);
    }
    status
}
