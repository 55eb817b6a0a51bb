//! Kinds that are not synced from the start: those that the host may or may not serve, once it does, and
//! what a tenant asks for. A host that lacks one is no reason to fail: the kind is off, and that is said.

use super::host::HostKind;
use super::offers::{Offer, Offers};
use super::syncer::{Inner, Syncer};
use super::{ItemKey, definition};
use crate::resources::shown::SHOWN;
use crate::resources::{KindId, TO_HOST};
use crate::translate::TenantKey;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use sublet_api::marks;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::resources::CUSTOM_RESOURCE_DEFINITIONS;
use sublet_runtime::{ClientError, Patch, PatchOptions};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Until a definition that the tenant's API server did not take is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(10);
/// Until the tenant's definitions are looked at without a reason.
const LOOK_PAUSE: Duration = Duration::from_secs(300);

/// The rows that not every host serves.
fn defined() -> impl Iterator<Item = KindId> {
    let all = TO_HOST.iter().map(|k| k.id).chain(SHOWN.iter().map(|k| k.id));
    all.filter(|id| HostKind::of(*id).definition().is_some())
}

impl Syncer {
    /// Kinds that this host does not offer, by resource, each with the reason.
    pub fn kinds_off(&self) -> Vec<(String, &'static str)> {
        let reason = |id: KindId| match self.inner.view.host.offer(HostKind::of(id)) {
            _ if self.inner.view.is_up(id) => None,
            _ if !self.inner.is_wanted_kind(id) => Some("switched off"),
            Some(Offer::Missing) => Some("not served by the host"),
            Some(Offer::Hidden) => Some("the host lets nobody see whether it serves them"),
            Some(Offer::Served(_)) | None => Some("not read yet"),
        };
        defined().filter_map(|id| Some((HostKind::of(id).gvr().resource.to_string(), reason(id)?))).collect()
    }

    /// Brings kinds up as they can be. Returns when cancelled.
    pub(super) async fn follow_optional(self, cancel: CancellationToken) {
        let mut tasks = JoinSet::new();
        let mut started = BTreeSet::new();
        if self.inner.rules.nodes.leases {
            self.bring_up(KindId::NodeLease, &mut tasks, &cancel);
        }
        let mut offers = self.inner.view.host.offers();
        while !cancel.is_cancelled() {
            let now = offers.borrow_and_update().clone();
            let pause = match self.take_up(&now, &mut started, &mut tasks, &cancel).await {
                Ok(()) => LOOK_PAUSE,
                Err(error) => {
                    tracing::warn!(tenant = %self.inner.view.names.tenant().name, %error, "a kind of the host cannot be defined in the tenant, will retry");
                    RETRY_PAUSE
                }
            };
            tokio::select! {
                _ = offers.changed() => {}
                () = tokio::time::sleep(pause) => {}
                () = cancel.cancelled() => {}
            }
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn take_up(
        &self,
        offers: &Offers,
        started: &mut BTreeSet<KindId>,
        tasks: &mut JoinSet<()>,
        cancel: &CancellationToken,
    ) -> Result<(), ClientError> {
        let mut failed = Ok(());
        for id in defined().filter(|id| self.inner.is_wanted_kind(*id)) {
            let kind = HostKind::of(id);
            let Some(Offer::Served(host)) = offers.get(&kind) else {
                self.inner.view.set_up(id, false);
                continue;
            };
            if let Err(error) = self.inner.define(host, &kind.gvr().version).await {
                failed = Err(error);
                continue;
            }
            if started.insert(id) {
                self.bring_up(id, tasks, cancel);
            } else if !self.inner.view.is_up(id) && self.inner.has_read(id) {
                // It was away for a while.
                self.inner.view.set_up(id, true);
                self.inner.queue_all(id);
            }
        }
        failed
    }

    /// Reads the kind on both sides; then it is synced as any other.
    fn bring_up(&self, id: KindId, tasks: &mut JoinSet<()>, cancel: &CancellationToken) {
        let (inner, cancel) = (self.inner.clone(), cancel.clone());
        inner.view.host.open(HostKind::of(id));
        let (tenant, host) = inner.informers(id);
        tasks.spawn(tenant.clone().run(inner.tenant_client.clone(), cancel.clone()));
        let (tenant, host) = (tenant.clone(), host.clone());
        tasks.spawn(async move {
            let both = async {
                tenant.wait_synced().await;
                host.wait_synced().await;
            };
            tokio::select! {
                () = both => {
                    inner.view.set_up(id, true);
                    inner.queue_all(id);
                }
                () = cancel.cancelled() => {}
            }
        });
    }
}

impl Inner {
    fn is_wanted_kind(&self, id: KindId) -> bool {
        let resource = &*HostKind::of(id).gvr().resource;
        let rules = if TO_HOST.iter().any(|k| k.id == id) { &self.rules.to_host } else { &self.rules.to_tenant };
        !rules.get(resource).is_some_and(|rule| rule.off)
    }

    fn has_read(&self, id: KindId) -> bool {
        let (tenant, host) = self.informers(id);
        tenant.is_synced() && host.is_synced()
    }

    /// Everything that either side knows of a kind.
    fn queue_all(&self, id: KindId) {
        let (tenant, host) = self.informers(id);
        for object in tenant.list(None) {
            self.queue.add(ItemKey::new(id, TenantKey::of(&object)));
        }
        match SHOWN.iter().find(|k| k.id == id) {
            Some(kind) => host.list(None).iter().for_each(|object| self.queue_shown(kind, object)),
            None => {
                let copies = self.view.host.of_tenant(HostKind::of(id), &self.view.names.tenant().uid);
                copies.iter().for_each(|copy| self.queue_copy(HostKind::of(id), copy));
            }
        }
        if id == KindId::Gateway {
            self.queue_used_by_gateways();
        }
        if id == KindId::VolumeSnapshot {
            // Claims that wait for one.
            for claim in self.view.tenant.informer(KindId::PersistentVolumeClaim).list(None) {
                self.queue.add(ItemKey::new(KindId::PersistentVolumeClaim, TenantKey::of(&claim)));
            }
        }
    }

    /// Defines a kind of the host in the tenant. A definition that the tenant made itself is its own.
    async fn define(&self, host: &Value, version: &str) -> Result<(), ClientError> {
        let wanted = definition::for_tenant(host, version);
        let gvr: &Gvr = &CUSTOM_RESOURCE_DEFINITIONS;
        let Some(live) = self.tenant_client.get_opt(gvr, "", wanted.name()).await? else {
            return match self.tenant_client.create(gvr, &wanted).await {
                Err(error) if error.is_already_exists() => Ok(()),
                other => other.map(drop),
            };
        };
        let ours = live.label(marks::MANAGED_BY) == Some(marks::MANAGER);
        if !ours || live.annotation(marks::APPLIED) == wanted.annotation(marks::APPLIED) {
            return Ok(());
        }
        let patch = json!([
            {"op": "test", "path": "/metadata/uid", "value": live.uid()},
            {"op": "replace", "path": "/metadata/annotations", "value": wanted["metadata"]["annotations"]},
            {"op": "replace", "path": "/spec", "value": wanted["spec"]},
        ]);
        self.tenant_client.patch(gvr, "", wanted.name(), "", &Patch::Json(patch), &PatchOptions::default()).await.map(drop)
    }
}
