//! A local copy of one resource, kept true by list and watch, with the indexes that controllers need.

use crate::client::{Client, ClientError, ListOptions, WatchEvent};
use crate::held::{Held, is_kept_as_text};
use futures::StreamExt;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, RwLock, Weak};
use std::time::Duration;
use sublet_machinery::{Gvr, NamespacedName, ObjectExt};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const LIST_PAGE_ITEMS: u32 = 500;
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(15);
/// Objects that stay parsed: those that changed last, for they are read most. The others are text, a tenth of the memory.
const PARSED: usize = 256;
/// How many changes are noted before the older ones become text: what is parsed at most.
const PARSED_MAX: usize = 2 * PARSED;

/// Which objects of a resource an informer holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Scope {
    /// Empty: all namespaces.
    pub namespace: String,
    pub label_selector: String,
    pub field_selector: String,
}

/// What happened to one object: added (no old), changed, or deleted (no new).
#[derive(Clone, Debug)]
pub struct Change {
    pub old: Option<Arc<Value>>,
    pub new: Option<Arc<Value>>,
}

impl Change {
    /// The newest known form of the object.
    pub fn object(&self) -> &Arc<Value> {
        self.new.as_ref().or(self.old.as_ref()).expect("a change has at least one side")
    }

    pub fn key(&self) -> NamespacedName {
        NamespacedName::of(self.object())
    }

    pub fn is_delete(&self) -> bool {
        self.new.is_none()
    }
}

type Handler = Box<dyn Fn(&Change) + Send + Sync>;
/// Keys under which an object is found in a named index.
type IndexFn = Box<dyn Fn(&Value) -> Vec<String> + Send + Sync>;
/// Drops what no reader of the copy needs, to save memory.
type Transform = Box<dyn Fn(&mut Value) + Send + Sync>;

/// A local copy of one resource. Reads never wait for the network.
pub struct Informer {
    gvr: Gvr,
    scope: Scope,
    transform: Option<Transform>,
    as_text: bool,
    /// Guards the copy; held for memory moves, and one object's text, only.
    store: RwLock<Store>,
    handlers: RwLock<Vec<Handler>>,
    synced: watch::Sender<bool>,
}

