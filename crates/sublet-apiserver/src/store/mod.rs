//! The state of one API server: all objects in memory as shared bytes, made durable by a `Backend`.
//!
//! Keys are `GROUP_RESOURCE/NAMESPACE/NAME`. Reads come from memory. A write goes to the backend,
//! which makes it durable and hands it to the observer here, in revision order, before the writer
//! gets its answer: whoever got an answer sees the write in the next read.

pub mod entry;
pub mod log;

use entry::{Encoded, Entry};
use log::{Log, LogEvent};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use sublet_machinery::{ApiError, Reason};
use sublet_storage::{Backend, Expect, StorageError, Write};
use tokio::sync::watch;

/// Bytes that the objects of one server may have in all, as they are sent. etcd's default is twice as much.
const OBJECTS_BYTES_MAX: usize = 1 << 30;
/// How much larger a write may be that does not count as growth.
const GROWTH_BYTES: usize = 1 << 10;
/// Bytes that all logs of one server may hold.
const LOGS_BYTES_MAX: usize = 64 << 20;

/// Bytes of events that a watcher takes at once. Whoever is slow keeps them from being forgotten.
const EVENTS_BYTES_MAX: usize = 256 << 10;

/// One API server's objects.
#[derive(Clone)]
pub struct Store {
    backend: Arc<dyn Backend>,
    shared: Arc<Shared>,
}

struct Shared {
    /// Tells the stores of one process apart.
    id: u64,
    /// Bytes that all objects may have.
    bytes_max: usize,
    /// Guards the objects and logs; held for plain memory moves only.
    state: RwLock<State>,
    /// The newest revision, for those who wait for one.
    revision: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    buckets: HashMap<Box<str>, Bucket>,
    revision: u64,
    /// Of all objects.
    bytes: usize,
    /// Of all logs.
    log_bytes: usize,
    /// Logs made later start here: nothing before it is known.
    loaded_at: u64,
    /// Lists from before are refused, also of resources that did not change since: how long a page can be continued
    /// does not depend on what others write.
    forgotten_before: u64,
}

struct Bucket {
    objects: BTreeMap<Arc<str>, Arc<Entry>>,
    /// Of all objects, as they are sent.
    bytes: usize,
    log: Log,
    /// The revision of the last change; wakes the watchers of this resource.
    changed: watch::Sender<u64>,
}

/// A consistent view of one resource (or one namespace of it).
#[derive(Debug, Default)]
pub struct Snapshot {
    pub entries: Vec<Arc<Entry>>,
    pub revision: u64,
}

/// Why a read at an older revision cannot be had.
#[derive(Debug, PartialEq, Eq)]
pub struct TooOld;

impl Store {
    /// Loads everything the backend holds and starts to follow its commits.
    pub fn open(backend: Arc<dyn Backend>) -> Result<Self, StorageError> {
        Self::open_bounded(backend, OBJECTS_BYTES_MAX)
    }

    fn open_bounded(backend: Arc<dyn Backend>, bytes_max: usize) -> Result<Self, StorageError> {
        let (objects, revision) = backend.load()?;
        let mut state = State { revision, loaded_at: revision, ..State::default() };
        for object in objects {
            let entry =
                Entry::compose(object.key.clone(), object.revision, &object.value).map_err(|e| StorageError::Failed(e.to_string()))?;
            state.insert(Arc::new(entry));
        }
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::new(Shared { id, bytes_max, state: RwLock::new(state), revision: watch::Sender::new(revision) });
        let observer = shared.clone();
        backend.observe(Box::new(move |events| observer.take_in(events)));
        Ok(Self { backend, shared })
    }

    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// A number that no other store in this process has, now or later. With it a revision names one object at one time.
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    pub fn revision(&self) -> u64 {
        self.read().revision
    }

    /// The revision of the last change of one resource.
    pub fn resource_revision(&self, group_resource: &str) -> u64 {
        let state = self.read();
        state.buckets.get(group_resource).map_or(state.loaded_at, |b| *b.changed.borrow())
    }

    /// Waits until the store has reached `revision`, at most three seconds as upstream does.
    pub async fn wait_for(&self, revision: u64) -> bool {
        let mut newest = self.shared.revision.subscribe();
        let reached = newest.wait_for(|r| *r >= revision);
        tokio::time::timeout(std::time::Duration::from_secs(3), reached).await.is_ok()
    }

