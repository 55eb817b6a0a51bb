//! The host as all tenants of one process see it: one watch per kind, routed to the tenant it is about.

use super::{ownership, packed, plan};
use crate::resources::{KindId, pod};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::Duration;
use sublet_api::marks;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::resources as gvr;
use sublet_runtime::{Change, Client, Informer, Scope};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

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

/// What is watched on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostKind {
    Pods,
    Services,
    EndpointSlices,
    ConfigMaps,
    /// Copies of Secrets, and Secrets with pods' tokens.
    Secrets,
    PersistentVolumeClaims,
    NetworkPolicies,
    PodDisruptionBudgets,
    Ingresses,
    /// The rest belongs to the host and is shown to tenants.
    Nodes,
    PersistentVolumes,
    StorageClasses,
    PriorityClasses,
    RuntimeClasses,
    IngressClasses,
    /// Only to learn when a refusal may have lost its cause.
    ResourceQuotas,
}

struct Watched {
    kind: HostKind,
    gvr: Gvr,
    reach: Reach,
    slim: fn(&mut Value),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Copies, by their mark.
    Ours,
    /// All of a namespaced kind.
    Namespaced,
    /// Cluster-wide kinds, which the host may refuse to show.
    Cluster,
}

const fn watched(kind: HostKind, gvr: Gvr, reach: Reach, slim: fn(&mut Value)) -> Watched {
    Watched { kind, gvr, reach, slim }
}

static WATCHED: [Watched; 16] = [
    watched(HostKind::Pods, gvr::PODS, Reach::Ours, slim_pod),
    watched(HostKind::Services, gvr::SERVICES, Reach::Ours, ownership::slim_managed_fields),
    watched(HostKind::EndpointSlices, gvr::ENDPOINT_SLICES, Reach::Ours, ownership::slim_managed_fields),
    watched(HostKind::ConfigMaps, gvr::CONFIG_MAPS, Reach::Ours, slim_values),
    watched(HostKind::Secrets, gvr::SECRETS, Reach::Ours, slim_values),
    watched(HostKind::PersistentVolumeClaims, gvr::PERSISTENT_VOLUME_CLAIMS, Reach::Ours, ownership::slim_managed_fields),
    watched(HostKind::NetworkPolicies, gvr::NETWORK_POLICIES, Reach::Ours, ownership::slim_managed_fields),
    watched(HostKind::PodDisruptionBudgets, gvr::POD_DISRUPTION_BUDGETS, Reach::Ours, ownership::slim_managed_fields),
    watched(HostKind::Ingresses, gvr::INGRESSES, Reach::Ours, ownership::slim_managed_fields),
    watched(HostKind::Nodes, gvr::NODES, Reach::Cluster, slim_node),
    watched(HostKind::PersistentVolumes, gvr::PERSISTENT_VOLUMES, Reach::Cluster, drop_managed_fields),
    watched(HostKind::StorageClasses, gvr::STORAGE_CLASSES, Reach::Cluster, drop_managed_fields),
    watched(HostKind::PriorityClasses, gvr::PRIORITY_CLASSES, Reach::Cluster, drop_managed_fields),
    watched(HostKind::RuntimeClasses, gvr::RUNTIME_CLASSES, Reach::Cluster, drop_managed_fields),
    watched(HostKind::IngressClasses, gvr::INGRESS_CLASSES, Reach::Cluster, drop_managed_fields),
    watched(HostKind::ResourceQuotas, gvr::RESOURCE_QUOTAS, Reach::Namespaced, drop_managed_fields),
];

/// Followed beside the kinds: what is told is not kept.
static EVENTS: Gvr = gvr::EVENTS;

impl HostKind {
    /// The watch that holds the copies of a row.
    pub fn of(id: KindId) -> Self {
        match id {
            KindId::Pod => Self::Pods,
            KindId::Service => Self::Services,
            KindId::EndpointSlice => Self::EndpointSlices,
            KindId::ConfigMap => Self::ConfigMaps,
            KindId::Secret | KindId::PodToken => Self::Secrets,
            KindId::PersistentVolumeClaim => Self::PersistentVolumeClaims,
            KindId::NetworkPolicy => Self::NetworkPolicies,
            KindId::PodDisruptionBudget => Self::PodDisruptionBudgets,
            KindId::Ingress => Self::Ingresses,
            KindId::Node => Self::Nodes,
            KindId::PersistentVolume => Self::PersistentVolumes,
            KindId::StorageClass => Self::StorageClasses,
            KindId::PriorityClass => Self::PriorityClasses,
            KindId::RuntimeClass => Self::RuntimeClasses,
            KindId::IngressClass => Self::IngressClasses,
        }
    }