#[derive(Default)]
struct Store {
    objects: BTreeMap<NamespacedName, Held>,
    by_owner: HashMap<String, BTreeSet<NamespacedName>>,
    by_index: HashMap<(&'static str, String), BTreeSet<NamespacedName>>,
    index_fns: Vec<(&'static str, IndexFn)>,
    /// What is kept parsed, the oldest first. What changed since, or is gone, has nothing behind it any more.
    parsed: VecDeque<(NamespacedName, Weak<Value>)>,
    resource_version: String,
    /// What our own writes made of an object, as long as the watch has not come that far.
    ahead: HashMap<NamespacedName, Ahead>,
}

/// Knowledge from the answer of a write that older news must not undo.
enum Ahead {
    /// The revision of our write.
    Written(u64),
    /// The uid of the object that we deleted.
    Deleted(String),
}

impl Informer {
    pub fn new(gvr: Gvr, scope: Scope) -> Arc<Self> {
        Self::build(gvr, scope, None)
    }

    /// As [`Self::new`]; every object passes `transform` before it is kept and shown to handlers.
    /// It must leave the metadata that names the object alone.
    pub fn with_transform(gvr: Gvr, scope: Scope, transform: impl Fn(&mut Value) + Send + Sync + 'static) -> Arc<Self> {
        Self::build(gvr, scope, Some(Box::new(transform)))
    }

    fn build(gvr: Gvr, scope: Scope, transform: Option<Transform>) -> Arc<Self> {
        let (as_text, store, handlers) = (is_kept_as_text(&gvr), RwLock::default(), RwLock::default());
        Arc::new(Self { gvr, scope, transform, as_text, store, handlers, synced: watch::Sender::new(false) })
    }

    pub fn gvr(&self) -> &Gvr {
        &self.gvr
    }

    /// Calls `handler` for every change from now on, and at once for every object already held.
    /// Handlers must be quick: they run on the informer's task.
    pub fn on_change(&self, handler: impl Fn(&Change) + Send + Sync + 'static) {
        let held: Vec<_> = self.list(None);
        for object in held {
            handler(&Change { old: None, new: Some(object) });
        }
        self.handlers.write().expect("no holder panics").push(Box::new(handler));
    }

    /// Adds an index, to be read with [`Self::by_index`]. Adding a name twice keeps the first.
    pub fn add_index(&self, name: &'static str, keys: impl Fn(&Value) -> Vec<String> + Send + Sync + 'static) {
        let mut store = self.store.write().expect("no holder panics");
        if store.index_fns.iter().any(|(n, _)| *n == name) {
            return;
        }
        let mut entries: Vec<(String, NamespacedName)> = Vec::new();
        for (key, object) in &store.objects {
            entries.extend(keys(&object.object()).into_iter().map(|k| (k, key.clone())));
        }
        for (index_key, key) in entries {
            store.by_index.entry((name, index_key)).or_default().insert(key);
        }
        store.index_fns.push((name, Box::new(keys)));
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.get_key(&NamespacedName::new(namespace, name))
    }

    pub fn get_key(&self, key: &NamespacedName) -> Option<Arc<Value>> {
        let held = self.store.read().expect("no holder panics").objects.get(key).cloned();
        held.map(|h| h.object())
    }

    /// All objects, or those of one namespace, by name.
    pub fn list(&self, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let held: Vec<Held> = {
            let store = self.store.read().expect("no holder panics");
            match namespace {
                None => store.objects.values().cloned().collect(),
                Some(namespace) => store
                    .objects
                    .range(NamespacedName::new(namespace, "")..)
                    .take_while(|(k, _)| k.namespace == namespace)
                    .map(|(_, o)| o.clone())
                    .collect(),
            }
        };
        held.iter().map(Held::object).collect()
    }

    /// The objects whose owner references name `uid`.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<Value>> {
        self.held(|store| store.by_owner.get(uid))
    }

    pub fn by_index(&self, name: &'static str, key: &str) -> Vec<Arc<Value>> {
        let key = (name, key.to_string());
        self.held(|store| store.by_index.get(&key))
    }

    fn held(&self, keys: impl Fn(&Store) -> Option<&BTreeSet<NamespacedName>>) -> Vec<Arc<Value>> {
        let held: Vec<Held> = {
            let store = self.store.read().expect("no holder panics");
            keys(&store).into_iter().flatten().filter_map(|k| store.objects.get(k).cloned()).collect()
        };
        held.iter().map(Held::object).collect()
    }

    pub fn len(&self) -> usize {
        self.store.read().expect("no holder panics").objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The revision up to which the copy is true.
    pub fn resource_version(&self) -> String {
        self.store.read().expect("no holder panics").resource_version.clone()
    }

    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Waits for the first complete list.
    pub async fn wait_synced(&self) {
        let mut synced = self.synced.subscribe();
        // The sender lives in self, so waiting cannot fail.
        let _ = synced.wait_for(|s| *s).await;
    }

    /// Lists and watches until cancelled. Errors are retried with back-off for ever.
    pub async fn run(self: Arc<Self>, client: Client, cancel: CancellationToken) {
        client.clone().in_turns(self.list_and_watch(client, cancel)).await;
    }

    async fn list_and_watch(self: Arc<Self>, client: Client, cancel: CancellationToken) {
        let mut delay = RETRY_FIRST;
        while !cancel.is_cancelled() {
            let turn = async {
                // On the heap while it lasts: there are many informers, and nearly all of them just wait.
                let version = Box::pin(self.relist(&client)).await?;
                delay = RETRY_FIRST;
                self.follow(&client, version).await
            };
            let result = tokio::select! {
                result = turn => result,
                () = cancel.cancelled() => return,
            };
            if let Err(error) = result {
                // A resource that the server does not serve (yet) is no news worth a warning each time.
                if error.is_not_found() {
                    tracing::debug!(gvr = %self.gvr, %error, "resource is not served");
                } else {
                    tracing::warn!(gvr = %self.gvr, %error, "list and watch failed, will retry");
                }
                tokio::select! {
                    () = tokio::time::sleep(delay) => {}
                    () = cancel.cancelled() => return,
                }
                delay = (delay * 2).min(RETRY_MAX);
            }
        }
    }

    async fn relist(&self, client: &Client) -> Result<String, ClientError> {
        let mut options = ListOptions { limit: Some(LIST_PAGE_ITEMS), ..self.list_options() };
        let mut fresh = BTreeMap::new();
        let version = loop {
            let page = client.list(&self.gvr, &self.scope.namespace, &options).await?;
            fresh.extend(page.items.into_iter().map(|o| (NamespacedName::of(&o), o)));
            if page.continue_token.is_empty() {
                break page.resource_version;
            }
            options.continue_token = page.continue_token;
        };
        let gone: Vec<NamespacedName> = {
            let mut store = self.store.write().expect("no holder panics");
            let listed_at = revision(&version);
            store.ahead.retain(|key, ahead| match ahead {
                Ahead::Written(at) => *at > listed_at,
                Ahead::Deleted(uid) => fresh.get(key).is_some_and(|o| o.uid() == uid),
            });
            store.objects.keys().filter(|k| !fresh.contains_key(k) && !store.ahead.contains_key(k)).cloned().collect()
        };
        for key in gone {
            self.remove(&key, None);
        }
        for (key, object) in fresh {
            self.put(key, object);
        }
        self.store.write().expect("no holder panics").resource_version.clone_from(&version);
        self.synced.send_replace(true);
        Ok(version)
    }

    /// Follows the watch, resuming it, until a relist is needed.
    async fn follow(&self, client: &Client, mut version: String) -> Result<(), ClientError> {
        loop {
            let options = self.list_options();
            let mut events = Box::pin(client.watch(&self.gvr, &self.scope.namespace, &version, &options)).await?;
            while let Some(event) = events.next().await {
                let object = match event? {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                        version = object.resource_version().to_string();
                        self.put(NamespacedName::of(&object), object);
                        self.reached(&version);
                        continue;
                    }
                    WatchEvent::Deleted(object) => {
                        self.remove(&NamespacedName::of(&object), Some(&object));
                        object
                    }
                    WatchEvent::Bookmark(object) => object,
                    // Expired: the server forgot our revision. The caller lists anew.
                    WatchEvent::Error(error) if error.code == 410 => return Ok(()),
                    WatchEvent::Error(error) => return Err(error.into()),
                };
                version = object.resource_version().to_string();
                self.reached(&version);
            }
        }
    }

    /// The watch has come to `version`.
    fn reached(&self, version: &str) {
        let mut store = self.store.write().expect("no holder panics");
        store.resource_version = version.to_string();
        if !store.ahead.is_empty() {
            let now = revision(version);
            store.ahead.retain(|_, ahead| !matches!(ahead, Ahead::Written(at) if *at <= now));
        }
    }

    fn list_options(&self) -> ListOptions {
        ListOptions {
            label_selector: self.scope.label_selector.clone(),
            field_selector: self.scope.field_selector.clone(),
            ..ListOptions::default()
        }
    }

    /// Takes in the answer of one of our own writes, so that the next step sees it before the watch
    /// brings it. Answers that the watch has overtaken are dropped.
    pub fn wrote(&self, object: &Value) {
        if self.scope == Scope::default() {
            self.take_in(NamespacedName::of(object), object.clone(), true);
        }
    }

    /// Takes in that one of our own requests removed the object with this uid.
    pub fn deleted(&self, key: &NamespacedName, uid: &str) {
        let old = {
            let mut store = self.store.write().expect("no holder panics");
            if store.objects.get(key).is_none_or(|o| o.object().uid() != uid) {
                return;
            }
            store.ahead.insert(key.clone(), Ahead::Deleted(uid.to_string()));
            store.take(key)
        };
        self.notify(&Change { old, new: None });
    }

    /// Takes in an object. Public for tests; loops that just wrote it use [`Self::wrote`].
    pub fn put(&self, key: NamespacedName, object: Value) {
        self.take_in(key, object, false);
    }

    fn take_in(&self, key: NamespacedName, mut object: Value, own_write: bool) {
        if let Some(transform) = &self.transform {
            transform(&mut object);
        }
        let new = Arc::new(object);
        let at = revision(new.resource_version());
        let old = {
            let mut store = self.store.write().expect("no holder panics");
            let stale = match store.ahead.get(&key) {
                Some(Ahead::Written(newest)) => at < *newest,
                Some(Ahead::Deleted(uid)) => new.uid() == uid,
                None => false,
            };
            if stale || (own_write && at <= revision(&store.resource_version)) {
                return;
            }
            let old = store.objects.get(&key).map(Held::object);
            if let Some(old) = &old
                && old.resource_version() == new.resource_version()
                && !new.resource_version().is_empty()
            {
                return;
            }
            if own_write {
                store.ahead.insert(key.clone(), Ahead::Written(at));
            }
            store.keep(&key, &new, self.as_text);
            if let Some(old) = &old {
                store.unindex(&key, old);
            }
            store.index(&key, &new);
            old
        };
        self.notify(&Change { old, new: Some(new) });
    }

    /// Forgets an object; `last` is its final form, when known.
    pub fn remove(&self, key: &NamespacedName, last: Option<&Value>) {
        let old = {
            let mut store = self.store.write().expect("no holder panics");
            match store.ahead.get(key) {
                // The end of a former object under this name: we hold a later one.
                Some(Ahead::Written(at)) if last.is_some_and(|l| revision(l.resource_version()) < *at) => return,
                Some(_) => _ = store.ahead.remove(key),
                None => {}
            }
            let Some(old) = store.take(key) else { return };
            old
        };
        let old = last.map_or(old, |last| {
            let mut last = last.clone();
            if let Some(transform) = &self.transform {
                transform(&mut last);
            }
            Arc::new(last)
        });
        self.notify(&Change { old: Some(old), new: None });
    }

    fn notify(&self, change: &Change) {
        for handler in self.handlers.read().expect("no holder panics").iter() {
            handler(change);
        }
    }
}

impl Store {
    fn keep(&mut self, key: &NamespacedName, object: &Arc<Value>, as_text: bool) {
        self.objects.insert(key.clone(), Held::new(object, as_text));
        if as_text {
            return;
        }
        self.parsed.push_back((key.clone(), Arc::downgrade(object)));
        if self.parsed.len() <= PARSED_MAX {
            return;
        }
        let objects = &mut self.objects;
        self.parsed.retain(|(key, object)| objects.get(key).is_some_and(|held| held.is_parsed(object)));
        for (key, _) in self.parsed.drain(..self.parsed.len().saturating_sub(PARSED)) {
            if let Some(held) = objects.get_mut(&key) {
                held.become_text();
            }
        }
    }

