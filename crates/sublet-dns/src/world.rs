//! What the zone is computed from.

use serde_json::Value;
use std::net::IpAddr;
use std::sync::Arc;

/// Reads of a tenant's objects as they are now, from memory.
pub trait World: Send + Sync + 'static {
    fn has_namespace(&self, name: &str) -> bool;
    fn service(&self, namespace: &str, name: &str) -> Option<Arc<Value>>;
    /// The EndpointSlices that carry the name of a Service.
    fn slices(&self, namespace: &str, service: &str) -> Vec<Arc<Value>>;
    /// The pod of the namespace that has the address.
    fn pod_at(&self, namespace: &str, address: IpAddr) -> Option<Arc<Value>>;
    /// All Services, for reverse lookups.
    fn services(&self) -> Vec<Arc<Value>>;
    /// All EndpointSlices, for reverse lookups.
    fn all_slices(&self) -> Vec<Arc<Value>>;
    /// Rises with every change of a Service, EndpointSlice or Namespace.
    fn revision(&self) -> u64;
}
