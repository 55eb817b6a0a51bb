//! What stands in front of one tenant's servers: two ports of this process, and a Service on the host
//! whose address stays the same.

use super::tenant::{Place, PodReach, listener, on_old_port};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::Path;
use sublet_api::{Placement, VirtualCluster};
use sublet_dns::Sockets;
use sublet_operator::Tenant;
use sublet_operator::tenant_service::{self, Behind, Ports, Reached};
use sublet_runtime::{Client, ClientError};
use tokio::net::TcpListener;

const DNS_PORT_FILE: &str = "dns-port";

/// Ports that wait for their servers.
pub struct Bound {
    pub api: TcpListener,
    pub dns: Sockets,
}

impl Bound {
    /// On the ports that the tenant had before, or on free ones.
    pub async fn open(place: &Place) -> Result<Self> {
        std::fs::create_dir_all(&place.dir).with_context(|| format!("cannot create {}", place.dir.display()))?;
        if let Some(ports) = place.ports {
            return Self::exactly(ports, place.listen).await;
        }
        let api = listener(&place.dir, place.listen).await?;
        Ok(Self { api, dns: sockets(&place.dir, place.listen).await? })
    }

    /// Where the Service already leads to.
    async fn exactly(ports: Ports, address: IpAddr) -> Result<Self> {
        let api = TcpListener::bind((address, ports.api)).await.with_context(|| format!("port {} is taken", ports.api))?;
        Ok(Self { api, dns: Sockets::bind(address, ports.dns).await.context("the port of the name server is taken")? })
    }

    pub fn ports(&self) -> Result<Ports> {
        Ok(Ports { api: self.api.local_addr()?.port(), dns: Some(self.dns.address()?.port()) })
    }
}

async fn sockets(dir: &Path, address: IpAddr) -> Result<Sockets> {
    let bind = |port: Option<u16>| async move { Sockets::bind(address, port).await.context("no port is free for the name server") };
    // The Service leads to the new one in a moment.
    let taken = "the name server's port of last time is taken";
    on_old_port(&dir.join(DNS_PORT_FILE), taken, bind, |sockets| Ok(sockets.address()?.port())).await
}

/// Makes the Service and what it leads to be as they should. Safe to repeat. `known` is the address that it had.
pub async fn ensure(host: &Client, tenant: &Tenant, reach: &PodReach, ports: Ports, known: Option<IpAddr>) -> Result<Reached> {
    let behind = match reachable(reach).await? {
        Some(address) => Behind::Address(address),
        // An address is wanted all the same. There are no endpoints that a host would take.
        None => Behind::Pods(json!({})),
    };
    let object = object(tenant);
    let cluster = VirtualCluster::new(&object);
    let reached = tenant_service::ensure(host, &cluster, &tenant.namespace, &behind, ports, known).await;
    reached.with_context(|| format!("the Service in front of the control plane cannot be made in namespace `{}`", tenant.namespace))
}

pub async fn remove(host: &Client, tenant: &Tenant) -> Result<(), ClientError> {
    tenant_service::remove(host, &VirtualCluster::new(&object(tenant)), &tenant.namespace).await
}

/// The ports that an operator elsewhere chose.
pub fn ports(placement: &Placement) -> Ports {
    Ports { api: placement.api_port, dns: Some(placement.dns_port) }
}

/// Whether these are the ports of the tenant, as far as somebody chose them.
pub fn is_at(ports: Ports, tenant: &Tenant) -> bool {
    tenant.placement.as_ref().is_none_or(|p| self::ports(p) == ports)
}

/// The Service that an operator elsewhere made.
pub fn made_elsewhere(placement: &Placement) -> Reached {
    Reached { cluster_ips: vec![placement.address.clone()], ..Reached::default() }
}

/// The address of the Service, for certificates and pods.
pub fn service_ip(reached: &Reached) -> Option<IpAddr> {
    reached.cluster_ips.iter().find_map(|a| a.parse().ok())
}

/// The address at which pods reach this process, if they can at all.
async fn reachable(reach: &PodReach) -> Result<Option<IpAddr>> {
    let PodReach::Address(text) = reach else { return Ok(None) };
    let address = match text.parse() {
        Ok(address) => address,
        Err(_) => {
            let mut found = tokio::net::lookup_host((text.as_str(), 0)).await.with_context(|| format!("`{text}` has no address"))?;
            found.next().with_context(|| format!("`{text}` has no address"))?.ip()
        }
    };
    let address: IpAddr = address;
    Ok((!address.is_loopback() && !address.is_unspecified()).then_some(address))
}

/// As much of the `VirtualCluster` as names its Service.
fn object(tenant: &Tenant) -> Value {
    json!({"metadata": {"name": tenant.name, "namespace": tenant.namespace, "uid": tenant.uid}})
}