    /// The copies of a kind about which the host may write Events.
    fn by_name(kind: &str) -> Option<Self> {
        match kind {
            "Pod" => Some(Self::Pods),
            "Service" => Some(Self::Services),
            "PersistentVolumeClaim" => Some(Self::PersistentVolumeClaims),
            "Ingress" => Some(Self::Ingresses),
            _ => None,
        }
    }

    pub fn is_copies(self) -> bool {
        WATCHED.iter().any(|w| w.kind == self && w.reach == Reach::Ours)
    }
}

/// Copies of the host's objects, shared by the tenants of a process.
pub struct HostCache {
    client: Client,
    scope: HostScope,
    informers: HashMap<HostKind, Arc<Informer>>,
    /// Guards the routes by tenant UID; handlers run outside.
    routes: RwLock<HashMap<String, Route>>,
    /// Watches the shared kinds for this cache.
    shared: Option<Arc<HostCache>>,
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
            if let Some(shared) = shared.as_ref().filter(|_| row.reach == Reach::Cluster) {
                informers.insert(row.kind, shared.informers[&row.kind].clone());
                continue;
            }
            let ours = row.reach == Reach::Ours;
            let scope = Scope {
                namespace: if row.reach == Reach::Cluster { String::new() } else { namespace.clone() },
                label_selector: if ours { format!("{}={}", marks::MANAGED_BY, marks::MANAGER) } else { String::new() },
                field_selector: String::new(),
            };
            let informer = Informer::with_transform(row.gvr.clone(), scope, row.slim);
            if ours {
                informer.add_index(BY_TENANT, |o| o.label(marks::VIRTUAL_CLUSTER_UID).map(str::to_string).into_iter().collect());
            }
            informers.insert(row.kind, informer);
        }
        let cache = Arc::new(Self { client, scope, informers, routes: RwLock::default(), shared });
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

    /// Kinds that are watched in the namespaces of tenants.
    pub fn copied_kinds() -> impl Iterator<Item = &'static Gvr> {
        WATCHED.iter().filter(|w| w.reach != Reach::Cluster).map(|w| &w.gvr).chain([&EVENTS])
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn scope(&self) -> &HostScope {
        &self.scope
    }

    /// Whether this cache itself watches the kind.
    fn watches(&self, row: &Watched) -> bool {
        match row.reach {
            Reach::Cluster => self.shared.is_none(),
            Reach::Ours | Reach::Namespaced => self.scope != HostScope::SharedKinds,
        }
    }

    /// Watches until cancelled.
    pub async fn run(self: Arc<Self>, cancel: CancellationToken) {
        let mut tasks = JoinSet::new();
        for row in WATCHED.iter().filter(|row| self.watches(row)) {
            tasks.spawn(self.informers[&row.kind].clone().run(self.client.clone(), cancel.clone()));
        }
        if self.scope != HostScope::SharedKinds {
            tasks.spawn(super::events::follow(self.clone(), cancel.clone()));
        }
        while tasks.join_next().await.is_some() {}
    }

    /// Waits until the copies are complete. Kinds that the host does not show are not waited for long.
    pub async fn wait_synced(&self) {
        for row in WATCHED.iter().filter(|w| w.reach == Reach::Ours) {
            self.informers[&row.kind].wait_synced().await;
        }
        let optional = async {
            for row in WATCHED.iter().filter(|w| w.reach != Reach::Ours) {
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

fn slim_pod(object: &mut Value) {
    ownership::slim_managed_fields(object);
    pod::slim_host_pod(object);
    packed::pack(object);
}

fn slim_values(object: &mut Value) {
    ownership::slim_managed_fields(object);
    plan::slim_data(object);
}

pub(super) fn drop_managed_fields(object: &mut Value) {
    object.remove_at("/metadata/managedFields");
}

/// Images of a node are long lists that no tenant needs.
fn slim_node(object: &mut Value) {
    drop_managed_fields(object);
    object.remove_at("/status/images");
}
