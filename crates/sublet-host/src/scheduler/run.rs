//! The scheduler's loop: takes in changes, decides on one pod after the other, sends the writes off.

use super::bind::{BindError, COMPONENT, Writer};
use super::cluster::Cluster;
use super::decide::{Decision, Nominated, decide};
use super::filter::cause;
use super::pod::PodInfo;
use super::queue::Queue;
use super::volumes::Action;
use super::world::World;
use crate::events::EventSink;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{
    NAMESPACES, NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, POD_DISRUPTION_BUDGETS, PODS, STORAGE_CLASSES,
};
use sublet_runtime::{Change, Client, Clock, Informer, Key, Manager, Scope};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Writes on their way; beyond it decisions wait.
const WRITES_MAX: usize = 128;
/// Decisions in a row before other tasks of the thread get their turn.
const DECISIONS_MAX: usize = 16;
const REFUSED_CHECK: Duration = Duration::from_secs(30);

/// What changed since the loop last looked; bounded by the number of objects.
#[derive(Default)]
struct Dirty {
    pods: HashSet<Key>,
    nodes: HashSet<String>,
    causes: u8,
}

#[derive(Default)]
struct Changes {
    /// Guards what changed.
    dirty: Mutex<Dirty>,
    notify: Notify,
}

impl Changes {
    fn mark(&self, with: impl FnOnce(&mut Dirty)) {
        with(&mut self.dirty.lock().expect("no holder panics"));
        self.notify.notify_one();
    }
}

/// The scheduler before it runs.
pub(crate) struct Scheduler {
    local: Local,
    changes: Arc<Changes>,
    events: EventSink,
    clock: Clock,
}

/// The local copies that decisions read.
struct Local {
    pods: Arc<Informer>,
    nodes: Arc<Informer>,
    namespaces: Arc<Informer>,
    claims: Arc<Informer>,
    volumes: Arc<Informer>,
    classes: Arc<Informer>,
    budgets: Arc<Informer>,
}

impl Scheduler {
    pub(crate) fn new(manager: &Manager, events: EventSink, clock: Clock) -> Self {
        let informers = manager.informers();
        let informer = |gvr| informers.informer(&gvr, &Scope::default()).0;
        let local = Local {
            pods: informer(PODS),
            nodes: informer(NODES),
            namespaces: informer(NAMESPACES),
            claims: informer(PERSISTENT_VOLUME_CLAIMS),
            volumes: informer(PERSISTENT_VOLUMES),
            classes: informer(STORAGE_CLASSES),
            budgets: informer(POD_DISRUPTION_BUDGETS),
        };
        let changes = Arc::new(Changes::default());
        let on = |informer: &Informer, mark: fn(&mut Dirty, &Change)| {
            let changes = changes.clone();
            informer.on_change(move |change| changes.mark(|dirty| mark(dirty, change)));
        };
        on(&local.pods, |dirty, change| {
            dirty.pods.insert(change.key());
        });
        on(&local.nodes, |dirty, change| {
            dirty.nodes.insert(change.key().name);
        });
        on(&local.namespaces, |dirty, _| dirty.causes |= cause::INTERPOD);
        for informer in [&local.claims, &local.volumes, &local.classes] {
            on(informer, |dirty, _| dirty.causes |= cause::VOLUMES);
        }
        Self { local, changes, events, clock }
    }

    /// Runs until cancelled.
    pub(crate) async fn run(self, client: Client, cancel: CancellationToken) {
        let all = [
            &self.local.pods,
            &self.local.nodes,
            &self.local.namespaces,
            &self.local.claims,
            &self.local.volumes,
            &self.local.classes,
            &self.local.budgets,
        ];
        for informer in all {
            tokio::select! {
                () = informer.wait_synced() => {}
                () = cancel.cancelled() => return,
            }
        }
        let writer = Writer {
            client: client.with_field_manager(COMPONENT),
            clock: self.clock,
            events: self.events,
            claims: self.local.claims.clone(),
            volumes: self.local.volumes.clone(),
        };
        let state = State::default();
        Loop { local: self.local, changes: self.changes, writer, state, writes: JoinSet::new() }.run(cancel).await;
    }
}

#[derive(Default)]
struct State {
    cluster: Cluster,
    queue: Queue,
    nominated: Nominated,
    /// Pods whose binding is on its way or not seen yet.
    assumed: HashMap<Key, Arc<PodInfo>>,
    /// Volumes promised to a pod.
    promised: HashMap<String, Key>,
    turn: usize,
}

