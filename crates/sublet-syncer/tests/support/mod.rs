//! A tenant and a host made of files, for translations and plans.
#![allow(dead_code, reason = "each test uses a part of it")]

pub mod addresses;
pub mod clusters;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use sublet_machinery::ObjectExt;
use sublet_syncer::resources::{KindId, TenantView, to_host_kind};
use sublet_syncer::translate::{Names, TenantKey};
use sublet_syncer::{PodConfig, TenantIdentity};

/// The tenant around the object: `golden/world.yaml`.
pub struct World {
    objects: Vec<Arc<Value>>,
    host: Vec<Arc<Value>>,
}

impl World {
    pub fn read() -> Self {
        let world = read(&folder().join("world.yaml"));
        let list = |key: &str| world[key].as_array().expect("a list").iter().cloned().map(Arc::new).collect();
        Self { objects: list("tenant"), host: list("host") }
    }

    /// The same without the tenant's services.
    pub fn without_services() -> Self {
        let mut world = Self::read();
        world.objects.retain(|o| o.kind() != "Service");
        world
    }

    fn of<'a>(list: &'a [Arc<Value>], kind: &'a str) -> impl Iterator<Item = &'a Arc<Value>> {
        list.iter().filter(move |o| o.kind() == kind)
    }
}

impl TenantView for World {
    fn services(&self, namespace: &str) -> Vec<Arc<Value>> {
        Self::of(&self.objects, "Service").filter(|s| s.namespace() == namespace).cloned().collect()
    }
    fn namespaces(&self) -> Vec<Arc<Value>> {
        Self::of(&self.objects, "Namespace").cloned().collect()
    }
    fn priority_class(&self, name: &str) -> Option<Arc<Value>> {
        Self::of(&self.objects, "PriorityClass").find(|c| c.name() == name).cloned()
    }
    fn host_priority_classes(&self) -> Vec<Arc<Value>> {
        Self::of(&self.host, "PriorityClass").cloned().collect()
    }
    fn is_node_shown(&self, _: &str) -> bool {
        true
    }
    fn host_has_node(&self, _: &str) -> Option<bool> {
        None
    }
    fn pods_on(&self, _: &str) -> Vec<Arc<Value>> {
        Vec::new()
    }
    fn object(&self, kind: KindId, key: &TenantKey) -> Option<Arc<Value>> {
        self.objects(kind, &key.namespace).into_iter().find(|o| o.name() == key.name)
    }
    fn objects(&self, kind: KindId, namespace: &str) -> Vec<Arc<Value>> {
        let row = to_host_kind(kind).expect("a synced kind");
        Self::of(&self.objects, row.kind).filter(|o| o.namespace() == namespace).cloned().collect()
    }
    fn claim_for(&self, _: &str) -> Option<Arc<Value>> {
        None
    }
    fn is_up(&self, _: KindId) -> bool {
        true
    }
    fn is_used(&self, _: &str, _: &TenantKey) -> bool {
        true
    }
    fn tenant_key(&self, _: KindId, _: &str) -> Option<TenantKey> {
        None
    }
    fn host_copy(&self, kind: KindId, key: &TenantKey) -> Option<Arc<Value>> {
        let wanted = |o: &&Arc<Value>| o.annotation("sublet.dev/name") == Some(&key.name);
        Self::of(&self.host, "Pod").filter(|_| kind == KindId::Pod).find(wanted).cloned()
    }
}

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

pub fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

pub fn names() -> Names {
    let tenant = TenantIdentity { name: "alpha".into(), namespace: "team-a".into(), uid: "0b5c0f6e-8a52-4f4e-9a0e-3d1f2c4b5a69".into() };
    Names::new(tenant, "team-a")
}

pub fn config() -> PodConfig {
    PodConfig { api_host: "10.96.7.7".into(), api_port: 6443, dns_server: Some("10.96.0.53".into()), ..PodConfig::default() }
}
