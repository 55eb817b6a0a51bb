//! Node lifecycle: nodes whose lease stops are marked and tainted, and pods that do not tolerate a
//! NoExecute taint are evicted when their time is up.

use crate::events::{EventSink, Notice};
use crate::kubelet::container::seconds;
use crate::scheduler::{Taint, Toleration};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::time::Duration;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{LEASES, NODES, PODS};
use sublet_runtime::{
    Change, ClientError, Clock, Controller, Ctx, DeleteOptions, Key, Manager, Outcome, Patch, PatchOptions, Reconciler, Scope, manager::map,
};

const LEASE_NAMESPACE: &str = "kube-node-lease";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Condition, the status that taints, the taint.
const PRESSURES: [(&str, &str); 4] = [
    ("MemoryPressure", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "node.kubernetes.io/network-unavailable"),
];
const BY_NODE: &str = "lifecycle-node";

/// Adds both loops to the manager.
pub(crate) fn add(manager: &mut Manager, events: EventSink, clock: Clock, grace_seconds: u64) {
    let pods = manager.informers().informer(&PODS, &Scope::default()).0;
    pods.add_index(BY_NODE, |pod| pod.str_at("/spec/nodeName").map(str::to_string).into_iter().collect());
    manager.add(
        Controller::new("node-lifecycle", Nodes { clock: clock.clone(), grace: i64::try_from(grace_seconds).unwrap_or(i64::MAX) })
            .watches(NODES, map::itself)
            .reads(LEASES)
            .reads(PODS),
    );
    manager.add(
        Controller::new("taint-eviction", Evictions { events, clock })
            .watches(NODES, |change: &Change, mapping| {
                let taints = |o: &Option<std::sync::Arc<Value>>| o.as_ref().map(|n| n.array_at("/spec/taints").to_vec());
                if taints(&change.old) == taints(&change.new) {
                    return Vec::new();
                }
                mapping.informer(&PODS).by_index(BY_NODE, &change.key().name).iter().map(|p| Key::of(p)).collect()
            })
            .watches(PODS, |change: &Change, mapping| {
                let pod = change.object();
                let node = pod.str_at("/spec/nodeName").and_then(|name| mapping.informer(&NODES).get("", name));
                let tainted = node.is_some_and(|n| n.array_at("/spec/taints").iter().any(|t| t["effect"] == "NoExecute"));
                if tainted && !change.is_delete() { vec![change.key()] } else { Vec::new() }
            }),
    );
}

struct Nodes {
    clock: Clock,
    grace: i64,
}

#[async_trait]
impl Reconciler for Nodes {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let Some(node) = ctx.informer(&NODES).get_key(key) else { return Outcome::Done };
        let now = self.clock.now().as_second();
        let renewed = ctx.informer(&LEASES).get(LEASE_NAMESPACE, node.name()).and_then(|l| seconds(&l["spec"]["renewTime"]));
        let beat = node.condition("Ready").and_then(|c| seconds(&c["lastHeartbeatTime"]));
        let created = seconds(&node["metadata"]["creationTimestamp"]);
        let seen = [renewed, beat, created].into_iter().flatten().max().unwrap_or(now);
        let silent = now - seen > self.grace;
        let result = async {
            let node = if silent { self.mark_unknown(ctx, &node).await? } else { (*node).clone() };
            self.taint(ctx, &node).await
        };
        match result.await {
            Ok(()) => {
                let wait = if silent { self.grace } else { (seen + self.grace - now + 1).max(1) };
                Outcome::After(Duration::from_secs(wait.unsigned_abs()))
            }
            Err(error) if error.is_not_found() => Outcome::Done,
            Err(error) => error.into(),
        }
    }
}

