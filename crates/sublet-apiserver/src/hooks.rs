//! Where the embedding process takes part in requests: numbers that a host owns, and streams to pods.

use crate::admission::UserInfo;
use crate::http::{HttpResponse, Query, RequestInfo};
use async_trait::async_trait;
use http::Request;
use serde_json::Value;
use std::sync::Arc;
use sublet_machinery::ApiError;

/// Addresses and ports of Services: allocated here on a host, asked from the host by a tenant.
#[async_trait]
pub trait ServiceAllocator: Send + Sync + 'static {
    /// Whether numbers are asked for before the Service is validated, as upstream does it, or only
    /// when all else is settled: a host should not see Services that the tenant's own rules refuse.
    fn is_early(&self) -> bool;

    /// Fills in the allocated fields of a Service that is about to be written. `old` is given on update.
    async fn allocate(&self, new: &mut Value, old: Option<&Value>, dry_run: bool) -> Result<Box<dyn Allocation>, ApiError>;

    /// The Service is gone.
    async fn release(&self, service: &Value);
}

/// Numbers reserved for a write that has not happened yet.
#[async_trait]
pub trait Allocation: Send {
    /// The write happened.
    async fn commit(self: Box<Self>);
    /// It did not: the numbers are free again.
    async fn rollback(self: Box<Self>);
}

/// What a connecting request is about.
pub struct ConnectTarget<'a> {
    pub info: &'a RequestInfo,
    pub query: &'a Query,
    pub user: &'a UserInfo,
    /// The pod, service or node.
    pub object: Arc<Value>,
}

/// Serves `log`, `exec`, `attach`, `portforward` and `proxy`.
#[async_trait]
pub trait Connector: Send + Sync + 'static {
    /// `request` still has its upgrade; its body is already read.
    async fn connect(&self, target: ConnectTarget<'_>, request: Request<bytes::Bytes>) -> Result<HttpResponse, ApiError>;
}
