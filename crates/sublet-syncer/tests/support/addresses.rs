//! Cluster IPs and node ports: the host's own, and the tenant's asked from it.

use super::clusters::{Clusters, Running};
use async_trait::async_trait;
use serde_json::Value;
use std::sync::Arc;
use sublet_apiserver::allocator::{self, AllocatorConfig};
use sublet_apiserver::hooks::{Allocation, ServiceAllocator};
use sublet_machinery::ApiError;
use sublet_machinery::patch::merge_patch;
use sublet_syncer::HostServiceAllocator;

struct Tenant(HostServiceAllocator);
struct Asked(HostServiceAllocator, sublet_syncer::Allocation);

/// A host that hands out these ranges.
pub fn on_host(clusters: &Clusters, cidrs: &[&str], node_ports: (u16, u16)) {
    let service_cidrs = cidrs.iter().map(|c| c.parse().expect("a network")).collect();
    let ranges = allocator::ServiceAllocator::new(&AllocatorConfig { service_cidrs, node_ports, seed: 7 }).expect("ranges");
    clusters.host_server().set_service_allocator(Arc::new(ranges));
}

/// A tenant whose numbers are the host's.
pub fn in_tenant(clusters: &Clusters, running: &Running) {
    clusters.tenant_server().set_service_allocator(Arc::new(Tenant(running.syncer.service_allocator())));
}

#[async_trait]
impl ServiceAllocator for Tenant {
    fn is_early(&self) -> bool {
        false
    }

    async fn allocate(&self, new: &mut Value, old: Option<&Value>, dry_run: bool) -> Result<Box<dyn Allocation>, ApiError> {
        let allocation = match old {
            Some(old) => self.0.allocate_update(new, old, dry_run).await?,
            None => self.0.allocate_create(new, dry_run).await?,
        };
        if !allocation.spec.is_empty() {
            merge_patch::merge(&mut new["spec"], &Value::Object(allocation.spec.clone()));
        }
        Ok(Box::new(Asked(self.0.clone(), allocation)))
    }

    async fn release(&self, _: &Value) {}
}

#[async_trait]
impl Allocation for Asked {
    async fn commit(self: Box<Self>) {
        self.0.committed(self.1);
    }
    async fn rollback(self: Box<Self>) {
        self.0.undo(self.1).await;
    }
}
