//! Many tenants in one process: a store file, a port, keys and a cancel scope each.

use super::front::{self, Bound};
use super::tenant::{ControlPlane, Place, PodReach};
use async_trait::async_trait;
use ipnet::IpNet;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use sublet_dns::{ResolverConfig, Upstream};
use sublet_operator::tenant_service::Reached;
use sublet_operator::{ControlPlaneError, ControlPlanes, PlaneStatus, Tenant};
use sublet_pki::Pki;
use sublet_runtime::Client;
use sublet_syncer::{HostCache, Syncer, TenantIdentity};
use tokio::sync::Mutex;

/// Where packed tenants live and listen.
#[derive(Clone)]
pub struct PackedConfig {
    pub dir: PathBuf,
    pub listen: IpAddr,
    pub service_cidr: IpNet,
    pub pods_reach: PodReach,
    /// The host over the network, for streams: a client within the process cannot upgrade.
    pub streams: Client,
    /// The host's own name servers and search domains.
    pub resolver: ResolverConfig,
    /// Whether pods can reach the tenants' name servers.
    pub pods_resolve: bool,
}

/// How often the Service in front of a running control plane is looked at.
const FRONT_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// One tenant.
#[derive(Default)]
struct Slot {
    plane: Option<ControlPlane>,
    /// Ports of a control plane that is about to start.
    bound: Option<Bound>,
    front: Option<(Instant, Reached)>,
}

/// Runs control planes in this process.
pub struct Packed {
    config: PackedConfig,
    host: Arc<HostCache>,
    upstream: Arc<Upstream>,
    /// By UID. The outer lock is held for map moves; each tenant has its own for what takes time.
    planes: Mutex<HashMap<String, Arc<Mutex<Slot>>>>,
}

impl Packed {
    pub fn new(config: PackedConfig, host: Arc<HostCache>) -> Self {
        let upstream = Arc::new(Upstream::new(config.resolver.servers.clone()));
        Self { config, host, upstream, planes: Mutex::default() }
    }

    async fn slot(&self, uid: &str) -> Arc<Mutex<Slot>> {
        self.planes.lock().await.entry(uid.to_string()).or_default().clone()
    }

    fn place(&self, uid: &str) -> Place {
        Place {
            dir: self.config.dir.join(uid),
            listen: self.config.listen,
            service_cidr: self.config.service_cidr,
            pods_reach: self.config.pods_reach.clone(),
            streams: self.config.streams.clone(),
            searches: self.config.pods_resolve.then(|| self.config.resolver.searches.clone()),
            upstream: self.upstream.clone(),
        }
    }

    /// The Service in front of the tenant, made when it is missing. Its ports are bound before, so that
    /// it leads where it should from the start.
    async fn front(&self, slot: &mut Slot, tenant: &Tenant) -> Result<Reached, ControlPlaneError> {
        if let Some((checked, reached)) = &slot.front
            && checked.elapsed() < FRONT_CHECK_INTERVAL
        {
            return Ok(reached.clone());
        }
        let ports = match (&slot.plane, &slot.bound) {
            (Some(running), _) => running.ports(),
            (None, Some(bound)) => bound.ports().map_err(failed)?,
            (None, None) => {
                let bound = Bound::open(&self.place(&tenant.uid)).await.map_err(failed)?;
                let ports = bound.ports().map_err(failed)?;
                slot.bound = Some(bound);
                ports
            }
        };
        let reached = front::ensure(self.host.client(), tenant, &self.config.pods_reach, ports).await.map_err(failed)?;
        slot.front = Some((Instant::now(), reached.clone()));
        Ok(reached)
    }

    /// The syncers that have seen both sides in full.
    pub async fn syncers(&self) -> Vec<Syncer> {
        let slots: Vec<_> = self.planes.lock().await.values().cloned().collect();
        let mut syncers = Vec::new();
        for slot in slots {
            syncers.extend(slot.lock().await.plane.as_ref().and_then(ControlPlane::syncer).cloned());
        }
        syncers
    }

    /// Stops all tenants, for the end of the process.
    pub async fn stop_all(&self) {
        let slots: Vec<_> = self.planes.lock().await.drain().map(|(_, slot)| slot).collect();
        let stops = slots.into_iter().map(|slot| async move {
            if let Some(plane) = slot.lock().await.plane.take() {
                plane.stop().await;
            }
        });
        futures::future::join_all(stops).await;
    }
}

