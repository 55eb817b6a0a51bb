//! One tenant's control plane in this process: API server, name server, controllers, syncer.

use super::allocator::HostAllocator;
use super::api_server::{ApiServer, ApiServerSpec};
use super::controllers;
use super::front::{self, Bound};
use super::name_server;
use super::settings::Settings;
use super::streams::{Copies, HostStreams, Remote};
use super::usage::{HostUsage, TenantUsage};
use anyhow::{Context as _, Result};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use sublet_api::PodSecurity;
use sublet_apiserver::admission::PodSecurityLevel;
use sublet_apiserver::auth::authz::Mode;
use sublet_apiserver::reader::Reader;
use sublet_controllers::ControllersConfig;
use sublet_dns::{DnsServer, Upstream};
use sublet_operator::tenant_service::{API_PORT, Ports, Reached};
use sublet_operator::{ControlPlaneError, PlaneStatus, Tenant};
use sublet_pki::Pki;
use sublet_runtime::{Client, Clock};
use sublet_storage::{Backend, Journal, Options};
use sublet_syncer::translate::Names;
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
    dns: DnsServer,
    service_ip: Option<IpAddr>,
    pki: Pki,
    uid: String,
    pod_security: PodSecurity,
    rules: SyncRules,
    host: Arc<HostCache>,
    identity: String,
    controllers: JoinHandle<()>,
    controllers_cancel: CancellationToken,
    streams: Option<Arc<HostStreams>>,
    syncer: Option<RunningSyncer>,
    settings: Settings,
}

/// A syncer at work.
pub struct RunningSyncer {
    syncer: Syncer,
    status: watch::Receiver<SyncerStatus>,
    task: JoinHandle<()>,
    cancel: CancellationToken,
}

impl RunningSyncer {
    pub fn start(syncer: Syncer) -> Self {
        let cancel = CancellationToken::new();
        let status = syncer.status();
        let task = tokio::spawn(syncer.clone().run(cancel.clone()));
        Self { syncer, status, task, cancel }
    }

    pub fn syncer(&self) -> &Syncer {
        &self.syncer
    }

    /// Whether it has seen both sides.
    pub fn is_running(&self) -> bool {
        *self.status.borrow() == SyncerStatus::Running
    }

    pub async fn stop(self) {
        self.cancel.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the syncer ended badly");
        }
    }
}

/// Where a tenant keeps its state, and how its pods reach it.
pub struct Place {
    pub dir: PathBuf,
    /// What its store writes to, together with others.
    pub journal: Journal,
    /// Its ports, when they were chosen elsewhere.
    pub ports: Option<Ports>,
    pub listen: IpAddr,
    pub service_cidr: IpNet,
    /// How pods on the host reach this process.
    pub pods_reach: PodReach,
    /// The host's API for streams.
    pub streams: Remote,
    /// What the host knows of what pods use.
    pub usage: Arc<HostUsage>,
    /// What pods are told of the host's names; `None`: pods cannot reach the tenant's name server.
    pub searches: Option<Vec<String>>,
    /// Where names of others come from.
    pub upstream: Arc<Upstream>,
}

/// The address under which pods reach the tenants' API servers.
#[derive(Clone, Debug)]
pub enum PodReach {
    /// This address, and the port of the tenant.
    Address(String),
    /// The Service that an operator elsewhere made for the tenant.
    Service,
}

