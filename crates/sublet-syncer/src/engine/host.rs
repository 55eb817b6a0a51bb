//! The host as all tenants of one process see it: one watch per kind, routed to the tenant it is about.

use super::host_kind::{Reach, WATCHED, Watched, When};
use super::offers::{Offer, Offers};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, RwLock};
use std::time::Duration;
use sublet_api::marks;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::resources as gvr;
use sublet_runtime::{Change, Client, Informer, Scope};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use super::host_kind::HostKind;

/// How long a start waits for kinds that the host may not serve or not let us read.
const OPTIONAL_WAIT: Duration = Duration::from_secs(2);

/// Which part of the host the process may watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostScope {
    /// All namespaces: a process that serves many tenants.
    Cluster,
    /// One namespace, for a process that serves one tenant with a namespaced role.
    Namespace(String),
    /// The kinds that belong to the host as a whole, for caches that are [`HostCache::within`] this one.
    SharedKinds,
}

/// A tenant that wants to hear of the host. Calls come from the watches and must be quick.
pub trait Listener: Send + Sync + 'static {
    fn changed(&self, kind: HostKind, change: &Change);

    /// An Event about a copy of the tenant.
    fn event(&self, event: &Value, kind: HostKind, copy: &Value);
}

pub type Route = Arc<dyn Listener>;

/// Followed beside the kinds: what is told is not kept.
static EVENTS: Gvr = gvr::EVENTS;

/// Copies of the host's objects, shared by the tenants of a process.
pub struct HostCache {
    client: Client,
    scope: HostScope,
    informers: HashMap<HostKind, Arc<Informer>>,
    /// Guards the routes by tenant UID; handlers run outside.
    routes: RwLock<HashMap<String, Route>>,
    /// Watches the shared kinds for this cache.
    shared: Option<Arc<HostCache>>,
    /// Kinds that are not always watched and are by now.
    open: watch::Sender<BTreeSet<HostKind>>,
    /// Which kinds the host serves of those that not every host does, as far as it was asked.
    offers: watch::Sender<Offers>,
    look: Notify,
}

/// A tenant's grip on the shared host.
#[derive(Clone)]
pub struct HostHandle(pub Arc<HostCache>);

const BY_TENANT: &str = "tenant";

impl HostCache {
    pub fn new(client: Client, scope: HostScope) -> Arc<Self> {
        Self::build(client, scope, None)
    }

    /// A cache of one namespace that takes the shared kinds from `shared`: with a role in the namespace
    /// and the right to read shared kinds, a process serves many tenants.
    pub fn within(shared: &Arc<Self>, namespace: &str) -> Arc<Self> {
        Self::build(shared.client.clone(), HostScope::Namespace(namespace.to_string()), Some(shared.clone()))
    }

    fn build(client: Client, scope: HostScope, shared: Option<Arc<Self>>) -> Arc<Self> {
        let namespace = match &scope {
            HostScope::Cluster | HostScope::SharedKinds => String::new(),
            HostScope::Namespace(name) => name.clone(),
        };
        let mut informers = HashMap::new();
        for row in &WATCHED {
            if let Some(shared) = shared.as_ref().filter(|_| row.reach.is_shared()) {
                informers.insert(row.kind, shared.informers[&row.kind].clone());
                continue;
            }
            let ours = row.reach == Reach::Ours;
            let scope = Scope {
                namespace: match row.reach {
                    Reach::Cluster => String::new(),
                    Reach::Within(namespace) => namespace.to_string(),
                    Reach::Ours | Reach::Namespaced => namespace.clone(),
                },
                label_selector: if ours { format!("{}={}", marks::MANAGED_BY, marks::MANAGER) } else { String::new() },
                field_selector: String::new(),
            };
            let informer = Informer::with_transform(row.gvr.clone(), scope, row.slim);
            if ours {
                informer.add_index(BY_TENANT, |o| o.label(marks::VIRTUAL_CLUSTER_UID).map(str::to_string).into_iter().collect());
            }
            informers.insert(row.kind, informer);
        }
        let cache = Arc::new(Self {
            client,
            scope,
            informers,
            routes: RwLock::default(),
            shared,
            open: watch::Sender::default(),
            offers: watch::Sender::default(),
            look: Notify::new(),
        });
        for row in WATCHED.iter().filter(|row| cache.watches(row)) {
            let (weak, kind) = (Arc::downgrade(&cache), row.kind);
            cache.informers[&kind].on_change(move |change| {
                if let Some(cache) = weak.upgrade() {
                    cache.dispatch(kind, change);
                }
            });
        }
        cache
    }