struct Loop {
    local: Local,
    changes: Arc<Changes>,
    writer: Writer,
    state: State,
    writes: JoinSet<Option<Bound>>,
}

/// How a binding ended.
struct Bound {
    pod: Arc<PodInfo>,
    result: Result<(), BindError>,
}

impl Loop {
    async fn run(mut self, cancel: CancellationToken) {
        let mut next_check = Instant::now() + REFUSED_CHECK;
        let mut decisions = 0;
        loop {
            let now = Instant::now();
            self.take_changes(now);
            while let Some(done) = self.writes.try_join_next() {
                self.finished(done.ok().flatten(), now);
            }
            self.state.queue.flush(now);
            if now >= next_check {
                self.state.queue.flush_refused(now);
                next_check = now + REFUSED_CHECK;
            }
            if self.writes.len() < WRITES_MAX
                && let Some(pod) = self.state.queue.pop()
            {
                self.schedule(pod, now);
                decisions += 1;
                if decisions % DECISIONS_MAX == 0 {
                    tokio::task::yield_now().await;
                }
                if !cancel.is_cancelled() {
                    continue;
                }
            }
            let wake = self.state.queue.next_wake().map_or(next_check, |at| at.min(next_check));
            tokio::select! {
                () = self.changes.notify.notified() => {}
                Some(done) = self.writes.join_next() => self.finished(done.ok().flatten(), Instant::now()),
                () = tokio::time::sleep_until(wake) => {}
                () = cancel.cancelled() => break,
            }
        }
        self.writes.shutdown().await;
    }

    fn take_changes(&mut self, now: Instant) {
        let dirty = std::mem::take(&mut *self.changes.dirty.lock().expect("no holder panics"));
        let mut causes = dirty.causes;
        for name in dirty.nodes {
            match self.local.nodes.get("", &name) {
                Some(node) => {
                    if self.state.cluster.put_node(node) {
                        causes |= cause::ANY;
                    }
                }
                None => {
                    self.state.cluster.remove_node(&name);
                    causes |= cause::SPREAD;
                }
            }
        }
        for key in dirty.pods {
            causes |= self.take_pod(&key, now);
        }
        if causes != 0 {
            self.state.queue.wake(causes, now);
        }
    }

    /// Takes in the present form of a pod; returns what that could mean for pods that wait.
    fn take_pod(&mut self, key: &Key, now: Instant) -> u8 {
        const LEFT: u8 = cause::RESOURCES | cause::PORTS | cause::SPREAD | cause::INTERPOD | cause::VOLUMES;
        const CAME: u8 = cause::SPREAD | cause::INTERPOD;
        let state = &mut self.state;
        let Some(pod) = self.local.pods.get_key(key) else {
            state.assumed.remove(key);
            state.nominated.remove(key);
            state.queue.remove(key);
            return if state.cluster.remove_pod(key) { LEFT } else { 0 };
        };
        let node = pod.str_at("/spec/nodeName").unwrap_or_default();
        let over = matches!(pod.str_at("/status/phase"), Some("Succeeded" | "Failed"));
        if !node.is_empty() {
            state.assumed.remove(key);
            state.nominated.remove(key);
            state.queue.remove(key);
            if over {
                return if state.cluster.remove_pod(key) { LEFT } else { 0 };
            }
            let moved = state.cluster.place(key) != Some(node);
            let node = node.to_string();
            let before = state.cluster.node(&node).map(|n| n.requested.clone());
            let info = Arc::new(PodInfo::parse(pod));
            state.cluster.put_pod(info, &node);
            let shrunk = before != state.cluster.node(&node).map(|n| n.requested.clone()) && !moved;
            return CAME | if shrunk { cause::RESOURCES } else { 0 };
        }
        if let Some(assumed) = state.assumed.get(key) {
            if assumed.uid() == pod.uid() {
                return 0;
            }
            // Another pod of that name: the assumption is void.
            state.assumed.remove(key);
            state.cluster.remove_pod(key);
        }
        let ours = matches!(pod.str_at("/spec/schedulerName"), None | Some("" | COMPONENT));
        if !ours || over || pod.is_deleting() || !pod.array_at("/spec/schedulingGates").is_empty() {
            state.queue.remove(key);
            state.nominated.remove(key);
            return 0;
        }
        let info = Arc::new(PodInfo::parse(pod));
        // Nominations are ours; the status tells of those from before a restart.
        let nominated = info.object.str_at("/status/nominatedNodeName").filter(|n| !n.is_empty());
        if let Some(nominated) = nominated.filter(|_| !state.queue.contains(key)) {
            state.nominated.insert(key.clone(), (nominated.to_string(), info.clone()));
        }
        state.queue.put(info, now);
        0
    }

