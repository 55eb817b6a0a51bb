//! The step of a stateful set (statefulset/stateful_set_control.go, 1.37).

use super::{claims, counts, identity};
use crate::kit::{count_at, history, intstr, pods};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use sublet_machinery::ObjectExt;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Act {
    CreateClaim { claim: Value, pod: String },
    UpdateClaim(Value),
    CreatePod(Value),
    UpdatePod(Value),
    DeletePod(Arc<Value>),
    Warn { reason: &'static str, message: String },
}

impl Act {
    pub(super) fn changes_pods(&self) -> bool {
        matches!(self, Self::CreatePod(_) | Self::UpdatePod(_) | Self::DeletePod(_))
    }
}

#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) acts: Vec<Act>,
    pub(super) status: Value,
}

pub(super) struct Observed<'a> {
    pub(super) set: &'a Value,
    pub(super) current: &'a Arc<Value>,
    pub(super) update: &'a Arc<Value>,
    pub(super) collisions: i64,
    pub(super) pods: &'a [Arc<Value>],
}

/// Empty places that are filled in one go.
const MISSING_MAX: i64 = 500;

/// Finds a claim by name.
type Claims<'a> = &'a dyn Fn(&str) -> Option<Arc<Value>>;

/// A place in the line.
enum Replica {
    There(Arc<Value>),
    Missing(Value),
}

/// Whether the walk along the line goes on.
#[derive(PartialEq)]
enum Next {
    Go,
    Wait,
}

