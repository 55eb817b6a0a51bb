//! The server's hook for numbers, from ranges of its own.

use super::{Reservation, ServiceAllocator};
use crate::hooks::{self, Allocation};
use async_trait::async_trait;
use serde_json::Value;
use sublet_machinery::ApiError;

#[async_trait]
impl hooks::ServiceAllocator for ServiceAllocator {
    fn is_early(&self) -> bool {
        true
    }

    async fn allocate(&self, new: &mut Value, old: Option<&Value>, _dry_run: bool) -> Result<Box<dyn Allocation>, ApiError> {
        Ok(Box::new(Self::allocate(self, new, old)?))
    }

    async fn release(&self, service: &Value) {
        Self::release(self, service);
    }
}

#[async_trait]
impl Allocation for Reservation {
    async fn commit(self: Box<Self>) {
        Reservation::commit(*self);
    }

    async fn rollback(self: Box<Self>) {}
}
