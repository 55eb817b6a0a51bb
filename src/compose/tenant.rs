//! One tenant's control plane in this process: API server, controllers, syncer.

use super::allocator::HostAllocator;
use super::api_server::{ApiServer, ApiServerSpec};
use super::controllers;
use super::streams::HostStreams;
use anyhow::{Context as _, Result};
use ipnet::IpNet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use sublet_apiserver::auth::authz::Mode;
use sublet_apiserver::reader::Reader;
use sublet_controllers::ControllersConfig;
use sublet_operator::{PlaneStatus, Tenant};
use sublet_pki::Pki;
use sublet_runtime::{Client, Clock};
use sublet_storage::{Backend, EmbeddedBackend, Options};
use sublet_syncer::translate::{NAME_BYTES_MAX_LABEL, NAME_BYTES_MAX_POD, Names, TenantKey};
use sublet_syncer::{HostCache, HostHandle, Layout, PodConfig, SyncRules, Syncer, SyncerConfig, SyncerStatus, TenantIdentity};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const STORE_FILE: &str = "store.redb";
const PORT_FILE: &str = "port";
/// Pages of its file that a tenant's store keeps: there are hundreds of them in a process, and the system
/// caches the files too.
const STORE_CACHE_BYTES: usize = 32 * 1024;

/// A running control plane. Everything it started ends with it.
pub struct ControlPlane {
    api: ApiServer,
    pki: Pki,
    uid: String,
    host: Arc<HostCache>,
    identity: String,
    controllers: JoinHandle<()>,
    controllers_cancel: CancellationToken,
    syncer: Option<RunningSyncer>,
}

struct RunningSyncer {
    syncer: Syncer,
    status: watch::Receiver<SyncerStatus>,
    task: JoinHandle<()>,
    cancel: CancellationToken,
}

/// Where a tenant keeps its state, and how its pods reach it.
pub struct Place {
    pub dir: PathBuf,
    pub listen: std::net::IpAddr,
    pub service_cidr: IpNet,
    /// How pods on the host reach this process.
    pub pods_reach: PodReach,
    /// The host's API for streams.
    pub streams: Client,
}

/// The address under which pods reach the tenants' API servers.
#[derive(Clone, Debug)]
pub enum PodReach {
    /// This address, and the port of the tenant.
    Address(String),
}

impl ControlPlane {
    pub async fn start(tenant: &Tenant, pki: &Pki, place: &Place, host: &Arc<HostCache>) -> Result<Self> {
        std::fs::create_dir_all(&place.dir).with_context(|| format!("cannot create {}", place.dir.display()))?;
        let backend: Arc<dyn Backend> =
            Arc::new(EmbeddedBackend::open(place.dir.join(STORE_FILE), Options { cache_bytes: STORE_CACHE_BYTES })?);
        let identity = backend.identity();
        let listener = listener(&place.dir, place.listen).await?;
        let PodReach::Address(reached_at) = &place.pods_reach;
        let api = ApiServer::start(ApiServerSpec {
            name: format!("{}/{}", tenant.namespace, tenant.name),
            pki: pki.clone(),
            backend,
            listener,
            reached_at: Some(reached_at.clone()),
            service_cidrs: vec![place.service_cidr],
            node_ports: None,
            authorization: vec![Mode::Rbac],
            static_tokens: None,
            client_authorities_pem: String::new(),
            disabled_plugins: Vec::new(),
        })
        .await?;
        let root_ca_pem = pki.authority.certificate_pem().to_string();
        let config = ControllersConfig { root_ca_pem, nodes_follow_pods: true, ..ControllersConfig::default() };
        let controllers_cancel = CancellationToken::new();
        let controllers = controllers::start(api.client("sublet"), &config, |_| {}, controllers_cancel.clone());
        let mut plane = Self {
            api,
            pki: pki.clone(),
            uid: tenant.uid.clone(),
            host: host.clone(),
            identity,
            controllers,
            controllers_cancel,
            syncer: None,
        };
        plane.attach_syncer(tenant, place);
        Ok(plane)
    }