impl Observed<'_> {
    pub(super) fn plan(&self, claims: Claims, now: Timestamp) -> Plan {
        let mut acts = Vec::new();
        let (replicas, condemned) = self.line();
        if self.process(&replicas, &condemned, claims, now, &mut acts) == Next::Go {
            self.roll(&replicas, now, &mut acts);
        }
        Plan { acts, status: self.status(now) }
    }

    fn start(&self) -> i64 {
        count_at(self.set, "/spec/ordinals/start")
    }

    fn wanted(&self) -> i64 {
        count_at(self.set, "/spec/replicas")
    }

    /// One member after the other; otherwise all at once.
    fn is_ordered(&self) -> bool {
        self.set.str_at("/spec/podManagementPolicy") != Some("Parallel")
    }

    fn min_ready(&self) -> i64 {
        count_at(self.set, "/spec/minReadySeconds")
    }

    fn partition(&self) -> i64 {
        count_at(self.set, "/spec/updateStrategy/rollingUpdate/partition")
    }

    fn is_in_line(&self, ordinal: i64) -> bool {
        (self.start()..self.start() + self.wanted()).contains(&ordinal)
    }

    /// The places of the line, and the pods beyond it from the last to the first.
    ///
    /// Of empty places only the first are told: a set may ask for two billion members, and a pod for each of them would
    /// be the end of the process.
    fn line(&self) -> (Vec<Replica>, Vec<Arc<Value>>) {
        let by_ordinal: BTreeMap<i64, &Arc<Value>> = self.pods.iter().filter_map(|p| Some((identity::ordinal(p)?, p))).collect();
        let (first, end) = (self.start(), self.start() + self.wanted());
        let (mut replicas, mut next, mut room) = (Vec::new(), first, MISSING_MAX);
        for (ordinal, pod) in by_ordinal.range(first..end).map(|(o, p)| (*o, Some(*p))).chain([(end, None)]) {
            let gap = next..ordinal.min(next.saturating_add(room));
            room -= (gap.end - gap.start).max(0);
            replicas.extend(gap.map(|missing| Replica::Missing(self.new_pod(missing))));
            replicas.extend(pod.map(|pod| Replica::There(pod.clone())));
            next = ordinal + 1;
        }
        let condemned = by_ordinal.iter().rev().filter(|(ordinal, _)| !self.is_in_line(**ordinal));
        (replicas, condemned.map(|(_, pod)| Arc::clone(pod)).collect())
    }

    /// A member below the partition is made at the current revision, the others at the new one.
    fn new_pod(&self, ordinal: i64) -> Value {
        let strategy = self.set.pointer("/spec/updateStrategy");
        let is_rolling = strategy.is_none_or(|s| s["type"] != "OnDelete");
        let boundary = match strategy.and_then(|s| s.get("rollingUpdate")) {
            Some(_) => self.partition(),
            None => count_at(self.set, "/status/currentReplicas"),
        };
        let revision = if is_rolling && ordinal < self.start() + boundary { self.current } else { self.update };
        identity::new_pod(self.set, &history::template_of(revision), revision.name(), ordinal)
    }

    fn is_unavailable(&self, pod: &Value, now: Timestamp) -> bool {
        pod.is_deleting() || !pods::is_available(pod, self.min_ready(), now)
    }

    fn process(&self, replicas: &[Replica], condemned: &[Arc<Value>], claims: Claims, now: Timestamp, acts: &mut Vec<Act>) -> Next {
        for replica in replicas {
            if self.process_replica(replica, claims, now, acts) == Next::Wait && self.is_ordered() {
                return Next::Wait;
            }
        }
        for pod in condemned {
            self.fix_claims(pod, false, claims, acts);
        }
        let mut waits = false;
        for pod in condemned {
            if pod.is_deleting() {
                if self.is_ordered() {
                    return Next::Wait;
                }
                continue;
            }
            let is_ready = pods::phase(pod) == "Running" && pods::is_ready(pod) && pods::is_available(pod, self.min_ready(), now);
            let is_first_bad = self.first_unavailable(replicas, condemned, now).is_some_and(|p| p.uid() == pod.uid());
            if self.is_ordered() && !is_ready && !is_first_bad {
                return Next::Wait;
            }
            acts.push(Act::DeletePod(pod.clone()));
            waits = true;
            if self.is_ordered() {
                break;
            }
        }
        // Scaling goes before updating.
        if waits && self.is_ordered() { Next::Wait } else { Next::Go }
    }

    fn first_unavailable(&self, replicas: &[Replica], condemned: &[Arc<Value>], now: Timestamp) -> Option<Arc<Value>> {
        for replica in replicas {
            match replica {
                Replica::Missing(_) => return None,
                Replica::There(pod) if self.is_unavailable(pod, now) => return Some(pod.clone()),
                Replica::There(_) => {}
            }
        }
        condemned.iter().rev().find(|p| self.is_unavailable(p, now)).cloned()
    }

    fn process_replica(&self, replica: &Replica, claims: Claims, now: Timestamp, acts: &mut Vec<Act>) -> Next {
        let pod = match replica {
            Replica::Missing(pod) => {
                self.create(pod, claims, acts);
                return Next::Wait;
            }
            Replica::There(pod) => pod,
        };
        if pods::is_terminal(pod) {
            // It is made anew when it is gone.
            if !pod.is_deleting() {
                acts.push(Act::DeletePod(pod.clone()));
            }
            return Next::Wait;
        }
        if pods::phase(pod) == "Pending" {
            self.create_claims(pod, claims, acts);
        }
        let is_ready = pods::phase(pod) == "Running" && pods::is_ready(pod) && pods::is_available(pod, self.min_ready(), now);
        if self.is_ordered() && (pod.is_deleting() || !is_ready) {
            return Next::Wait;
        }
        self.fix_claims(pod, true, claims, acts);
        if let Some(repaired) = identity::repaired(self.set, pod) {
            self.create_claims(&repaired, claims, acts);
            acts.push(Act::UpdatePod(repaired));
        }
        Next::Go
    }

    /// Makes a member and its claims, unless a claim is about to go with a former member.
    fn create(&self, pod: &Value, claims: Claims, acts: &mut Vec<Act>) {
        let Some(ordinal) = identity::ordinal(pod) else { return };
        for template in identity::claim_templates(self.set) {
            let claim = claims(&identity::claim_name(self.set, template, ordinal));
            if claim.is_some_and(|c| c.is_deleting() || claims::blocks_creation(self.set, &c, pod)) {
                return;
            }
        }
        self.create_claims(pod, claims, acts);
        acts.push(Act::CreatePod(pod.clone()));
    }

    fn create_claims(&self, pod: &Value, claims: Claims, acts: &mut Vec<Act>) {
        let Some(ordinal) = identity::ordinal(pod) else { return };
        for template in identity::claim_templates(self.set) {
            if claims(&identity::claim_name(self.set, template, ordinal)).is_none() {
                let claim = claims::new_claim(self.set, template, ordinal);
                acts.push(Act::CreateClaim { claim, pod: pod.name().to_string() });
            }
        }
    }

    fn fix_claims(&self, pod: &Value, in_line: bool, claims: Claims, acts: &mut Vec<Act>) {
        let Some(ordinal) = identity::ordinal(pod) else { return };
        for template in identity::claim_templates(self.set) {
            let Some(claim) = claims(&identity::claim_name(self.set, template, ordinal)) else { continue };
            let Some(owners) = claims::wanted_owners(&claim, self.set, pod, in_line) else { continue };
            if claims::has_other_controller(&claim, self.set, pod) {
                let message = format!(
                    "PersistentVolumeClaim {} has a conflicting OwnerReference that acts as a manging controller, the retention policy is ignored for this claim",
                    claim.name()
                );
                acts.push(Act::Warn { reason: "ConflictingController", message });
            }
            let mut fixed = claim.as_ref().clone();
            fixed["metadata"]["ownerReferences"] = json!(owners);
            acts.push(Act::UpdateClaim(fixed));
        }
    }

    /// Deletes members of other revisions from the last to the partition, as many as may be unavailable.
    fn roll(&self, replicas: &[Replica], now: Timestamp, acts: &mut Vec<Act>) {
        let strategy = self.set.str_at("/spec/updateStrategy/type").unwrap_or("RollingUpdate");
        if strategy != "RollingUpdate" {
            return;
        }
        let max = intstr::scaled(self.set.pointer("/spec/updateStrategy/rollingUpdate/maxUnavailable"), self.wanted(), false);
        let max = max.unwrap_or(1).max(1);
        let there: Vec<&Arc<Value>> = replicas.iter().filter_map(|r| if let Replica::There(p) = r { Some(p) } else { None }).collect();
        let is_old = |pod: &Value| pod.label(history::POD_LABEL) != Some(self.update.name()) && !pod.is_deleting();
        let is_doomed = |pod: &Value, acts: &[Act]| acts.iter().any(|a| matches!(a, Act::DeletePod(p) if p.uid() == pod.uid()));
        let available = there.iter().filter(|p| !self.is_unavailable(p, now)).count() as i64;
        let mut budget = max - (self.wanted() - available);
        let first = self.start() + self.partition();
        let targets: Vec<&Arc<Value>> = there.into_iter().rev().filter(|p| identity::ordinal(p).is_some_and(|o| o >= first)).collect();
        if !self.is_ordered() {
            // What is unavailable anyway costs nothing.
            for pod in targets.iter().filter(|p| is_old(p) && !pods::is_available(p, self.min_ready(), now)) {
                if !is_doomed(pod, acts) {
                    acts.push(Act::DeletePod(Arc::clone(pod)));
                }
            }
        }
        for pod in targets {
            if budget <= 0 {
                break;
            }
            if is_old(pod) && (self.is_ordered() || !self.is_unavailable(pod, now)) && !is_doomed(pod, acts) {
                acts.push(Act::DeletePod(pod.clone()));
                budget -= 1;
            }
        }
    }

    pub(super) fn status(&self, now: Timestamp) -> Value {
        let created: Vec<&Arc<Value>> = self.pods.iter().filter(|p| !pods::phase(p).is_empty()).collect();
        let at = |revision: &Value| {
            created.iter().filter(|p| !p.is_deleting() && p.label(history::POD_LABEL) == Some(revision.name())).count() as i64
        };
        let ready: Vec<&&Arc<Value>> = created.iter().filter(|p| pods::phase(p) == "Running" && pods::is_ready(p)).collect();
        let available = ready.iter().filter(|p| pods::is_available(p, self.min_ready(), now)).count() as i64;
        let (mut current_replicas, updated) = (at(self.current), at(self.update));
        let mut current = self.current.name();
        let all = self.wanted();
        if updated == all && ready.len() as i64 == all && created.len() as i64 == all {
            (current_replicas, current) = (updated, self.update.name());
        }
        let mut status = counts(&[
            ("observedGeneration", self.set.generation()),
            ("readyReplicas", ready.len() as i64),
            ("currentReplicas", current_replicas),
            ("updatedReplicas", updated),
        ]);
        status["replicas"] = json!(created.len());
        status["availableReplicas"] = json!(available);
        status["currentRevision"] = json!(current);
        status["updateRevision"] = json!(self.update.name());
        status["collisionCount"] = json!(self.collisions);
        if let Some(conditions) = self.set.pointer("/status/conditions") {
            status["conditions"] = conditions.clone();
        }
        status
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
