//! A way to a control plane that is not exposed: connections to this machine, carried through the host's
//! API to the pod that runs it.

use super::clusters::NameArguments;
use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::Value;
use std::net::Ipv4Addr;
use sublet_api::{Mode, VirtualCluster};
use sublet_runtime::Client;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// kubectl uses a handful; more wait.
const CONNECTIONS_MAX: usize = 64;

/// Forwards until dropped.
pub struct Forward {
    pub port: u16,
    task: JoinHandle<()>,
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How a client on this machine reaches the cluster.
pub enum Way {
    /// As its kubeconfig says.
    Direct,
    /// At this URL, which is exposed.
    Exposed(String),
    /// Through the host's API.
    Forwarded(Forward),
}

/// Finds the way to a cluster; forwards when it runs in the host and is not exposed.
pub async fn way(host: &Client, cluster: &Value, name: &NameArguments) -> Result<Way> {
    let at = &cluster["status"]["controlPlane"];
    if let Some(url) = at["external"].as_str() {
        return Ok(Way::Exposed(url.to_string()));
    }
    let view = VirtualCluster::new(cluster);
    let Some(placement) = view.placement().filter(|_| view.mode() != Mode::External) else { return Ok(Way::Direct) };
    let Some(namespace) = at["namespace"].as_str() else {
        bail!("virtual cluster `{}` does not say where its control plane runs; see `sublet describe {}`", name.name, name.name)
    };
    let pods: Api<Pod> = Api::namespaced(host.kube().clone(), namespace);
    Ok(Way::Forwarded(start(pods, placement.pod, placement.api_port).await?))
}

async fn start(pods: Api<Pod>, pod: String, port: u16) -> Result<Forward> {
    // Asked once before anybody connects, so that a refusal is told and not guessed.
    drop(pods.portforward(&pod, &[port]).await.with_context(|| format!("cannot forward to pod `{pod}`"))?);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no port is free")?;
    let local = listener.local_addr()?.port();
    let task = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            while connections.len() >= CONNECTIONS_MAX {
                connections.join_next().await;
            }
            let (pods, pod) = (pods.clone(), pod.clone());
            connections.spawn(async move {
                if let Err(error) = carry(&pods, &pod, port, stream).await {
                    tracing::debug!(%error, "a forwarded connection ended badly");
                }
            });
        }
    });
    Ok(Forward { port: local, task })
}

async fn carry(pods: &Api<Pod>, pod: &str, port: u16, mut local: TcpStream) -> Result<()> {
    let mut forwarder = pods.portforward(pod, &[port]).await?;
    let mut remote = forwarder.take_stream(port).context("the host gave no stream")?;
    tokio::io::copy_bidirectional(&mut local, &mut remote).await?;
    drop(remote);
    forwarder.join().await?;
    Ok(())
}

/// The kubeconfig with another server.
pub fn with_server(kubeconfig: &str, server: &str) -> Result<String> {
    let mut config: Value = serde_saphyr::from_str(kubeconfig).context("the kubeconfig Secret is damaged")?;
    for cluster in config["clusters"].as_array_mut().into_iter().flatten() {
        cluster["cluster"]["server"] = Value::from(server);
    }
    Ok(serde_saphyr::to_string(&config)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_leads_elsewhere_and_says_the_same_otherwise() {
        let text = "clusters:\n- name: a\n  cluster:\n    server: \"https://x:1\"\n    certificate-authority-data: Q0E=\nusers: []\n";
        let changed: Value = serde_saphyr::from_str(&with_server(text, "https://127.0.0.1:5").unwrap()).unwrap();
        assert_eq!(changed["clusters"][0]["cluster"]["server"], "https://127.0.0.1:5");
        assert_eq!(changed["clusters"][0]["cluster"]["certificate-authority-data"], "Q0E=");
    }
}
