//! DaemonSets: a pod on every node that fits.

mod plan;
mod pods;
mod roll;

use crate::kit::claim::{self, Claimant};
use crate::kit::exec::{self, BURST_PODS_MAX};
use crate::kit::history::{self, History};
use crate::kit::{count_at, pods as kit_pods, watch};
use async_trait::async_trait;
use plan::{Changes, Observed};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::{Gvk, ObjectExt};
use sublet_runtime::manager::{Mapping, map};
use sublet_runtime::resources::{CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS};
use sublet_runtime::{Change, ClientError, Controller, Ctx, DeleteOptions, EventKind, Key, Outcome, Reconciler};

const DAEMON_SET: Gvk = Gvk::new("apps", "v1", "DaemonSet");

pub(crate) fn controller() -> Controller {
    Controller::new("daemonset-controller", DaemonSets)
        .watches(DAEMON_SETS, map::itself)
        .watches(PODS, watch::dependents("DaemonSet", DAEMON_SETS, watch::label_selector))
        .watches(CONTROLLER_REVISIONS, watch::dependents("DaemonSet", DAEMON_SETS, watch::label_selector))
        .watches(NODES, sets_of_node)
}

/// Every set is concerned by a node that comes, goes or fits differently.
fn sets_of_node(change: &Change, mapping: &Mapping) -> Vec<Key> {
    if let (Some(old), Some(new)) = (&change.old, &change.new)
        && ["/metadata/labels", "/spec/taints", "/spec/unschedulable"].iter().all(|p| old.pointer(p) == new.pointer(p))
    {
        return Vec::new();
    }
    mapping.informer(&DAEMON_SETS).list(None).iter().map(|s| Key::of(s)).collect()
}

struct DaemonSets;

#[async_trait]
impl Reconciler for DaemonSets {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let Some(set) = ctx.informer(&DAEMON_SETS).get_key(key).filter(|s| !s.is_deleting()) else { return Outcome::Done };
        match sync(ctx, &set).await {
            Ok(outcome) => outcome,
            Err(error) if exec::is_namespace_terminating(&error) => Outcome::Done,
            Err(error) => error.into(),
        }
    }
}

async fn sync(ctx: &Ctx, set: &Arc<Value>) -> Result<Outcome, ClientError> {
    let selector = watch::label_selector(set);
    if selector.is_everything() {
        let message = "This daemon set is selecting all pods. A non-empty selector is required.";
        ctx.events.record(set, EventKind::Warning, "SelectingAll", message).await;
        return Ok(Outcome::Done);
    }
    let claimant = Claimant { owner: set, gvr: &DAEMON_SETS, gvk: &DAEMON_SET, finalizer: None };
    let history = history::sync(ctx, &claimant, |r| selector.matches_object(r), &[history::POD_LABEL]).await?;
    let candidates = claim::candidates(&ctx.informer(&PODS), set);
    let all = claim::claim(ctx, &claimant, &PODS, candidates, |p| selector.matches_object(p)).await?;
    let nodes = ctx.informer(&NODES).list(None);
    let now = ctx.clock.now();
    let observed = Observed::new(set, &history, &nodes, &all, now);

    // What fits no node or is missing comes first, the update of what is left after.
    let mut changes = observed.manage();
    if changes.is_empty() {
        let wait = changes.wait;
        changes = observed.roll();
        changes.wait = changes.wait.or(wait);
    }
    let wait = changes.wait;
    let had_changes = !changes.is_empty();
    let result = execute(ctx, set, &observed, changes).await;
    if result.is_ok() && had_changes {
        // The changed pods bring this key back; the status is written with them in it.
        return Ok(Outcome::Done);
    }
    exec::put_status(ctx, &DAEMON_SETS, set, observed.status()).await?;
    result?;
    trim_history(ctx, set, &history, &all).await?;
    let min_ready = count_at(set, "/spec/minReadySeconds");
    let available = kit_pods::next_availability(all.iter().map(AsRef::as_ref), min_ready, now);
    let next: Option<Duration> = available.into_iter().chain(wait).min();
    Ok(next.map_or(Outcome::Done, Outcome::After))
}

async fn execute(ctx: &Ctx, set: &Value, observed: &Observed<'_>, changes: Changes) -> Result<(), ClientError> {
    for event in &changes.events {
        ctx.events.record(set, event.kind, event.reason, &event.message).await;
    }
    let new: Vec<Value> = changes.create.iter().take(BURST_PODS_MAX).map(|node| observed.new_pod(node)).collect();
    let (_, created) = exec::create_pods(ctx, set, &new).await;
    let doomed: Vec<Arc<Value>> = changes.delete.into_iter().take(BURST_PODS_MAX).collect();
    exec::delete_pods(ctx, set, &doomed).await?;
    created
}

async fn trim_history(ctx: &Ctx, set: &Value, history: &History, pods: &[Arc<Value>]) -> Result<(), ClientError> {
    let limit = set.i64_at("/spec/revisionHistoryLimit").unwrap_or(10);
    let is_alive = |revision: &Value| {
        let hash = revision.label(history::POD_LABEL);
        revision.uid() == history.update.uid() || pods.iter().any(|p| hash.is_some() && p.label(history::POD_LABEL) == hash)
    };
    for revision in history::surplus(&history.all, limit, is_alive) {
        exec::delete(ctx, &CONTROLLER_REVISIONS, &revision, DeleteOptions::default()).await?;
    }
    Ok(())
}
