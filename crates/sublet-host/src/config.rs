//! What the embedded host is made of: how many nodes, how large, on which addresses.

use ipnet::{IpNet, Ipv4Net};
use std::net::Ipv4Addr;
use sublet_runtime::Clock;

/// The settings of an embedded host. Every field has a default that suits a laptop.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Simulated nodes, named `node-1` onwards. Zero is fine: the nodes are real ones or come later.
    pub nodes: usize,
    /// Quantities of each node.
    pub node_cpu: String,
    pub node_memory: String,
    pub node_ephemeral_storage: String,
    pub pods_per_node: u32,
    /// Nodes are spread over this many zones, `zone-a` onwards.
    pub zones: usize,
    /// Pod addresses; cut into one range per node.
    pub pod_cidr: IpNet,
    /// Node addresses.
    pub node_cidr: IpNet,
    pub kubelet_version: String,
    pub clock: Clock,
    pub timings: Timings,
}

/// How long things take, in seconds. The defaults are upstream's, but pods start at once.
#[derive(Clone, Debug)]
pub struct Timings {
    pub lease_renew: u64,
    pub lease_duration: u64,
    /// From ContainerCreating to the first start.
    pub pod_start: i64,
    pub crash_backoff_first: i64,
    pub crash_backoff_max: i64,
}

impl Default for Timings {
    fn default() -> Self {
        Self { lease_renew: 10, lease_duration: 40, pod_start: 0, crash_backoff_first: 10, crash_backoff_max: 300 }
    }
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            nodes: 2,
            node_cpu: "32".into(),
            node_memory: "128Gi".into(),
            node_ephemeral_storage: "500Gi".into(),
            pods_per_node: 500,
            zones: 2,
            pod_cidr: IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(10, 244, 0, 0), 16)),
            node_cidr: IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(172, 30, 0, 0), 16)),
            kubelet_version: "v1.37.2".into(),
            clock: Clock::System,
            timings: Timings::default(),
        }
    }
}

impl HostConfig {
    pub fn node_names(&self) -> impl Iterator<Item = String> + use<> {
        (1..=self.nodes).map(|n| format!("node-{n}"))
    }
}
