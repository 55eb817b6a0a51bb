//! Many tenants in one process: a store file, a port, keys and a cancel scope each.

use super::external::{self, External};
use super::front::{self, Bound};
use super::streams::Remote;
use super::tenant::{ControlPlane, Place, PodReach, remove_copies};
use super::transfer::{self, Offer};
use super::usage::HostUsage;
use anyhow::Context as _;
use async_trait::async_trait;
use ipnet::IpNet;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use sublet_api::{Mode, Source};
use sublet_dns::{ResolverConfig, Upstream};
use sublet_operator::tenant_service::Reached;
use sublet_operator::{ControlPlaneError, ControlPlanes, PlaneStatus, Tenant};
use sublet_pki::Pki;
use sublet_runtime::{Client, ClientError};
use sublet_storage::Journal;
use sublet_syncer::{HostCache, HostScope, Syncer};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Where packed tenants live and listen.
#[derive(Clone)]
pub struct PackedConfig {
    pub dir: PathBuf,
    /// What all stores write to.
    pub journal: Journal,
    pub listen: IpAddr,
    pub service_cidr: IpNet,
    pub pods_reach: PodReach,
    /// The host over the network, for streams: a client within the process cannot upgrade.
    pub streams: Remote,
    /// The host's own name servers and search domains.
    pub resolver: ResolverConfig,
    /// Whether pods can reach the tenants' name servers.
    pub pods_resolve: bool,
}

/// Marks a store whose virtual cluster is being deleted.
const CONDEMNED_FILE: &str = "deleting";

/// How often the Service in front of a running control plane is looked at.
const FRONT_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// One tenant.
#[derive(Default)]
struct Slot {
    plane: Option<ControlPlane>,
    /// Ports of a control plane that is about to start.
    bound: Option<Bound>,
    front: Option<(Instant, Reached)>,
    /// The host as this tenant sees it, when each has a watch of its own.
    host: Option<OwnHost>,
    /// The store, held for another pod.
    offer: Option<Offer>,
    /// The syncer of a tenant whose API server runs elsewhere.
    external: Option<External>,
}

/// Watches the namespace of one tenant.
struct OwnHost {
    cache: Arc<HostCache>,
    task: JoinHandle<()>,
    cancel: CancellationToken,
}

impl OwnHost {
    fn start(shared: &Arc<HostCache>, namespace: &str) -> Self {
        let cache = HostCache::within(shared, namespace);
        let cancel = CancellationToken::new();
        let task = tokio::spawn(cache.clone().run(cancel.clone()));
        Self { cache, task, cancel }
    }

    async fn stop(self) {
        self.cancel.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the watch of a namespace ended badly");
        }
    }
}

impl Slot {
    /// Ends everything of the tenant in this process.
    async fn stop(&mut self) {
        if let Some(plane) = self.plane.take() {
            plane.stop().await;
        }
        if let Some(mut external) = self.external.take() {
            external.stop().await;
        }
        if let Some(host) = self.host.take() {
            host.stop().await;
        }
        if let Some(offer) = self.offer.take() {
            offer.stop().await;
        }
    }
}

/// Runs control planes in this process.
pub struct Packed {
    config: PackedConfig,
    host: Arc<HostCache>,
    usage: Arc<HostUsage>,
    upstream: Arc<Upstream>,
    /// By UID. The outer lock is held for map moves; each tenant has its own for what takes time.
    planes: Mutex<HashMap<String, Arc<Mutex<Slot>>>>,
}

impl Packed {
    pub fn new(config: PackedConfig, host: Arc<HostCache>) -> Self {
        let upstream = Arc::new(Upstream::new(config.resolver.servers.clone()));
        let usage = Arc::new(HostUsage::new(host.client().clone()));
        Self { config, host, usage, upstream, planes: Mutex::default() }
    }

    /// For a process in the cluster: one watch of each kind when the host lets us read all namespaces, one
    /// for each tenant when it does not. The task watches what tenants share.
    pub async fn in_cluster(
        config: PackedConfig,
        host: &Client,
        cancel: &CancellationToken,
    ) -> Result<(Self, JoinHandle<()>), ClientError> {
        let scope = if reads_everything(host).await? { HostScope::Cluster } else { HostScope::SharedKinds };
        tracing::info!(?scope, "follows the host");
        let cache = HostCache::new(host.clone(), scope);
        let task = tokio::spawn(cache.clone().run(cancel.clone()));
        Ok((Self::new(config, cache), task))
    }

