//! ReplicaSets and ReplicationControllers: one engine keeps a number of alike pods.

mod status;
mod step;

use crate::kit::claim::{self, Claimant};
use crate::kit::exec::{self, BURST_PODS_MAX};
use crate::kit::watch::{self, SelectorOf};
use crate::kit::{count_at, pods, rank, template};
use async_trait::async_trait;
use serde_json::Value;
use std::sync::Arc;
use step::Step;
use sublet_machinery::{Gvk, Gvr, ObjectExt};
use sublet_runtime::manager::map;
use sublet_runtime::resources::{PODS, REPLICA_SETS, REPLICATION_CONTROLLERS};
use sublet_runtime::{ClientError, Controller, Ctx, Key, Outcome, Reconciler};

/// What differs between the two kinds.
#[derive(Clone)]
struct Flavor {
    controller: &'static str,
    gvr: Gvr,
    gvk: Gvk,
    selector: SelectorOf,
    /// Replica sets tell of pods on their way out.
    terminating_replicas: bool,
}

pub(crate) fn replica_sets() -> Controller {
    controller(Flavor {
        controller: "replicaset-controller",
        gvr: REPLICA_SETS,
        gvk: Gvk::new("apps", "v1", "ReplicaSet"),
        selector: watch::label_selector,
        terminating_replicas: true,
    })
}

pub(crate) fn replication_controllers() -> Controller {
    controller(Flavor {
        controller: "replication-controller",
        gvr: REPLICATION_CONTROLLERS,
        gvk: Gvk::new("", "v1", "ReplicationController"),
        selector: watch::map_selector,
        terminating_replicas: false,
    })
}

fn controller(flavor: Flavor) -> Controller {
    let kind = if flavor.terminating_replicas { "ReplicaSet" } else { "ReplicationController" };
    Controller::new(flavor.controller, Engine { flavor: flavor.clone() })
        .watches(flavor.gvr.clone(), map::itself)
        .watches(PODS, watch::dependents(kind, flavor.gvr, flavor.selector))
}

struct Engine {
    flavor: Flavor,
}

#[async_trait]
impl Reconciler for Engine {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let Some(set) = ctx.informer(&self.flavor.gvr).get_key(key) else { return Outcome::Done };
        match self.sync(ctx, &set).await {
            Ok(outcome) => outcome,
            Err(error) => error.into(),
        }
    }
}

impl Engine {
    async fn sync(&self, ctx: &Ctx, set: &Arc<Value>) -> Result<Outcome, ClientError> {
        let flavor = &self.flavor;
        let selector = (flavor.selector)(set);
        let candidates = claim::candidates(&ctx.informer(&PODS), set);
        let (active, others): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|p| pods::is_active(p));
        let claimant = Claimant { owner: set, gvr: &flavor.gvr, gvk: &flavor.gvk, finalizer: None };
        let active = claim::claim(ctx, &claimant, &PODS, active, |p| selector.matches_object(p)).await?;
        let terminating = flavor.terminating_replicas.then(|| count_terminating(set, &others, &selector));

        let failure = match step::decide(set, active.len(), BURST_PODS_MAX) {
            Step::Keep => None,
            Step::Create(count) => {
                let pod = template::pod(set, &flavor.gvk, &set["spec"]["template"]);
                let (made, result) = exec::create_pods(ctx, set, &vec![pod; count]).await;
                if made == count {
                    // The new pods bring this key back; the status is written with them in it.
                    return Ok(Outcome::Done);
                }
                result.err()
            }
            Step::Delete(count) => {
                let victims = choose(ctx, &flavor.gvr, set, &active, count);
                exec::delete_pods(ctx, set, &victims).await.err()
            }
        };

        let now = ctx.clock.now();
        // Deleted pods left the local copy or show there that they are leaving.
        let active: Vec<Arc<Value>> = if failure.is_none() { still_active(ctx, active) } else { active };
        let status = status::next(set, &active, terminating, failure.as_ref().map(ToString::to_string), now);
        exec::put_status(ctx, &flavor.gvr, set, status).await?;
        if let Some(error) = failure {
            return Err(error);
        }
        let min_ready = count_at(set, "/spec/minReadySeconds");
        Ok(match pods::next_availability(active.iter().map(AsRef::as_ref), min_ready, now) {
            Some(delay) => Outcome::After(delay),
            None => Outcome::Done,
        })
    }
}

fn still_active(ctx: &Ctx, pods: Vec<Arc<Value>>) -> Vec<Arc<Value>> {
    let informer = ctx.informer(&PODS);
    let current = pods.into_iter().filter_map(|p| informer.get(p.namespace(), p.name()).filter(|now| now.uid() == p.uid()));
    current.filter(|p| pods::is_active(p)).collect()
}

fn count_terminating(set: &Value, others: &[Arc<Value>], selector: &crate::kit::selector::Selector) -> i64 {
    let is_mine = |p: &Value| p.controller_owner().is_some_and(|r| r["uid"] == set.uid());
    others.iter().filter(|p| pods::is_terminating(p) && is_mine(p) && selector.matches_object(p)).count() as i64
}

/// The pods to give up: those that serve least, and of equals those that share a node with pods of
/// the same set or of its siblings under one owner.
fn choose(ctx: &Ctx, gvr: &Gvr, set: &Value, active: &[Arc<Value>], count: usize) -> Vec<Arc<Value>> {
    let informer = ctx.informer(&PODS);
    let mut related: Vec<Arc<Value>> = Vec::new();
    if let Some(owner) = set.controller_owner() {
        let sets = ctx.informer(gvr).owned_by(owner["uid"].as_str().unwrap_or_default());
        related.extend(sets.iter().flat_map(|s| informer.owned_by(s.uid())));
    } else {
        related.extend(active.iter().cloned());
    }
    related.retain(|p| pods::is_active(p));
    step::choose(active, &related, count, ctx.clock.now())
}
