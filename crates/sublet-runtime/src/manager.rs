//! Runs controllers: shared informers feed one work queue per controller; workers call its step.

use crate::client::{Client, ClientError};
use crate::clock::Clock;
use crate::events::EventRecorder;
use crate::informer::{Change, Informer, Informers, Scope};
use crate::{Key, WorkQueue};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::{Gvr, NamespacedName, ObjectExt};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The answer of one step.
#[derive(Debug)]
pub enum Outcome {
    Done,
    /// Look again after this time, whatever happens.
    After(Duration),
    /// Try again with back-off.
    Retry(ClientError),
    /// Trying again is useless until an object changes; the step has told the user.
    Stuck(String),
}

impl From<ClientError> for Outcome {
    fn from(error: ClientError) -> Self {
        Self::Retry(error)
    }
}

/// The step of a controller: looks at the world around one key and moves it a bit closer to what is
/// wanted. Safe to repeat, and to be cut off after any request.
#[async_trait]
pub trait Reconciler: Send + Sync + 'static {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome;
}

/// What a step works with.
#[derive(Clone)]
pub struct Ctx {
    pub client: Client,
    pub clock: Clock,
    pub events: EventRecorder,
    informers: Arc<Informers>,
    queue: WorkQueue,
}

impl Ctx {
    /// The local copy of a resource that this controller or another one of the manager watches.
    ///
    /// # Panics
    /// When no controller declared the resource: reading an informer that nobody runs is a mistake
    /// in the program.
    pub fn informer(&self, gvr: &Gvr) -> Arc<Informer> {
        let (informer, new) = self.informers.informer(gvr, &Scope::default());
        assert!(!new, "{gvr} is read but not declared with watches() or reads()");
        informer
    }

    /// As [`Self::informer`], for code that writes a resource which may be cached or not.
    pub fn cached(&self, gvr: &Gvr) -> Option<Arc<Informer>> {
        self.informers.existing(gvr)
    }

    /// The queue of this controller, for steps that find work for other keys.
    pub fn queue(&self) -> &WorkQueue {
        &self.queue
    }
}

type Mapper = Arc<dyn Fn(&Change, &Mapping) -> Vec<Key> + Send + Sync>;

/// What a mapper may look at.
pub struct Mapping {
    informers: Arc<Informers>,
}

impl Mapping {
    pub fn informer(&self, gvr: &Gvr) -> Arc<Informer> {
        self.informers.informer(gvr, &Scope::default()).0
    }
}

/// A controller: what it watches and the step it takes.
pub struct Controller {
    name: &'static str,
    reconciler: Arc<dyn Reconciler>,
    watches: Vec<(Gvr, Scope, Option<Mapper>)>,
    starts_with: Option<Key>,
    workers: usize,
}

impl Controller {
    pub fn new(name: &'static str, reconciler: impl Reconciler) -> Self {
        Self { name, reconciler: Arc::new(reconciler), watches: Vec::new(), starts_with: None, workers: 2 }
    }

    /// Every change of the resource queues the keys that `mapper` returns.
    #[must_use]
    pub fn watches(mut self, gvr: Gvr, mapper: impl Fn(&Change, &Mapping) -> Vec<Key> + Send + Sync + 'static) -> Self {
        self.watches.push((gvr, Scope::default(), Some(Arc::new(mapper))));
        self
    }

    /// The resource is read by steps but its changes queue nothing.
    #[must_use]
    pub fn reads(mut self, gvr: Gvr) -> Self {
        self.watches.push((gvr, Scope::default(), None));
        self
    }

    /// A key to work on once at the start, before anything changes.
    #[must_use]
    pub fn starts_with(mut self, key: Key) -> Self {
        self.starts_with = Some(key);
        self
    }

    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }
}

/// The usual mappers.
pub mod map {
    use super::*;

    /// The changed object itself.
    pub fn itself(change: &Change, _: &Mapping) -> Vec<Key> {
        vec![change.key()]
    }

    /// The controller owner of the given kind, before and after the change.
    pub fn owner(kind: &'static str) -> impl Fn(&Change, &Mapping) -> Vec<Key> + Send + Sync {
        move |change, _| {
            let mut keys: Vec<Key> = Vec::new();
            for object in [&change.old, &change.new].into_iter().flatten() {
                if let Some(owner) = object.controller_owner()
                    && owner["kind"] == kind
                {
                    let key = NamespacedName::new(object.namespace(), owner["name"].as_str().unwrap_or_default());
                    if !keys.contains(&key) {
                        keys.push(key);
                    }
                }
            }
            keys
        }
    }

    /// One key for everything: controllers that look at the world as a whole.
    pub fn singleton(_: &Change, _: &Mapping) -> Vec<Key> {
        vec![Key::new("", "all")]
    }

    /// The namespace of the object, as a cluster-scoped key.
    pub fn namespace(change: &Change, _: &Mapping) -> Vec<Key> {
        vec![Key::new("", change.object().namespace())]
    }
}