    fn take(&mut self, key: &NamespacedName) -> Option<Arc<Value>> {
        let old = self.objects.remove(key)?.object();
        self.unindex(key, &old);
        Some(old)
    }

    fn index(&mut self, key: &NamespacedName, object: &Value) {
        for uid in object.owner_references().iter().filter_map(|r| r["uid"].as_str()) {
            self.by_owner.entry(uid.to_string()).or_default().insert(key.clone());
        }
        for (name, keys) in &self.index_fns {
            for index_key in keys(object) {
                self.by_index.entry((name, index_key)).or_default().insert(key.clone());
            }
        }
    }

    fn unindex(&mut self, key: &NamespacedName, object: &Value) {
        for uid in object.owner_references().iter().filter_map(|r| r["uid"].as_str()) {
            if let Some(keys) = self.by_owner.get_mut(uid) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_owner.remove(uid);
                }
            }
        }
        for (name, index_keys) in &self.index_fns {
            for index_key in index_keys(object) {
                if let Some(keys) = self.by_index.get_mut(&(*name, index_key.clone())) {
                    keys.remove(key);
                    if keys.is_empty() {
                        self.by_index.remove(&(*name, index_key));
                    }
                }
            }
        }
    }
}

/// Revisions are numbers that rise; servers that write them otherwise get no head start from writes.
fn revision(resource_version: &str) -> u64 {
    resource_version.parse().unwrap_or_default()
}

