//! One tenant's name server, on the objects of its API server.

use anyhow::{Context as _, Result};
use serde_json::Value;
use std::net::IpAddr;
use std::sync::Arc;
use sublet_apiserver::reader::Reader;
use sublet_apiserver::server::Server;
use sublet_apiserver::store::entry::Entry;
use sublet_dns::{DnsServer, ResolverConfig, SERVICE_NAME_LABEL, ServerConfig, Sockets, Upstream, World, Zone, ZoneConfig};
use sublet_machinery::ObjectExt;

/// The domain of every cluster. Kubelets of tenants' pods are told the same.
pub const DOMAIN: &str = "cluster.local";

const SERVICES: &str = "services";
const SLICES: &str = "endpointslices.discovery.k8s.io";
const NAMESPACES: &str = "namespaces";

/// The name servers that this machine or pod asks.
pub fn host_resolver() -> ResolverConfig {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    ResolverConfig::parse(&text).without_cluster(DOMAIN)
}

/// Serves until stopped. `address` is where pods reach it.
pub fn start(server: Server, sockets: Sockets, address: Option<IpAddr>, upstream: Arc<Upstream>) -> Result<DnsServer> {
    let config = ZoneConfig { domain: DOMAIN.into(), servers: address.into_iter().collect() };
    let zone = Zone::new(&config, Arc::new(Tenant { server })).context("the cluster's domain is no name")?;
    DnsServer::start(ServerConfig { zone, upstream: Some(upstream) }, sockets).context("the name server does not start")
}

/// A tenant's objects, read where the API server keeps them.
struct Tenant {
    server: Server,
}

impl World for Tenant {
    fn has_namespace(&self, name: &str) -> bool {
        self.server.store().get(NAMESPACES, "", name).is_some()
    }

    fn service(&self, namespace: &str, name: &str) -> Option<Arc<Value>> {
        Reader::get(&self.server, SERVICES, namespace, name)
    }

    fn slices(&self, namespace: &str, service: &str) -> Vec<Arc<Value>> {
        let all = self.server.store().list(SLICES, Some(namespace)).entries;
        // Labels are read without parsing: only the slices of this Service are.
        all.iter().filter(|e| e.label(SERVICE_NAME_LABEL) == Some(service)).map(|e| Arc::new(e.value())).collect()
    }

    fn pod_at(&self, namespace: &str, address: IpAddr) -> Option<Arc<Value>> {
        let text = address.to_string();
        let pods = self.server.store().list("pods", Some(namespace)).entries;
        // A pod that has ended may still show an address that is another one's by now.
        let lives = |pod: &Value| !matches!(pod.str_at("/status/phase"), Some("Succeeded" | "Failed"));
        if let Some(pod) = pods.iter().filter(|e| e.fields().any(|f| f == ("status.podIP", &*text))).map(|e| e.value()).find(lives) {
            return Some(Arc::new(pod));
        }
        // The address of the other family is in the object alone.
        let primary = |e: &Entry| e.fields().find(|(field, _)| *field == "status.podIP").and_then(|(_, ip)| ip.parse::<IpAddr>().ok());
        let is_other_family = |e: &&Arc<Entry>| primary(e).is_some_and(|ip| ip.is_ipv4() != address.is_ipv4());
        let has_it = |pod: &Value| lives(pod) && pod.array_at("/status/podIPs").iter().any(|ip| ip["ip"] == *text);
        pods.iter().filter(is_other_family).map(|e| e.value()).find(has_it).map(Arc::new)
    }

    fn services(&self) -> Vec<Arc<Value>> {
        self.server.list(SERVICES, None)
    }

    fn all_slices(&self) -> Vec<Arc<Value>> {
        self.server.list(SLICES, None)
    }

    fn revision(&self) -> u64 {
        [SERVICES, SLICES, NAMESPACES].into_iter().map(|r| self.server.revision(r)).max().unwrap_or_default()
    }
}
