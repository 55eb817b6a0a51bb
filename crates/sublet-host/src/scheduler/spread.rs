//! Topology spread constraints: hard ones refuse nodes, soft ones score them.

use super::cluster::NodeInfo;
use super::filter::{Reason, View, cause};
use super::pod::{PodInfo, SpreadConstraint, Wishes};
use std::collections::HashMap;
use sublet_machinery::ObjectExt;

const MISMATCH: &str = "node(s) didn't match pod topology spread constraints";

#[derive(Debug, Default)]
pub(crate) struct Spread {
    hard: Vec<Counted>,
}

#[derive(Debug)]
struct Counted {
    constraint: SpreadConstraint,
    /// Matching pods by topology value.
    counts: HashMap<String, i64>,
    least: i64,
}

impl Spread {
    pub(crate) fn new(pod: &PodInfo, wishes: &Wishes, view: &View<'_>) -> Self {
        let constraints: Vec<&SpreadConstraint> = wishes.spread.iter().filter(|c| c.hard).collect();
        let hard = constraints
            .iter()
            .map(|constraint| {
                let eligible = view
                    .nodes
                    .iter()
                    .filter(|n| constraints.iter().all(|c| n.label(&c.topology_key).is_some()) && counts_node(constraint, wishes, n));
                let counts = count(constraint, pod, eligible.copied());
                // Fewer domains than asked for: an empty one is thought of.
                let least = if counts.len() < constraint.min_domains { 0 } else { counts.values().copied().min().unwrap_or(0) };
                Counted { constraint: (*constraint).clone(), counts, least }
            })
            .collect();
        Self { hard }
    }

    pub(crate) fn refuse(&self, pod: &PodInfo, node: &NodeInfo) -> Option<Reason> {
        self.hard.iter().find_map(|counted| {
            let constraint = &counted.constraint;
            let Some(value) = node.label(&constraint.topology_key) else {
                return Some(Reason::fixed(cause::SPREAD | cause::NODE, format!("{MISMATCH} (missing required label)")));
            };
            let own = i64::from(constraint.selector.matches(pod.labels()));
            let here = counted.counts.get(value).copied().unwrap_or(0);
            (here + own - counted.least > constraint.max_skew).then(|| Reason::movable(cause::SPREAD, MISMATCH))
        })
    }
}

fn counts_node(constraint: &SpreadConstraint, wishes: &Wishes, node: &NodeInfo) -> bool {
    (!constraint.honor_affinity || wishes.matches_node(node.name(), node.labels()))
        && (!constraint.honor_taints || wishes.untolerated(&node.taints).is_none())
}

fn count<'n>(constraint: &SpreadConstraint, pod: &PodInfo, nodes: impl Iterator<Item = &'n NodeInfo>) -> HashMap<String, i64> {
    let mut counts: HashMap<String, i64> = HashMap::new();
    for node in nodes {
        let Some(value) = node.label(&constraint.topology_key) else { continue };
        let matching = node
            .pods
            .values()
            .filter(|p| p.key.namespace == pod.key.namespace && !p.object.is_deleting() && constraint.selector.matches(p.labels()))
            .count();
        *counts.entry(value.to_string()).or_default() += i64::try_from(matching).unwrap_or(i64::MAX);
    }
    counts
}

/// The raw penalty of each node for the soft constraints: fewer matching pods in its domains is better.
pub(crate) fn penalties(pod: &PodInfo, wishes: &Wishes, view: &View<'_>, nodes: &[&NodeInfo]) -> Option<Vec<i64>> {
    let soft: Vec<&SpreadConstraint> = wishes.spread.iter().filter(|c| !c.hard).collect();
    if soft.is_empty() {
        return None;
    }
    let counted: Vec<(&SpreadConstraint, HashMap<String, i64>)> =
        soft.iter().map(|c| (*c, count(c, pod, view.nodes.iter().filter(|n| counts_node(c, wishes, n)).copied()))).collect();
    let penalty = |node: &&NodeInfo| {
        let of = |(constraint, counts): &(&SpreadConstraint, HashMap<String, i64>)| {
            node.label(&constraint.topology_key).map(|value| {
                // A domain among few weighs less than one among many, as upstream's log weight has it.
                let weight = ((counts.len() + 2) as f64).ln();
                (counts.get(value).copied().unwrap_or(0) as f64 * weight * 100.0) as i64 + (constraint.max_skew - 1)
            })
        };
        let known: Vec<i64> = counted.iter().filter_map(of).collect();
        // Nodes outside of the topology come last.
        if known.len() < counted.len() { i64::MAX } else { known.iter().sum() }
    };
    Some(nodes.iter().map(penalty).collect())
}
