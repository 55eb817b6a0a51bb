//! The embedded host: an API server with controllers, a scheduler, simulated nodes and volumes; and the
//! operator on any host.

use super::api_server::{ApiServer, ApiServerSpec};
use super::controllers;
use super::packed::{Packed, PackedConfig};
use super::simulated_streams::SimulatedStreams;
use super::simulated_usage::SimulatedUsage;
use anyhow::{Context as _, Result};
use ipnet::IpNet;
use jiff::Timestamp;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use sublet_apiserver::admission::PodSecurityLevel;
use sublet_apiserver::auth::authz::Mode;
use sublet_controllers::ControllersConfig;
use sublet_host::HostConfig;
use sublet_operator::ensure_definition;
use sublet_pki::{Pki, PkiConfig};
use sublet_runtime::resources::VIRTUAL_CLUSTERS;
use sublet_runtime::{Client, Clock, Manager, Scope};
use sublet_storage::{Backend, Journal, Options};
use sublet_syncer::{HostCache, HostScope};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A cluster in this process.
pub struct EmbeddedHost {
    pub api: ApiServer,
    pub pki: Pki,
    tasks: Vec<JoinHandle<()>>,
    cancel: CancellationToken,
}

/// How the embedded host is to be.
pub struct EmbeddedHostSpec<'a> {
    pub dir: &'a Path,
    /// What it writes to, together with the tenants of the process.
    pub journal: Journal,
    pub listen: IpAddr,
    pub service_cidr: IpNet,
    pub host: HostConfig,
}

impl EmbeddedHost {
    pub async fn start(spec: EmbeddedHostSpec<'_>) -> Result<Self> {
        std::fs::create_dir_all(spec.dir).with_context(|| format!("cannot create {}", spec.dir.display()))?;
        let backend: Arc<dyn Backend> = Arc::new(spec.journal.open(spec.dir.join("store.redb"), &Options::default())?);
        let listener = super::tenant::listener(spec.dir, spec.listen).await?;
        let names = ["localhost", "kubernetes.default.svc", "127.0.0.1"].map(String::from).to_vec();
        let pki = Pki::open(&spec.dir.join("pki"), &PkiConfig { cluster: "host".into(), names }, Timestamp::now())?;
        let api = ApiServer::start(ApiServerSpec {
            name: "host".into(),
            pki: pki.clone(),
            backend,
            listener,
            reached_at: None,
            reached_port: None,
            service_cidrs: vec![spec.service_cidr],
            service_ip: None,
            node_ports: Some((30000, 32767)),
            authorization: vec![Mode::Rbac],
            static_tokens: None,
            client_authorities_pem: String::new(),
            enabled_plugins: Vec::new(),
            disabled_plugins: Vec::new(),
            least_pod_security: PodSecurityLevel::Privileged,
        })
        .await?;
        api.server.set_connector(Arc::new(SimulatedStreams::new(api.client("sublet"))));
        api.server.set_usage_source(Arc::new(SimulatedUsage::new(api.client("sublet"))));
        let cancel = CancellationToken::new();
        let config = ControllersConfig {
            root_ca_pem: pki.authority.certificate_pem().to_string(),
            authority: Some(pki.authority.clone()),
            token_maker: Some(api.token_maker()),
            host_name: controllers::host_name(),
            ..ControllersConfig::default()
        };
        let mut host_tasks = None;
        let manager = controllers::start(
            api.client("sublet"),
            &config,
            |manager| host_tasks = Some(sublet_host::add_all(manager, &spec.host)),
            cancel.clone(),
        );
        let mut tasks = vec![manager];
        if let Some(host_tasks) = host_tasks {
            tasks.push(tokio::spawn(host_tasks.run(api.client("sublet"), cancel.clone())));
        }
        Ok(Self { api, pki, tasks, cancel })
    }

    pub async fn stop(self) {
        self.cancel.cancel();
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a loop of the host ended badly");
            }
        }
        self.api.stop().await;
    }
}

/// The operator with packed tenants in this process.
pub struct Operator {
    packed: Arc<Packed>,
    tasks: Vec<JoinHandle<()>>,
    cancel: CancellationToken,
}

impl Operator {
    /// Installs the kind and follows its objects, those that `selector` selects by their labels.
    pub async fn start(host: Client, config: PackedConfig, selector: &str) -> Result<Self> {
        ensure_definition(&host).await.context("cannot install the VirtualCluster kind on the host")?;
        let cancel = CancellationToken::new();
        let cache = HostCache::new(host.clone(), HostScope::Cluster);
        let packed = Arc::new(Packed::new(config, cache.clone()));
        let mut manager = Manager::new(host.with_field_manager("sublet-operator"), Clock::System);
        manager.informers().limit(VIRTUAL_CLUSTERS, Scope { label_selector: selector.into(), ..Scope::default() });
        manager.add(sublet_operator::controller(packed.clone()));
        let tasks = vec![tokio::spawn(cache.run(cancel.clone())), tokio::spawn(manager.run(cancel.clone()))];
        Ok(Self { packed, tasks, cancel })
    }

    pub fn packed(&self) -> &Packed {
        &self.packed
    }

    /// Stops the operator, then every tenant. Objects on the host stay as they are.
    pub async fn stop(self) {
        self.cancel.cancel();
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a loop of the operator ended badly");
            }
        }
        self.packed.stop_all().await;
    }
}
