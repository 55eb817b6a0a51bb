//! What pods on simulated nodes use: made up, so that `kubectl top` has something to show.

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;
use sublet_apiserver::hooks::UsageSource;
use sublet_host::{simulated_node_usage, simulated_pod_usage};
use sublet_machinery::ApiError;
use sublet_runtime::resources::PODS;
use sublet_runtime::{Client, ListOptions};

/// Figures for the pods of an API server.
pub struct SimulatedUsage {
    client: Client,
}

impl SimulatedUsage {
    pub fn new(client: Client) -> Self {
        Self { client }
    }
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[async_trait]
impl UsageSource for SimulatedUsage {
    async fn is_there(&self) -> bool {
        true
    }

    async fn of_pods(&self, pods: &[Arc<Value>]) -> Result<Vec<Option<Value>>, ApiError> {
        let now = now();
        Ok(pods.iter().map(|pod| simulated_pod_usage(pod, &now)).collect())
    }

    async fn of_nodes(&self, nodes: &[Arc<Value>]) -> Result<Vec<Option<Value>>, ApiError> {
        let pods = self.client.list(&PODS, "", &ListOptions::default()).await.map_err(ApiError::internal)?.items;
        let now = now();
        Ok(nodes.iter().map(|node| Some(simulated_node_usage(node, pods.iter(), &now))).collect())
    }
}
