//! The garbage collector: deletes what has lost all its owners, and lets owners go that wait for
//! their dependents (foreground) or leave them behind (orphan).
//!
//! [`graph::Graph`] knows who owns whom over all resources and says what is to be looked at;
//! [`monitor`] feeds it; [`verdict`] decides about one object from live reads; this file acts.
//! The graph only raises suspicion: nothing is deleted before a live read confirmed that each owner
//! is gone, by uid.

mod graph;
mod monitor;
mod verdict;

use crate::kit::exec;
use async_trait::async_trait;
use graph::{Graph, Identity, Uid, Work, parse_uid};
use monitor::Monitors;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::resources::CUSTOM_RESOURCE_DEFINITIONS;
use sublet_runtime::{ClientError, Controller, Ctx, DeleteOptions, Key, Outcome, Reconciler, WorkQueue};
use tokio::time::Instant;
use verdict::{OwnerState, Verdict};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";
const API_SERVICES: Gvr = Gvr::new("apiregistration.k8s.io", "v1", "apiservices");

/// Discovery may lag behind the object that announces a new resource.
const DISCOVER_AGAIN: Duration = Duration::from_secs(3);
/// Discovery is followed by a pause that is so many times as long, and no longer than the other: a thousand definitions
/// that come one after the other are not a thousand discoveries of all before them.
const PAUSE_TIMES: u32 = 10;
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Until groups that could not be asked are asked again.
const DISCOVERY_RETRY: Duration = Duration::from_secs(30);

pub(crate) fn controller() -> Controller {
    Controller::new("generic-garbage-collector", Collector::default())
        .workers(5)
        .starts_with(discover_key())
        .watches(CUSTOM_RESOURCE_DEFINITIONS, |_, _| vec![discover_key()])
        .watches(API_SERVICES, |_, _| vec![discover_key()])
}

fn discover_key() -> Key {
    Key::new("discover", "")
}

fn discover_again_key() -> Key {
    Key::new("discover", "again")
}

/// What monitors and workers share.
#[derive(Default)]
struct Shared {
    /// Guards who owns whom; held for memory moves only.
    graph: Mutex<Graph>,
}

impl Shared {
    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().expect("no holder panics")
    }
}

#[derive(Default)]
struct Collector {
    shared: Arc<Shared>,
    monitors: tokio::sync::Mutex<Monitors>,
}

/// Queues the work that the graph found.
fn enqueue(queue: &WorkQueue, work: Vec<Work>) {
    for item in work {
        let (task, uid) = match item {
            Work::Examine(uid) => ("examine", uid),
            Work::Settle(uid) => ("settle", uid),
            Work::Orphan(uid) => ("orphan", uid),
        };
        queue.add(Key::new(task, format!("{uid:032x}")));
    }
}

#[async_trait]
impl Reconciler for Collector {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let uid = Uid::from_str_radix(&key.name, 16).unwrap_or_default();
        let result = match key.namespace.as_str() {
            "discover" => self.discover(ctx, key).await,
            "examine" => self.examine(ctx, uid).await,
            "settle" => self.settle(ctx, uid).await,
            _ => self.orphan(ctx, uid).await,
        };
        result.unwrap_or_else(Outcome::from)
    }
}

impl Collector {
    async fn discover(&self, ctx: &Ctx, key: &Key) -> Result<Outcome, ClientError> {
        let mut monitors = self.monitors.lock().await;
        let begin = Instant::now();
        if let Some(until) = monitors.pause_until.filter(|until| *until > begin) {
            return Ok(Outcome::After(until - begin));
        }
        let failures = monitors.update(ctx, &self.shared).await?;
        let pause = (begin.elapsed() * PAUSE_TIMES).min(PAUSE_MAX);
        monitors.pause_until = Some(Instant::now() + pause);
        if *key == discover_key() {
            ctx.queue().add_after(discover_again_key(), DISCOVER_AGAIN);
        }
        Ok(if failures { Outcome::After(DISCOVERY_RETRY) } else { Outcome::Done })
    }

    /// Looks at an object that may have lost its owners.
    async fn examine(&self, ctx: &Ctx, uid: Uid) -> Result<Outcome, ClientError> {
        let Some((item, life)) = self.shared.graph().dependent(uid) else { return Ok(Outcome::Done) };
        match life {
            graph::Life::Alive => {}
            graph::Life::Foreground => return self.settle(ctx, uid).await,
            graph::Life::Ending => return Ok(Outcome::Done),
        }
        let Some(latest) = self.live(ctx, uid, &item).await? else { return Ok(Outcome::Done) };
        let mut owners = Vec::new();
        for reference in latest.owner_references() {
            match self.owner_state(ctx, &latest, reference).await? {
                Some(state) => owners.push((reference, state)),
                // The kind is not served, or the reference is from cluster scope into a namespace:
                // nothing can be told about the owner until something changes.
                None => return Ok(Outcome::Done),
            }
        }
        let (has_dependents, in_cycle) = self.shared.graph().dependents_state(uid);
        match verdict::decide(&latest, &owners, has_dependents, in_cycle) {
            Verdict::Keep => {}
            Verdict::Rewrite(references) => self.write_owners(ctx, &item, &latest, references).await?,
            Verdict::Delete { policy, unblock } => {
                let mut version = latest.resource_version().to_string();
                if unblock {
                    let references = verdict::unblocked(&latest);
                    version = self.patch_owners(ctx, &item, &latest, references).await?.resource_version().to_string();
                }
                self.delete(ctx, uid, &item, &latest, version, policy).await?;
            }
        }
        Ok(Outcome::Done)
    }