/// Informers shared by all loops of one process side, one per resource and scope. Their objects come
/// without `managedFields`: no loop reads them, servers keep those of an update that has none, and
/// they would be half of the memory.
#[derive(Default)]
pub struct Informers {
    all: RwLock<HashMap<(Gvr, Scope), Arc<Informer>>>,
    limits: RwLock<HashMap<Gvr, Scope>>,
}

impl Informers {
    /// Who asks for all objects of the resource gets these, from now on.
    pub fn limit(&self, gvr: Gvr, scope: Scope) {
        self.limits.write().expect("no holder panics").insert(gvr, scope);
    }

    fn id(&self, gvr: &Gvr, scope: &Scope) -> (Gvr, Scope) {
        let limits = self.limits.read().expect("no holder panics");
        let limit = limits.get(gvr).filter(|_| *scope == Scope::default());
        (gvr.clone(), limit.unwrap_or(scope).clone())
    }

    /// The informer of a resource, made when nobody asked for it before. The caller runs new ones.
    pub fn informer(&self, gvr: &Gvr, scope: &Scope) -> (Arc<Informer>, bool) {
        self.informer_with(gvr, scope, |_| {})
    }

    /// As [`Self::informer`]; a new one keeps what `transform` leaves of its objects.
    pub fn informer_with(&self, gvr: &Gvr, scope: &Scope, transform: fn(&mut Value)) -> (Arc<Informer>, bool) {
        let id = self.id(gvr, scope);
        let mut all = self.all.write().expect("no holder panics");
        if let Some(informer) = all.get(&id) {
            return (informer.clone(), false);
        }
        let informer = Informer::with_transform(id.0.clone(), id.1.clone(), move |object| {
            object.remove_at("/metadata/managedFields");
            transform(object);
        });
        all.insert(id, informer.clone());
        (informer, true)
    }

