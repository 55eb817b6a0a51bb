//! What a process in a pod knows of itself.

use crate::compose::in_cluster::Identity;
use crate::install::HEALTH_PORT;
use anyhow::{Context as _, Result};
use clap::Args;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where a kubelet writes the namespace of a pod.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

#[derive(Args, Clone)]
pub struct PodArguments {
    /// The name of this pod
    #[arg(long, env = "POD_NAME", value_name = "NAME", hide_env_values = true)]
    pod_name: Option<String>,
    /// The namespace of the installation [default: that of this pod]
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE", hide_env_values = true)]
    pod_namespace: Option<String>,
    /// Where to answer /healthz, /readyz and /metrics
    #[arg(long, default_value_t = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), HEALTH_PORT), value_name = "ADDRESS:PORT")]
    health: SocketAddr,
}

impl PodArguments {
    pub fn identity(&self) -> Result<Identity> {
        let namespace = match &self.pod_namespace {
            Some(namespace) => namespace.clone(),
            None => std::fs::read_to_string(NAMESPACE_FILE)
                .map(|t| t.trim().to_string())
                .context("not in a pod: give --pod-namespace and --pod-name")?,
        };
        let pod = self.pod_name.clone().context("--pod-name is needed: shards and leaders are told apart by it")?;
        Ok(Identity { pod, namespace, health: self.health })
    }
}
