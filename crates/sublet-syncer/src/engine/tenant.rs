//! The tenant's side: local copies of what is synced, and the view that translations read.

use super::host::{HostCache, HostKind, drop_managed_fields};
use super::{packed, plan};
use crate::index;
use crate::resources::pod::token;
use crate::resources::shown::SHOWN;
use crate::resources::{KindId, TO_HOST, TenantView, to_host_kind};
use crate::translate::{NAME_BYTES_MAX_SUBDOMAIN, Names, TenantKey};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources as gvr;
use sublet_runtime::{Informer, Scope};

const BY_USE: &str = "uses";
const BY_NODE: &str = "node";

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
            informers.insert(kind.id, Informer::with_transform(kind.gvr.clone(), Scope::default(), drop_managed_fields));
        }
        let pods = &informers[&KindId::Pod];
        pods.add_index(BY_USE, packed::uses);
        pods.add_index(BY_NODE, |pod| pod.str_at("/spec/nodeName").filter(|n| !n.is_empty()).map(str::to_string).into_iter().collect());
        informers[&KindId::Ingress].add_index(BY_USE, packed::certificates);
        Self { informers, namespaces: Informer::with_transform(gvr::NAMESPACES, Scope::default(), drop_managed_fields) }
    }
}

impl TenantCache {
    pub fn informer(&self, id: KindId) -> &Arc<Informer> {
        // The tokens of a pod stand and fall with the pod.
        let id = if id == KindId::PodToken { KindId::Pod } else { id };
        &self.informers[&id]
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Informer>> {
        self.informers.values().chain([&self.namespaces])
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
        [KindId::Pod, KindId::Ingress].iter().any(|id| !self.informers[id].by_index(BY_USE, &key).is_empty())
    }
}

/// Both sides of one tenant, as translations see them.
pub struct View {
    pub tenant: TenantCache,
    pub host: Arc<HostCache>,
    pub names: Names,
}

impl View {
    /// The host copy of a tenant object, if it is ours.
    pub fn copy_of(&self, id: KindId, key: &TenantKey) -> Option<Arc<Value>> {
        let host_key = match id {
            KindId::PodToken => {
                let name = token::secret_name(&self.names, &key.namespace, &key.name);
                crate::translate::HostKey::new(self.names.host_namespace(&key.namespace), name)
            }
            _ => self.names.host_key(key, to_host_kind(id)?.name_bytes_max),
        };
        let copy = self.host.informer(HostKind::of(id)).get(&host_key.namespace, &host_key.name)?;
        (self.key_of(id, &copy).as_ref() == Some(key)).then(|| packed::unpack(copy))
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

    fn pods_on(&self, node: &str) -> Vec<Arc<Value>> {
        self.tenant.pods_on(node)
    }

    fn claim(&self, key: &TenantKey) -> Option<Arc<Value>> {
        self.tenant.get(KindId::PersistentVolumeClaim, key)
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
