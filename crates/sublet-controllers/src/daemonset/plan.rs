//! Which pods each node needs or has too many of, and the counts (daemon/daemon_controller.go, 1.37).

use super::pods::{is_updated, new_pod, node_of, tolerations};
use crate::kit::history::{History, POD_LABEL};
use crate::kit::{count_at, intstr, node_fit, pods, time};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::ObjectExt;
use sublet_runtime::EventKind;

/// A failed pod stays at least this long after it was made, so that a node that refuses pods is not
/// flooded with them.
const FAILED_POD_SECONDS: i64 = 10;

#[derive(Debug, PartialEq)]
pub(super) struct Event {
    pub(super) kind: EventKind,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    /// Names of nodes.
    pub(super) create: Vec<String>,
    pub(super) delete: Vec<Arc<Value>>,
    pub(super) events: Vec<Event>,
    pub(super) wait: Option<Duration>,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.create.is_empty() && self.delete.is_empty()
    }
}

/// What a node means for the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    pub(super) should_run: bool,
    /// A pod that is there may stay.
    pub(super) may_stay: bool,
}

pub(super) struct Observed<'a> {
    pub(super) set: &'a Value,
    pub(super) hash: &'a str,
    pub(super) collisions: i64,
    pub(super) nodes: BTreeMap<&'a str, Fit>,
    /// Without ended pods that are being deleted.
    pub(super) by_node: BTreeMap<String, Vec<Arc<Value>>>,
    tolerations: Vec<Value>,
    pub(super) now: Timestamp,
}

impl<'a> Observed<'a> {
    pub(super) fn new(set: &'a Value, history: &'a History, nodes: &'a [Arc<Value>], all: &[Arc<Value>], now: Timestamp) -> Self {
        let tolerations = tolerations(set);
        let nodes = nodes.iter().map(|n| (n.name(), fit(set, &tolerations, n))).collect();
        let mut by_node: BTreeMap<String, Vec<Arc<Value>>> = BTreeMap::new();
        for pod in all.iter().filter(|p| !(pods::is_terminal(p) && p.is_deleting())) {
            if let Some(node) = node_of(pod) {
                by_node.entry(node.to_string()).or_default().push(pod.clone());
            }
        }
        for pods in by_node.values_mut() {
            // Pods on the node before those that wait for it, older ones before younger ones.
            pods.sort_by_key(|p| (pods::node(p).is_empty(), time::created(p), p.name().to_string()));
        }
        let hash = history.update.label(POD_LABEL).unwrap_or_default();
        Self { set, hash, collisions: history.collisions, nodes, by_node, tolerations, now }
    }

    pub(super) fn new_pod(&self, node: &str) -> Value {
        new_pod(self.set, self.hash, &self.tolerations, node)
    }

    pub(super) fn pods_on(&self, node: &str) -> &[Arc<Value>] {
        self.by_node.get(node).map_or(&[], Vec::as_slice)
    }

    pub(super) fn is_updated(&self, pod: &Value) -> bool {
        is_updated(self.set, self.hash, pod)
    }

    pub(super) fn is_available(&self, pod: &Value) -> bool {
        pods::is_available(pod, count_at(self.set, "/spec/minReadySeconds"), self.now)
    }

    pub(super) fn rolling(&self, key: &str, total: i64) -> i64 {
        if self.set.str_at("/spec/updateStrategy/type") == Some("OnDelete") {
            return 0;
        }
        intstr::scaled(self.set.pointer(&format!("/spec/updateStrategy/rollingUpdate/{key}")), total, true).unwrap_or(0)
    }

    fn allows_surge(&self) -> bool {
        self.rolling("maxSurge", 1) > 0
    }

    /// One pod per fitting node, none elsewhere.
    pub(super) fn manage(&self) -> Changes {
        let mut changes = Changes::default();
        for (node, fit) in &self.nodes {
            let pods = self.pods_on(node);
            if fit.should_run && pods.is_empty() {
                changes.create.push((*node).to_string());
            } else if fit.may_stay {
                self.prune(node, *fit, pods, &mut changes);
            } else {
                changes.delete.extend(pods.iter().filter(|p| !p.is_deleting()).cloned());
            }
        }
        // Pods that wait for a node that is gone are never bound and would wait for ever.
        let lost = self.by_node.iter().filter(|(node, _)| !self.nodes.contains_key(node.as_str())).flat_map(|(_, pods)| pods);
        changes.delete.extend(lost.filter(|p| pods::node(p).is_empty() && !p.is_deleting()).cloned());
        changes
    }

