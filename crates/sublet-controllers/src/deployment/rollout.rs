//! The step of a deployment: from what is there to what is to be written.

use super::annotations::{self, DESIRED_REPLICAS, ROLLBACK_TO};
use super::replicas::{is_rolling, max_surge, max_unavailable, new_size, oldest_first, sum, wanted};
use super::{progress, revision, scale};
use crate::kit::{conditions, count_at};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::ObjectExt;
use sublet_runtime::EventKind;
use sublet_runtime::clock::format_seconds;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Write {
    Create(Value),
    Update(Value),
    Delete(Value),
    /// A merge patch of the deployment's metadata.
    Annotate(Value),
    Rollback(Value),
    Event {
        kind: EventKind,
        reason: &'static str,
        message: String,
    },
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) writes: Vec<Write>,
    pub(super) status: Option<Value>,
    pub(super) progress_check: Option<Timestamp>,
}

/// One look at a deployment and its replica sets. The sets change in place as sizes are decided, so
/// that later decisions see earlier ones.
pub(super) struct Rollout {
    /// Its status gets the conditions that are decided on the way.
    deployment: Value,
    new: Option<Value>,
    old: Vec<Value>,
    now: Timestamp,
    plan: Plan,
}

impl Rollout {
    pub(super) fn new(deployment: &Value, sets: Vec<Arc<Value>>, now: Timestamp) -> Self {
        let (new, old) = revision::split(deployment, sets);
        let mut deployment = deployment.clone();
        if !deployment["status"].is_object() {
            deployment["status"] = json!({});
        }
        Self { deployment, new, old, now, plan: Plan::default() }
    }

    /// `runs_pods` tells whether a replica set has pods that have not ended.
    pub(super) fn plan(mut self, runs_pods: &dyn Fn(&Value) -> bool) -> Plan {
        if self.deployment.is_deleting() {
            self.sync_revision(false);
            return self.finish_counts();
        }
        self.note_pause();
        let paused = self.deployment.bool_at("/spec/paused").unwrap_or(false);
        let rollback = self.deployment.annotation(ROLLBACK_TO).and_then(|r| r.parse::<i64>().ok());
        if !paused && let Some(revision) = rollback {
            self.roll_back(revision);
            return self.plan;
        }
        if paused || self.is_scaling() {
            self.sync_revision(false);
            self.scale();
            if paused && rollback.is_none() {
                self.clean_up();
            }
            return self.finish_counts();
        }
        if is_rolling(&self.deployment) {
            self.roll();
        } else {
            self.recreate(runs_pods);
        }
        self.finish_rollout()
    }

    /// Pausing stops the clock of the deadline, resuming starts it anew.
    fn note_pause(&mut self) {
        if !progress::has_deadline(&self.deployment) {
            return;
        }
        let reason = conditions::find(&self.deployment["status"], "Progressing").and_then(|c| c["reason"].as_str());
        let (reason, message) = match (self.deployment.bool_at("/spec/paused").unwrap_or(false), reason) {
            (_, Some(progress::TIMED_OUT)) => return,
            (true, reason) if reason != Some(progress::PAUSED) => (progress::PAUSED, "Deployment is paused"),
            (false, Some(progress::PAUSED)) => (progress::RESUMED, "Deployment is resumed"),
            _ => return,
        };
        self.set_progressing("Unknown", reason, message);
    }

    fn set_progressing(&mut self, status: &str, reason: &str, message: &str) {
        let condition = progress::condition("Progressing", status, reason, message, &format_seconds(self.now));
        conditions::set(&mut self.deployment["status"], condition);
    }

    /// Gives the new set the highest revision, and the deployment the revision of the new set.
    fn sync_revision(&mut self, create: bool) {
        let revision = self.old.iter().filter_map(annotations::revision).max().unwrap_or(0) + 1;
        match &mut self.new {
            Some(set) => {
                let mut changed = annotations::bring_up_to_date(&self.deployment, set, revision);
                let min_ready = count_at(&self.deployment, "/spec/minReadySeconds");
                if count_at(set, "/spec/minReadySeconds") != min_ready {
                    set["spec"]["minReadySeconds"] = json!(min_ready);
                    changed = true;
                }
                let (name, revision) = (set.name().to_string(), annotations::revision(set));
                if changed {
                    self.plan.writes.push(Write::Update(set.clone()));
                }
                if let Some(revision) = revision {
                    self.note_revision(revision);
                }
                if progress::has_deadline(&self.deployment) && conditions::find(&self.deployment["status"], "Progressing").is_none() {
                    self.set_progressing("True", progress::FOUND, &format!("Found new replica set \"{name}\""));
                }
            }
            None if create => {
                let set = revision::make(&self.deployment, &self.old, revision);
                self.plan.writes.push(Write::Create(set.clone()));
                let size = wanted(&set);
                if size > 0 {
                    self.event("ScalingReplicaSet", format!("Scaled up replica set {} from 0 to {size}", set.name()));
                }
                self.note_revision(revision);
                if progress::has_deadline(&self.deployment) {
                    self.set_progressing("True", progress::CREATED, &format!("Created new replica set \"{}\"", set.name()));
                }
                self.new = Some(set);
            }
            None => {}
        }
    }

