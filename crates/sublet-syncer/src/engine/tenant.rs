//! The tenant's side: local copies of what is synced, and the view that translations read.

use super::host::{HostCache, HostKind};
use super::host_kind::drop_managed_fields;
use super::{packed, plan};
use crate::index;
use crate::resources::gateway;
use crate::resources::pod::token;
use crate::resources::shown::{SHOWN, is_shown_by_us};
use crate::resources::{KindId, TO_HOST, TenantView, to_host_kind};
use crate::translate::{NAME_BYTES_MAX_SUBDOMAIN, Names, TenantKey};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, RwLock};
use sublet_machinery::ObjectExt;
use sublet_runtime::resources as gvr;
use sublet_runtime::{Informer, Scope};

const BY_USE: &str = "uses";
const BY_NODE: &str = "node";
const BY_VOLUME: &str = "volume";

/// Local copies of one tenant's objects.
pub struct TenantCache {
    informers: HashMap<KindId, Arc<Informer>>,
    namespaces: Arc<Informer>,
}

impl Default for TenantCache {
    fn default() -> Self {
        let mut informers = HashMap::new();
        for kind in TO_HOST {
            let (slim, is_pod) = (kind.slim, kind.id == KindId::Pod);
            let informer = Informer::with_transform(kind.gvr(), Scope::default(), move |object| {
                drop_managed_fields(object);
                if slim {
                    plan::slim_data(object);
                }
                if is_pod {
                    packed::pack_tenant_pod(object);
                }
            });
            informers.insert(kind.id, informer);
        }
        for kind in &SHOWN {
            let scope = Scope { namespace: kind.namespace.to_string(), ..Scope::default() };
            informers.insert(kind.id, Informer::with_transform(kind.gvr.clone(), scope, drop_managed_fields));
        }
        let pods = &informers[&KindId::Pod];
        pods.add_index(BY_USE, packed::uses);
        pods.add_index(BY_NODE, |pod| pod.str_at("/spec/nodeName").filter(|n| !n.is_empty()).map(str::to_string).into_iter().collect());
        informers[&KindId::PersistentVolumeClaim].add_index(BY_VOLUME, |claim| {
            claim.str_at("/spec/volumeName").filter(|v| !v.is_empty()).map(str::to_string).into_iter().collect()
        });
        informers[&KindId::Ingress].add_index(BY_USE, packed::certificates);
        informers[&KindId::Gateway].add_index(BY_USE, gateway::uses);
        Self { informers, namespaces: Informer::with_transform(gvr::NAMESPACES, Scope::default(), drop_managed_fields) }
    }
}

impl TenantCache {
    pub fn informer(&self, id: KindId) -> &Arc<Informer> {
        // The tokens of a pod stand and fall with the pod.
        let id = if id == KindId::PodToken { KindId::Pod } else { id };
        &self.informers[&id]
    }

    /// The informers of what is synced from the start.
    pub fn required(&self) -> impl Iterator<Item = &Arc<Informer>> {
        self.informers.iter().filter(|(id, _)| HostKind::of(**id).is_required()).map(|(_, i)| i).chain([&self.namespaces])
    }

    /// The object in full, but for the data of slim kinds.
    pub fn get(&self, id: KindId, key: &TenantKey) -> Option<Arc<Value>> {
        self.informer(id).get(&key.namespace, &key.name).map(packed::unpack)
    }

    /// Pods on a node, packed: metadata, node and phase alone can be read.
    pub fn pods_on(&self, node: &str) -> Vec<Arc<Value>> {
        self.informers[&KindId::Pod].by_index(BY_NODE, node)
    }

    pub fn namespaces(&self) -> &Arc<Informer> {
        &self.namespaces
    }

    pub fn is_used(&self, resource: &str, key: &TenantKey) -> bool {
        let key = index::usage_key(resource, &key.namespace, &key.name);
        [KindId::Pod, KindId::Ingress, KindId::Gateway].iter().any(|id| !self.informers[id].by_index(BY_USE, &key).is_empty())
    }
}

/// Both sides of one tenant, as translations see them.
pub struct View {
    pub tenant: TenantCache,
    pub host: Arc<HostCache>,
    pub names: Names,
    /// Guards which of the kinds that are not required are synced by now.
    up: RwLock<BTreeSet<KindId>>,
}

