//! Virtual clusters, made and reached as their users do it.

use super::{load, load::Pace, objects};
use anyhow::Result;
use std::time::Duration;
use sublet_e2e::{Cluster, eventually};
use sublet_runtime::Client;
use sublet_runtime::resources::{NAMESPACES, SERVICE_ACCOUNTS, VIRTUAL_CLUSTERS};
use tokio::time::Instant;

/// Hundreds of tenants on a busy machine take their time.
const PATIENCE_S: u64 = 1800;
const POLL: Duration = Duration::from_millis(5);

/// A tenant that answers.
#[derive(Clone)]
pub struct Tenant {
    /// Its name and its namespace on the host.
    pub name: String,
    pub cluster: Cluster,
    /// From the creation of the object to the first answer of its API server.
    pub answered_in: Duration,
    /// To the condition Ready.
    pub ready_in: Duration,
}

/// Makes tenants `t-FROM` up to `t-TO` (without it), `clients` at once.
pub async fn create(host: &Cluster, from: usize, to: usize, clients: usize) -> Result<Vec<Tenant>> {
    let made = load::run(to - from, Pace { clients, rate: 0.0 }, |i| one(host, format!("t-{}", from + i))).await?;
    Ok(made.into_iter().map(|(_, tenant)| tenant).collect())
}

async fn one(host: &Cluster, name: String) -> Result<Tenant> {
    host.create(&NAMESPACES, &objects::namespace(&name)).await?;
    let begin = Instant::now();
    host.create(&VIRTUAL_CLUSTERS, &objects::virtual_cluster(&name, &name)).await?;
    let cluster = connect(host, &name).await?;
    let answered_in = begin.elapsed();
    loop {
        let object = host.get(&VIRTUAL_CLUSTERS, &name, &name).await?;
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True") {
            break;
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(Tenant { name, cluster, answered_in, ready_in: begin.elapsed() })
}

/// Reaches a tenant through the Secret on the host; returns when it answers.
pub async fn connect(host: &Cluster, name: &str) -> Result<Cluster> {
    let end = Instant::now() + Duration::from_secs(PATIENCE_S);
    loop {
        let found = Cluster::from_secret(host, name, &format!("{name}-kubeconfig")).await;
        let answer = match found {
            Ok(cluster) => cluster.get_opt(&NAMESPACES, "", "default").await.map(|_| cluster).map_err(anyhow::Error::from),
            Err(error) => Err(error),
        };
        match answer {
            Ok(cluster) => return Ok(cluster),
            Err(error) if Instant::now() > end => return Err(error),
            Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}

/// Pods need the default service account of their namespace.
pub async fn wait_for_account(cluster: &Cluster, namespace: &str) -> Result<()> {
    eventually("the default service account", PATIENCE_S, || async {
        let found = cluster.get_opt(&SERVICE_ACCOUNTS, namespace, "default").await?;
        Ok(found.map(|_| ()).ok_or_else(|| format!("namespace {namespace} has none")))
    })
    .await
}

/// As [`wait_for_account`], and makes it where no controller does.
pub async fn wait_or_make_account(client: &Client, namespace: &str) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        if client.get_opt(&SERVICE_ACCOUNTS, namespace, "default").await?.is_some() {
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
    }
    let account =
        serde_json::json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": "default"}});
    client.create(&SERVICE_ACCOUNTS, &account).await?;
    Ok(())
}
