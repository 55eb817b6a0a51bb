//! Remembers for which pair of inputs nothing had to go down, so that the many changes of a status
//! cost no translation, and at which versions of both sides there was nothing to do at all, so that a patrol
//! costs no comparison of them. Content decides, not history: the memory can be lost at any time.

use super::ItemKey;
use crate::resources::KindId;
use serde_json::Value;
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Mutex;
use sublet_machinery::ObjectExt;

/// Two hashes over everything that the way down of a pod depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint(u64, u64);

/// The revisions of a tenant's object and of its copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Versions {
    pub tenant: u64,
    pub host: u64,
}

/// The memory; it holds an entry per pod at most.
#[derive(Default)]
pub(super) struct Settled {
    /// Guards the entries; held for plain memory moves.
    all: Mutex<HashMap<ItemKey, Known>>,
}

#[derive(Default)]
struct Known {
    down: Option<Fingerprint>,
    quiet_at: Option<Versions>,
}

impl Fingerprint {
    /// `None` for kinds and pods whose way down depends on more than spec and metadata.
    pub(super) fn of(id: KindId, tenant: Option<&Value>, host: Option<&Value>) -> Option<Self> {
        let (Some(tenant), Some(host), KindId::Pod) = (tenant, host, id) else { return None };
        if !tenant.array_at("/spec/readinessGates").is_empty() {
            return None;
        }
        let (mut ours, mut theirs) = (DefaultHasher::new(), DefaultHasher::new());
        for field in ["uid", "labels", "annotations", "ownerReferences"] {
            tenant["metadata"][field].hash(&mut ours);
        }
        tenant["spec"].hash(&mut ours);
        for field in ["uid", "labels", "annotations", "managedFields"] {
            host["metadata"][field].hash(&mut theirs);
        }
        host["spec"]["ephemeralContainers"].hash(&mut theirs);
        Some(Self(ours.finish(), theirs.finish()))
    }
}

impl Settled {
    pub(super) fn contains(&self, key: &ItemKey, print: Option<Fingerprint>) -> bool {
        print.is_some() && self.lock().get(key).is_some_and(|known| known.down == print)
    }

    pub(super) fn set(&self, key: &ItemKey, print: Option<Fingerprint>) {
        match print {
            Some(print) => self.lock().entry(key.clone()).or_default().down = Some(print),
            None => drop(self.lock().remove(key)),
        }
    }

    /// There was nothing to do about a pod at these versions.
    pub(super) fn set_quiet(&self, key: &ItemKey, versions: Versions) {
        if let Some(known) = self.lock().get_mut(key) {
            known.quiet_at = Some(versions);
        }
    }

    pub(super) fn is_quiet(&self, key: &ItemKey, versions: Versions) -> bool {
        let is_known = versions.tenant > 0 && versions.host > 0;
        is_known && self.lock().get(key).is_some_and(|known| known.quiet_at == Some(versions))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ItemKey, Known>> {
        self.all.lock().expect("no holder panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_status_changes_nothing_and_all_else_does() {
        let tenant = json!({"metadata": {"uid": "u", "resourceVersion": "1"}, "spec": {"a": 1}, "status": {"phase": "Pending"}});
        let host = json!({"metadata": {"uid": "h", "managedFields": [{"fieldsV1": "{}"}]}, "status": {}});
        let print = |tenant: &Value, host: &Value| Fingerprint::of(KindId::Pod, Some(tenant), Some(host));
        let before = print(&tenant, &host);
        let mut running = tenant.clone();
        running["status"]["phase"] = json!("Running");
        running["metadata"]["resourceVersion"] = json!("2");
        assert_eq!(print(&running, &host), before);
        let mut labelled = tenant.clone();
        labelled.set_label("a", "b");
        assert_ne!(print(&labelled, &host), before);
        let mut touched = host.clone();
        touched["metadata"]["managedFields"][0]["fieldsV1"] = json!("{\"f:x\":{}}");
        assert_ne!(print(&tenant, &touched), before);
        assert_eq!(Fingerprint::of(KindId::Service, Some(&tenant), Some(&host)), None);
    }

    #[test]
    fn what_was_quiet_is_so_at_the_same_versions_only() {
        let settled = Settled::default();
        let key = ItemKey::new(KindId::Pod, crate::translate::TenantKey::new("n", "p"));
        let at = |tenant, host| Versions { tenant, host };
        let object = |uid: &str| json!({"metadata": {"uid": uid}});
        settled.set(&key, Fingerprint::of(KindId::Pod, Some(&object("t")), Some(&object("h"))));
        assert!(!settled.is_quiet(&key, at(1, 2)));
        settled.set_quiet(&key, at(1, 2));
        assert!(settled.is_quiet(&key, at(1, 2)));
        assert!(!settled.is_quiet(&key, at(1, 3)) && !settled.is_quiet(&key, at(2, 2)));
        settled.set_quiet(&key, at(0, 2));
        assert!(!settled.is_quiet(&key, at(0, 2)), "a version that is not known says nothing");
        settled.set(&key, None);
        assert!(!settled.is_quiet(&key, at(1, 2)));
    }
}