    async fn delete(
        &self,
        ctx: &Ctx,
        uid: Uid,
        item: &Identity,
        latest: &Value,
        version: String,
        policy: &'static str,
    ) -> Result<(), ClientError> {
        tracing::debug!(gvr = %item.gvr, namespace = &*item.namespace, name = &*item.name, policy, "collecting");
        // Owners may be added until the very last moment, hence the exact version.
        let options =
            DeleteOptions { propagation_policy: Some(policy), precondition_resource_version: Some(version), ..DeleteOptions::default() };
        match ctx.client.delete(&item.gvr, &item.namespace, &item.name, &options.uid(latest.uid())).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => {
                self.gone(ctx, uid);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// An object in foreground deletion goes when no dependent blocks it any longer.
    async fn settle(&self, ctx: &Ctx, uid: Uid) -> Result<Outcome, ClientError> {
        let Some((item, blocking)) = self.shared.graph().foreground(uid) else { return Ok(Outcome::Done) };
        if blocking.is_empty() {
            self.remove_finalizer(ctx, uid, &item, FOREGROUND).await?;
        } else {
            enqueue(ctx.queue(), blocking.into_iter().map(Work::Examine).collect());
        }
        Ok(Outcome::Done)
    }

    /// Takes the owner out of its dependents' references, then lets it go.
    async fn orphan(&self, ctx: &Ctx, uid: Uid) -> Result<Outcome, ClientError> {
        let Some((owner, dependents)) = self.shared.graph().orphaning(uid) else { return Ok(Outcome::Done) };
        for (dependent, item) in dependents {
            let Some(latest) = self.live(ctx, dependent, &item).await? else { continue };
            let references = latest.owner_references().iter().filter(|r| parse_uid(r["uid"].as_str().unwrap_or_default()) != uid);
            let references: Vec<Value> = references.cloned().collect();
            if references.len() != latest.owner_references().len() {
                self.write_owners(ctx, &item, &latest, references).await?;
            }
        }
        self.remove_finalizer(ctx, uid, &owner, ORPHAN).await?;
        Ok(Outcome::Done)
    }

    /// The object as it is now; one that is gone leaves the graph.
    async fn live(&self, ctx: &Ctx, uid: Uid, item: &Identity) -> Result<Option<Value>, ClientError> {
        let latest = monitor::get_metadata(ctx, &item.gvr, &item.namespace, &item.name).await?;
        let latest = latest.filter(|o| parse_uid(o.uid()) == uid);
        if latest.is_none() {
            self.gone(ctx, uid);
        }
        Ok(latest)
    }

    fn gone(&self, ctx: &Ctx, uid: Uid) {
        let work = self.shared.graph().remove(uid);
        enqueue(ctx.queue(), work);
    }

    /// `None`: nothing can be told about this owner.
    async fn owner_state(&self, ctx: &Ctx, item: &Value, reference: &Value) -> Result<Option<OwnerState>, ClientError> {
        let text = |key: &str| reference[key].as_str().unwrap_or_default();
        let uid = parse_uid(text("uid"));
        let (gvr, namespaced) = {
            let graph = self.shared.graph();
            if graph.is_absent(uid) {
                return Ok(Some(OwnerState::Gone));
            }
            match graph.kind(text("apiVersion"), text("kind")) {
                Some(kind) => kind,
                None => return Ok(None),
            }
        };
        let namespace = if namespaced { item.namespace() } else { "" };
        if namespaced && namespace.is_empty() {
            return Ok(None);
        }
        let owner = monitor::get_metadata(ctx, &gvr, namespace, text("name")).await?;
        let Some(owner) = owner.filter(|o| parse_uid(o.uid()) == uid) else {
            self.shared.graph().note_absent(uid);
            return Ok(Some(OwnerState::Gone));
        };
        let waits = owner.is_deleting() && owner.has_finalizer(FOREGROUND);
        Ok(Some(if waits { OwnerState::Waiting } else { OwnerState::Solid }))
    }

    async fn write_owners(&self, ctx: &Ctx, item: &Identity, latest: &Value, references: Vec<Value>) -> Result<(), ClientError> {
        match self.patch_owners(ctx, item, latest, references).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    async fn patch_owners(&self, ctx: &Ctx, item: &Identity, latest: &Value, references: Vec<Value>) -> Result<Value, ClientError> {
        let patch = json!({"metadata": {"uid": latest.uid(), "resourceVersion": latest.resource_version(), "ownerReferences": references}});
        exec::merge_patch(ctx, &item.gvr, latest, patch).await
    }

    async fn remove_finalizer(&self, ctx: &Ctx, uid: Uid, item: &Identity, finalizer: &str) -> Result<(), ClientError> {
        let Some(latest) = self.live(ctx, uid, item).await? else { return Ok(()) };
        if !latest.has_finalizer(finalizer) {
            return Ok(());
        }
        exec::remove_finalizer(ctx, &item.gvr, &latest, finalizer).await
    }
}