    pub fn get(&self, group_resource: &str, namespace: &str, name: &str) -> Option<Arc<Entry>> {
        let key = key(group_resource, namespace, name);
        self.read().buckets.get(group_resource)?.objects.get(key.as_str()).cloned()
    }

    pub fn count(&self, group_resource: &str) -> usize {
        self.read().buckets.get(group_resource).map_or(0, |b| b.objects.len())
    }

    /// Bytes of all objects of a resource, as they are sent.
    pub fn bytes_of(&self, group_resource: &str) -> usize {
        self.read().buckets.get(group_resource).map_or(0, |b| b.bytes)
    }

    /// Number of objects per resource.
    pub fn counts(&self) -> Vec<(String, usize)> {
        self.read().buckets.iter().map(|(k, b)| (k.to_string(), b.objects.len())).collect()
    }

    /// The entries now, in key order.
    pub fn list(&self, group_resource: &str, namespace: Option<&str>) -> Snapshot {
        let state = self.read();
        let entries = state.buckets.get(group_resource).map_or_else(Vec::new, |b| b.range(group_resource, namespace).cloned().collect());
        Snapshot { entries, revision: state.revision }
    }

    /// The entries as they were at `revision`: the present, with the log undone.
    pub fn list_at(&self, group_resource: &str, namespace: Option<&str>, revision: u64) -> Result<Snapshot, TooOld> {
        let state = self.read();
        if revision < state.forgotten_before {
            return Err(TooOld);
        }
        let Some(bucket) = state.buckets.get(group_resource) else {
            return if revision < state.loaded_at { Err(TooOld) } else { Ok(Snapshot { entries: Vec::new(), revision }) };
        };
        let later = bucket.log.after(revision).ok_or(TooOld)?;
        let mut undo: HashMap<&str, Option<&Arc<Entry>>> = HashMap::new();
        for event in later.rev() {
            undo.insert(&event.entry.key, event.previous.as_ref());
        }
        if undo.is_empty() {
            return Ok(Snapshot { entries: bucket.range(group_resource, namespace).cloned().collect(), revision });
        }
        let prefix = prefix(group_resource, namespace);
        let mut entries: Vec<Arc<Entry>> =
            bucket.range(group_resource, namespace).filter(|e| !undo.contains_key(&*e.key)).cloned().collect();
        entries.extend(undo.into_values().flatten().filter(|e| e.key.starts_with(&prefix)).cloned());
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Snapshot { entries, revision })
    }

    /// At most `limit` entries behind the key `after`, and how many follow them. `None` when a list at that revision is not the
    /// present: then all of it is needed. The cost does not grow with the entries, apart from counting them.
    pub fn page(
        &self,
        group_resource: &str,
        namespace: Option<&str>,
        after: &str,
        limit: usize,
        revision: Option<u64>,
    ) -> Option<(Snapshot, usize)> {
        let state = self.read();
        let bucket = state.buckets.get(group_resource)?;
        if let Some(revision) = revision {
            let is_present =
                revision >= state.forgotten_before && bucket.log.after(revision).is_some_and(|mut later| later.next().is_none());
            if !is_present {
                return None;
            }
        }
        let prefix = prefix(group_resource, namespace);
        // The sign after the slash: nothing with this prefix comes behind it.
        let end = format!("{}0", &prefix[..prefix.len() - 1]);
        let start = if after < prefix.as_str() { Bound::Included(&*prefix) } else { Bound::Excluded(after) };
        let entries = if after < end.as_str() { Some(bucket.objects.range::<str, _>((start, Bound::Excluded(&*end)))) } else { None };
        let mut entries = entries.into_iter().flatten();
        let page = entries.by_ref().take(limit).map(|(_, entry)| entry.clone()).collect();
        Some((Snapshot { entries: page, revision: revision.unwrap_or(state.revision) }, entries.count()))
    }

    /// Starts to follow a resource: a receiver that is told of changes.
    pub fn changes(&self, group_resource: &str) -> watch::Receiver<u64> {
        if let Some(bucket) = self.read().buckets.get(group_resource) {
            return bucket.changed.subscribe();
        }
        let mut state = self.shared.state.write().expect("no holder of this lock panics");
        state.bucket(&format!("{group_resource}/")).changed.subscribe()
    }

    /// Tells of any change of any resource.
    pub fn any_change(&self) -> watch::Receiver<u64> {
        self.shared.revision.subscribe()
    }

    /// Up to `events_max` events after `revision`, fewer when they are large, and the revision up to which they are
    /// complete.
    pub fn events_after(&self, group_resource: &str, revision: u64, events_max: usize) -> Result<(Vec<Arc<LogEvent>>, u64), TooOld> {
        let state = self.read();
        let Some(bucket) = state.buckets.get(group_resource) else {
            return if revision < state.loaded_at { Err(TooOld) } else { Ok((Vec::new(), state.revision)) };
        };
        let mut later = bucket.log.after(revision).ok_or(TooOld)?;
        let (mut events, mut bytes) = (Vec::new(), 0);
        while events.len() < events_max && bytes < EVENTS_BYTES_MAX {
            // Who has them all has seen what happened to other resources too.
            let Some(event) = later.next() else { return Ok((events, state.revision)) };
            bytes += event.entry.json.len();
            events.push(event.clone());
        }
        let complete_to = events.last().map_or(revision, |e| e.revision);
        Ok((events, complete_to))
    }

    /// Puts or deletes durably. The caller learns of a changed object by `Conflict`.
    pub async fn write(
        &self,
        group_resource: &str,
        namespace: &str,
        name: &str,
        object: Option<Encoded>,
        expect: Expect,
    ) -> Result<Arc<Entry>, StorageError> {
        let key: Arc<str> = key(group_resource, namespace, name).into();
        let stored = object.map(|o| o.stored);
        if let Some(stored) = &stored {
            self.check_room(group_resource, &key, stored.len())?;
        }
        let before = if stored.is_none() { self.get(group_resource, namespace, name) } else { None };
        let revision = self.backend.write(Write { key: key.clone(), value: stored.clone(), expect }).await?;
        match stored {
            Some(stored) => {
                if let Some(entry) = self.get(group_resource, namespace, name).filter(|e| e.revision == revision) {
                    return Ok(entry);
                }
                Entry::compose(key, revision, &stored).map(Arc::new).map_err(|e| StorageError::Failed(e.to_string()))
            }
            None => match before {
                Some(entry) => Ok(Arc::new(entry.at_revision(revision))),
                None => Err(StorageError::Conflict { current: None }),
            },
        }
    }

    /// What does not grow is always taken: it may be the way to make room.
    fn check_room(&self, group_resource: &str, key: &str, bytes: usize) -> Result<(), StorageError> {
        let state = self.read();
        let held = state.bytes;
        if held + bytes <= self.shared.bytes_max {
            return Ok(());
        }
        let before = state.buckets.get(group_resource).and_then(|b| b.objects.get(key)).map_or(0, |e| e.json.len());
        // Headers and revisions make small differences.
        if before > 0 && bytes <= before + GROWTH_BYTES {
            return Ok(());
        }
        Err(StorageError::Full { bytes: held, most: self.shared.bytes_max })
    }

    /// Drops the parts of the logs that are older than `revision`; a maintenance step.
    pub fn forget_before(&self, revision: u64) {
        let mut state = self.shared.state.write().expect("no holder of this lock panics");
        state.forgotten_before = state.forgotten_before.max(revision);
        for bucket in state.buckets.values_mut() {
            bucket.log.forget_before(revision);
        }
        state.log_bytes = state.buckets.values().map(|b| b.log.bytes()).sum();
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.shared.state.read().expect("no holder of this lock panics")
    }
}