impl Nodes {
    /// Nobody hears from the node: its conditions are unknown, its pods are not ready.
    async fn mark_unknown(&self, ctx: &Ctx, node: &Value) -> Result<Value, ClientError> {
        let stale: Vec<Value> = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"]
            .iter()
            .filter(|kind| node.condition(kind).is_none_or(|c| c["status"] != "Unknown"))
            .map(|kind| {
                json!({"type": kind, "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status.",
                    "lastTransitionTime": self.clock.rfc3339()})
            })
            .collect();
        if stale.is_empty() {
            return Ok(node.clone());
        }
        let patch = Patch::Strategic(json!({"status": {"conditions": stale}}));
        let node = ctx.client.patch(&NODES, "", node.name(), "status", &patch, &PatchOptions::default()).await?;
        for pod in ctx.informer(&PODS).by_index(BY_NODE, node.name()) {
            if pod.is_condition_true("Ready") {
                let unready = json!({"type": "Ready", "status": "False", "lastTransitionTime": self.clock.rfc3339()});
                let patch = Patch::Strategic(json!({"metadata": {"uid": pod.uid()}, "status": {"conditions": [unready]}}));
                match ctx.client.patch(&PODS, pod.namespace(), pod.name(), "status", &patch, &PatchOptions::default()).await {
                    Err(error) if !error.is_not_found() => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(node)
    }

    /// Brings the taints that follow from conditions and `spec.unschedulable` in line.
    async fn taint(&self, ctx: &Ctx, node: &Value) -> Result<(), ClientError> {
        let wanted = wanted_taints(node);
        let old = node.array_at("/spec/taints");
        let managed = |t: &Value| is_managed(t["key"].as_str().unwrap_or_default(), t["effect"].as_str().unwrap_or_default());
        let mut taints: Vec<Value> =
            old.iter().filter(|t| !managed(t) || wanted.iter().any(|(k, e)| t["key"] == *k && t["effect"] == *e)).cloned().collect();
        for (key, effect) in wanted {
            if !taints.iter().any(|t| t["key"] == key && t["effect"] == effect) {
                taints.push(json!({"key": key, "effect": effect, "timeAdded": self.clock.rfc3339()}));
            }
        }
        if taints == old {
            return Ok(());
        }
        // Others taint as well: the version keeps their writes.
        let patch = json!({"metadata": {"resourceVersion": node.resource_version()}, "spec": {"taints": taints}});
        ctx.client.merge_patch(&NODES, "", node.name(), patch).await.map(drop)
    }
}

fn is_managed(key: &str, effect: &str) -> bool {
    match effect {
        "NoSchedule" => [NOT_READY, UNREACHABLE, UNSCHEDULABLE].contains(&key) || PRESSURES.iter().any(|(_, t)| *t == key),
        "NoExecute" => [NOT_READY, UNREACHABLE].contains(&key),
        _ => false,
    }
}

fn wanted_taints(node: &Value) -> Vec<(&'static str, &'static str)> {
    let mut wanted = Vec::new();
    let taint = match node.condition("Ready").and_then(|c| c["status"].as_str()) {
        Some("True") => None,
        Some("False") => Some(NOT_READY),
        _ => Some(UNREACHABLE),
    };
    // A node that never reported is not ready rather than lost.
    let taint = if node.condition("Ready").is_none() { Some(NOT_READY) } else { taint };
    if let Some(key) = taint {
        wanted.extend([(key, "NoSchedule"), (key, "NoExecute")]);
    }
    for (kind, key) in PRESSURES {
        if node.is_condition_true(kind) {
            wanted.push((key, "NoSchedule"));
        }
    }
    if node.bool_at("/spec/unschedulable") == Some(true) {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    wanted
}

struct Evictions {
    events: EventSink,
    clock: Clock,
}

#[async_trait]
impl Reconciler for Evictions {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let Some(pod) = ctx.informer(&PODS).get_key(key) else { return Outcome::Done };
        let over = matches!(pod.str_at("/status/phase"), Some("Succeeded" | "Failed"));
        let node = pod.str_at("/spec/nodeName").and_then(|name| ctx.informer(&NODES).get("", name));
        let Some(node) = node.filter(|_| !over && !pod.is_deleting()) else { return Outcome::Done };
        let now = self.clock.now().as_second();
        match evicted_at(&pod, &node, now) {
            None => Outcome::Done,
            Some(at) if at > now => Outcome::After(Duration::from_secs((at - now).unsigned_abs())),
            Some(_) => match self.evict(ctx, &pod).await {
                Ok(()) => Outcome::Done,
                Err(error) if error.is_not_found() => Outcome::Done,
                Err(error) => error.into(),
            },
        }
    }
}

impl Evictions {
    async fn evict(&self, ctx: &Ctx, pod: &Value) -> Result<(), ClientError> {
        let mut condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "Taint manager: deleting due to NoExecute taint",
            "lastProbeTime": null, "lastTransitionTime": self.clock.rfc3339(),
        });
        if pod.generation() > 0 {
            condition["observedGeneration"] = json!(pod.generation());
        }
        let patch = Patch::Strategic(json!({"metadata": {"uid": pod.uid()}, "status": {"conditions": [condition]}}));
        ctx.client.patch(&PODS, pod.namespace(), pod.name(), "status", &patch, &PatchOptions::default()).await?;
        let message = format!("Marking for deletion Pod {}/{}", pod.namespace(), pod.name());
        self.events.record(pod, "taint-eviction-controller", "", &Notice::normal("TaintManagerEviction", message));
        ctx.client.delete_if_exists(&PODS, pod.namespace(), pod.name(), &DeleteOptions::default().uid(pod.uid())).await
    }
}

/// When the pod must go from the node; `None`: it may stay.
fn evicted_at(pod: &Value, node: &Value, now: i64) -> Option<i64> {
    let mut earliest: Option<i64> = None;
    for taint in node.array_at("/spec/taints").iter().filter(|t| t["effect"] == "NoExecute") {
        let parsed = Taint::parse(taint);
        let since = seconds(&taint["timeAdded"]).unwrap_or(now);
        let matching: Vec<&Value> = pod.array_at("/spec/tolerations").iter().filter(|t| Toleration::parse(t).tolerates(&parsed)).collect();
        if matching.is_empty() {
            return Some(now);
        }
        // Of several tolerations the shortest counts; one without seconds lasts for ever.
        if let Some(shortest) = matching.iter().filter_map(|t| t["tolerationSeconds"].as_i64()).min() {
            let at = since.saturating_add(shortest.max(0));
            earliest = Some(earliest.map_or(at, |e| e.min(at)));
        }
    }
    earliest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_follow_from_conditions() {
        let check = |node: Value, expected: &[(&str, &str)]| assert_eq!(wanted_taints(&node), expected, "{node}");
        let ready = |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        check(ready("True"), &[]);
        check(ready("False"), &[(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]);
        check(ready("Unknown"), &[(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]);
        check(json!({}), &[(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]);
        let mut cordoned = ready("True");
        cordoned["spec"]["unschedulable"] = json!(true);
        check(cordoned, &[(UNSCHEDULABLE, "NoSchedule")]);
    }

    #[test]
    fn pods_leave_when_their_toleration_ends() {
        let node = json!({"spec": {"taints": [{"key": "k", "effect": "NoExecute", "timeAdded": "1970-01-01T00:01:40Z"}]}});
        let check = |tolerations: Value, expected: Option<i64>| {
            assert_eq!(evicted_at(&json!({"spec": {"tolerations": tolerations}}), &node, 150), expected);
        };
        check(json!([]), Some(150));
        check(json!([{"key": "k", "operator": "Exists"}]), None);
        check(json!([{"key": "k", "operator": "Exists", "tolerationSeconds": 60}]), Some(160));
        check(
            json!([{"operator": "Exists", "tolerationSeconds": 300}, {"key": "k", "operator": "Exists", "tolerationSeconds": 60}]),
            Some(160),
        );
    }
}
