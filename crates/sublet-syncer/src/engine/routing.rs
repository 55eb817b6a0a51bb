//! Which changes concern which keys: from the watches of both sides into the queue of the tenant.

use super::host::{HostKind, Listener};
use super::syncer::{Inner, Syncer};
use super::{ItemKey, NODE_LEASES, packed};
use crate::index;
use crate::resources::gateway;
use crate::resources::networkpolicy::names_namespaces;
use crate::resources::pod::is_terminal;
use crate::resources::shown::{SHOWN, ShownKind, shown_by_host_kind};
use crate::resources::{KindId, TO_HOST};
use crate::translate::TenantKey;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use sublet_api::ShowNodes;
use sublet_machinery::ObjectExt;
use sublet_runtime::{Change, Informer};

impl Syncer {
    pub(super) fn watch_tenant(&self) {
        for kind in TO_HOST {
            let (weak, id) = (Arc::downgrade(&self.inner), kind.id);
            self.inner.view.tenant.informer(id).on_change(move |change| {
                if let Some(inner) = weak.upgrade() {
                    inner.tenant_changed(id, change);
                }
            });
        }
        let weak = Arc::downgrade(&self.inner);
        self.inner.view.tenant.namespaces().on_change(move |change| {
            if let Some(inner) = weak.upgrade() {
                inner.namespace_changed(change);
            }
        });
        for kind in &SHOWN {
            let (weak, id) = (Arc::downgrade(&self.inner), kind.id);
            self.inner.view.tenant.informer(id).on_change(move |change| {
                if let Some(inner) = weak.upgrade() {
                    inner.queue.add(ItemKey::new(id, TenantKey::of(change.object())));
                    if id == KindId::Node && change.old.is_some() != change.new.is_some() {
                        inner.queue.add(ItemKey::new(KindId::NodeLease, TenantKey::new(NODE_LEASES, change.object().name())));
                    }
                }
            });
        }
    }

    pub(super) fn watch_host(&self) {
        let listener = HostListener(Arc::downgrade(&self.inner));
        self.inner.view.host.add_route(&self.inner.view.names.tenant().uid, Arc::new(listener));
    }

    /// Copies that were there before the route was.
    pub(super) fn queue_copies(&self) {
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
            inner.stats.event_dropped();
            tracing::debug!(tenant = %inner.view.names.tenant().name, "too many events at once, one was dropped");
        }
    }
}

impl Inner {
    fn tenant_changed(&self, id: KindId, change: &Change) {
        // First what the pod uses, so that it is on the host before the pod.
        if id == KindId::Pod {
            self.pod_changed(change);
        }
        if id == KindId::Ingress {
            self.uses_changed(change, packed::certificates);
        }
        if id == KindId::PersistentVolumeClaim
            && let Some(volume) = change.object().str_at("/spec/volumeName").filter(|v| !v.is_empty())
        {
            self.queue.add(ItemKey::new(KindId::PersistentVolume, TenantKey::new("", volume)));
        }
        if id == KindId::Gateway {
            self.uses_changed(change, gateway::uses);
        }
        if matches!(id, KindId::Gateway | KindId::ReferenceGrant) {
            self.queue_attached();
        }
        self.queue.add(ItemKey::new(id, TenantKey::of(change.object())));
    }

    /// Who may attach to a gateway, and refer to what, is judged with the routes and gateways themselves.
    fn queue_attached(&self) {
        for id in [KindId::Gateway, KindId::HttpRoute, KindId::GrpcRoute] {
            for object in self.view.tenant.informer(id).list(None) {
                self.queue.add(ItemKey::new(id, TenantKey::of(&object)));
            }
        }
    }

    /// The Secrets that gateways refer to.
    pub(super) fn queue_used_by_gateways(&self) {
        for gateway in self.view.tenant.informer(KindId::Gateway).list(None) {
            self.uses_changed(&Change { old: None, new: Some(gateway) }, gateway::uses);
        }
    }

