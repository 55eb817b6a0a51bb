//! Nodes whose kubelet falls silent are marked, tainted and, at a bounded rate, emptied.
//!
//! One look at all nodes every five seconds, as long as there are nodes ([`monitor`]): [`health`] says who is silent,
//! [`zones`] how fast taints may follow, [`taints`] which. [`evict`] deletes the pods that tolerate a taint no longer.
//!
//! What was heard from a node, and when, is remembered in memory by our own clock: the clocks of nodes differ, and
//! after a restart every node has its grace again, as upstream.

mod evict;
mod health;
mod monitor;
mod taints;
mod zones;

pub(crate) use evict::controller as taint_eviction;

use crate::kit::{exec, pods};
use async_trait::async_trait;
use monitor::Monitor;
use serde_json::{Value, json};
use std::time::Duration;
use sublet_machinery::ObjectExt;
use sublet_runtime::manager::Mapping;
use sublet_runtime::resources::{NODES, PODS};
use sublet_runtime::{Change, ClientError, Controller, Ctx, EventKind, Key, Outcome, Reconciler};

const READY: &str = "Ready";
const TRUE: &str = "True";
/// Between two looks at all nodes.
const PERIOD: Duration = Duration::from_secs(5);

/// The look at all nodes; nodes and pods have keys of their own.
fn monitor_key() -> Key {
    Key::new("monitor", "")
}

pub(crate) fn controller() -> Controller {
    Controller::new("node-controller", Lifecycle::default())
        .watches(NODES, |change, _| {
            let mut keys = vec![monitor_key()];
            keys.extend(change.new.as_ref().map(|node| Key::of(node)));
            keys
        })
        .watches(PODS, came_to_silent_node)
}

/// A pod that was bound to a node while its kubelet was silent already.
fn came_to_silent_node(change: &Change, mapping: &Mapping) -> Vec<Key> {
    let Some(pod) = &change.new else { return Vec::new() };
    let node = pods::node(pod);
    if node.is_empty() || change.old.as_ref().is_some_and(|old| pods::node(old) == node) {
        return Vec::new();
    }
    let is_silent = mapping.informer(&NODES).get("", node).is_some_and(|n| is_not_ready(&n));
    if is_silent { vec![change.key()] } else { Vec::new() }
}

/// It said so, or somebody said it for the node; one that never spoke is not meant.
fn is_not_ready(node: &Value) -> bool {
    node.condition(READY).is_some_and(|c| c["status"] != TRUE)
}

#[derive(Default)]
struct Lifecycle {
    /// One look at a time.
    monitor: tokio::sync::Mutex<Monitor>,
}

#[async_trait]
impl Reconciler for Lifecycle {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let result = if *key == monitor_key() {
            return match self.monitor.lock().await.look(ctx).await {
                Ok(true) => Outcome::After(PERIOD),
                Ok(false) => Outcome::Done,
                Err(error) => error.into(),
            };
        } else if key.namespace.is_empty() {
            follow_conditions(ctx, key).await
        } else {
            mark_late_pod(ctx, key).await
        };
        result.map_or_else(Outcome::from, |()| Outcome::Done)
    }
}

/// Taints against scheduling, and labels of former names.
async fn follow_conditions(ctx: &Ctx, key: &Key) -> Result<(), ClientError> {
    let Some(node) = ctx.informer(&NODES).get_key(key) else { return Ok(()) };
    let mut patch = json!({});
    if let Some(changed) = taints::follow_conditions(&node, &ctx.clock.rfc3339()) {
        patch["spec"] = json!({"taints": changed});
    }
    if let Some(labels) = taints::former_labels(&node) {
        patch["metadata"] = json!({"labels": labels});
    }
    if patch.as_object().is_some_and(|p| !p.is_empty()) { write(ctx, &node, patch).await.map(|_| ()) } else { Ok(()) }
}

/// Others write taints as well: the version keeps what they wrote. A node that is gone is as it should be.
async fn write(ctx: &Ctx, node: &Value, mut patch: Value) -> Result<(), ClientError> {
    patch["metadata"]["resourceVersion"] = json!(node.resource_version());
    match exec::merge_patch(ctx, &NODES, node, patch).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

async fn mark_late_pod(ctx: &Ctx, key: &Key) -> Result<(), ClientError> {
    let Some(pod) = ctx.informer(&PODS).get_key(key) else { return Ok(()) };
    if ctx.informer(&NODES).get("", pods::node(&pod)).is_some_and(|n| is_not_ready(&n)) {
        mark_not_ready(ctx, &pod).await?;
    }
    Ok(())
}

/// Nobody can tell whether the pod works: whoever balances load does without it.
async fn mark_not_ready(ctx: &Ctx, pod: &Value) -> Result<(), ClientError> {
    if pod.condition(READY).is_none_or(|c| c["status"] == "False") {
        return Ok(());
    }
    let mut changed = pod.clone();
    for condition in changed.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        if condition["type"] == READY {
            condition["status"] = json!("False");
            condition["lastTransitionTime"] = json!(ctx.clock.rfc3339());
        }
    }
    match exec::update_status(ctx, &PODS, &changed).await {
        Err(error) if error.is_not_found() => return Ok(()),
        result => _ = result?,
    }
    ctx.events.record(pod, EventKind::Warning, "NodeNotReady", "Node is not ready").await;
    Ok(())
}