    /// Kinds that belong to the host as a whole and are shown to tenants.
    pub fn shared_kinds() -> impl Iterator<Item = &'static Gvr> {
        WATCHED.iter().filter(|w| w.reach == Reach::Cluster).map(|w| &w.gvr)
    }

    /// The same within one namespace, with its name.
    pub fn shared_kinds_within() -> impl Iterator<Item = (&'static str, &'static Gvr)> {
        WATCHED.iter().filter_map(|w| if let Reach::Within(namespace) = w.reach { Some((namespace, &w.gvr)) } else { None })
    }

    /// Kinds that are watched in the namespaces of tenants.
    pub fn copied_kinds() -> impl Iterator<Item = &'static Gvr> {
        WATCHED.iter().filter(|w| !w.reach.is_shared()).map(|w| &w.gvr).chain([&EVENTS])
    }

    /// The definitions that a host may have and we may read.
    pub fn definitions() -> impl Iterator<Item = String> {
        WATCHED.iter().filter_map(|w| w.kind.definition())
    }

    /// What the host serves of the kinds that not every host does.
    pub fn offers(&self) -> watch::Receiver<Offers> {
        self.shared.as_ref().map_or_else(|| self.offers.subscribe(), |shared| shared.offers())
    }

    /// How the host stands to a kind; nothing before it was asked.
    pub fn offer(&self, kind: HostKind) -> Option<Offer> {
        self.shared.as_deref().unwrap_or(self).offers.borrow().get(&kind).cloned()
    }

    /// Looks now for kinds that the host did not serve so far.
    pub fn look_again(&self) {
        self.shared.as_deref().unwrap_or(self).look.notify_one();
    }

    pub(super) async fn asked_to_look(&self) {
        self.look.notified().await;
    }

    pub(super) fn set_offer(&self, kind: HostKind, offer: Offer) {
        self.offers.send_if_modified(|offers| {
            let changed = offers.get(&kind) != Some(&offer);
            offers.insert(kind, offer);
            changed
        });
    }

    /// From now on the kind is watched, if it was not before.
    pub fn open(&self, kind: HostKind) {
        if let Some(shared) = &self.shared {
            shared.open(kind);
        }
        self.open.send_if_modified(|open| open.insert(kind));
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn scope(&self) -> &HostScope {
        &self.scope
    }

    /// Whether this cache itself watches the kind.
    fn watches(&self, row: &Watched) -> bool {
        if row.reach.is_shared() { self.shared.is_none() } else { self.scope != HostScope::SharedKinds }
    }

    /// Watches until cancelled.
    pub async fn run(self: Arc<Self>, cancel: CancellationToken) {
        let mut tasks = JoinSet::new();
        for row in WATCHED.iter().filter(|row| self.watches(row)) {
            tasks.spawn(self.clone().follow(row, cancel.clone()));
        }
        if self.shared.is_none() {
            tasks.spawn(super::offers::follow(self.clone(), cancel.clone()));
        }
        if self.scope != HostScope::SharedKinds {
            tasks.spawn(super::events::follow(self.clone(), cancel.clone()));
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn follow(self: Arc<Self>, row: &'static Watched, cancel: CancellationToken) {
        if row.when != When::Always {
            let mut open = self.open.subscribe();
            tokio::select! {
                // The sender lives in self, so waiting cannot fail.
                _ = open.wait_for(|open| open.contains(&row.kind)) => {}
                () = cancel.cancelled() => return,
            }
        }
        self.informers[&row.kind].clone().run(self.client.clone(), cancel).await;
    }

    /// Waits until the copies are complete. Kinds that the host does not show are not waited for long.
    pub async fn wait_synced(&self) {
        for row in WATCHED.iter().filter(|w| w.reach == Reach::Ours && w.when == When::Always) {
            self.informers[&row.kind].wait_synced().await;
        }
        let optional = async {
            for row in WATCHED.iter().filter(|w| w.reach != Reach::Ours && w.when == When::Always) {
                self.informers[&row.kind].wait_synced().await;
            }
        };
        if tokio::time::timeout(OPTIONAL_WAIT, optional).await.is_err() {
            tracing::info!("some kinds of the host cannot be watched; what depends on them stays off");
        }
    }

    pub fn informer(&self, kind: HostKind) -> &Arc<Informer> {
        &self.informers[&kind]
    }

    /// The copies of one tenant.
    pub fn of_tenant(&self, kind: HostKind, uid: &str) -> Vec<Arc<Value>> {
        self.informers[&kind].by_index(BY_TENANT, uid)
    }

    /// Tells the tenant of an Event about one of its copies.
    pub(super) fn route_event(&self, event: &Value) {
        let about = &event["involvedObject"];
        let Some(kind) = HostKind::by_name(about["kind"].as_str().unwrap_or_default()) else { return };
        let text = |field: &str| about[field].as_str().unwrap_or_default();
        let Some(copy) = self.informers[&kind].get(text("namespace"), text("name")) else { return };
        if !text("uid").is_empty() && text("uid") != copy.uid() {
            return;
        }
        let uid = copy.label(marks::VIRTUAL_CLUSTER_UID).unwrap_or_default();
        let route = self.routes.read().expect("no holder panics").get(uid).cloned();
        if let Some(route) = route {
            route.event(event, kind, &copy);
        }
    }

    /// From now on changes about this tenant, and about the host as a whole, reach `route`.
    pub fn add_route(&self, uid: &str, route: Route) {
        if let Some(shared) = &self.shared {
            shared.add_route(uid, route.clone());
        }
        self.routes.write().expect("no holder panics").insert(uid.to_string(), route);
    }

    pub fn remove_route(&self, uid: &str) {
        if let Some(shared) = &self.shared {
            shared.remove_route(uid);
        }
        self.routes.write().expect("no holder panics").remove(uid);
    }

    fn dispatch(&self, kind: HostKind, change: &Change) {
        if !kind.is_copies() {
            let all: Vec<Route> = self.routes.read().expect("no holder panics").values().cloned().collect();
            for route in all {
                route.changed(kind, change);
            }
            return;
        }
        // A mark that was changed by hand concerns the tenant before and after.
        let mut told: Option<&str> = None;
        for object in [&change.new, &change.old].into_iter().flatten() {
            let Some(uid) = object.label(marks::VIRTUAL_CLUSTER_UID) else { continue };
            if told != Some(uid) {
                told = Some(uid);
                let route = self.routes.read().expect("no holder panics").get(uid).cloned();
                if let Some(route) = route {
                    route.changed(kind, change);
                }
            }
        }
    }
}
