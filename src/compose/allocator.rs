//! Cluster IPs and node ports: from ranges of one's own, or from the host.

use async_trait::async_trait;
use serde_json::Value;
use std::sync::Arc;
use sublet_apiserver::allocator;
use sublet_apiserver::hooks::{Allocation, ServiceAllocator};
use sublet_apiserver::reader::Reader;
use sublet_apiserver::server::Server;
use sublet_machinery::ApiError;
use sublet_machinery::patch::merge_patch;
use sublet_syncer::HostServiceAllocator;

/// Gives the server an allocator that knows what its Services already hold.
pub fn attach(server: &Server, config: &allocator::AllocatorConfig) -> Result<(), allocator::RangeError> {
    let ranges = allocator::ServiceAllocator::new(config)?;
    let services = server.list("services", None);
    ranges.rebuild(services.iter().map(|s| &**s));
    server.set_service_allocator(Arc::new(ranges));
    Ok(())
}

/// A tenant's numbers are the host's: asked for when all else is settled, given back when the write fails.
pub struct HostAllocator(pub HostServiceAllocator);

struct FromHost {
    host: HostServiceAllocator,
    allocation: sublet_syncer::Allocation,
}

#[async_trait]
impl ServiceAllocator for HostAllocator {
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
        Ok(Box::new(FromHost { host: self.0.clone(), allocation }))
    }

    /// The host copy goes with the tenant's Service, by the syncer.
    async fn release(&self, _service: &Value) {}
}

#[async_trait]
impl Allocation for FromHost {
    async fn commit(self: Box<Self>) {
        self.host.committed(self.allocation);
    }

    async fn rollback(self: Box<Self>) {
        self.host.undo(self.allocation).await;
    }
}