    /// Makes the host take part in requests of the tenant, and starts to sync.
    fn attach_syncer(&mut self, tenant: &Tenant, place: &Place) {
        let PodReach::Address(api_host) = &place.pods_reach;
        let syncer = Syncer::new(SyncerConfig {
            tenant: TenantIdentity { name: tenant.name.clone(), namespace: tenant.namespace.clone(), uid: tenant.uid.clone() },
            tenant_client: self.api.client("sublet"),
            host: HostHandle(self.host.clone()),
            host_namespace: tenant.namespace.clone(),
            layout: Layout::Single,
            clock: Clock::System,
            pods: PodConfig { api_host: api_host.clone(), api_port: self.api.address.port(), ..PodConfig::default() },
            weight: tenant.weight,
            rules: SyncRules::default(),
        });
        self.api.server.set_service_allocator(Arc::new(HostAllocator(syncer.service_allocator())));
        let identity = TenantIdentity { name: tenant.name.clone(), namespace: tenant.namespace.clone(), uid: tenant.uid.clone() };
        let names = Names::new(identity, &*tenant.namespace);
        let locate = move |resource: &str, namespace: &str, name: &str| {
            let bytes_max = if resource == "pods" { NAME_BYTES_MAX_POD } else { NAME_BYTES_MAX_LABEL };
            let key = names.host_key(&TenantKey::new(namespace, name), bytes_max).namespaced();
            Some((key.namespace, key.name))
        };
        self.api.server.set_connector(Arc::new(HostStreams::new(place.streams.clone(), Arc::new(locate))));
        if tenant.paused {
            return;
        }
        let cancel = CancellationToken::new();
        let status = syncer.status();
        let task = tokio::spawn(syncer.clone().run(cancel.clone()));
        self.syncer = Some(RunningSyncer { syncer, status, task, cancel });
    }

    /// Where its clients reach it.
    pub fn url(&self) -> &str {
        &self.api.url
    }

    /// The name that the store gave itself when it was made.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    pub fn is_paused(&self) -> bool {
        self.syncer.is_none()
    }

    /// Takes new keys without a restart.
    pub fn follow_keys(&mut self, pki: &Pki) -> Result<()> {
        if self.pki != *pki {
            self.api.replace_certificate(pki)?;
            self.pki = pki.clone();
        }
        Ok(())
    }

    pub fn status(&self) -> PlaneStatus {
        let synced = self.syncer().is_some();
        let store = self.api.server.store();
        PlaneStatus {
            serving: true,
            synced,
            pods: self.host.of_tenant(sublet_syncer::engine::host::HostKind::Pods, &self.uid).len(),
            namespaces: store.count("namespaces"),
            objects: store.counts().iter().map(|(_, n)| n).sum(),
            bytes: store.backend().size_bytes(),
            message: String::new(),
        }
    }

    /// The syncer when it has seen both sides in full, with its counters and its [`Syncer::patrol`].
    pub fn syncer(&self) -> Option<&Syncer> {
        self.syncer.as_ref().filter(|s| *s.status.borrow() == SyncerStatus::Running).map(|s| &s.syncer)
    }

    /// Whether the tenant has an object, for tests of isolation.
    pub fn reader(&self) -> &dyn Reader {
        &self.api.server
    }

    pub async fn stop_syncer(&mut self) {
        if let Some(syncer) = self.syncer.take() {
            syncer.cancel.cancel();
            if let Err(error) = syncer.task.await {
                tracing::error!(%error, "the syncer ended badly");
            }
        }
    }

    pub async fn stop(mut self) {
        self.stop_syncer().await;
        self.controllers_cancel.cancel();
        if let Err(error) = self.controllers.await {
            tracing::error!(%error, "the controllers ended badly");
        }
        self.api.stop().await;
    }
}

/// A listener on the port that the tenant had before, or on a free one.
pub async fn listener(dir: &Path, address: std::net::IpAddr) -> Result<TcpListener> {
    let file = dir.join(PORT_FILE);
    let remembered: Option<u16> = std::fs::read_to_string(&file).ok().and_then(|t| t.trim().parse().ok());
    if let Some(port) = remembered {
        match TcpListener::bind((address, port)).await {
            Ok(listener) => return Ok(listener),
            Err(error) => tracing::warn!(port, %error, "the port of last time is taken; kubeconfigs change"),
        }
    }
    let listener = TcpListener::bind((address, 0)).await.context("no port is free")?;
    std::fs::write(&file, listener.local_addr()?.port().to_string()).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(listener)
}

/// Whether a tenant's folder holds a store.
pub fn has_store(dir: &Path) -> bool {
    dir.join(STORE_FILE).exists()
}
