//! Affinity and anti-affinity between pods.

use super::cluster::NodeInfo;
use super::filter::{Reason, View, cause};
use super::pod::{AffinityTerm, PodInfo};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

type Namespaces<'a> = &'a dyn Fn(&str) -> Option<Arc<Value>>;

/// Pods that match, by topology key and value.
#[derive(Debug, Default)]
struct Counts(HashMap<(String, String), i64>);

impl Counts {
    fn add(&mut self, node: &NodeInfo, key: &str, amount: i64) {
        if let Some(value) = node.label(key) {
            *self.0.entry((key.to_string(), value.to_string())).or_default() += amount;
        }
    }

    fn at(&self, node: &NodeInfo, key: &str) -> i64 {
        let Some(value) = node.label(key) else { return 0 };
        self.0.get(&(key.to_string(), value.to_string())).copied().unwrap_or(0)
    }
}

#[derive(Debug, Default)]
pub(crate) struct InterPod {
    affinity: Counts,
    anti_affinity: Counts,
    /// Where pods are that do not want this one near.
    unwelcome: Counts,
    /// No pod anywhere matches the affinity, but the pod itself does: it may be the first.
    first_of_group: bool,
}

impl InterPod {
    pub(crate) fn new(pod: &PodInfo, view: &View<'_>, namespaces: Namespaces<'_>) -> Self {
        let mut state = Self::default();
        let own_terms = !pod.affinity.is_empty() || !pod.anti_affinity.is_empty();
        for node in &view.nodes {
            if !own_terms && node.with_anti_affinity == 0 {
                continue;
            }
            for other in node.pods.values() {
                for term in other.anti_affinity.iter().filter(|t| t.matches(&pod.object, namespaces)) {
                    state.unwelcome.add(node, &term.topology_key, 1);
                }
                if !pod.affinity.is_empty() && matches_all(&pod.affinity, &other.object, namespaces) {
                    for term in &pod.affinity {
                        state.affinity.add(node, &term.topology_key, 1);
                    }
                }
                for term in pod.anti_affinity.iter().filter(|t| t.matches(&other.object, namespaces)) {
                    state.anti_affinity.add(node, &term.topology_key, 1);
                }
            }
        }
        state.first_of_group = state.affinity.0.is_empty() && matches_all(&pod.affinity, &pod.object, namespaces);
        state
    }

    pub(crate) fn refuse(&self, pod: &PodInfo, node: &NodeInfo) -> Option<Reason> {
        if !self.near_affinity(pod, node) {
            return Some(Reason::fixed(cause::INTERPOD, "node(s) didn't match pod affinity rules"));
        }
        if pod.anti_affinity.iter().any(|t| self.anti_affinity.at(node, &t.topology_key) > 0) {
            return Some(Reason::movable(cause::INTERPOD, "node(s) didn't match pod anti-affinity rules"));
        }
        let unwelcome = !self.unwelcome.0.is_empty() && self.unwelcome.0.keys().any(|(key, value)| node.label(key) == Some(value));
        unwelcome.then(|| Reason::movable(cause::INTERPOD, "node(s) didn't satisfy existing pods anti-affinity rules"))
    }

    fn near_affinity(&self, pod: &PodInfo, node: &NodeInfo) -> bool {
        if pod.affinity.iter().any(|t| node.label(&t.topology_key).is_none()) {
            return false;
        }
        self.first_of_group || pod.affinity.iter().all(|t| self.affinity.at(node, &t.topology_key) > 0)
    }
}

fn matches_all(terms: &[AffinityTerm], pod: &Value, namespaces: Namespaces<'_>) -> bool {
    !terms.is_empty() && terms.iter().all(|t| t.matches(pod, namespaces))
}

/// The wishes of the pod and of pods that are there already, summed up per node.
pub(crate) fn scores(pod: &PodInfo, view: &View<'_>, nodes: &[&NodeInfo], namespaces: Namespaces<'_>) -> Option<Vec<i64>> {
    let own = !pod.preferred_affinity.is_empty() || !pod.preferred_anti_affinity.is_empty();
    if !own && view.nodes.iter().all(|n| n.with_affinity == 0) {
        return None;
    }
    let mut counts = Counts::default();
    for node in &view.nodes {
        if !own && node.with_affinity == 0 {
            continue;
        }
        for other in node.pods.values() {
            for term in pod.preferred_affinity.iter().chain(&pod.preferred_anti_affinity) {
                if term.matches(&other.object, namespaces) {
                    counts.add(node, &term.topology_key, term.weight);
                }
            }
            // Required affinity of the others counts with weight one.
            for term in other.preferred_affinity.iter().chain(&other.preferred_anti_affinity).chain(&other.affinity) {
                if term.matches(&pod.object, namespaces) {
                    counts.add(node, &term.topology_key, term.weight);
                }
            }
        }
    }
    let score =
        |node: &&NodeInfo| counts.0.iter().filter(|((key, value), _)| node.label(key) == Some(value)).map(|(_, weight)| weight).sum();
    Some(nodes.iter().map(score).collect())
}
