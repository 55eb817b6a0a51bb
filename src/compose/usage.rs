//! What a tenant's pods and nodes use, as the host's metrics API tells it: `kubectl top` in a tenant.

use super::streams::Copies;
use async_trait::async_trait;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use sublet_api::marks;
use sublet_apiserver::hooks::UsageSource;
use sublet_machinery::{ApiError, Gvr, ObjectExt};
use sublet_runtime::{Client, ClientError, ListOptions};
use tokio::sync::Mutex;
use tokio::time::Instant;

static PODS: Gvr = Gvr::new("metrics.k8s.io", "v1beta1", "pods");
static NODES: Gvr = Gvr::new("metrics.k8s.io", "v1beta1", "nodes");
/// How long it is believed that the host has figures, or none. One answer serves all tenants.
const PRESENCE_MAX_AGE: Duration = Duration::from_secs(30);

/// The metrics API of the host, shared by the tenants of a process.
pub struct HostUsage {
    host: Client,
    /// When the host was asked last, and what it said. Held while it is asked, so that it is asked once.
    present: Mutex<Option<(Instant, bool)>>,
}

impl HostUsage {
    pub fn new(host: Client) -> Self {
        Self { host, present: Mutex::default() }
    }

    async fn is_there(&self) -> bool {
        let mut present = self.present.lock().await;
        if let Some((asked, answer)) = *present
            && asked.elapsed() < PRESENCE_MAX_AGE
        {
            return answer;
        }
        let found = self.host.get_raw("/apis/metrics.k8s.io/v1beta1").await;
        let answer = found.is_ok_and(|list| list.array_at("/resources").iter().any(|r| r["name"] == "pods"));
        *present = Some((Instant::now(), answer));
        answer
    }

    async fn list(&self, gvr: &Gvr, namespace: &str, label_selector: String) -> Result<HashMap<String, Value>, ApiError> {
        let options = ListOptions { label_selector, ..ListOptions::default() };
        let list = self.host.list(gvr, namespace, &options).await.map_err(unavailable)?;
        Ok(list.items.into_iter().map(|item| (item.name().to_string(), item)).collect())
    }
}

/// What the host says about its own trouble is not for the tenant.
fn unavailable(error: ClientError) -> ApiError {
    tracing::warn!(%error, "the host does not tell what pods use");
    ApiError::unavailable("the host cluster does not tell at present what pods and nodes use; try again")
}

/// The figures of one tenant.
pub struct TenantUsage {
    host: Arc<HostUsage>,
    copies: Copies,
    /// Where its pods are on the host.
    namespace: String,
    uid: String,
}

impl TenantUsage {
    pub fn new(host: Arc<HostUsage>, copies: Copies, namespace: &str, uid: &str) -> Self {
        Self { host, copies, namespace: namespace.into(), uid: uid.into() }
    }
}

#[async_trait]
impl UsageSource for TenantUsage {
    async fn is_there(&self) -> bool {
        self.host.is_there().await
    }

    async fn of_pods(&self, pods: &[Arc<Value>]) -> Result<Vec<Option<Value>>, ApiError> {
        if pods.is_empty() {
            return Ok(Vec::new());
        }
        // The host's figures carry the labels of the pods there.
        let ours = format!("{}={}", marks::VIRTUAL_CLUSTER_UID, self.uid);
        let mut figures = self.host.list(&PODS, &self.namespace, ours).await?;
        Ok(pods.iter().map(|pod| figures.remove(&self.copies.key(pod).namespaced().name)).collect())
    }

    async fn of_nodes(&self, nodes: &[Arc<Value>]) -> Result<Vec<Option<Value>>, ApiError> {
        if nodes.is_empty() {
            return Ok(Vec::new());
        }
        let mut figures = self.host.list(&NODES, "", String::new()).await?;
        Ok(nodes.iter().map(|node| figures.remove(node.name())).collect())
    }
}
