//! One decision: where a pod goes, or why it goes nowhere and whom it may push aside.

use super::cluster::{Cluster, NodeInfo};
use super::filter::{Cycle, Reason, View, cause, message};
use super::pod::PodInfo;
use super::preempt::{self, Preemption};
use super::score;
use super::volumes::{Action, Volumes};
use super::world::World;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use sublet_machinery::ObjectExt;
use sublet_runtime::Key;

/// Pods that wait for their victims to leave a node.
pub(crate) type Nominated = HashMap<Key, (String, Arc<PodInfo>)>;

#[derive(Debug)]
pub(crate) enum Decision {
    Bind { node: String, volumes: Vec<Action> },
    Refuse { message: String, causes: u8, preemption: Option<Preemption> },
}

pub(crate) fn decide(pod: &PodInfo, cluster: &Cluster, nominated: &Nominated, world: &World<'_>, turn: usize) -> Decision {
    if cluster.len() == 0 {
        return Decision::Refuse { message: "no nodes available to schedule pods".into(), causes: cause::NODE, preemption: None };
    }
    let wishes = pod.wishes();
    let volumes = Volumes::new(pod, world);
    if let Some(error) = &volumes.error {
        let help = "Preemption is not helpful for scheduling";
        let preemption = message(cluster.len(), std::iter::repeat_n(help, cluster.len()));
        let text = format!("0/{} nodes are available: {}. preemption: {preemption}", cluster.len(), error.text);
        return Decision::Refuse { message: text, causes: error.cause, preemption: None };
    }
    let reserved = reserve(pod, cluster, nominated);
    let view = View { nodes: reserved.iter().map(AsRef::as_ref).collect() };
    let cycle = Cycle::new(pod, &wishes, &volumes, &view, world.namespace);
    let mut fitting: Vec<&NodeInfo> = Vec::new();
    let mut refused: Vec<(&NodeInfo, Vec<Reason>)> = Vec::new();
    let in_use = volumes.in_use(pod, &view);
    for node in &view.nodes {
        let reasons = if in_use { vec![exclusive()] } else { cycle.refuse(node) };
        if reasons.is_empty() {
            fitting.push(node);
        } else {
            refused.push((node, reasons));
        }
    }
    if fitting.is_empty() {
        return refuse(pod, &cycle, &view, refused, world);
    }
    let wanted = pod.object.str_at("/status/nominatedNodeName").unwrap_or_default();
    let chosen = match fitting.iter().position(|n| n.name() == wanted) {
        Some(index) => index,
        None => score::best(&cycle, &view, &fitting, turn, world.namespace),
    };
    let node = fitting[chosen];
    match volumes.choose(pod, node, world.promised) {
        Some(actions) => Decision::Bind { node: node.name().to_string(), volumes: actions },
        // Another pod was promised the volume a moment ago.
        None => Decision::Refuse {
            message: format!("0/{} nodes are available: volumes are being bound to other claims.", cluster.len()),
            causes: cause::VOLUMES,
            preemption: None,
        },
    }
}

/// The nodes with the pods that are as good as there: nominated ones of at least the same priority.
fn reserve<'c>(pod: &PodInfo, cluster: &'c Cluster, nominated: &Nominated) -> Vec<Cow<'c, NodeInfo>> {
    let ahead = |key: &Key, other: &PodInfo| other.priority >= pod.priority && *key != pod.key;
    cluster
        .nodes()
        .map(|node| {
            let mut node = Cow::Borrowed(node);
            for (key, (place, other)) in nominated.iter().filter(|(key, (_, other))| ahead(key, other)) {
                if place == node.name() && !node.pods.contains_key(key) {
                    node.to_mut().add(other.clone());
                }
            }
            node
        })
        .collect()
}

fn exclusive() -> Reason {
    let text = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";
    Reason::movable(cause::VOLUMES, text)
}

fn refuse(pod: &PodInfo, cycle: &Cycle<'_>, view: &View<'_>, refused: Vec<(&NodeInfo, Vec<Reason>)>, world: &World<'_>) -> Decision {
    let count = view.nodes.len();
    let causes = refused.iter().flat_map(|(_, reasons)| reasons).fold(0, |all, r| all | r.cause);
    let mut text = message(count, refused.iter().flat_map(|(_, reasons)| reasons).map(|r| &*r.text));
    let found = preempt::find(pod, cycle, view, &refused, world);
    if let Err(why) = &found {
        text = format!("{text} preemption: {why}");
    }
    Decision::Refuse { message: text, causes, preemption: found.ok() }
}
