//! Cluster IPs and node ports of an API server that owns its ranges.

use async_trait::async_trait;
use serde_json::Value;
use std::sync::Arc;
use sublet_apiserver::allocator::{self, Reservation};
use sublet_apiserver::hooks::{Allocation, ServiceAllocator};
use sublet_apiserver::reader::Reader;
use sublet_apiserver::server::Server;
use sublet_machinery::ApiError;

/// Gives the server an allocator that knows what its Services already hold.
pub fn attach(server: &Server, config: &allocator::AllocatorConfig) -> Result<(), allocator::RangeError> {
    let ranges = allocator::ServiceAllocator::new(config)?;
    let services = server.list("services", None);
    ranges.rebuild(services.iter().map(|s| &**s));
    server.set_service_allocator(Arc::new(Local(ranges)));
    Ok(())
}

struct Local(allocator::ServiceAllocator);

struct Reserved(Reservation);

#[async_trait]
impl ServiceAllocator for Local {
    fn is_early(&self) -> bool {
        true
    }

    async fn allocate(&self, new: &mut Value, old: Option<&Value>, _dry_run: bool) -> Result<Box<dyn Allocation>, ApiError> {
        Ok(Box::new(Reserved(self.0.allocate(new, old)?)))
    }

    async fn release(&self, service: &Value) {
        self.0.release(service);
    }
}

#[async_trait]
impl Allocation for Reserved {
    async fn commit(self: Box<Self>) {
        self.0.commit();
    }

    async fn rollback(self: Box<Self>) {}
}