    async fn ensure_external(&self, slot: &mut Slot, tenant: &Tenant) -> Result<String, ControlPlaneError> {
        let text = external::kubeconfig(self.host.client(), tenant).await?;
        if let Some(running) = &slot.external
            && !running.is_as_wanted(tenant, &text)
            && let Some(mut running) = slot.external.take()
        {
            running.stop().await;
        }
        if slot.external.is_none() {
            let host = self.host_of(slot, tenant);
            slot.external = Some(External::start(tenant, &text, &host).await.map_err(failed)?);
        }
        let Some(running) = slot.external.as_mut() else { return Err(ControlPlaneError::Failed("the syncer is gone".into())) };
        if let Some(wanted) = tenant.store_identity.as_deref().filter(|i| *i != running.identity()) {
            let found = running.identity().to_string();
            if let Some(mut running) = slot.external.take() {
                running.stop().await;
            }
            return Err(ControlPlaneError::WrongStore(format!(
                "the kubeconfig leads to cluster `{found}`, and this one has always been `{wanted}`; give the right one, or create another virtual cluster"
            )));
        }
        running.look().await;
        Ok(running.url().to_string())
    }

    fn host_of(&self, slot: &mut Slot, tenant: &Tenant) -> Arc<HostCache> {
        if *self.host.scope() != HostScope::SharedKinds {
            return self.host.clone();
        }
        slot.host.get_or_insert_with(|| OwnHost::start(&self.host, &tenant.namespace)).cache.clone()
    }

    async fn slot(&self, uid: &str) -> Arc<Mutex<Slot>> {
        self.planes.lock().await.entry(uid.to_string()).or_default().clone()
    }

    fn dir(&self, uid: &str) -> PathBuf {
        self.config.dir.join(uid)
    }

    fn place(&self, tenant: &Tenant) -> Place {
        Place {
            dir: self.dir(&tenant.uid),
            journal: self.config.journal.clone(),
            ports: tenant.placement.as_ref().map(front::ports),
            listen: self.config.listen,
            service_cidr: self.config.service_cidr,
            pods_reach: self.config.pods_reach.clone(),
            streams: self.config.streams.clone(),
            usage: self.usage.clone(),
            searches: self.config.pods_resolve.then(|| self.config.resolver.searches.clone()),
            upstream: self.upstream.clone(),
        }
    }

    /// The Service in front of the tenant, made when it is missing. Its ports are bound before, so that
    /// it leads where it should from the start.
    async fn front(&self, slot: &mut Slot, tenant: &Tenant) -> Result<Reached, ControlPlaneError> {
        if let (PodReach::Service, Some(placement)) = (&self.config.pods_reach, &tenant.placement) {
            return Ok(front::made_elsewhere(placement));
        }
        if let Some((checked, reached)) = &slot.front
            && checked.elapsed() < FRONT_CHECK_INTERVAL
        {
            return Ok(reached.clone());
        }
        let ports = match (&slot.plane, &slot.bound) {
            (Some(running), _) => running.ports(),
            (None, Some(bound)) => bound.ports().map_err(failed)?,
            (None, None) => {
                let bound = Bound::open(&self.place(tenant)).await.map_err(failed)?;
                let ports = bound.ports().map_err(failed)?;
                slot.bound = Some(bound);
                ports
            }
        };
        let known = slot.plane.as_ref().and_then(ControlPlane::service_ip);
        let reached = front::ensure(self.host.client(), tenant, &self.config.pods_reach, ports, known).await.map_err(failed)?;
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
            slot.lock().await.stop().await;
        });
        futures::future::join_all(stops).await;
    }
}