impl Shared {
    /// Applies committed events; runs on the backend's committing thread.
    fn take_in(&self, events: &[sublet_storage::Event]) {
        let Some(last) = events.last() else { return };
        let composed: Vec<Option<Entry>> = events
            .iter()
            .map(|e| e.value.as_ref().map(|v| Entry::compose(e.key.clone(), e.revision, v).expect("this server encoded the value")))
            .collect();
        let mut touched: Vec<(Box<str>, u64)> = Vec::new();
        let mut state = self.state.write().expect("no holder of this lock panics");
        for (event, composed) in events.iter().zip(composed) {
            assert!(event.revision > state.revision, "revisions rise");
            state.revision = event.revision;
            let log_event = match composed {
                Some(entry) => {
                    let entry = Arc::new(entry);
                    let previous = state.insert(entry.clone());
                    LogEvent::new(entry, previous, false)
                }
                None => {
                    let Some(previous) = state.remove(&event.key) else { continue };
                    LogEvent::new(Arc::new(previous.at_revision(event.revision)), Some(previous), true)
                }
            };
            state.push(&event.key, log_event);
            let name = bucket_name(&event.key);
            match touched.iter_mut().find(|(n, _)| &**n == name) {
                Some((_, revision)) => *revision = event.revision,
                None => touched.push((name.into(), event.revision)),
            }
        }
        // Watchers wake while the lock is still held, and read when it is free.
        for (name, revision) in touched {
            if let Some(bucket) = state.buckets.get(&name) {
                bucket.changed.send_replace(revision);
            }
        }
        drop(state);
        self.revision.send_replace(last.revision);
    }
}