#[async_trait]
impl ControlPlanes for Packed {
    async fn ensure(&self, tenant: &Tenant, pki: &Pki) -> Result<String, ControlPlaneError> {
        let slot = self.slot(&tenant.uid).await;
        let mut slot = slot.lock().await;
        let reached = self.front(&mut slot, tenant).await?;
        if let Some(running) = &slot.plane
            && (!running.is_as_wanted(tenant) || running.service_ip() != front::service_ip(&reached))
            && let Some(running) = slot.plane.take()
        {
            // Such changes are rare: a restart keeps one way to start.
            running.stop().await;
        }
        let place = self.place(&tenant.uid);
        if slot.plane.is_none() {
            check_store(tenant, &place)?;
            let bound = match slot.bound.take() {
                Some(bound) => bound,
                None => Bound::open(&place).await.map_err(failed)?,
            };
            let started = ControlPlane::start(tenant, pki, &place, &self.host, bound, &reached).await;
            slot.plane = Some(started.map_err(|e| ControlPlaneError::Failed(format!("the control plane does not start: {e:#}")))?);
        }
        let Some(running) = slot.plane.as_mut() else { return Err(ControlPlaneError::Failed("the control plane is gone".into())) };
        if let Some(wanted) = tenant.store_identity.as_deref().filter(|i| *i != running.identity()) {
            let found = running.identity().to_string();
            if let Some(running) = slot.plane.take() {
                running.stop().await;
            }
            return Err(ControlPlaneError::WrongStore(format!(
                "the store in {} is `{found}`, not this cluster's `{wanted}`; put the right file back, or restore a snapshot",
                place.dir.display()
            )));
        }
        running.follow_keys(pki).map_err(|e| ControlPlaneError::Failed(format!("{e:#}")))?;
        Ok(running.url().to_string())
    }

    async fn names(&self, tenant: &Tenant) -> Result<Vec<String>, ControlPlaneError> {
        let slot = self.slot(&tenant.uid).await;
        let reached = self.front(&mut *slot.lock().await, tenant).await?;
        let mut names: Vec<String> = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "127.0.0.1",
        ]
        .map(String::from)
        .to_vec();
        names.extend(reached.names());
        if !self.config.listen.is_loopback() && !self.config.listen.is_unspecified() {
            names.push(self.config.listen.to_string());
        }
        let PodReach::Address(address) = &self.config.pods_reach;
        if !names.contains(address) {
            names.push(address.clone());
        }
        names.extend(tenant.hosts.iter().cloned());
        Ok(names)
    }

    async fn status(&self, uid: &str) -> PlaneStatus {
        let slot = self.slot(uid).await;
        let slot = slot.lock().await;
        slot.plane.as_ref().map(ControlPlane::status).unwrap_or_default()
    }

    async fn store_identity(&self, uid: &str) -> Option<String> {
        let slot = self.slot(uid).await;
        let slot = slot.lock().await;
        slot.plane.as_ref().map(|p| p.identity().to_string())
    }

    async fn stop(&self, uid: &str) {
        let slot = self.slot(uid).await;
        if let Some(plane) = slot.lock().await.plane.as_mut() {
            plane.stop_syncer().await;
        }
    }

    async fn remove_host_objects(&self, tenant: &Tenant, keep_volumes: bool) -> Result<Option<String>, ControlPlaneError> {
        let identity = TenantIdentity { name: tenant.name.clone(), namespace: tenant.namespace.clone(), uid: tenant.uid.clone() };
        let left = sublet_syncer::remove_copies(self.host.client(), &tenant.namespace, &identity, keep_volumes).await;
        let left = left.map_err(|e| ControlPlaneError::Failed(format!("host objects cannot be deleted: {e}")))?;
        if left.is_empty() {
            let removed = front::remove(self.host.client(), tenant).await;
            removed.map_err(|e| ControlPlaneError::Failed(format!("the Service of the control plane cannot be deleted: {e}")))?;
        }
        Ok((!left.is_empty()).then(|| left.message()))
    }

    async fn remove(&self, uid: &str) -> Result<(), ControlPlaneError> {
        let slot = self.planes.lock().await.remove(uid);
        if let Some(slot) = slot
            && let Some(plane) = slot.lock().await.plane.take()
        {
            plane.stop().await;
        }
        let dir = self.place(uid).dir;
        match tokio::fs::remove_dir_all(&dir).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(ControlPlaneError::Failed(format!("cannot remove {}: {error}", dir.display())))
            }
            _ => Ok(()),
        }
    }
}

fn failed(error: anyhow::Error) -> ControlPlaneError {
    ControlPlaneError::Failed(format!("{error:#}"))
}

/// A tenant that had a store must find one: an empty cluster in its place would have its objects
/// deleted from the host.
fn check_store(tenant: &Tenant, place: &Place) -> Result<(), ControlPlaneError> {
    if tenant.store_identity.is_some() && !super::tenant::has_store(&place.dir) {
        return Err(ControlPlaneError::WrongStore(format!(
            "the store of this cluster is missing from {}; put it back or restore a snapshot, or delete the VirtualCluster and create it anew",
            place.dir.display()
        )));
    }
    Ok(())
}