    fn note_revision(&mut self, revision: i64) {
        let revision = revision.to_string();
        if self.deployment.annotation(annotations::REVISION) != Some(&revision) {
            self.plan.writes.push(Write::Annotate(json!({"metadata": {"annotations": {annotations::REVISION: revision}}})));
        }
    }

    fn event(&mut self, reason: &'static str, message: String) {
        self.plan.writes.push(Write::Event { kind: EventKind::Normal, reason, message });
    }

    /// The deployment has another size than its active sets were last told.
    fn is_scaling(&self) -> bool {
        let told = self.all().filter(|s| wanted(s) > 0).filter_map(|s| annotations::size(s, DESIRED_REPLICAS));
        told.into_iter().any(|told| told != wanted(&self.deployment))
    }

    fn all(&self) -> impl Iterator<Item = &Value> {
        self.old.iter().chain(&self.new)
    }

    /// The set at a place in [`Self::all`].
    fn set_mut(&mut self, at: usize) -> &mut Value {
        match self.old.get_mut(at) {
            Some(set) => set,
            None => self.new.as_mut().expect("the place after the old sets is the new set"),
        }
    }

    /// Sets the size of a set; with `force` also when only the noted sizes differ. Answers whether
    /// the size changed.
    fn resize(&mut self, at: usize, size: i64, force: bool) -> bool {
        let (desired, max) = (wanted(&self.deployment), wanted(&self.deployment) + max_surge(&self.deployment));
        let set = self.set_mut(at);
        let old = wanted(set);
        if old == size && !(force && annotations::sizes_differ(set, desired, max)) {
            return false;
        }
        set["spec"]["replicas"] = json!(size);
        annotations::set_sizes(set, desired, max);
        let set = set.clone();
        let message = format!("Scaled {} replica set {} from {old} to {size}", if old < size { "up" } else { "down" }, set.name());
        let earlier = self.plan.writes.iter_mut().find(|w| matches!(w, Write::Create(s) | Write::Update(s) if s.name() == set.name()));
        match earlier {
            // One request carries both changes; a second one would carry an old resource version.
            Some(Write::Create(written) | Write::Update(written)) => *written = set,
            _ => self.plan.writes.push(Write::Update(set)),
        }
        if old != size {
            self.event("ScalingReplicaSet", message);
        }
        old != size
    }

    /// A change of size, apart from any rollout.
    fn scale(&mut self) {
        let desired = wanted(&self.deployment);
        let active: Vec<usize> = self.all().enumerate().filter(|(_, s)| wanted(s) > 0).map(|(at, _)| at).collect();
        let new_at = self.old.len();
        match active.as_slice() {
            [] if self.new.is_some() => _ = self.resize(new_at, desired, false),
            // Nothing is active and nothing new: the latest of the old ones.
            [] if !self.old.is_empty() => _ = self.resize(new_at - 1, desired, false),
            [] => {}
            [only] => _ = self.resize(*only, desired, false),
            _ if self.is_saturated() => {
                for at in active.into_iter().filter(|at| *at < new_at) {
                    self.resize(at, 0, false);
                }
            }
            _ if is_rolling(&self.deployment) => {
                let sets: Vec<&Value> = self.all().filter(|s| wanted(s) > 0).collect();
                for (place, size) in scale::proportional(&self.deployment, sets) {
                    self.resize(active[place], size, true);
                }
            }
            _ => {}
        }
    }

    /// The new set has all the pods, and they are available.
    fn is_saturated(&self) -> bool {
        let desired = wanted(&self.deployment);
        self.new.as_ref().is_some_and(|set| {
            wanted(set) == desired
                && annotations::size(set, DESIRED_REPLICAS) == Some(desired)
                && count_at(set, "/status/availableReplicas") == desired
        })
    }

    fn roll(&mut self) {
        self.sync_revision(true);
        if self.grow_new() || self.shrink_old() {
            return;
        }
        if progress::is_complete(&self.deployment, &self.deployment["status"]) {
            self.clean_up();
        }
    }

    fn grow_new(&mut self) -> bool {
        let Some(new) = &self.new else { return false };
        let (current, desired) = (wanted(new), wanted(&self.deployment));
        let size = match current.cmp(&desired) {
            std::cmp::Ordering::Equal => return false,
            std::cmp::Ordering::Greater => desired,
            std::cmp::Ordering::Less => new_size(&self.deployment, sum(self.all(), "/spec/replicas"), current),
        };
        self.resize(self.old.len(), size, false)
    }

