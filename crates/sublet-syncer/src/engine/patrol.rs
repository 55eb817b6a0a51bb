//! Now and then everything is compared, whatever the watches said: a missed event costs minutes, not
//! the truth. A patrol reads local copies only, and queues what it finds out of step.

use super::ItemKey;
use super::execute::revision;
use super::host::HostKind;
use super::settled::{Fingerprint, Versions};
use super::show::plan_shown;
use super::syncer::Inner;
use crate::resources::shown::SHOWN;
use crate::resources::{KindId, TO_HOST};
use crate::translate::TenantKey;
use std::collections::BTreeMap;
use std::time::Duration;
use sublet_machinery::ObjectExt;

pub(super) const PATROL_PAUSE: Duration = Duration::from_secs(300);
/// Keys between two chances for others to run.
const BATCH_KEYS: usize = 64;

impl Inner {
    /// Compares both sides in full; the keys that were out of step.
    pub(super) async fn patrol(&self) -> Vec<ItemKey> {
        let (mut found, mut seen) = (Vec::new(), 0);
        for (key, versions) in self.all_keys() {
            seen += 1;
            if seen % BATCH_KEYS == 0 {
                tokio::task::yield_now().await;
            }
            if self.settled.is_quiet(&key, versions) {
                continue;
            }
            // What is known to be refused has its own pace.
            if self.queue.refused_for(&key).is_none() && self.caught_up(&key) && self.is_out_of_step(&key) {
                found.push(key);
            }
        }
        for key in &found {
            tracing::info!(tenant = %self.view.names.tenant().name, %key, "patrol found a difference");
            self.stats.repair();
            self.queue.add(key.clone());
        }
        self.stats.patrol();
        found
    }

    /// Every key that one of the sides knows, and the versions of what is synced down.
    fn all_keys(&self) -> BTreeMap<ItemKey, Versions> {
        let uid = &self.view.names.tenant().uid;
        let mut keys: BTreeMap<ItemKey, Versions> = BTreeMap::new();
        for kind in TO_HOST.into_iter().filter(|k| self.view.is_up(k.id)) {
            for object in self.view.tenant.informer(kind.id).list(None) {
                keys.entry(ItemKey::new(kind.id, TenantKey::of(&object))).or_default().tenant = revision(&object);
            }
            for copy in self.view.host.of_tenant(HostKind::of(kind.id), uid) {
                if let Some(key) = self.view.key_of(kind.id, &copy) {
                    keys.entry(ItemKey::new(kind.id, key)).or_default().host = revision(&copy);
                }
            }
        }
        for copy in self.view.host.of_tenant(HostKind::Secrets, uid) {
            if let Some(key) = self.view.key_of(KindId::PodToken, &copy) {
                keys.entry(ItemKey::new(KindId::PodToken, key)).or_default();
            }
        }
        for kind in SHOWN.iter().filter(|k| self.view.is_up(k.id)) {
            for informer in [self.view.tenant.informer(kind.id), self.view.host.informer(kind.host)] {
                for object in informer.list(None) {
                    keys.entry(ItemKey::new(kind.id, TenantKey::new(kind.namespace, object.name()))).or_default();
                }
            }
        }
        keys
    }

    fn is_out_of_step(&self, key: &ItemKey) -> bool {
        let tenant = self.view.tenant.get(key.kind, &key.key);
        if key.kind == KindId::PodToken {
            return tenant.is_none();
        }
        if let Some(kind) = crate::resources::shown::shown_kind(key.kind) {
            let informer = self.view.host.informer(kind.host);
            let host = informer.get(kind.namespace, &key.key.name).filter(|host| self.is_wanted(kind, host, tenant.as_deref()));
            let wanted = host.map(|host| self.shown(kind, &host, tenant.as_deref()));
            let off = self.rules.is_off_to_tenant(&kind.gvr.resource);
            return !off && informer.is_synced() && plan_shown(wanted.as_ref(), tenant.as_deref()).is_some();
        }
        let host = self.view.copy_of(key.kind, &key.key);
        let settled = self.settled.contains(key, Fingerprint::of(key.kind, tenant.as_deref(), host.as_deref()));
        !self.plan(key, tenant.as_deref(), host.as_deref(), false, settled).is_empty()
    }
}