#[async_trait]
impl ControlPlanes for Packed {
    async fn ensure(&self, tenant: &Tenant, pki: &Pki) -> Result<String, ControlPlaneError> {
        let slot = self.slot(&tenant.uid).await;
        let mut slot = slot.lock().await;
        if tenant.cluster().mode() == Mode::External {
            return self.ensure_external(&mut slot, tenant).await;
        }
        let reached = self.front(&mut slot, tenant).await?;
        if let Some(running) = &slot.plane
            && !(running.is_as_wanted(tenant)
                && running.service_ip() == front::service_ip(&reached)
                && front::is_at(running.ports(), tenant))
            && let Some(running) = slot.plane.take()
        {
            // Such changes are rare: a restart keeps one way to start.
            running.stop().await;
        }
        let place = self.place(tenant);
        if slot.plane.is_none() {
            check_store(tenant, &place)?;
            let bound = match slot.bound.take() {
                Some(bound) => bound,
                None => Bound::open(&place).await.map_err(failed)?,
            };
            let host = self.host_of(&mut slot, tenant);
            let started = ControlPlane::start(tenant, pki, &place, &host, bound, &reached).await;
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
        running.follow_keys(pki).map_err(failed)?;
        running.follow_settings(tenant, &place.dir).await.map_err(failed)?;
        Ok(running.url().to_string())
    }

    async fn names(&self, tenant: &Tenant) -> Result<Vec<String>, ControlPlaneError> {
        let slot = self.slot(&tenant.uid).await;
        let reached = self.front(&mut *slot.lock().await, tenant).await?;
        let mut names = reached.names();
        if !self.config.listen.is_loopback() && !self.config.listen.is_unspecified() {
            names.push(self.config.listen.to_string());
        }
        if let PodReach::Address(address) = &self.config.pods_reach
            && !names.contains(address)
        {
            names.push(address.clone());
        }
        names.extend(tenant.hosts.iter().cloned());
        Ok(names)
    }

    async fn status(&self, uid: &str) -> PlaneStatus {
        let slot = self.slot(uid).await;
        let slot = slot.lock().await;
        let external = slot.external.as_ref().map(External::status);
        slot.plane.as_ref().map(ControlPlane::status).or(external).unwrap_or_default()
    }

    async fn store_identity(&self, uid: &str) -> Option<String> {
        let slot = self.slot(uid).await;
        let slot = slot.lock().await;
        let external = slot.external.as_ref().map(External::identity);
        slot.plane.as_ref().map(ControlPlane::identity).or(external).map(str::to_string)
    }

    async fn stop(&self, uid: &str) {
        let slot = self.slot(uid).await;
        let mut slot = slot.lock().await;
        if let Some(plane) = slot.plane.as_mut() {
            plane.stop_syncer().await;
        }
        if let Some(external) = slot.external.as_mut() {
            external.stop().await;
        }
    }

    async fn remove_host_objects(&self, tenant: &Tenant, keep_volumes: bool) -> Result<Option<String>, ControlPlaneError> {
        let left = remove_copies(self.host.client(), tenant, keep_volumes).await?;
        if left.is_none() {
            let removed = front::remove(self.host.client(), tenant).await;
            removed.map_err(|e| ControlPlaneError::Failed(format!("the Service of the control plane cannot be deleted: {e}")))?;
        }
        Ok(left)
    }

    async fn remove(&self, uid: &str) -> Result<(), ControlPlaneError> {
        self.leave(uid).await;
        let dir = self.dir(uid);
        match tokio::fs::remove_dir_all(&dir).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(ControlPlaneError::Failed(format!("cannot remove {}: {error}", dir.display())))
            }
            _ => Ok(()),
        }
    }

    async fn leave(&self, uid: &str) {
        let slot = self.planes.lock().await.remove(uid);
        if let Some(slot) = slot {
            slot.lock().await.stop().await;
        }
    }

    async fn condemn(&self, uid: &str) {
        let mark = self.dir(uid).join(CONDEMNED_FILE);
        match tokio::fs::write(&mark, b"").await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %mark.display(), "the store of a deleted tenant may stay behind");
            }
            _ => {}
        }
    }

    async fn offer(&self, tenant: &Tenant, pki: &Pki) -> Result<(), ControlPlaneError> {
        let slot = self.slot(&tenant.uid).await;
        let mut slot = slot.lock().await;
        let port = slot.plane.as_ref().map(|p| p.ports().api).or(tenant.placement.as_ref().and_then(|p| p.from.as_ref()).map(|f| f.port));
        slot.stop().await;
        let Some(port) = port else { return Err(ControlPlaneError::Failed("there is nothing to move".into())) };
        let file = super::tenant::store_file(&self.dir(&tenant.uid));
        let start = async {
            let (journal, store) = (self.config.journal.clone(), file.clone());
            tokio::task::spawn_blocking(move || journal.settle(store)).await??;
            let listener = TcpListener::bind((self.config.listen, port)).await.with_context(|| format!("port {port} is taken"))?;
            Offer::start(listener, file, &tenant.uid, pki)
        };
        slot.offer = Some(start.await.map_err(failed)?);
        Ok(())
    }

    async fn fetch(&self, tenant: &Tenant, pki: &Pki, from: &Source) -> Result<(), ControlPlaneError> {
        let dir = self.dir(&tenant.uid);
        if super::tenant::has_store(&dir) {
            return Ok(());
        }
        transfer::fetch(from, &super::tenant::store_file(&dir), &tenant.uid, pki).await.map_err(failed)
    }

    async fn sweep(&self, known: &HashSet<String>, elsewhere: &HashSet<String>) {
        let Ok(mut entries) = tokio::fs::read_dir(&self.config.dir).await else { return };
        while let Ok(Some(entry)) = entries.next_entry().await {
            let uid = entry.file_name().to_string_lossy().into_owned();
            let path = entry.path();
            if known.contains(&uid) && !elsewhere.contains(&uid) || !super::tenant::has_store(&path) {
                continue;
            }
            if !elsewhere.contains(&uid) && !path.join(CONDEMNED_FILE).exists() {
                tracing::warn!(path = %path.display(), "the store of a virtual cluster that the host does not know is kept");
            } else if let Err(error) = tokio::fs::remove_dir_all(&path).await {
                tracing::warn!(%error, path = %path.display(), "the store of a deleted virtual cluster cannot be removed");
            }
        }
    }
}

/// Whether we may read what is copied in all namespaces.
async fn reads_everything(host: &Client) -> Result<bool, ClientError> {
    for gvr in HostCache::copied_kinds() {
        if !host.may("watch", &gvr.group, &gvr.resource).await? {
            return Ok(false);
        }
    }
    Ok(true)
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
