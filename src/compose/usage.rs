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

#[cfg(test)]
mod tests {
    use crate::compose::testing::{Asked, World, copy, json_answer};
    use bytes::Bytes;
    use http::{Response, StatusCode};
    use http_body_util::Full;
    use serde_json::{Value, json};
    use sublet_machinery::ObjectExt as _;

    /// A host with figures of a copy, of another tenant's, and of a pod that is nobody's.
    fn figures(asked: &Asked) -> Response<Full<Bytes>> {
        let figure = |name: &str| {
            json!({"metadata": {"name": name, "labels": {"of": "the host"}}, "timestamp": "t", "window": "15s",
            "containers": [{"name": "main", "usage": {"cpu": "3m", "memory": "7Mi"}}], "usage": {"cpu": "1"}})
        };
        let items: Vec<Value> = match asked.path.split('?').next().unwrap_or_default() {
            "/apis/metrics.k8s.io/v1beta1" => return json_answer(Some(&json!({"resources": [{"name": "pods"}, {"name": "nodes"}]}))),
            "/apis/metrics.k8s.io/v1beta1/namespaces/team-a/pods" => [copy("alpha-uid", "web", ""), copy("beta-uid", "secret", "")]
                .iter()
                .map(|c| figure(c.name()))
                .chain([figure("web")])
                .collect(),
            "/apis/metrics.k8s.io/v1beta1/nodes" => ["node-1", "node-2"].map(figure).to_vec(),
            _ => return json_answer(None),
        };
        json_answer(Some(&json!({"kind": "PodMetricsList", "items": items})))
    }

    async fn ask(world: &World, path: &str) -> (StatusCode, Value) {
        let (status, _, body) = world.ask("GET", &format!("/apis/metrics.k8s.io/v1beta1{path}")).await;
        (status, serde_json::from_str(&body).unwrap_or_default())
    }

    async fn served(world: &World) {
        for _ in 0..100 {
            if ask(world, "").await.0 == StatusCode::OK {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        panic!("the tenant does not serve what its host has");
    }

    #[tokio::test]
    async fn a_tenant_is_told_what_its_own_pods_use() {
        let world = World::start(figures).await;
        served(&world).await;
        for path in ["/pods", "/namespaces/prod/pods", "/namespaces/prod/pods?fieldSelector=metadata.name=web"] {
            let (_, list) = ask(&world, path).await;
            let names: Vec<&str> = list.array_at("/items").iter().map(|i| i.name()).collect();
            assert_eq!((list.kind(), names), ("PodMetricsList", vec!["web"]), "{path}");
            let item = &list["items"][0];
            assert_eq!((item.namespace(), &item["containers"][0]["usage"]["cpu"]), ("prod", &json!("3m")));
            assert!(item.pointer("/metadata/labels").is_none(), "labels are those of the tenant's pod, which has none: {item}");
        }
        let heard: Vec<String> = world.host.heard().into_iter().map(|a| a.path).collect();
        assert!(heard.iter().all(|p| p.starts_with("/apis/metrics.k8s.io/v1beta1/namespaces/team-a/pods?")), "{heard:?}");
        let (_, none) = ask(&world, "/namespaces/prod/pods?labelSelector=a%3Db").await;
        assert!(none.array_at("/items").is_empty());
        assert_eq!(ask(&world, "/namespaces/prod/pods/web").await.0, StatusCode::OK);
        for path in ["/namespaces/prod/pods/absent", "/namespaces/team-a/pods/web", "/namespaces/prod/pods/foreign", "/pods/web"] {
            assert_eq!(ask(&world, path).await.0, StatusCode::NOT_FOUND, "{path}");
        }
        let (_, nodes) = ask(&world, "/nodes").await;
        assert_eq!(nodes.array_at("/items").iter().map(|i| i.name()).collect::<Vec<_>>(), ["node-1"], "of nodes that the tenant sees");
    }

    #[tokio::test]
    async fn without_figures_of_the_host_there_are_none() {
        let world = World::start(|_| json_answer(None)).await;
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        for path in ["", "/pods", "/nodes"] {
            assert_eq!(ask(&world, path).await.0, StatusCode::NOT_FOUND, "{path}");
        }
        let (_, _, groups) = world.ask("GET", "/apis").await;
        assert!(!groups.contains("metrics.k8s.io"));
    }
}
