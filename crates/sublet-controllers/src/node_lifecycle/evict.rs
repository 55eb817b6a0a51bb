//! Deletes pods from nodes with a taint that they do not tolerate, or no longer.

use super::taints::NO_EXECUTE;
use crate::kit::{exec, node_fit, pods, time};
use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Mutex;
use sublet_machinery::ObjectExt;
use sublet_runtime::manager::Mapping;
use sublet_runtime::resources::{NODES, PODS};
use sublet_runtime::{Change, ClientError, Controller, Ctx, DeleteOptions, EventKind, Key, Outcome, Reconciler};

pub(crate) fn controller() -> Controller {
    Controller::new("taint-eviction-controller", Evictions::default()).watches(NODES, pods_of_tainted).watches(PODS, on_tainted_node)
}

fn evicting(node: &Value) -> Vec<&Value> {
    node.array_at("/spec/taints").iter().filter(|t| t["effect"] == NO_EXECUTE).collect()
}

fn pods_of_tainted(change: &Change, mapping: &Mapping) -> Vec<Key> {
    let before = change.old.as_ref().map(|n| evicting(n)).unwrap_or_default();
    let after = change.new.as_ref().map(|n| evicting(n)).unwrap_or_default();
    if before == after {
        return Vec::new();
    }
    mapping.informer(&PODS).by_index(pods::BY_NODE, change.object().name()).iter().map(|p| Key::of(p)).collect()
}

fn on_tainted_node(change: &Change, mapping: &Mapping) -> Vec<Key> {
    let of = |pod: &Value| (pods::node(pod).to_string(), pod.array_at("/spec/tolerations").to_vec());
    if change.old.as_ref().zip(change.new.as_ref()).is_some_and(|(old, new)| of(old) == of(new)) {
        return Vec::new();
    }
    let node = mapping.informer(&NODES).get("", pods::node(change.object()));
    if node.is_some_and(|n| !evicting(&n).is_empty()) { vec![change.key()] } else { Vec::new() }
}

/// How long a pod may stay.
#[derive(Debug, PartialEq, Eq)]
enum Stay {
    Forever,
    Seconds(i64),
}

/// Every taint takes its first toleration, and the shortest of these counts. A taint without one: no time at all.
fn stay(pod: &Value, taints: &[&Value]) -> Stay {
    let mut seconds = None;
    for taint in taints {
        let toleration = pod.array_at("/spec/tolerations").iter().find(|t| node_fit::tolerates_taint(t, taint));
        let Some(toleration) = toleration else { return Stay::Seconds(0) };
        if let Some(limit) = toleration["tolerationSeconds"].as_i64() {
            seconds = Some(seconds.map_or(limit, |s: i64| s.min(limit)).max(0));
        }
    }
    seconds.map_or(Stay::Forever, Stay::Seconds)
}

#[derive(Default)]
struct Evictions {
    /// Guards since when pods are to leave, by our clock; one entry for each pod that is.
    since: Mutex<HashMap<Key, (String, Timestamp)>>,
}

#[async_trait]
impl Reconciler for Evictions {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let pod = ctx.informer(&PODS).get_key(key).filter(|pod| !pod.is_deleting());
        let node = pod.as_ref().and_then(|pod| ctx.informer(&NODES).get("", pods::node(pod)));
        let (Some(pod), Some(node)) = (pod, node) else {
            self.since.lock().expect("no holder panics").remove(key);
            return Outcome::Done;
        };
        let taints = evicting(&node);
        let Stay::Seconds(seconds) = stay(&pod, &taints) else {
            if self.since.lock().expect("no holder panics").remove(key).is_some() {
                let message = format!("Cancelling deletion of Pod {key}");
                ctx.events.record(&pod, EventKind::Normal, "TaintManagerEviction", &message).await;
            }
            return Outcome::Done;
        };
        let now = ctx.clock.now();
        let end = time::plus_seconds(self.since(key, pod.uid(), now), seconds);
        if end > now {
            return Outcome::After(time::until(now, end));
        }
        match evict(ctx, key, &pod).await {
            Ok(()) => Outcome::Done,
            Err(error) => error.into(),
        }
    }
}

impl Evictions {
    fn since(&self, key: &Key, uid: &str, now: Timestamp) -> Timestamp {
        let mut all = self.since.lock().expect("no holder panics");
        let (known, since) = all.entry(key.clone()).or_insert_with(|| (uid.to_string(), now));
        if known != uid {
            (*known, *since) = (uid.to_string(), now);
        }
        *since
    }
}

async fn evict(ctx: &Ctx, key: &Key, pod: &Value) -> Result<(), ClientError> {
    ctx.events.record(pod, EventKind::Normal, "TaintManagerEviction", &format!("Marking for deletion Pod {key}")).await;
    let mut condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint", "lastProbeTime": null, "lastTransitionTime": ctx.clock.rfc3339(),
    });
    if pod.generation() > 0 {
        condition["observedGeneration"] = json!(pod.generation());
    }
    let mut changed = pod.clone();
    let mut conditions = pod.array_at("/status/conditions").to_vec();
    conditions.retain(|c| c["type"] != "DisruptionTarget");
    conditions.push(condition);
    changed["status"]["conditions"] = json!(conditions);
    match exec::update_status(ctx, &PODS, &changed).await {
        Err(error) if error.is_not_found() => return Ok(()),
        result => _ = result?,
    }
    exec::delete(ctx, &PODS, pod, DeleteOptions::default()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_toleration_in_use_counts() {
        let taints = [json!({"key": "a", "effect": "NoExecute"}), json!({"key": "b", "value": "v", "effect": "NoExecute"})];
        let taints: Vec<&Value> = taints.iter().collect();
        let check = |count: usize, tolerations: Value, expected| {
            assert_eq!(stay(&json!({"spec": {"tolerations": tolerations}}), &taints[..count]), expected, "{tolerations}");
        };
        let of = |key: &str, seconds: Value| json!({"key": key, "operator": "Exists", "tolerationSeconds": seconds});
        check(0, json!([]), Stay::Forever);
        check(1, json!([]), Stay::Seconds(0));
        check(1, json!([of("a", Value::Null)]), Stay::Forever);
        check(2, json!([of("a", Value::Null)]), Stay::Seconds(0));
        check(2, json!([of("a", json!(100)), of("b", json!(60))]), Stay::Seconds(60));
        check(2, json!([of("a", Value::Null), of("b", json!(60))]), Stay::Seconds(60));
        check(1, json!([of("a", json!(-5))]), Stay::Seconds(0));
        // Later ones for the same taint are not in use.
        check(1, json!([of("a", json!(100)), {"operator": "Exists", "tolerationSeconds": 1}]), Stay::Seconds(100));
    }

    /// A taint without `timeAdded` began anew at each look, and nobody was ever evicted.
    #[test]
    fn the_time_to_leave_runs_from_the_first_look() {
        let evictions = Evictions::default();
        let at = |seconds| Timestamp::from_second(seconds).expect("a time");
        let key = Key::new("n", "p");
        assert_eq!(evictions.since(&key, "u", at(10)), at(10));
        assert_eq!(evictions.since(&key, "u", at(20)), at(10));
        assert_eq!(evictions.since(&key, "next", at(30)), at(30));
    }
}
