//! One tenant's syncer: local copies feed a queue, workers take one key at a time through the plan.

use super::allocator::Pending;
use super::events::{EVENTS_WAITING_MAX, Told};
use super::host::{HostHandle, HostKind, Listener};
use super::queue::TenantQueue;
use super::tenant::{TenantCache, View};
use super::{HostWriter, ItemKey};
use crate::index;
use crate::resources::pod::{is_terminal, token};
use crate::resources::shown::{SHOWN, ShownKind, shown_by_host_kind};
use crate::resources::{KindId, PodConfig, TO_HOST};
use crate::translate::{Names, TenantIdentity, TenantKey};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use sublet_api::marks;
use sublet_machinery::ObjectExt;
use sublet_runtime::{Change, Client, Clock, EventRecorder, Informer};
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
    weight: u32,
    /// Writes of ours that the local copies have not shown yet; one entry per key at most.
    pub expected: Mutex<HashMap<ItemKey, Expected>>,
    /// Shown objects that are no longer wanted, and since when.
    pub lingering: Mutex<HashMap<ItemKey, Instant>>,
    /// Host services whose tenant service is about to be committed.
    pub pending: Pending,
    told: mpsc::Sender<Told>,
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
            view: View { tenant: TenantCache::default(), host, names },
            queue: TenantQueue::default(),
            events: EventRecorder::new(config.tenant_client.clone(), config.clock.clone(), "sublet-syncer"),
            tenant_client: config.tenant_client.with_field_manager(marks::MANAGER),
            clock: config.clock,
            pods: config.pods,
            weight: config.weight.max(1),
            expected: Mutex::default(),
            lingering: Mutex::default(),
            pending: Pending::default(),
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

    /// Keys that wait to be worked on now, or are: zero when both sides agree as far as they are seen.
    pub fn backlog(&self) -> usize {
        self.inner.queue.len()
    }

    /// Syncs until cancelled; returns when every task has ended.
    pub async fn run(self, cancel: CancellationToken) {
        let mut tasks = JoinSet::new();
        for informer in self.inner.view.tenant.all() {
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
        for informer in self.inner.view.tenant.all() {
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
        loop {
            let next = async {
                let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
                (self.inner.queue.next().await, slot)
            };
            let (key, slot) = tokio::select! {
                next = next => next,
                () = cancel.cancelled() => break,
            };
            let Some(key) = key else { break };
            let (inner, cancel) = (self.inner.clone(), cancel.clone());
            workers.spawn(async move {
                tokio::select! {
                    () = inner.work_on(&key) => {}
                    () = cancel.cancelled() => {}
                }
                inner.queue.done(&key);
                drop(slot);
            });
            while workers.try_join_next().is_some() {}
        }
        workers.shutdown().await;
    }

    fn watch_tenant(&self) {
        for kind in TO_HOST {
            let (weak, id) = (Arc::downgrade(&self.inner), kind.id);
            self.inner.view.tenant.informer(id).on_change(move |change| {
                if let Some(inner) = weak.upgrade() {
                    inner.tenant_changed(id, change);
                }
            });
        }
        for kind in &SHOWN {
            let (weak, id) = (Arc::downgrade(&self.inner), kind.id);
            self.inner.view.tenant.informer(id).on_change(move |change| {
                if let Some(inner) = weak.upgrade() {
                    inner.queue.add(ItemKey::new(id, TenantKey::new("", change.object().name())));
                }
            });
        }
    }

    fn watch_host(&self) {
        let listener = HostListener(Arc::downgrade(&self.inner));
        self.inner.view.host.add_route(&self.inner.view.names.tenant().uid, Arc::new(listener));
    }

    /// Copies that were there before the route was.
    fn queue_copies(&self) {
        let uid = &self.inner.view.names.tenant().uid;
        for kind in TO_HOST.iter().map(|k| HostKind::of(k.id)) {
            for copy in self.inner.view.host.of_tenant(kind, uid) {
                self.inner.queue_copy(kind, &copy);
            }
        }
        for kind in &SHOWN {
            for object in self.inner.view.host.informer(kind.host).list(None) {
                self.inner.queue_shown(kind, &object);
            }
        }
    }
}

/// The tenant's ear at the host. Holds no tenant alive.
struct HostListener(Weak<Inner>);

impl Listener for HostListener {
    fn changed(&self, kind: HostKind, change: &Change) {
        if let Some(inner) = self.0.upgrade() {
            inner.host_changed(kind, change);
        }
    }

    fn event(&self, event: &Value, kind: HostKind, copy: &Value) {
        if let Some(inner) = self.0.upgrade()
            && let Some(told) = inner.translate_event(event, kind, copy)
            && inner.told.try_send(told).is_err()
        {
            tracing::debug!(tenant = %inner.view.names.tenant().name, "too many events at once, one was dropped");
        }
    }
}

impl Inner {
    fn tenant_changed(&self, id: KindId, change: &Change) {
        self.queue.add(ItemKey::new(id, TenantKey::of(change.object())));
        if id == KindId::Pod {
            self.pod_changed(change);
        }
    }

    /// What a pod uses is wanted on the host from its first user to its last.
    fn pod_changed(&self, change: &Change) {
        let references = |pod: &Option<Arc<Value>>| pod.as_deref().map(index::references).unwrap_or_default();
        let (old, new) = (references(&change.old), references(&change.new));
        let namespace = change.object().namespace();
        for reference in old.symmetric_difference(&new) {
            let id = if reference.resource == index::SECRETS { KindId::Secret } else { KindId::ConfigMap };
            self.queue.add(ItemKey::new(id, TenantKey::new(namespace, &*reference.name)));
        }
        let node = |pod: &Option<Arc<Value>>| {
            pod.as_ref().filter(|p| !is_terminal(p)).and_then(|p| p.str_at("/spec/nodeName").map(str::to_string))
        };
        let (before, after) = (node(&change.old), node(&change.new));
        if before != after {
            for node in before.into_iter().chain(after) {
                self.queue.add(ItemKey::new(KindId::Node, TenantKey::new("", node)));
            }
        }
        if (change.old.is_none() || change.new.is_none()) && !token::wanted(change.object()).is_empty() {
            self.queue.add(ItemKey::new(KindId::PodToken, TenantKey::of(change.object())));
        }
    }

    fn host_changed(&self, kind: HostKind, change: &Change) {
        match kind {
            HostKind::ResourceQuotas if change.object().namespace() == self.view.names.host_namespace("") => {
                self.queue.hurry_refused();
            }
            _ if kind.is_copies() => {
                for object in [&change.new, &change.old].into_iter().flatten() {
                    self.queue_copy(kind, object);
                }
                // A pod that leaves makes room under quotas.
                if kind == HostKind::Pods && change.is_delete() {
                    self.queue.hurry_refused();
                }
                if kind == HostKind::PersistentVolumeClaims
                    && let Some(volume) = change.object().str_at("/spec/volumeName")
                {
                    self.queue.add(ItemKey::new(KindId::PersistentVolume, TenantKey::new("", volume)));
                }
            }
            _ => {
                if let Some(shown) = shown_by_host_kind(kind) {
                    self.queue_shown(shown, change.object());
                }
            }
        }
    }

    /// Queues a shown object, unless it plainly does not concern this tenant.
    fn queue_shown(&self, kind: &ShownKind, host: &Value) {
        let key = ItemKey::new(kind.id, TenantKey::new("", host.name()));
        let concerns = match kind.id {
            KindId::Node => !self.view.tenant.pods_on(host.name()).is_empty(),
            KindId::PersistentVolume => host.str_at("/spec/claimRef/namespace") == Some(self.view.names.host_namespace("")),
            _ => true,
        };
        if concerns || self.view.tenant.get(kind.id, &key.key).is_some() {
            self.queue.add(key);
        }
    }

    fn queue_copy(&self, kind: HostKind, copy: &Value) {
        for id in rows_of(kind) {
            if let Some(key) = self.view.key_of(*id, copy) {
                self.queue.add(ItemKey::new(*id, key));
            }
        }
    }

    /// The informers of a key: the tenant's and the host's.
    pub(super) fn informers(&self, id: KindId) -> (&Arc<Informer>, &Arc<Informer>) {
        (self.view.tenant.informer(id), self.view.host.informer(HostKind::of(id)))
    }
}

fn rows_of(kind: HostKind) -> &'static [KindId] {
    match kind {
        HostKind::Pods => &[KindId::Pod],
        HostKind::Services => &[KindId::Service],
        HostKind::EndpointSlices => &[KindId::EndpointSlice],
        HostKind::ConfigMaps => &[KindId::ConfigMap],
        HostKind::Secrets => &[KindId::Secret, KindId::PodToken],
        HostKind::PersistentVolumeClaims => &[KindId::PersistentVolumeClaim],
        _ => &[],
    }
}

/// How long a write of ours may stay unseen before the local copies are doubted.
pub(super) const EXPECTED_MAX: Duration = Duration::from_secs(15);
