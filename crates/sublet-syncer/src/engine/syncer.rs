//! One tenant's syncer: local copies feed a queue, workers take one key at a time through the plan.

use super::certificates::Certificates;
use super::events::{EVENTS_WAITING_MAX, Told};
use super::host::HostHandle;
use super::patrol::PATROL_PAUSE;
use super::pending::Pending;
use super::queue::TenantQueue;
use super::rules::SyncRules;
use super::settled::Settled;
use super::skew::Skew;
use super::stats::{Stats, StatsSnapshot};
use super::tenant::View;
use super::{HostWriter, ItemKey};
use crate::resources::PodConfig;
use crate::translate::{Names, TenantIdentity, TenantKey};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use sublet_api::marks;
use sublet_runtime::{Client, Clock, EventRecorder};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use sublet_api::Layout;

/// Requests that a tenant of weight one may have under way at once. The host's attention is shared by
/// these, and not by one queue, so a burst of one tenant is no delay for another.
const IN_FLIGHT_PER_WEIGHT: u32 = 16;

/// What a syncer needs to know.
pub struct SyncerConfig {
    pub tenant: TenantIdentity,
    pub tenant_client: Client,
    pub host: HostHandle,
    /// Where copies go; layout `Single` has one for all.
    pub host_namespace: String,
    pub layout: Layout,
    pub clock: Clock,
    pub pods: PodConfig,
    /// Share of the host's attention beside other tenants.
    pub weight: u32,
    pub rules: SyncRules,
}

/// How far a syncer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncerStatus {
    /// Reads both sides.
    Starting,
    Running,
    Stopped,
}

/// Syncs one tenant. Cheap to clone; [`Self::run`] once.
#[derive(Clone)]
pub struct Syncer {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub view: View,
    pub queue: TenantQueue,
    pub writer: HostWriter,
    pub tenant_client: Client,
    pub events: EventRecorder,
    pub clock: Clock,
    pub pods: PodConfig,
    pub rules: SyncRules,
    pub stats: Stats,
    pub settled: Settled,
    pub skew: Skew,
    weight: u32,
    /// Writes of ours that the local copies have not shown yet; one entry per key at most.
    pub expected: Mutex<HashMap<ItemKey, Expected>>,
    /// Shown objects that are no longer wanted, and since when.
    pub lingering: Mutex<HashMap<ItemKey, Instant>>,
    /// Host services whose tenant service is about to be committed.
    pub pending: Pending,
    pub certificates: Certificates,
    /// New pods whose tokens were asked for and are not seen on the host yet.
    pub asked: Mutex<HashSet<TenantKey>>,
    pub told: mpsc::Sender<Told>,
    /// Taken by the one run.
    waiting: Mutex<Option<mpsc::Receiver<Told>>>,
    status: watch::Sender<SyncerStatus>,
}

/// The revisions that local copies have to reach before a key is looked at again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub host: u64,
    pub tenant: u64,
    pub since: Instant,
}

impl Syncer {
    pub fn new(config: SyncerConfig) -> Self {
        let names = Names::new(config.tenant, &*config.host_namespace);
        let host = config.host.0;
        let (told, waiting) = mpsc::channel(EVENTS_WAITING_MAX);
        let inner = Inner {
            writer: HostWriter::new(host.client(), names.clone()),
            view: View::new(host, names),
            queue: TenantQueue::default(),
            events: EventRecorder::new(config.tenant_client.clone(), config.clock.clone(), "sublet-syncer"),
            tenant_client: config.tenant_client.with_field_manager(marks::MANAGER),
            clock: config.clock,
            pods: config.pods,
            rules: config.rules,
            stats: Stats::default(),
            settled: Settled::default(),
            skew: Skew::default(),
            weight: config.weight.max(1),
            expected: Mutex::default(),
            lingering: Mutex::default(),
            pending: Pending::default(),
            certificates: Certificates::default(),
            asked: Mutex::default(),
            told,
            waiting: Mutex::new(Some(waiting)),
            status: watch::Sender::new(SyncerStatus::Starting),
        };
        let syncer = Self { inner: Arc::new(inner) };
        syncer.watch_tenant();
        syncer
    }

    pub fn status(&self) -> watch::Receiver<SyncerStatus> {
        self.inner.status.subscribe()
    }

    pub fn stats(&self) -> StatsSnapshot {
        self.inner.stats.snapshot()
    }

    /// Compares both sides in full now; the keys that were out of step, which are looked at again.
    pub async fn patrol(&self) -> Vec<ItemKey> {
        self.inner.patrol().await
    }

    /// Keys that wait to be worked on now, or are: zero when both sides agree as far as they are seen.
    pub fn backlog(&self) -> usize {
        self.inner.queue.len()
    }

    /// Syncs until cancelled; returns when every task has ended.
    pub async fn run(self, cancel: CancellationToken) {
        let mut tasks = JoinSet::new();
        for informer in self.inner.view.tenant.required() {
            tasks.spawn(informer.clone().run(self.inner.tenant_client.clone(), cancel.clone()));
        }
        let waiting = self.inner.waiting.lock().expect("no holder panics").take();
        if let Some(waiting) = waiting {
            let (inner, cancel) = (self.inner.clone(), cancel.clone());
            tasks.spawn(async move {
                tokio::select! {
                    () = inner.tell_events(waiting) => {}
                    () = cancel.cancelled() => {}
                }
            });
        }
        tasks.spawn(self.clone().follow_optional(cancel.clone()));
        tokio::select! {
            () = self.start() => self.work(&cancel).await,
            () = cancel.cancelled() => {}
        }
        self.inner.view.host.remove_route(&self.inner.view.names.tenant().uid);
        self.inner.queue.close();
        while tasks.join_next().await.is_some() {}
        self.inner.status.send_replace(SyncerStatus::Stopped);
    }

    /// Nothing is decided before both sides were read in full.
    async fn start(&self) {
        for informer in self.inner.view.tenant.required() {
            informer.wait_synced().await;
        }
        self.inner.view.host.wait_synced().await;
        self.watch_host();
        self.queue_copies();
        self.inner.status.send_replace(SyncerStatus::Running);
    }

    async fn work(&self, cancel: &CancellationToken) {
        let slots = Arc::new(Semaphore::new((self.inner.weight * IN_FLIGHT_PER_WEIGHT) as usize));
        let mut workers = JoinSet::new();
        let mut patrol = tokio::time::interval_at(Instant::now() + PATROL_PAUSE, PATROL_PAUSE);
        loop {
            let next = async {
                let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
                (self.inner.queue.next().await, slot)
            };
            let (key, slot) = tokio::select! {
                next = next => next,
                _ = patrol.tick() => {
                    self.inner.patrol().await;
                    continue;
                }
                () = cancel.cancelled() => break,
            };
            let Some(key) = key else { break };
            let (inner, cancel) = (self.inner.clone(), cancel.clone());
            workers.spawn(self.inner.tenant_client.clone().in_turns(async move {
                tokio::select! {
                    () = inner.work_on(&key) => {}
                    () = cancel.cancelled() => {}
                }
                inner.queue.done(&key);
                drop(slot);
            }));
            while workers.try_join_next().is_some() {}
        }
        workers.shutdown().await;
    }
}

/// How long a write of ours may stay unseen before the local copies are doubted.
pub(super) const EXPECTED_MAX: Duration = Duration::from_secs(15);