    /// Old sets shrink by what is not available anyway, then by what the new set makes up for.
    fn shrink_old(&mut self) -> bool {
        if sum(&self.old, "/spec/replicas") == 0 {
            return false;
        }
        let Some(new) = &self.new else { return false };
        let min_available = wanted(&self.deployment) - max_unavailable(&self.deployment);
        let new_unavailable = wanted(new) - count_at(new, "/status/availableReplicas");
        let spare = sum(self.all(), "/spec/replicas") - min_available - new_unavailable;
        if spare <= 0 {
            return false;
        }
        self.old.sort_by(oldest_first);
        let unhealthy = self.shrink_each(spare, |set| wanted(set) - count_at(set, "/status/availableReplicas"));
        let surplus = sum(self.all(), "/status/availableReplicas") - min_available;
        let healthy = self.shrink_each(surplus, wanted);
        unhealthy + healthy > 0
    }

    /// Takes up to `budget` replicas from old sets, `part` from each.
    fn shrink_each(&mut self, budget: i64, part: impl Fn(&Value) -> i64) -> i64 {
        let mut taken = 0;
        for at in 0..self.old.len() {
            let set = &self.old[at];
            let take = part(set).min(wanted(set)).min(budget - taken);
            if take > 0 {
                let size = wanted(set) - take;
                self.resize(at, size, false);
                taken += take;
            }
        }
        taken
    }

    fn recreate(&mut self, runs_pods: &dyn Fn(&Value) -> bool) {
        self.sync_revision(false);
        let mut scaled = false;
        for at in 0..self.old.len() {
            scaled |= self.resize(at, 0, false);
        }
        let old_run = sum(&self.old, "/status/replicas") > 0 || self.old.iter().any(runs_pods);
        if scaled || old_run {
            return;
        }
        if self.new.is_none() {
            self.sync_revision(true);
        }
        self.resize(self.old.len(), wanted(&self.deployment), false);
        if progress::is_complete(&self.deployment, &self.deployment["status"]) {
            self.clean_up();
        }
    }

    /// Deletes the oldest empty sets beyond the history limit.
    fn clean_up(&mut self) {
        let Some(limit) = self.deployment.i64_at("/spec/revisionHistoryLimit").filter(|l| *l != i64::from(i32::MAX)) else { return };
        let mut sets: Vec<&Value> = self.old.iter().filter(|s| !s.is_deleting()).collect();
        let surplus = sets.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        sets.sort_by(|a, b| annotations::revision(a).cmp(&annotations::revision(b)).then_with(|| oldest_first(a, b)));
        let is_idle = |set: &Value| {
            wanted(set) == 0 && count_at(set, "/status/replicas") == 0 && set.generation() <= count_at(set, "/status/observedGeneration")
        };
        let doomed: Vec<Write> = sets.into_iter().take(surplus).filter(|s| is_idle(s)).map(|s| Write::Delete(s.clone())).collect();
        self.plan.writes.extend(doomed);
    }

    /// The deprecated way to roll back, by annotation. Zero means the revision before the newest.
    fn roll_back(&mut self, revision: i64) {
        let mut revisions: Vec<i64> = self.all().filter_map(annotations::revision).collect();
        revisions.sort_unstable_by(|a, b| b.cmp(a));
        let target = if revision == 0 { revisions.get(1).copied().unwrap_or(0) } else { revision };
        let mut changed = self.deployment.clone();
        changed.metadata_mut().entry("annotations").or_insert(json!({}));
        let set = self.all().find(|s| target != 0 && annotations::revision(s) == Some(target)).cloned();
        let (kind, reason, message) = match set {
            None if target == 0 => (EventKind::Warning, "DeploymentRollbackRevisionNotFound", "Unable to find last revision.".to_string()),
            None => (EventKind::Warning, "DeploymentRollbackRevisionNotFound", "Unable to find the revision to rollback to.".to_string()),
            Some(set) if revision::same_template(&changed["spec"]["template"], &set["spec"]["template"]) => {
                let message = format!("The rollback revision contains the same template as current deployment \"{}\"", changed.name());
                (EventKind::Warning, "DeploymentRollbackTemplateUnchanged", message)
            }
            Some(set) => {
                changed["spec"]["template"] = set["spec"]["template"].clone();
                changed.remove_at("/spec/template/metadata/labels/pod-template-hash");
                changed["metadata"]["annotations"] = Value::Object(annotations::rolled_back(&self.deployment, &set));
                let message = format!("Rolled back deployment \"{}\" to revision {target}", changed.name());
                (EventKind::Normal, "DeploymentRollback", message)
            }
        };
        if let Some(annotations) = changed["metadata"]["annotations"].as_object_mut() {
            annotations.remove(ROLLBACK_TO);
        }
        self.plan.writes.push(Write::Rollback(changed));
        self.plan.writes.push(Write::Event { kind, reason, message });
    }

    fn finish_counts(mut self) -> Plan {
        self.plan.status = Some(progress::counts(&self.deployment, self.new.as_ref(), &self.old, self.now));
        self.plan
    }

    fn finish_rollout(mut self) -> Plan {
        let status = progress::rollout_status(&self.deployment, self.new.as_ref(), &self.old, self.now);
        self.plan.progress_check = progress::next_check(&self.deployment, &status);
        self.plan.status = Some(status);
        self.plan
    }
}

#[cfg(test)]
#[path = "rollout_tests.rs"]
mod tests;
