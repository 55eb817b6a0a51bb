//! Pods that nobody else removes: bound to nodes that are gone, deleted before they got a node, left
//! on nodes out of service, or ended in too great a number.

use crate::kit::{exec, pods, time};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::ObjectExt;
use sublet_runtime::manager::Mapping;
use sublet_runtime::resources::{NODES, PODS};
use sublet_runtime::{Change, ClientError, Controller, Ctx, DeleteOptions, Key, Outcome, Reconciler};

/// Ended pods that are kept.
const ENDED_PODS_MAX: usize = 12_500;
/// How long a node must be missing before its pods are given up.
const NODE_MISSING: Duration = Duration::from_secs(40);
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// The key of the look at all ended pods.
const ENDED: &str = "ended pods";
/// The namespace of keys that wait for a missing node, apart from keys of other reasons.
const CHECKED: &str = "!";

/// `nodes_follow_pods`: a pod may name a node that has no object yet, so a missing node proves nothing.
pub(crate) fn controller(nodes_follow_pods: bool) -> Controller {
    Controller::new("pod-garbage-collector", PodGc { nodes_follow_pods }).watches(PODS, suspicious).watches(NODES, pods_of_node)
}

fn suspicious(change: &Change, mapping: &Mapping) -> Vec<Key> {
    let Some(pod) = &change.new else { return Vec::new() };
    let mut keys = Vec::new();
    let node = pods::node(pod);
    let came_to_node = change.old.as_ref().is_none_or(|o| pods::node(o) != node);
    if pod.is_deleting() || (came_to_node && !node.is_empty() && mapping.informer(&NODES).get("", node).is_none()) {
        keys.push(change.key());
    }
    let has_ended = pods::is_terminal(pod) && change.old.as_ref().is_none_or(|o| !pods::is_terminal(o));
    if has_ended && mapping.informer(&PODS).len() > ENDED_PODS_MAX {
        keys.push(Key::new("", ENDED));
    }
    keys
}

fn pods_of_node(change: &Change, mapping: &Mapping) -> Vec<Key> {
    let node = change.object();
    if change.is_delete() || is_out_of_service(node) {
        let pods = mapping.informer(&PODS).by_index(pods::BY_NODE, node.name());
        return pods.iter().map(|p| Key::of(p)).collect();
    }
    Vec::new()
}

fn is_out_of_service(node: &Value) -> bool {
    let ready = node.is_condition_true("Ready");
    !ready && node.array_at("/spec/taints").iter().any(|t| t["key"] == OUT_OF_SERVICE)
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Keep,
    /// The node is missing: look again when that is certain.
    Wait,
    Remove,
    RemoveOrphan,
}

/// `node`: the pod's node, if it exists. `missing_for_long`: it was missing before, too.
fn decide(pod: &Value, node: Option<&Value>, missing_for_long: bool) -> Verdict {
    if pods::node(pod).is_empty() {
        return if pod.is_deleting() { Verdict::Remove } else { Verdict::Keep };
    }
    match node {
        Some(node) if pod.is_deleting() && is_out_of_service(node) => Verdict::Remove,
        Some(_) => Verdict::Keep,
        None if missing_for_long => Verdict::RemoveOrphan,
        None => Verdict::Wait,
    }
}

struct PodGc {
    nodes_follow_pods: bool,
}

#[async_trait]
impl Reconciler for PodGc {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let result = if key.name == ENDED { trim_ended(ctx).await } else { self.look_at(ctx, key).await };
        result.unwrap_or_else(Outcome::from)
    }
}

impl PodGc {
    async fn look_at(&self, ctx: &Ctx, key: &Key) -> Result<Outcome, ClientError> {
        // `!/NAMESPACE/NAME`: the second look, after the time that a node must be missing.
        let second = key.namespace == CHECKED;
        let (namespace, name) = if second { key.name.split_once('/').unwrap_or_default() } else { (&*key.namespace, &*key.name) };
        let Some(pod) = ctx.informer(&PODS).get(namespace, name) else { return Ok(Outcome::Done) };
        let node = ctx.informer(&NODES).get("", pods::node(&pod));
        match decide(&pod, node.as_deref(), second) {
            Verdict::Keep => {}
            Verdict::Remove => remove(ctx, &pod, false).await?,
            Verdict::Wait | Verdict::RemoveOrphan if self.nodes_follow_pods => {}
            Verdict::Wait => ctx.queue().add_after(Key::new(CHECKED, format!("{namespace}/{name}")), NODE_MISSING),
            Verdict::RemoveOrphan => {
                if ctx.client.get_opt(&NODES, "", pods::node(&pod)).await?.is_none() {
                    remove(ctx, &pod, true).await?;
                }
            }
        }
        Ok(Outcome::Done)
    }
}

/// Marks the pod as failed, so that whoever waits for its end hears of it, then deletes it by force.
async fn remove(ctx: &Ctx, pod: &Arc<Value>, orphaned: bool) -> Result<(), ClientError> {
    if !pods::is_terminal(pod) {
        let mut changed = pod.as_ref().clone();
        changed["status"]["phase"] = json!("Failed");
        if orphaned {
            let mut conditions: Vec<Value> = pod.array_at("/status/conditions").to_vec();
            conditions.retain(|c| c["type"] != "DisruptionTarget");
            conditions.push(json!({
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": "PodGC: node no longer exists",
                "lastTransitionTime": ctx.clock.rfc3339(),
            }));
            changed["status"]["conditions"] = Value::Array(conditions);
        }
        match exec::update_status(ctx, &PODS, &changed).await {
            Err(error) if error.is_not_found() => return Ok(()),
            result => _ = result?,
        }
    }
    exec::delete(ctx, &PODS, pod, DeleteOptions::now()).await
}

async fn trim_ended(ctx: &Ctx) -> Result<Outcome, ClientError> {
    let mut ended = ctx.informer(&PODS).list(None);
    ended.retain(|p| pods::is_terminal(p));
    let surplus = ended.len().saturating_sub(ENDED_PODS_MAX);
    let is_evicted = |p: &Value| pods::phase(p) == "Failed" && p.str_at("/status/reason") == Some("Evicted");
    ended.sort_by_key(|p| (!is_evicted(p), time::created(p), p.name().to_string()));
    for pod in ended.iter().take(surplus) {
        remove(ctx, pod, false).await?;
    }
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_without_anybody_to_remove_them_are_removed() {
        let pod = |node: &str, deleting: bool| {
            let mut pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": node}});
            if deleting {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            pod
        };
        let good = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let out = json!({"spec": {"taints": [{"key": OUT_OF_SERVICE}]}});
        assert_eq!(decide(&pod("", true), None, false), Verdict::Remove);
        assert_eq!(decide(&pod("", false), None, false), Verdict::Keep);
        assert_eq!(decide(&pod("n", false), None, false), Verdict::Wait);
        assert_eq!(decide(&pod("n", false), None, true), Verdict::RemoveOrphan);
        assert_eq!(decide(&pod("n", true), Some(&good), true), Verdict::Keep);
        assert_eq!(decide(&pod("n", true), Some(&out), false), Verdict::Remove);
        assert_eq!(decide(&pod("n", false), Some(&out), false), Verdict::Keep);
    }
}