    /// Policies and listeners name namespaces by their labels.
    fn namespace_changed(&self, change: &Change) {
        let labels = |namespace: &Option<Arc<Value>>| namespace.as_ref().map(|n| n.labels().cloned());
        if labels(&change.old) == labels(&change.new) {
            return;
        }
        for policy in self.view.tenant.informer(KindId::NetworkPolicy).list(None).iter().filter(|p| names_namespaces(p)) {
            self.queue.add(ItemKey::new(KindId::NetworkPolicy, TenantKey::of(policy)));
        }
        self.queue_attached();
    }

    /// What an object uses is wanted on the host from its first user to its last.
    fn uses_changed(&self, change: &Change, of: impl Fn(&Value) -> Vec<String>) {
        let uses =
            |object: &Option<Arc<Value>>| -> BTreeSet<String> { object.as_deref().map(&of).unwrap_or_default().into_iter().collect() };
        for key in uses(&change.old).symmetric_difference(&uses(&change.new)) {
            if let Some((resource, namespace, name)) = index::parse_usage_key(key) {
                let id = if resource == index::SECRETS { KindId::Secret } else { KindId::ConfigMap };
                self.queue.add(ItemKey::new(id, TenantKey::new(namespace, name)));
            }
        }
    }

    fn pod_changed(&self, change: &Change) {
        self.uses_changed(change, packed::uses);
        let node = |pod: &Option<Arc<Value>>| {
            pod.as_ref().filter(|p| !is_terminal(p)).and_then(|p| p.str_at("/spec/nodeName").map(str::to_string))
        };
        let (before, after) = (node(&change.old), node(&change.new));
        if before != after {
            for node in before.into_iter().chain(after) {
                self.queue.add(ItemKey::new(KindId::Node, TenantKey::new("", node)));
            }
        }
        if (change.old.is_none() || change.new.is_none()) && packed::wants_secret(change.object()) {
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
                if kind == HostKind::VolumeSnapshots
                    && let Some(content) = change.object().str_at("/status/boundVolumeSnapshotContentName")
                {
                    self.queue.add(ItemKey::new(KindId::VolumeSnapshotContent, TenantKey::new("", content)));
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
    pub(super) fn queue_shown(&self, kind: &ShownKind, host: &Value) {
        if !self.view.is_up(kind.id) {
            return;
        }
        let key = ItemKey::new(kind.id, TenantKey::new(kind.namespace, host.name()));
        let concerns = match kind.id {
            KindId::Node => self.rules.nodes.show == ShowNodes::All || !self.view.tenant.pods_on(host.name()).is_empty(),
            KindId::NodeLease => self.view.tenant.get(KindId::Node, &TenantKey::new("", host.name())).is_some(),
            KindId::PersistentVolume => host.str_at("/spec/claimRef/namespace") == Some(self.view.names.host_namespace("")),
            KindId::VolumeSnapshotContent => host.str_at("/spec/volumeSnapshotRef/namespace") == Some(self.view.names.host_namespace("")),
            _ => true,
        };
        if concerns || self.view.tenant.get(kind.id, &key.key).is_some() {
            self.queue.add(key);
        }
    }

    pub(super) fn queue_copy(&self, kind: HostKind, copy: &Value) {
        for id in rows_of(kind) {
            if let Some(key) = self.view.key_of(id, copy) {
                self.queue.add(ItemKey::new(id, key));
            }
        }
    }

    /// The informers of a key: the tenant's and the host's.
    pub(super) fn informers(&self, id: KindId) -> (&Arc<Informer>, &Arc<Informer>) {
        (self.view.tenant.informer(id), self.view.host.informer(HostKind::of(id)))
    }
}

/// The rows whose copies a watch of the host holds.
fn rows_of(kind: HostKind) -> impl Iterator<Item = KindId> {
    TO_HOST.iter().map(|row| row.id).chain([KindId::PodToken]).filter(move |id| HostKind::of(*id) == kind)
}