    fn schedule(&mut self, pod: Arc<PodInfo>, now: Instant) {
        self.state.turn = self.state.turn.wrapping_add(1);
        let local = &self.local;
        let promised = &self.state.promised;
        let world = World {
            namespace: &|name| local.namespaces.get("", name),
            claim: &|namespace, name| local.claims.get(namespace, name),
            volume: &|name| local.volumes.get("", name),
            volumes: &|| local.volumes.list(None),
            class: &|name| local.classes.get("", name),
            budgets: &|_| local.budgets.list(None),
            promised: &|volume| promised.contains_key(volume),
        };
        match decide(&pod, &self.state.cluster, &self.state.nominated, &world, self.state.turn) {
            Decision::Bind { node, volumes } => self.assume(pod, node, volumes),
            Decision::Refuse { message, causes, preemption } => {
                let key = pod.key.clone();
                self.state.queue.refused(&key, causes, now);
                let waits = message.ends_with("not eligible due to a terminating pod on the nominated node.");
                let writer = self.writer.clone();
                if let Some(preemption) = preemption {
                    let displaced = self.displace(&pod, &preemption.node, now);
                    self.state.nominated.insert(key, (preemption.node.clone(), pod.clone()));
                    self.writes.spawn(async move {
                        writer.refuse(&pod, &message).await;
                        writer.preempt(&pod, &preemption).await;
                        for other in displaced {
                            writer.clear_nomination(&other).await;
                        }
                        None
                    });
                    return;
                }
                let clear = !waits && self.state.nominated.remove(&key).is_some();
                self.writes.spawn(async move {
                    writer.refuse(&pod, &message).await;
                    if clear {
                        writer.clear_nomination(&pod).await;
                    }
                    None
                });
            }
        }
    }

    /// Pods of lower priority that wait for room on the node must look elsewhere: this one takes it.
    fn displace(&mut self, pod: &PodInfo, node: &str, now: Instant) -> Vec<Arc<PodInfo>> {
        let state = &mut self.state;
        let mut displaced = Vec::new();
        state.nominated.retain(|_, (place, other)| {
            let stays = place != node || other.priority >= pod.priority;
            if !stays {
                displaced.push(other.clone());
            }
            stays
        });
        for other in &displaced {
            state.queue.retry(&other.key, now);
        }
        displaced
    }

    /// The pod counts as placed from now on; its binding goes out.
    fn assume(&mut self, pod: Arc<PodInfo>, node: String, volumes: Vec<Action>) {
        let state = &mut self.state;
        state.queue.remove(&pod.key);
        state.nominated.remove(&pod.key);
        state.assumed.insert(pod.key.clone(), pod.clone());
        state.cluster.put_pod(pod.clone(), &node);
        for action in &volumes {
            if let Action::Bind { volume, .. } = action {
                state.promised.insert(volume.clone(), pod.key.clone());
            }
        }
        let writer = self.writer.clone();
        self.writes.spawn(async move {
            let result = writer.bind(&pod, &node, &volumes).await;
            Some(Bound { pod, result })
        });
    }

    fn finished(&mut self, bound: Option<Bound>, now: Instant) {
        let Some(Bound { pod, result }) = bound else { return };
        let state = &mut self.state;
        state.promised.retain(|_, key| *key != pod.key);
        let Err(error) = result else { return };
        let assumed = state.assumed.get(&pod.key).is_some_and(|a| a.uid() == pod.uid());
        if !assumed {
            return;
        }
        state.assumed.remove(&pod.key);
        state.cluster.remove_pod(&pod.key);
        if matches!(error, BindError::Gone) {
            // The informer will tell what became of it.
            self.changes.mark(|dirty| {
                dirty.pods.insert(pod.key.clone());
            });
        } else {
            tracing::warn!(pod = %pod.key, %error, "binding failed, will retry");
            state.queue.put(pod.clone(), now);
            state.queue.failed(&pod.key, now);
        }
        state.queue.wake(cause::RESOURCES | cause::PORTS, now);
    }
}
