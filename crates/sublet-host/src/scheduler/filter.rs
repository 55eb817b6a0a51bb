//! Which nodes a pod may go to, and why not to the others (the default plugins of 1.37, in their order).

use super::cluster::NodeInfo;
use super::interpod::InterPod;
use super::pod::{PodInfo, Wishes};
use super::spread::Spread;
use super::volumes::Volumes;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// What could let a refused pod in later.
pub(crate) mod cause {
    pub(crate) const NODE: u8 = 1;
    pub(crate) const RESOURCES: u8 = 2;
    pub(crate) const PORTS: u8 = 4;
    pub(crate) const VOLUMES: u8 = 8;
    pub(crate) const SPREAD: u8 = 16;
    pub(crate) const INTERPOD: u8 = 32;
    pub(crate) const ANY: u8 = 255;
}

/// Why a node is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reason {
    pub(crate) text: Cow<'static, str>,
    pub(crate) cause: u8,
    /// Whether removing pods from the node can help.
    pub(crate) preemptible: bool,
}

impl Reason {
    pub(crate) fn fixed(cause: u8, text: impl Into<Cow<'static, str>>) -> Self {
        Self { text: text.into(), cause, preemptible: false }
    }

    pub(crate) fn movable(cause: u8, text: impl Into<Cow<'static, str>>) -> Self {
        Self { text: text.into(), cause, preemptible: true }
    }
}

/// The nodes as a decision sees them; preemption looks at changed copies.
pub(crate) struct View<'a> {
    pub(crate) nodes: Vec<&'a NodeInfo>,
}

/// Everything about one pod that is worked out once for all nodes.
pub(crate) struct Cycle<'a> {
    pub(crate) pod: &'a PodInfo,
    pub(crate) wishes: &'a Wishes,
    pub(crate) volumes: &'a Volumes,
    only: Option<Vec<&'a str>>,
    spread: Spread,
    interpod: InterPod,
}

impl<'a> Cycle<'a> {
    pub(crate) fn new(
        pod: &'a PodInfo,
        wishes: &'a Wishes,
        volumes: &'a Volumes,
        view: &View<'_>,
        namespaces: &dyn Fn(&str) -> Option<std::sync::Arc<serde_json::Value>>,
    ) -> Self {
        Self {
            pod,
            wishes,
            volumes,
            only: wishes.node_affinity.as_ref().and_then(|a| a.only_names()),
            spread: Spread::new(pod, wishes, view),
            interpod: InterPod::new(pod, view, namespaces),
        }
    }

    /// The reasons against the node; none when it fits. The first plugin that objects is heard.
    pub(crate) fn refuse(&self, node: &NodeInfo) -> Vec<Reason> {
        if self.only.as_ref().is_some_and(|only| !only.contains(&node.name())) {
            return vec![Reason::fixed(cause::NODE, "node(s) didn't satisfy plugin(s) [NodeAffinity]")];
        }
        let simple: [&dyn Fn() -> Option<Reason>; 5] =
            [&|| self.unschedulable(node), &|| self.node_name(node), &|| self.taints(node), &|| self.node_affinity(node), &|| {
                self.ports(node)
            }];
        if let Some(reason) = simple.iter().find_map(|check| check()) {
            return vec![reason];
        }
        let reasons = fit(self.pod, node);
        if !reasons.is_empty() {
            return reasons;
        }
        let last: [&dyn Fn() -> Option<Reason>; 3] =
            [&|| self.volumes.refuse(self.pod, node), &|| self.spread.refuse(self.pod, node), &|| self.interpod.refuse(self.pod, node)];
        last.iter().find_map(|check| check()).into_iter().collect()
    }

    fn unschedulable(&self, node: &NodeInfo) -> Option<Reason> {
        let taint = super::pod::Taint { key: "node.kubernetes.io/unschedulable".into(), value: String::new(), effect: "NoSchedule".into() };
        (node.unschedulable && !self.wishes.tolerates(&taint)).then(|| Reason::fixed(cause::NODE, "node(s) were unschedulable"))
    }

    fn node_name(&self, node: &NodeInfo) -> Option<Reason> {
        let wanted = &self.wishes.node_name;
        (!wanted.is_empty() && wanted != node.name()).then(|| Reason::fixed(cause::NODE, "node(s) didn't match the requested node name"))
    }

    fn taints(&self, node: &NodeInfo) -> Option<Reason> {
        self.wishes.untolerated(&node.taints)?;
        Some(Reason::fixed(cause::NODE, "node(s) had untolerated taint(s)"))
    }

    fn node_affinity(&self, node: &NodeInfo) -> Option<Reason> {
        let matches = self.wishes.matches_node(node.name(), node.labels());
        (!matches).then(|| Reason::fixed(cause::NODE, "node(s) didn't match Pod's node affinity/selector"))
    }

    fn ports(&self, node: &NodeInfo) -> Option<Reason> {
        let taken = self.pod.host_ports.iter().any(|p| node.port_in_use(p));
        taken.then(|| Reason::movable(cause::PORTS, "node(s) didn't have free ports for the requested pod ports"))
    }
}

/// What the node lacks. A request beyond all that the node has cannot be helped by preemption.
pub(crate) fn fit(pod: &PodInfo, node: &NodeInfo) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let mut lack = |name: Cow<'static, str>, all: i64| {
        reasons.push(Reason { text: name, cause: cause::RESOURCES, preemptible: all >= 0 });
    };
    if node.pods.len() as i64 + 1 > node.pods_max {
        lack("Too many pods".into(), 0);
    }
    let (wanted, all, used) = (&pod.requests, &node.allocatable, &node.requested);
    for (name, wanted, all, used) in [
        ("Insufficient cpu", wanted.cpu, all.cpu, used.cpu),
        ("Insufficient memory", wanted.memory, all.memory, used.memory),
        ("Insufficient ephemeral-storage", wanted.storage, all.storage, used.storage),
    ] {
        if wanted > 0 && wanted > all - used {
            lack(name.into(), all - wanted);
        }
    }
    for (name, wanted) in &wanted.others {
        if *wanted > 0 && *wanted > all.other(name) - used.other(name) {
            lack(format!("Insufficient {name}").into(), all.other(name) - wanted);
        }
    }
    reasons
}

/// `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable.`
pub(crate) fn message<'r>(nodes: usize, reasons: impl Iterator<Item = &'r str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in reasons {
        *counts.entry(reason).or_default() += 1;
    }
    let mut parts: Vec<String> = counts.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    // Upstream sorts the texts with their counts.
    parts.sort();
    if parts.is_empty() {
        format!("0/{nodes} nodes are available:")
    } else {
        format!("0/{nodes} nodes are available: {}.", parts.join(", "))
    }
}
