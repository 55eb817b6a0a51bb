//! One look at all nodes.

use super::health::Health;
use super::taints::{evicting, has_evicting, with_evicting};
use super::zones::{self, Turn, Zone, Zones};
use super::{READY, TRUE, mark_not_ready, write};
use crate::kit::{exec, pods};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{LEASES, NODES, PODS};
use sublet_runtime::{ClientError, Ctx, EventKind, ListOptions};

const LEASES_NAMESPACE: &str = "kube-node-lease";
/// Nodes with this label say nothing about their zone.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";

/// What is known of each node, by name.
#[derive(Default)]
pub(super) struct Monitor {
    known: HashMap<String, Known>,
    zones: Zones,
}

struct Known {
    node: Arc<Value>,
    health: Option<Health>,
}

impl Monitor {
    /// Answers whether there are nodes to look at again.
    pub(super) async fn look(&mut self, ctx: &Ctx) -> Result<bool, ClientError> {
        let nodes = ctx.informer(&NODES).list(None);
        self.meet(ctx, &nodes).await;
        if nodes.is_empty() {
            return Ok(false);
        }
        // Read once a look rather than followed: heartbeats are most of what a quiet cluster writes.
        let leases = ctx.client.list(&LEASES, LEASES_NAMESPACE, &ListOptions::default()).await?;
        let leases: HashMap<&str, &Value> = leases.items.iter().map(|lease| (lease.name(), lease)).collect();
        let now = ctx.clock.now();
        let mut ready: BTreeMap<Zone, Vec<bool>> = BTreeMap::new();
        for node in &nodes {
            let node = match self.examine(ctx, node, leases.get(node.name()).copied(), now).await {
                Ok(node) => node,
                // Somebody else wrote: the next look sees what.
                Err(error) => {
                    tracing::debug!(node = node.name(), %error, "node not examined, will look again");
                    continue;
                }
            };
            if node.label(EXCLUDED).is_none() {
                ready.entry(zones::of(&node)).or_default().push(node.is_condition_true(READY));
            }
        }
        match self.zones.update(&ready, now) {
            Turn::None => {}
            Turn::LostSight => {
                for node in &nodes {
                    set_evicting(ctx, node.name(), None).await?;
                }
            }
            Turn::SeesAgain => {
                self.known.values_mut().filter_map(|k| k.health.as_mut()).for_each(|health| health.heard = now);
            }
        }
        self.empty_silent(ctx, now).await;
        Ok(true)
    }

    /// Greets nodes that came and remembers no others.
    async fn meet(&mut self, ctx: &Ctx, nodes: &[Arc<Value>]) {
        let left: Vec<String> = self.known.keys().filter(|name| !nodes.iter().any(|n| n.name() == *name)).cloned().collect();
        for name in left {
            if let Some(known) = self.known.remove(&name) {
                let message = format!("Node {name} event: Removing Node {name} from Controller");
                ctx.events.record(&known.node, EventKind::Normal, "RemovingNode", &message).await;
            }
        }
        for node in nodes {
            let known = self.known.get_mut(node.name());
            if let Some(known) = known {
                known.node = node.clone();
                continue;
            }
            self.known.insert(node.name().to_string(), Known { node: node.clone(), health: None });
            let message = format!("Node {0} event: Registered Node {0} in Controller", node.name());
            ctx.events.record(node, EventKind::Normal, "RegisteredNode", &message).await;
        }
    }

    /// Judges one node, and answers with it as it then is.
    async fn examine(&mut self, ctx: &Ctx, node: &Arc<Value>, lease: Option<&Value>, now: Timestamp) -> Result<Arc<Value>, ClientError> {
        let Some(known) = self.known.get_mut(node.name()) else { return Ok(node.clone()) };
        let before = known.health.take();
        let health = known.health.insert(Health::observe(before, node, lease, now));
        let was_ready = node.is_condition_true(READY);
        let mut node = node.clone();
        if let Some(status) = health.silent_status(&node, now) {
            let mut changed = (*node).clone();
            changed["status"] = status;
            node = Arc::new(exec::update_status(ctx, &NODES, &changed).await?);
            known.node = node.clone();
        }
        let Some(status) = node.condition(READY).and_then(|c| c["status"].as_str()) else { return Ok(node) };
        match evicting(status) {
            None => {
                health.waits_since = None;
                set_evicting(ctx, node.name(), None).await?;
            }
            // Tainted already, for the other reason: no pod is moved by saying which.
            Some((key, other)) if has_evicting(&node, other) => set_evicting(ctx, node.name(), Some(key)).await?,
            Some((key, _)) if has_evicting(&node, key) => health.waits_since = None,
            Some(_) => _ = health.waits_since.get_or_insert(now),
        }
        let fell_silent = was_ready && status != TRUE;
        if fell_silent {
            let message = format!("Node {} status is now: NodeNotReady", node.name());
            ctx.events.record(&node, EventKind::Normal, "NodeNotReady", &message).await;
        }
        if status != TRUE && (fell_silent || health.pods_unmarked) {
            health.pods_unmarked = true;
            for pod in ctx.informer(&PODS).by_index(pods::BY_NODE, node.name()) {
                mark_not_ready(ctx, &pod).await?;
            }
        }
        health.pods_unmarked = false;
        Ok(node)
    }

    /// Taints nodes that wait for it, those that wait longest first, as their zones allow.
    async fn empty_silent(&mut self, ctx: &Ctx, now: Timestamp) {
        let mut waiting: Vec<(Timestamp, &mut Known)> =
            self.known.values_mut().filter_map(|known| Some((known.health.as_ref()?.waits_since?, known))).collect();
        waiting.sort_by_key(|(since, known)| (*since, known.node.name().to_string()));
        for (_, known) in waiting {
            let status = known.node.condition(READY).and_then(|c| c["status"].as_str()).unwrap_or_default();
            let Some((key, _)) = evicting(status) else { continue };
            if !self.zones.may_empty(&zones::of(&known.node), now) {
                continue;
            }
            match set_evicting(ctx, known.node.name(), Some(key)).await {
                Ok(()) => known.health.iter_mut().for_each(|health| health.waits_since = None),
                Err(error) => tracing::debug!(node = known.node.name(), %error, "node not tainted, will try again"),
            }
        }
    }
}

/// Leaves this one, or none, of the taints that empty a node.
async fn set_evicting(ctx: &Ctx, name: &str, key: Option<&str>) -> Result<(), ClientError> {
    let Some(node) = ctx.informer(&NODES).get("", name) else { return Ok(()) };
    match with_evicting(&node, key, &ctx.clock.rfc3339()) {
        Some(taints) => write(ctx, &node, json!({"spec": {"taints": taints}})).await,
        None => Ok(()),
    }
}