/// Runs controllers against one API server.
pub struct Manager {
    client: Client,
    clock: Clock,
    informers: Arc<Informers>,
    controllers: Vec<Controller>,
}

impl Manager {
    pub fn new(client: Client, clock: Clock) -> Self {
        Self { client, clock, informers: Arc::default(), controllers: Vec::new() }
    }

    pub fn add(&mut self, controller: Controller) {
        self.controllers.push(controller);
    }

    pub fn informers(&self) -> Arc<Informers> {
        self.informers.clone()
    }

    /// Runs until cancelled; returns when every task has ended.
    pub async fn run(self, cancel: CancellationToken) {
        let mut tasks = JoinSet::new();
        let mut queues = Vec::new();
        for controller in &self.controllers {
            let queue = WorkQueue::new();
            for (gvr, scope, mapper) in &controller.watches {
                let (informer, _) = self.informers.informer(gvr, scope);
                if let Some(mapper) = mapper.clone() {
                    let queue = queue.clone();
                    let mapping = Mapping { informers: self.informers.clone() };
                    informer.on_change(move |change| {
                        for key in mapper(change, &mapping) {
                            queue.add(key);
                        }
                    });
                }
            }
            if let Some(key) = controller.starts_with.clone() {
                queue.add(key);
            }
            queues.push(queue);
        }
        let informers: Vec<Arc<Informer>> = self.informers.weak_all().into_iter().filter_map(|w| w.upgrade()).collect();
        for informer in informers {
            tasks.spawn(informer.run(self.client.clone(), cancel.clone()));
        }
        for (controller, queue) in self.controllers.into_iter().zip(&queues) {
            let mut synced = Vec::new();
            for (gvr, scope, _) in &controller.watches {
                synced.push(self.informers.informer(gvr, scope).0);
            }
            let ctx = Ctx {
                client: self.client.with_field_manager(controller.name),
                clock: self.clock.clone(),
                events: EventRecorder::new(self.client.clone(), self.clock.clone(), controller.name),
                informers: self.informers.clone(),
                queue: queue.clone(),
            };
            let work = Work { name: controller.name, reconciler: controller.reconciler, workers: controller.workers, ctx };
            tasks.spawn(work.run(synced, cancel.clone()));
        }
        cancel.cancelled().await;
        for queue in &queues {
            queue.close();
        }
        while tasks.join_next().await.is_some() {}
    }
}

/// One controller at work. Workers exist while there is something to do: a quiet controller is one
/// waiting task.
struct Work {
    name: &'static str,
    reconciler: Arc<dyn Reconciler>,
    workers: usize,
    ctx: Ctx,
}

impl Work {
    async fn run(self, synced: Vec<Arc<Informer>>, cancel: CancellationToken) {
        for informer in synced {
            tokio::select! {
                () = informer.wait_synced() => {}
                () = cancel.cancelled() => return,
            }
        }
        let mut workers = JoinSet::new();
        loop {
            tokio::select! {
                key = self.ctx.queue.next(), if workers.len() < self.workers => {
                    let Some(key) = key else { break };
                    let step = step(self.name, self.reconciler.clone(), self.ctx.clone(), key, cancel.clone());
                    workers.spawn(self.ctx.client.clone().in_turns(step));
                }
                Some(ended) = workers.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(controller = self.name, %error, "a step panicked; its key is left alone");
                    }
                }
                () = cancel.cancelled() => break,
            }
        }
        while workers.join_next().await.is_some() {}
    }
}

/// Takes one step, and the next ones as long as there are keys.
async fn step(name: &'static str, reconciler: Arc<dyn Reconciler>, ctx: Ctx, key: Key, cancel: CancellationToken) {
    let mut key = key;
    loop {
        let outcome = tokio::select! {
            outcome = reconciler.reconcile(&ctx, &key) => outcome,
            () = cancel.cancelled() => return,
        };
        settle(name, &ctx.queue, &key, outcome);
        ctx.queue.done(&key);
        match ctx.queue.try_next() {
            Some(next) => key = next,
            None => return,
        }
    }
}

fn settle(name: &'static str, queue: &WorkQueue, key: &Key, outcome: Outcome) {
    match outcome {
        Outcome::Done => queue.forget(key),
        Outcome::After(delay) => {
            queue.forget(key);
            queue.add_after(key.clone(), delay);
        }
        Outcome::Retry(error) => {
            // Conflicts and races with deletion are part of the protocol.
            if error.is_conflict() || error.is_not_found() || error.is_already_exists() {
                tracing::debug!(controller = name, %key, %error, "will retry");
            } else {
                tracing::warn!(controller = name, %key, %error, "will retry");
            }
            queue.retry(key.clone());
        }
        Outcome::Stuck(reason) => {
            tracing::info!(controller = name, %key, reason, "stuck until something changes");
            queue.forget(key);
        }
    }
}