impl View {
    pub fn new(host: Arc<HostCache>, names: Names) -> Self {
        Self { tenant: TenantCache::default(), host, names, up: RwLock::default() }
    }

    /// Whether both sides of a kind were read, so that it can be worked on.
    pub fn is_up(&self, id: KindId) -> bool {
        HostKind::of(id).is_required() || self.up.read().expect("no holder panics").contains(&id)
    }

    pub(super) fn set_up(&self, id: KindId, up: bool) {
        let mut all = self.up.write().expect("no holder panics");
        if up {
            all.insert(id)
        } else {
            all.remove(&id)
        };
    }

    /// The host copy of a tenant object, if it is ours.
    pub fn copy_of(&self, id: KindId, key: &TenantKey) -> Option<Arc<Value>> {
        self.packed_copy_of(id, key).map(packed::unpack)
    }

    /// As [`Self::copy_of`]; of a pod metadata, node and phase alone can be read.
    pub(super) fn packed_copy_of(&self, id: KindId, key: &TenantKey) -> Option<Arc<Value>> {
        let host_key = match id {
            KindId::PodToken => {
                let name = token::secret_name(&self.names, &key.namespace, &key.name);
                crate::translate::HostKey::new(self.names.host_namespace(&key.namespace), name)
            }
            _ => self.names.host_key(key, to_host_kind(id)?.name_bytes_max),
        };
        let copy = self.host.informer(HostKind::of(id)).get(&host_key.namespace, &host_key.name)?;
        (self.key_of(id, &copy).as_ref() == Some(key)).then_some(copy)
    }

    /// The tenant object of a host copy of the kind.
    pub fn key_of(&self, id: KindId, copy: &Value) -> Option<TenantKey> {
        match id {
            KindId::PodToken => self.names.derived_from(token::PURPOSE, copy, NAME_BYTES_MAX_SUBDOMAIN),
            _ => self.names.tenant_key(copy, to_host_kind(id)?.name_bytes_max),
        }
    }
}

impl TenantView for View {
    fn services(&self, namespace: &str) -> Vec<Arc<Value>> {
        self.tenant.informer(KindId::Service).list(Some(namespace))
    }

    fn namespaces(&self) -> Vec<Arc<Value>> {
        self.tenant.namespaces.list(None)
    }

    fn priority_class(&self, name: &str) -> Option<Arc<Value>> {
        self.tenant.informer(KindId::PriorityClass).get("", name)
    }

    fn host_priority_classes(&self) -> Vec<Arc<Value>> {
        self.host.informer(HostKind::PriorityClasses).list(None)
    }

    fn is_node_shown(&self, name: &str) -> bool {
        self.tenant.informer(KindId::Node).get("", name).is_some_and(|node| is_shown_by_us(&node))
    }

    fn host_has_node(&self, name: &str) -> Option<bool> {
        let nodes = self.host.informer(HostKind::Nodes);
        nodes.is_synced().then(|| nodes.get("", name).is_some())
    }

    fn pods_on(&self, node: &str) -> Vec<Arc<Value>> {
        self.tenant.pods_on(node)
    }

    fn object(&self, id: KindId, key: &TenantKey) -> Option<Arc<Value>> {
        self.tenant.get(id, key)
    }

    fn objects(&self, id: KindId, namespace: &str) -> Vec<Arc<Value>> {
        self.tenant.informer(id).list(Some(namespace))
    }

    fn claim_for(&self, volume: &str) -> Option<Arc<Value>> {
        let claims = self.tenant.informer(KindId::PersistentVolumeClaim).by_index(BY_VOLUME, volume);
        claims.into_iter().find(|c| !c.is_deleting() && c.str_at("/status/phase") != Some("Bound"))
    }

    fn is_up(&self, id: KindId) -> bool {
        View::is_up(self, id)
    }

    fn is_used(&self, resource: &str, key: &TenantKey) -> bool {
        self.tenant.is_used(resource, key)
    }

    fn tenant_key(&self, id: KindId, host_name: &str) -> Option<TenantKey> {
        let copy = self.host.informer(HostKind::of(id)).get(self.names.host_namespace(""), host_name)?;
        self.key_of(id, &copy)
    }

    fn host_copy(&self, id: KindId, key: &TenantKey) -> Option<Arc<Value>> {
        self.copy_of(id, key)
    }
}
