//! Preemption: which pods of lower priority have to go so that this one fits.

use super::cluster::NodeInfo;
use super::filter::{Cycle, Reason, View, message};
use super::pod::PodInfo;
use super::world::World;
use crate::selector::Selector;
use serde_json::Value;
use std::sync::Arc;
use sublet_machinery::ObjectExt;

/// Nodes that one attempt looks at in depth.
const NODES_TRIED_MAX: usize = 100;

/// The node and the pods that must leave it.
#[derive(Clone, Debug)]
pub(crate) struct Preemption {
    pub(crate) node: String,
    pub(crate) victims: Vec<Arc<PodInfo>>,
}

struct Candidate {
    preemption: Preemption,
    broken_budgets: usize,
}

/// The cheapest preemption, or why there is none.
pub(crate) fn find(
    pod: &PodInfo,
    cycle: &Cycle<'_>,
    view: &View<'_>,
    refused: &[(&NodeInfo, Vec<Reason>)],
    world: &World<'_>,
) -> Result<Preemption, String> {
    if pod.object.str_at("/spec/preemptionPolicy") == Some("Never") {
        return Err("not eligible due to preemptionPolicy=Never.".into());
    }
    let nominated = pod.object.str_at("/status/nominatedNodeName").unwrap_or_default();
    let leaving = |p: &Arc<PodInfo>| p.priority < pod.priority && p.object.is_deleting();
    if view.nodes.iter().any(|n| n.name() == nominated && n.pods.values().any(leaving)) {
        return Err("not eligible due to a terminating pod on the nominated node.".into());
    }
    let mut reasons: Vec<String> = Vec::new();
    let mut candidates: Vec<Candidate> = Vec::new();
    for (node, why) in refused {
        if candidates.len() >= NODES_TRIED_MAX || !why.iter().all(|r| r.preemptible) {
            reasons.push("Preemption is not helpful for scheduling".into());
            continue;
        }
        match victims(pod, cycle, view, node, world) {
            Ok(candidate) => candidates.push(candidate),
            Err(why) => reasons.extend(why),
        }
    }
    let best = candidates.into_iter().min_by_key(|c| {
        let victims = &c.preemption.victims;
        let priorities = || victims.iter().map(|v| v.priority);
        // The latest start of the most important victim comes first of equals.
        let top = priorities().max().unwrap_or(i64::MIN);
        let started = victims.iter().filter(|v| v.priority == top).map(|v| start_time(v)).min().unwrap_or_default();
        let sum: i128 = priorities().map(|p| i128::from(p) + i128::from(i32::MAX) + 1).sum();
        (c.broken_budgets, top, sum, victims.len(), std::cmp::Reverse(started))
    });
    best.map(|c| c.preemption).ok_or_else(|| message(view.nodes.len(), reasons.iter().map(String::as_str)))
}

/// The least that must leave the node.
fn victims(pod: &PodInfo, cycle: &Cycle<'_>, view: &View<'_>, node: &NodeInfo, world: &World<'_>) -> Result<Candidate, Vec<String>> {
    let mut lower: Vec<Arc<PodInfo>> = node.pods.values().filter(|p| p.priority < pod.priority).cloned().collect();
    if lower.is_empty() {
        return Err(vec!["No preemption victims found for incoming pod".into()]);
    }
    let mut trial = node.clone();
    for victim in &lower {
        trial.remove(&victim.key);
    }
    let reasons = refuse_changed(pod, cycle, view, &trial, world);
    if !reasons.is_empty() {
        return Err(reasons.into_iter().map(|r| r.text.into_owned()).collect());
    }
    // Spare the important ones first, those under a budget before the others.
    let budgets = (world.budgets)("");
    let protected = |p: &PodInfo| budgets.iter().any(|b| covers(b, p) && b.i64_at("/status/disruptionsAllowed").unwrap_or(0) <= 0);
    lower.sort_by_cached_key(|p| (!protected(p), std::cmp::Reverse(p.priority), start_time(p), p.key.clone()));
    let mut chosen = Vec::new();
    let mut broken_budgets = 0;
    for candidate in lower {
        trial.add(candidate.clone());
        if !refuse_changed(pod, cycle, view, &trial, world).is_empty() {
            trial.remove(&candidate.key);
            broken_budgets += usize::from(protected(&candidate));
            chosen.push(candidate);
        }
    }
    Ok(Candidate { preemption: Preemption { node: node.name().to_string(), victims: chosen }, broken_budgets })
}

/// The verdict on a node whose pods differ from what the view has.
fn refuse_changed(pod: &PodInfo, cycle: &Cycle<'_>, view: &View<'_>, changed: &NodeInfo, world: &World<'_>) -> Vec<Reason> {
    let nodes = view.nodes.iter().map(|n| if n.name() == changed.name() { changed } else { *n }).collect();
    let view = View { nodes };
    if cycle.volumes.in_use(pod, &view) {
        return vec![Reason::fixed(super::filter::cause::VOLUMES, "node(s) unavailable due to PersistentVolumeClaim in use")];
    }
    Cycle::new(pod, cycle.wishes, cycle.volumes, &view, world.namespace).refuse(changed)
}

fn covers(budget: &Value, pod: &PodInfo) -> bool {
    budget.namespace() == pod.key.namespace && Selector::parse(&budget["spec"]["selector"]).matches(pod.labels())
}

fn start_time(pod: &PodInfo) -> String {
    pod.object.str_at("/status/startTime").unwrap_or("9999").to_string()
}