impl ControlPlane {
    /// `bound` are its ports, `reached` the Service that leads to them.
    pub async fn start(tenant: &Tenant, pki: &Pki, place: &Place, host: &Arc<HostCache>, bound: Bound, reached: &Reached) -> Result<Self> {
        let backend: Arc<dyn Backend> =
            Arc::new(place.journal.open(place.dir.join(STORE_FILE), &Options { cache_bytes: STORE_CACHE_BYTES })?);
        let identity = backend.identity();
        let service_ip = front::service_ip(reached);
        let (reached_at, reached_port) = match &place.pods_reach {
            PodReach::Address(address) => (Some(address.clone()), None),
            PodReach::Service => (service_ip.map(|a| a.to_string()), Some(API_PORT)),
        };
        let api = ApiServer::start(ApiServerSpec {
            name: format!("{}/{}", tenant.namespace, tenant.name),
            pki: pki.clone(),
            backend,
            listener: bound.api,
            reached_at,
            reached_port,
            service_cidrs: vec![place.service_cidr],
            service_ip,
            node_ports: None,
            authorization: vec![Mode::Rbac],
            static_tokens: None,
            client_authorities_pem: String::new(),
            enabled_plugins: Vec::new(),
            disabled_plugins: Vec::new(),
            least_pod_security: match tenant.pod_security {
                PodSecurity::Privileged => PodSecurityLevel::Privileged,
                PodSecurity::Baseline => PodSecurityLevel::Baseline,
                PodSecurity::Restricted => PodSecurityLevel::Restricted,
            },
        })
        .await?;
        if !place.listen.is_loopback() {
            // Others use this machine; at home a tenant may call what its owner runs there.
            api.server.refuse_local_calls();
        }
        let dns = name_server::start(api.server.clone(), bound.dns, service_ip, place.upstream.clone())?;
        let root_ca_pem = pki.authority.certificate_pem().to_string();
        let config = ControllersConfig {
            root_ca_pem,
            authority: Some(pki.authority.clone()),
            token_maker: Some(api.token_maker()),
            host_name: tenant.name.clone(),
            nodes_follow_pods: true,
            ..ControllersConfig::default()
        };
        let controllers_cancel = CancellationToken::new();
        let controllers = controllers::start(api.client("sublet"), &config, |_| {}, controllers_cancel.clone());
        let mut plane = Self {
            api,
            dns,
            service_ip,
            pki: pki.clone(),
            uid: tenant.uid.clone(),
            pod_security: tenant.pod_security,
            rules: SyncRules::of(&tenant.cluster()),
            host: host.clone(),
            identity,
            controllers,
            controllers_cancel,
            streams: None,
            syncer: None,
            settings: Settings::default(),
        };
        if let Err(error) = plane.follow_settings(tenant, &place.dir).await {
            plane.stop().await;
            return Err(error);
        }
        plane.attach_syncer(tenant, place);
        Ok(plane)
    }

    /// Makes the host take part in requests of the tenant, and starts to sync.
    fn attach_syncer(&mut self, tenant: &Tenant, place: &Place) {
        let syncer = syncer(tenant, self.api.client("sublet"), &self.host, self.pod_config(place));
        self.api.server.set_service_allocator(Arc::new(HostAllocator(syncer.service_allocator())));
        let names = Names::new(identity(tenant), &*tenant.namespace);
        let copies = Copies::new(names, self.host.clone());
        let usage = TenantUsage::new(place.usage.clone(), copies.clone(), &tenant.namespace, &tenant.uid);
        self.api.server.set_usage_source(Arc::new(usage));
        let streams = Arc::new(HostStreams::new(place.streams.clone(), copies));
        self.api.server.set_connector(streams.clone());
        self.streams = Some(streams);
        if !tenant.paused {
            self.syncer = Some(RunningSyncer::start(syncer));
        }
    }

    /// What pods are told: the Service in front of this control plane, for its API and for names.
    fn pod_config(&self, place: &Place) -> PodConfig {
        let (api_host, api_port) = match (self.service_ip, &place.pods_reach) {
            (Some(address), _) => (address.to_string(), API_PORT),
            (None, PodReach::Address(reached_at)) => (reached_at.clone(), self.api.address.port()),
            (None, PodReach::Service) => ("kubernetes.default.svc".into(), API_PORT),
        };
        PodConfig {
            api_host,
            api_port,
            cluster_domain: name_server::DOMAIN.into(),
            dns_server: self.service_ip.filter(|_| place.searches.is_some()).map(|a| a.to_string()),
            searches: place.searches.clone().unwrap_or_default(),
            ..PodConfig::default()
        }
    }

    /// The ports that its servers listen on.
    pub fn ports(&self) -> Ports {
        Ports { api: self.api.address.port(), dns: Some(self.dns.address().port()) }
    }

    /// The address of the Service that it was started for.
    pub fn service_ip(&self) -> Option<IpAddr> {
        self.service_ip
    }

    /// Where its clients reach it.
    pub fn url(&self) -> &str {
        &self.api.url
    }

    /// The name that the store gave itself when it was made.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Whether it runs under the settings that only a start can give it.
    pub fn is_as_wanted(&self, tenant: &Tenant) -> bool {
        self.syncer.is_none() == tenant.paused && self.pod_security == tenant.pod_security && self.rules == SyncRules::of(&tenant.cluster())
    }

    /// Takes new keys without a restart.
    pub fn follow_keys(&mut self, pki: &Pki) -> Result<()> {
        if self.pki != *pki {
            self.api.replace_certificate(pki)?;
            self.pki = pki.clone();
        }
        Ok(())
    }

