//! Where the embedding process takes part in requests: numbers that a host owns, and streams to pods.

use crate::admission::UserInfo;
use crate::http::body::RequestBody;
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

/// Tells what pods and nodes use.
#[async_trait]
pub trait UsageSource: Send + Sync + 'static {
    /// Whether there are figures at all; asked again and again.
    async fn is_there(&self) -> bool;

    /// An answer for each pod: `timestamp`, `window` and `containers` of a `PodMetrics`; `None` where there are none.
    async fn of_pods(&self, pods: &[Arc<Value>]) -> Result<Vec<Option<Value>>, ApiError>;

    /// An answer for each node: `timestamp`, `window` and `usage` of a `NodeMetrics`.
    async fn of_nodes(&self, nodes: &[Arc<Value>]) -> Result<Vec<Option<Value>>, ApiError>;
}

/// What a connecting request is about. All is checked that can be checked without the node.
pub struct ConnectTarget<'a> {
    pub info: &'a RequestInfo,
    pub query: &'a Query,
    pub user: &'a UserInfo,
    /// The pod or node; of a service, one of the pods behind it.
    pub object: Arc<Value>,
    /// Where a request through `proxy` goes there.
    pub proxied: Option<Proxied>,
}

/// Scheme, port and path at a pod or node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxied {
    /// `http`, `https`, or empty, which is `http`.
    pub scheme: String,
    /// As it was asked for, so anything; empty when there is none.
    pub port: String,
    /// Decoded; without segments that lead upwards. Empty or beginning with a slash.
    pub path: String,
}

/// Serves `log`, `exec`, `attach`, `portforward` and `proxy`.
#[async_trait]
pub trait Connector: Send + Sync + 'static {
    /// `request` still has its upgrade and its body.
    async fn connect(&self, target: ConnectTarget<'_>, request: Request<RequestBody>) -> Result<HttpResponse, ApiError>;
}
