//! Deployments: replica sets by revision, rolled from one pod template to the next.
//!
//! [`rollout::Rollout`] is the pure step (what to write, what the status becomes); this file feeds it
//! and applies what it decided.

mod annotations;
mod progress;
mod replicas;
mod revision;
mod rollout;
mod scale;

use crate::kit::claim::{self, Claimant};
use crate::kit::{conditions, exec, pods, time, watch};
use async_trait::async_trait;
use rollout::{Plan, Rollout, Write};
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::{Gvk, ObjectExt};
use sublet_runtime::manager::{Mapping, map};
use sublet_runtime::resources::{DEPLOYMENTS, PODS, REPLICA_SETS};
use sublet_runtime::{Change, ClientError, Controller, Ctx, DeleteOptions, EventKind, Key, Outcome, Reconciler};

const DEPLOYMENT: Gvk = Gvk::new("apps", "v1", "Deployment");

pub(crate) fn controller() -> Controller {
    Controller::new("deployment-controller", Deployments)
        .watches(DEPLOYMENTS, map::itself)
        .watches(REPLICA_SETS, watch::dependents("Deployment", DEPLOYMENTS, watch::label_selector))
        .watches(PODS, finished_pods)
}

/// A rollout that recreates waits for the last old pod to end; nothing else here hangs on pods.
fn finished_pods(change: &Change, mapping: &Mapping) -> Vec<Key> {
    let pod = change.object();
    if !change.is_delete() && !pods::is_terminal(pod) {
        return Vec::new();
    }
    let Some(set) = pod.controller_owner().filter(|r| r["kind"] == "ReplicaSet") else { return Vec::new() };
    let Some(set) = mapping.informer(&REPLICA_SETS).get(pod.namespace(), set["name"].as_str().unwrap_or_default()) else {
        return Vec::new();
    };
    let Some(owner) = set.controller_owner().filter(|r| r["kind"] == "Deployment") else { return Vec::new() };
    let key = Key::new(pod.namespace(), owner["name"].as_str().unwrap_or_default());
    let recreates = mapping.informer(&DEPLOYMENTS).get_key(&key).is_some_and(|d| d.str_at("/spec/strategy/type") == Some("Recreate"));
    if recreates { vec![key] } else { Vec::new() }
}

struct Deployments;

#[async_trait]
impl Reconciler for Deployments {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let Some(deployment) = ctx.informer(&DEPLOYMENTS).get_key(key) else { return Outcome::Done };
        match sync(ctx, &deployment).await {
            Ok(outcome) => outcome,
            Err(error) => error.into(),
        }
    }
}

async fn sync(ctx: &Ctx, deployment: &Arc<Value>) -> Result<Outcome, ClientError> {
    let selector = watch::label_selector(deployment);
    if selector.is_everything() {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        ctx.events.record(deployment, EventKind::Warning, "SelectingAll", message).await;
        let mut status = deployment.get("status").cloned().unwrap_or(json!({}));
        status["observedGeneration"] = json!(deployment.generation());
        exec::put_status(ctx, &DEPLOYMENTS, deployment, status).await?;
        return Ok(Outcome::Done);
    }
    let claimant = Claimant { owner: deployment, gvr: &DEPLOYMENTS, gvk: &DEPLOYMENT, finalizer: None };
    let candidates = claim::candidates(&ctx.informer(&REPLICA_SETS), deployment);
    let sets = claim::claim(ctx, &claimant, &REPLICA_SETS, candidates, |s| selector.matches_object(s)).await?;

    let pods = ctx.informer(&PODS);
    let runs_pods = |set: &Value| pods.owned_by(set.uid()).iter().any(|p| !pods::is_terminal(p));
    let plan = Rollout::new(deployment, sets, ctx.clock.now()).plan(&runs_pods);
    execute(ctx, deployment, plan).await
}

async fn execute(ctx: &Ctx, deployment: &Arc<Value>, plan: Plan) -> Result<Outcome, ClientError> {
    let Plan { writes, status, progress_check } = plan;
    for write in writes {
        match write {
            Write::Create(set) => {
                if let Err(error) = exec::create(ctx, &REPLICA_SETS, &set).await {
                    return create_failed(ctx, deployment, &set, status, error).await;
                }
            }
            Write::Update(set) => _ = exec::update(ctx, &REPLICA_SETS, &set).await?,
            Write::Delete(set) => exec::delete(ctx, &REPLICA_SETS, &set, DeleteOptions::background()).await?,
            Write::Annotate(patch) => _ = exec::merge_patch(ctx, &DEPLOYMENTS, deployment, patch).await?,
            Write::Rollback(changed) => _ = exec::update(ctx, &DEPLOYMENTS, &changed).await?,
            Write::Event { kind, reason, message } => ctx.events.record(deployment, kind, reason, &message).await,
        }
    }
    if let Some(status) = status
        && deployment.get("status") != Some(&status)
    {
        // Annotating may have moved the revision on; the status still describes the same spec.
        let mut changed = ctx.informer(&DEPLOYMENTS).get_key(&Key::of(deployment)).unwrap_or_else(|| deployment.clone()).as_ref().clone();
        if changed.uid() != deployment.uid() || changed.generation() != deployment.generation() {
            return Ok(Outcome::Done);
        }
        changed["status"] = status;
        exec::update_status(ctx, &DEPLOYMENTS, &changed).await?;
        return Ok(Outcome::Done);
    }
    Ok(progress_check.map_or(Outcome::Done, |at| Outcome::After(time::until(ctx.clock.now(), at))))
}

/// The name of a new replica set is taken, or making it was refused.
async fn create_failed(
    ctx: &Ctx,
    deployment: &Value,
    set: &Value,
    status: Option<Value>,
    error: ClientError,
) -> Result<Outcome, ClientError> {
    if exec::is_namespace_terminating(&error) {
        return Ok(Outcome::Done);
    }
    let mut old_status = deployment.get("status").cloned().unwrap_or(json!({}));
    if error.is_already_exists() {
        let live = ctx.client.get(&REPLICA_SETS, set.namespace(), set.name()).await?;
        let is_ours = live.controller_owner().is_some_and(|r| r["uid"] == deployment.uid());
        if is_ours && revision::same_template(&deployment["spec"]["template"], &live["spec"]["template"]) {
            ctx.informer(&REPLICA_SETS).wrote(&live);
            return Err(error);
        }
        // Another template with the same hash: the count of collisions makes the next hash differ.
        let collisions = old_status.i64_at("/collisionCount").unwrap_or(0) + 1;
        old_status["collisionCount"] = json!(collisions);
        exec::put_status(ctx, &DEPLOYMENTS, deployment, old_status).await?;
        return Err(error);
    }
    let message = format!("Failed to create new replica set \"{}\": {error}", set.name());
    if status.is_some() && progress::has_deadline(deployment) {
        let now = ctx.clock.rfc3339();
        conditions::set(&mut old_status, progress::condition("Progressing", "False", progress::CREATE_FAILED, &message, &now));
        exec::put_status(ctx, &DEPLOYMENTS, deployment, old_status).await?;
    }
    ctx.events.record(deployment, EventKind::Warning, progress::CREATE_FAILED, &message).await;
    Err(error)
}