    /// The informer of a resource, if somebody asked for it before.
    pub fn existing(&self, gvr: &Gvr) -> Option<Arc<Informer>> {
        self.all.read().expect("no holder panics").get(&self.id(gvr, &Scope::default())).cloned()
    }

    pub fn weak_all(&self) -> Vec<Weak<Informer>> {
        self.all.read().expect("no holder panics").values().map(Arc::downgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Mutex;

    fn pod(name: &str, version: &str, owner: &str) -> Value {
        json!({"metadata": {"namespace": "n", "name": name, "resourceVersion": version, "ownerReferences": [{"uid": owner}]}})
    }

    #[test]
    fn indexes_follow_every_change() {
        let informer = Informer::new(crate::resources::PODS, Scope::default());
        informer.add_index("version", |o| vec![o.resource_version().to_string()]);
        let seen = Arc::new(Mutex::new(Vec::new()));
        informer.on_change({
            let seen = seen.clone();
            move |c| seen.lock().unwrap().push((c.old.is_some(), c.new.is_some()))
        });
        let key = NamespacedName::new("n", "a");
        informer.put(key.clone(), pod("a", "1", "o1"));
        informer.put(key.clone(), pod("a", "1", "o1"));
        informer.put(key.clone(), pod("a", "2", "o2"));
        assert!(informer.owned_by("o1").is_empty());
        assert_eq!(informer.owned_by("o2").len(), 1);
        assert_eq!(informer.by_index("version", "2").len(), 1);
        informer.remove(&key, None);
        assert!(informer.owned_by("o2").is_empty() && informer.by_index("version", "2").is_empty());
        assert_eq!(*seen.lock().unwrap(), [(false, true), (true, true), (true, false)]);
    }

    #[test]
    fn what_changed_last_is_kept_parsed() {
        let informer = Informer::new(crate::resources::PODS, Scope::default());
        let put = |i: usize, version: &str| informer.put(NamespacedName::new("n", format!("{i}")), pod(&i.to_string(), version, "o"));
        let parsed = || {
            let store = informer.store.read().unwrap();
            (store.objects.values().filter(|held| matches!(held, Held::Parsed(_))).count(), store.parsed.len())
        };
        const ALL: usize = 5 * PARSED;
        (0..ALL).for_each(|i| put(i, "1"));
        assert!((PARSED..=PARSED_MAX).contains(&parsed().0), "{:?}", parsed());
        assert!(informer.store.read().unwrap().parsed.iter().any(|(key, _)| key.name == (ALL - 1).to_string()));
        // One that changes all the time does not push the others out.
        (0..ALL).for_each(|version| put(ALL - 1, &(version + 2).to_string()));
        assert!((PARSED..=PARSED_MAX).contains(&parsed().0) && parsed().1 <= PARSED_MAX, "{:?}", parsed());
        let all = informer.list(None);
        assert_eq!((all.len(), informer.owned_by("o").len()), (ALL, ALL));
        assert!(all.iter().all(|o| informer.get("n", o.name()).as_ref() == Some(o)));
        (0..ALL).for_each(|i| informer.remove(&NamespacedName::new("n", format!("{i}")), None));
        assert!(informer.is_empty() && informer.owned_by("o").is_empty());
    }

    fn versioned(name: &str, version: &str, uid: &str) -> Value {
        json!({"metadata": {"namespace": "n", "name": name, "uid": uid, "resourceVersion": version}})
    }

    #[test]
    fn own_writes_are_seen_at_once_and_older_news_does_not_undo_them() {
        let informer = Informer::new(crate::resources::PODS, Scope::default());
        let key = NamespacedName::new("n", "a");
        let held = || informer.get_key(&key).map(|o| o.resource_version().to_string());
        informer.reached("10");
        informer.wrote(&versioned("a", "9", "u"));
        assert_eq!(held(), None, "the watch is past it and knows better");
        informer.wrote(&versioned("a", "15", "u"));
        informer.put(key.clone(), versioned("a", "12", "u"));
        informer.remove(&key, Some(&versioned("a", "11", "former")));
        assert_eq!(held().as_deref(), Some("15"));
        informer.put(key.clone(), versioned("a", "15", "u"));
        informer.reached("15");
        informer.put(key.clone(), versioned("a", "16", "u"));
        assert_eq!(held().as_deref(), Some("16"));
    }

    #[test]
    fn own_deletes_are_seen_at_once() {
        let informer = Informer::new(crate::resources::PODS, Scope::default());
        let key = NamespacedName::new("n", "a");
        informer.put(key.clone(), versioned("a", "5", "u"));
        informer.deleted(&key, "u");
        informer.put(key.clone(), versioned("a", "6", "u"));
        assert!(informer.get_key(&key).is_none());
        informer.remove(&key, Some(&versioned("a", "7", "u")));
        informer.put(key.clone(), versioned("a", "8", "next"));
        assert!(informer.get_key(&key).is_some());
    }

    /// Handlers of a deletion saw the object as it came over the wire, and missed what the transform adds.
    #[test]
    fn the_last_form_of_an_object_is_transformed_too() {
        let informer = Informer::with_transform(crate::resources::PODS, Scope::default(), |o| o["mark"] = json!(true));
        let seen = Arc::new(Mutex::new(Vec::new()));
        informer.on_change({
            let seen = seen.clone();
            move |c| seen.lock().unwrap().push(c.object()["mark"] == true)
        });
        let key = NamespacedName::new("n", "a");
        informer.put(key.clone(), pod("a", "1", "o1"));
        informer.remove(&key, Some(&pod("a", "2", "o1")));
        assert_eq!(*seen.lock().unwrap(), [true, true]);
    }

    #[test]
    fn list_of_a_namespace_stops_at_its_end() {
        let informer = Informer::new(crate::resources::PODS, Scope::default());
        for (namespace, name) in [("a", "x"), ("b", "x"), ("b", "y"), ("bb", "x")] {
            informer.put(NamespacedName::new(namespace, name), json!({"metadata": {"namespace": namespace, "name": name}}));
        }
        assert_eq!(informer.list(Some("b")).len(), 2);
        assert_eq!(informer.list(None).len(), 4);
    }
}