    fn prune(&self, node: &str, fit: Fit, pods: &[Arc<Value>], changes: &mut Changes) {
        let mut running: Vec<&Arc<Value>> = Vec::new();
        for pod in pods.iter().filter(|p| !p.is_deleting()) {
            let place = format!("daemon pod {}/{} on node {node}", pod.namespace(), pod.name());
            match pods::phase(pod) {
                "Failed" => {
                    let until = time::created(pod).map(|at| time::plus_seconds(at, FAILED_POD_SECONDS)).filter(|at| *at > self.now);
                    if let Some(until) = until {
                        let wait = time::until(self.now, until);
                        changes.wait = Some(changes.wait.map_or(wait, |w| w.min(wait)));
                        continue;
                    }
                    let message = format!("Found failed {place}, will try to kill it");
                    changes.events.push(Event { kind: EventKind::Warning, reason: "FailedDaemonPod", message });
                    changes.delete.push(pod.clone());
                }
                "Succeeded" => {
                    let message = format!("Found succeeded {place}, will try to delete it");
                    changes.events.push(Event { kind: EventKind::Normal, reason: "SucceededDaemonPod", message });
                    changes.delete.push(pod.clone());
                }
                _ => running.push(pod),
            }
        }
        if !self.allows_surge() {
            changes.delete.extend(running.into_iter().skip(1).cloned());
        } else if running.is_empty() {
            // While surging a node needs a pod that is not on its way out.
            if fit.should_run && pods.iter().all(|p| p.is_deleting()) {
                changes.create.push(node.to_string());
            }
        } else {
            self.prune_surge(&running, changes);
        }
    }

    /// At most one old and one new pod, and the old one only until the new one takes over.
    fn prune_surge(&self, running: &[&Arc<Value>], changes: &mut Changes) {
        let (new, old): (Vec<&Arc<Value>>, Vec<&Arc<Value>>) = running.iter().partition(|p| p.label(POD_LABEL) == Some(self.hash));
        changes.delete.extend(new.iter().skip(1).chain(old.iter().skip(1)).map(|p| Arc::clone(p)));
        if let (Some(new), Some(old)) = (new.first(), old.first())
            && (!pods::is_ready(old) || self.is_available(new))
        {
            changes.delete.push(Arc::clone(old));
        }
    }

    pub(super) fn status(&self) -> Value {
        let (mut desired, mut current, mut misplaced, mut ready, mut updated, mut available) = (0, 0, 0, 0, 0, 0);
        for (node, fit) in &self.nodes {
            let first = self.pods_on(node).first();
            if !fit.should_run {
                misplaced += i64::from(first.is_some());
                continue;
            }
            desired += 1;
            if let Some(pod) = first {
                current += 1;
                ready += i64::from(pods::is_ready(pod));
                available += i64::from(self.is_available(pod));
                updated += i64::from(self.is_updated(pod));
            }
        }
        let mut status = json!({
            "currentNumberScheduled": current, "desiredNumberScheduled": desired, "numberMisscheduled": misplaced, "numberReady": ready,
        });
        let optional = [
            ("observedGeneration", self.set.generation()),
            ("updatedNumberScheduled", updated),
            ("numberAvailable", available),
            ("numberUnavailable", desired - available),
            ("collisionCount", self.collisions),
        ];
        for (key, count) in optional.into_iter().filter(|(_, count)| *count != 0) {
            status[key] = json!(count);
        }
        if let Some(conditions) = self.set.pointer("/status/conditions") {
            status["conditions"] = conditions.clone();
        }
        status
    }
}

fn fit(set: &Value, tolerations: &[Value], node: &Value) -> Fit {
    let spec = &set["spec"]["template"]["spec"];
    let wants_other = spec.str_at("/nodeName").is_some_and(|n| !n.is_empty() && n != node.name());
    if wants_other || !node_fit::matches_affinity(spec, node) {
        return Fit { should_run: false, may_stay: false };
    }
    let should_run = node_fit::tolerates(tolerations, node, &["NoExecute", "NoSchedule"]);
    Fit { should_run, may_stay: should_run || node_fit::tolerates(tolerations, node, &["NoExecute"]) }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