    /// Takes new settings without a restart. Those that are wrong change nothing.
    pub async fn follow_settings(&mut self, tenant: &Tenant, dir: &Path) -> Result<()> {
        Settings::of(&tenant.cluster()).apply(&mut self.settings, &self.api.server, dir).await
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
            off: self.syncer().map(kinds_off).unwrap_or_default(),
        }
    }

    /// The syncer when it has seen both sides in full, with its counters and its [`Syncer::patrol`].
    pub fn syncer(&self) -> Option<&Syncer> {
        self.syncer.as_ref().filter(|s| s.is_running()).map(|s| &s.syncer)
    }

    /// Whether the tenant has an object, for tests of isolation.
    pub fn reader(&self) -> &dyn Reader {
        &self.api.server
    }

    pub async fn stop_syncer(&mut self) {
        if let Some(syncer) = self.syncer.take() {
            syncer.stop().await;
        }
    }

    pub async fn stop(mut self) {
        self.stop_syncer().await;
        self.controllers_cancel.cancel();
        if let Err(error) = self.controllers.await {
            tracing::error!(%error, "the controllers ended badly");
        }
        self.dns.stop().await;
        if let Some(streams) = self.streams {
            streams.stop().await;
        }
        self.api.stop().await;
    }
}

/// The tenant as the host knows it.
fn identity(tenant: &Tenant) -> TenantIdentity {
    TenantIdentity { name: tenant.name.clone(), namespace: tenant.namespace.clone(), uid: tenant.uid.clone() }
}

/// What this host does not offer to a tenant: reasons, each with its kinds.
pub fn kinds_off(syncer: &Syncer) -> String {
    let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (kind, why) in syncer.kinds_off() {
        by_reason.entry(why).or_default().push(kind);
    }
    let reasons: Vec<String> = by_reason.into_iter().map(|(why, kinds)| format!("{} ({why})", kinds.join(", "))).collect();
    reasons.join("; ")
}

/// The syncer between a tenant's API server and the host.
pub fn syncer(tenant: &Tenant, tenant_client: Client, host: &Arc<HostCache>, pods: PodConfig) -> Syncer {
    Syncer::new(SyncerConfig {
        tenant: identity(tenant),
        tenant_client,
        host: HostHandle(host.clone()),
        host_namespace: tenant.namespace.clone(),
        layout: Layout::Single,
        clock: Clock::System,
        pods,
        weight: tenant.weight,
        rules: SyncRules::of(&tenant.cluster()),
    })
}

/// Deletes what a syncer made on the host for the tenant; tells what is still there.
pub async fn remove_copies(host: &Client, tenant: &Tenant, keep_volumes: bool) -> Result<Option<String>, ControlPlaneError> {
    let left = sublet_syncer::remove_copies(host, &tenant.namespace, &identity(tenant), keep_volumes).await;
    let left = left.map_err(|e| ControlPlaneError::Failed(format!("host objects cannot be deleted: {e}")))?;
    Ok((!left.is_empty()).then(|| left.message()))
}

/// A listener on the port that the tenant had before, or on a free one.
pub async fn listener(dir: &Path, address: IpAddr) -> Result<TcpListener> {
    let bind = |port: Option<u16>| async move { TcpListener::bind((address, port.unwrap_or(0))).await.context("no port is free") };
    let port = |listener: &TcpListener| Ok(listener.local_addr()?.port());
    on_old_port(&dir.join(PORT_FILE), "the port of last time is taken; kubeconfigs change", bind, port).await
}

/// What `bind` gives on the port that a file remembers, or on a free one, which the file remembers from now on.
pub async fn on_old_port<T, F: Future<Output = Result<T>>>(
    file: &Path,
    taken: &str,
    bind: impl Fn(Option<u16>) -> F,
    port_of: impl Fn(&T) -> Result<u16>,
) -> Result<T> {
    let remembered: Option<u16> = std::fs::read_to_string(file).ok().and_then(|t| t.trim().parse().ok());
    if let Some(port) = remembered {
        match bind(Some(port)).await {
            Ok(bound) => return Ok(bound),
            Err(error) => tracing::warn!(port, error = %error.root_cause(), "{taken}"),
        }
    }
    let bound = bind(None).await?;
    std::fs::write(file, port_of(&bound)?.to_string()).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(bound)
}

/// Whether a tenant's folder holds a store.
pub fn has_store(dir: &Path) -> bool {
    store_file(dir).exists()
}

/// The store in a tenant's folder: one file.
pub fn store_file(dir: &Path) -> PathBuf {
    dir.join(STORE_FILE)
}