impl State {
    fn bucket(&mut self, key: &str) -> &mut Bucket {
        let name = bucket_name(key);
        if !self.buckets.contains_key(name) {
            let bucket = Bucket {
                objects: BTreeMap::new(),
                bytes: 0,
                log: Log::starting_at(self.loaded_at),
                changed: watch::Sender::new(self.loaded_at),
            };
            self.buckets.insert(name.into(), bucket);
        }
        self.buckets.get_mut(name).expect("was just made")
    }
}

impl State {
    fn insert(&mut self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        let (key, bytes) = (entry.key.clone(), entry.json.len());
        let previous = self.bucket(&key).insert(entry);
        self.bytes = self.bytes + bytes - previous.as_ref().map_or(0, |p| p.json.len());
        previous
    }

    fn remove(&mut self, key: &str) -> Option<Arc<Entry>> {
        let previous = self.bucket(key).remove(key)?;
        self.bytes -= previous.json.len();
        Some(previous)
    }

    /// Appends to a log. When all logs together are too long, the longest one forgets its older half.
    fn push(&mut self, key: &str, event: LogEvent) {
        let log = &mut self.bucket(key).log;
        let before = log.bytes();
        log.push(Arc::new(event));
        let after = log.bytes();
        self.log_bytes = self.log_bytes + after - before;
        while self.log_bytes > LOGS_BYTES_MAX {
            let Some(longest) = self.buckets.values_mut().map(|b| &mut b.log).max_by_key(|log| log.bytes()) else { return };
            let freed = longest.forget_half();
            self.log_bytes -= freed;
            if freed == 0 {
                return;
            }
        }
    }
}

impl Bucket {
    fn insert(&mut self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        self.bytes += entry.json.len();
        let previous = self.objects.insert(entry.key.clone(), entry);
        self.bytes -= previous.as_ref().map_or(0, |p| p.json.len());
        previous
    }

    fn remove(&mut self, key: &str) -> Option<Arc<Entry>> {
        let previous = self.objects.remove(key);
        self.bytes -= previous.as_ref().map_or(0, |p| p.json.len());
        previous
    }

    fn range(&self, group_resource: &str, namespace: Option<&str>) -> impl Iterator<Item = &Arc<Entry>> {
        let prefix: Arc<str> = prefix(group_resource, namespace).into();
        self.objects.range(prefix.clone()..).take_while(move |(k, _)| k.starts_with(&*prefix)).map(|(_, e)| e)
    }
}

pub fn key(group_resource: &str, namespace: &str, name: &str) -> String {
    format!("{group_resource}/{namespace}/{name}")
}

fn prefix(group_resource: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("{group_resource}/{namespace}/"),
        None => format!("{group_resource}/"),
    }
}

fn bucket_name(key: &str) -> &str {
    key.split('/').next().unwrap_or_default()
}

/// What a client sees when the store itself fails.
pub fn storage_error(error: &StorageError) -> ApiError {
    match error {
        StorageError::Conflict { .. } => ApiError::internal("storage conflict"),
        StorageError::Closed => ApiError::unavailable("the server is shutting down"),
        StorageError::Full { bytes, most } => ApiError::new(
            403,
            Reason::Forbidden,
            format!("the store of this cluster is full: its objects have {bytes} bytes of at most {most}; delete some to make room"),
        ),
        StorageError::Failed(why) => {
            tracing::error!(why, "storage failed");
            ApiError::internal("storage failed; see the server log")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn lists_end_with_the_history_whoever_wrote_last() {
        let store = Store::open(Arc::new(sublet_storage::MemoryBackend::new())).unwrap();
        let write = async |kind, name| {
            let object = Encoded::new(&json!({"metadata": {"name": name}}), &[]);
            store.write(kind, "ns", name, Some(object), Expect::Absent).await.unwrap().revision
        };
        let quiet = write("configmaps", "a").await;
        let busy = write("leases", "a").await;
        assert_eq!(store.list_at("configmaps", None, quiet).unwrap().entries.len(), 1);
        store.forget_before(busy);
        assert_eq!(store.list_at("configmaps", None, quiet).unwrap_err(), TooOld);
        assert_eq!(store.list_at("configmaps", None, busy).unwrap().entries.len(), 1);
        assert_eq!(store.list_at("secrets", None, quiet).unwrap_err(), TooOld);
    }

    #[tokio::test]
    async fn pages_are_parts_of_the_list() {
        let store = Store::open(Arc::new(sublet_storage::MemoryBackend::new())).unwrap();
        for (kind, namespace) in [("configmaps", "a"), ("configmaps", "a-b"), ("configmaps", "b"), ("configmaps.x", "a"), ("nodes", "")] {
            for name in ["x", "y", "z"] {
                let object = Encoded::new(&json!({"metadata": {"name": name}}), &[]);
                store.write(kind, namespace, name, Some(object), Expect::Absent).await.unwrap();
            }
        }
        let keys = |entries: &[Arc<Entry>]| entries.iter().map(|e| e.key.to_string()).collect::<Vec<_>>();
        for (kind, namespace) in [("configmaps", None), ("configmaps", Some("a")), ("configmaps", Some("b")), ("nodes", None)] {
            let all = keys(&store.list(kind, namespace).entries);
            for limit in 1..5 {
                let (mut found, mut after) = (Vec::new(), String::new());
                loop {
                    let (page, rest) = store.page(kind, namespace, &after, limit, None).unwrap();
                    found.extend(keys(&page.entries));
                    assert_eq!(rest, all.len() - found.len());
                    after = found.last().unwrap().clone();
                    if rest == 0 {
                        break;
                    }
                }
                assert_eq!(found, all);
            }
            assert_eq!(store.page(kind, namespace, "zzz", 5, None).unwrap().0.entries.len(), 0);
        }
        let before = store.revision();
        assert!(store.page("configmaps", None, "", 5, Some(before)).is_some());
        store.write("configmaps", "a", "x", None, Expect::Any).await.unwrap();
        assert!(store.page("configmaps", None, "", 5, Some(before)).is_none());
        assert!(store.page("nodes", None, "", 5, Some(before)).is_some());
    }

    #[tokio::test]
    async fn a_full_store_takes_what_makes_room_and_nothing_else() {
        let store = Store::open_bounded(Arc::new(sublet_storage::MemoryBackend::new()), 10_000).unwrap();
        let write = async |name: &str, bytes: usize, expect| {
            let object = Encoded::new(&json!({"metadata": {"name": name}, "data": "x".repeat(bytes)}), &[]);
            store.write("configmaps", "ns", name, Some(object), expect).await
        };
        for name in ["a", "b", "c"] {
            write(name, 3000, Expect::Absent).await.unwrap();
        }
        let full = write("d", 3000, Expect::Absent).await.unwrap_err();
        assert_eq!(storage_error(&full).code, 403);
        assert!(write("a", 6000, Expect::Any).await.is_err());
        write("a", 3001, Expect::Any).await.unwrap();
        write("b", 10, Expect::Any).await.unwrap();
        write("d", 2000, Expect::Absent).await.unwrap();
        store.write("configmaps", "ns", "c", None, Expect::Any).await.unwrap();
        let held: usize = store.list("configmaps", None).entries.iter().map(|e| e.json.len()).sum();
        assert_eq!((store.bytes_of("configmaps"), store.read().bytes), (held, held));
    }

    /// Each log had a bound and all together had none: a thousand kinds were a thousand times eight MiB.
    #[tokio::test]
    async fn all_logs_together_are_bounded() {
        let store = Store::open(Arc::new(sublet_storage::MemoryBackend::new())).unwrap();
        let object = |i: usize| Encoded::new(&json!({"metadata": {"name": "a"}, "i": i, "data": "x".repeat(500_000)}), &[]);
        for i in 0..400 {
            let kind = format!("kind{}", i % 40);
            store.write(&kind, "ns", "a", Some(object(i)), Expect::Any).await.unwrap();
            let state = store.read();
            let bytes: usize = state.buckets.values().map(|b| b.log.bytes()).sum();
            assert_eq!(bytes, state.log_bytes);
            assert!(bytes <= LOGS_BYTES_MAX);
        }
    }
}
