//! Two API servers in this process, a tenant's and a host's, with a syncer between them. Nothing runs
//! on the host but what a test does by hand.

use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use sublet_apiserver::admission::{self, Attributes, Operation, Plugin};
use sublet_apiserver::reader::Writer;
use sublet_apiserver::server::{Config, Server};
use sublet_machinery::{ApiError, Gvr, ObjectExt};
use sublet_runtime::resources::{NAMESPACES, PODS, SERVICE_ACCOUNTS};
use sublet_runtime::{Client, Clock, ListOptions};
use sublet_syncer::translate::{NAME_BYTES_MAX_LABEL, NAME_BYTES_MAX_SUBDOMAIN, Names};
use sublet_syncer::{HostCache, HostHandle, HostScope, Layout, PodConfig, SyncRules, Syncer, SyncerConfig, SyncerStatus, TenantIdentity};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub const HOST_NAMESPACE: &str = "team-a";
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Clusters {
    pub tenant: Client,
    pub host: Client,
    /// While set, the host refuses new pods.
    pub refuses_pods: Arc<AtomicBool>,
    /// While set, the host lets nobody change volumes.
    pub refuses_volume_edits: Arc<AtomicBool>,
    /// While set, the tenant's API server takes its time for tokens.
    pub slow_tokens: Arc<AtomicBool>,
    servers: [Server; 2],
}

/// A running syncer.
pub struct Running {
    pub syncer: Syncer,
    pub cache: Arc<HostCache>,
    tasks: Vec<JoinHandle<()>>,
    cancel: CancellationToken,
}

/// Does something to requests while it is switched on.
struct Switched {
    name: &'static str,
    on: Arc<AtomicBool>,
    concerns: fn(&Attributes<'_>) -> bool,
    then: Then,
}

enum Then {
    Refuse(&'static str),
    Wait(Duration),
}

impl Switched {
    /// The plugin, and its switch, which is off.
    fn plugin(name: &'static str, concerns: fn(&Attributes<'_>) -> bool, then: Then) -> (Box<dyn Plugin>, Arc<AtomicBool>) {
        let on = Arc::new(AtomicBool::new(false));
        (Box::new(Self { name, on: on.clone(), concerns, then }), on)
    }
}

#[async_trait::async_trait]
impl Plugin for Switched {
    fn name(&self) -> &'static str {
        self.name
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        (self.concerns)(attributes) && self.on.load(Ordering::Relaxed)
    }

    async fn validate(&self, attributes: &mut Attributes<'_>, _: &Arc<dyn Writer>) -> Result<(), ApiError> {
        match self.then {
            Then::Refuse(why) => Err(ApiError::forbidden("", &attributes.resource.plural, attributes.name, why)),
            Then::Wait(time) => {
                tokio::time::sleep(time).await;
                Ok(())
            }
        }
    }
}

fn creates_pod(attributes: &Attributes<'_>) -> bool {
    attributes.operation == Operation::Create && attributes.resource.plural == "pods"
}

fn edits_volume(attributes: &Attributes<'_>) -> bool {
    let update = attributes.operation == Operation::Update && attributes.resource.plural == "persistentvolumes";
    update && attributes.subresource.is_empty()
}

fn asks_for_token(attributes: &Attributes<'_>) -> bool {
    attributes.subresource == "token"
}

async fn server(name: &str, more: Vec<Box<dyn Plugin>>) -> Server {
    // Controllers that fill and release finalizers are not part of this.
    let disabled = vec!["StorageObjectInUseProtection".to_string()];
    let mut plugins = admission::default_plugins(&admission::Config { disabled, ..Default::default() });
    plugins.extend(more);
    let key = rcgen::KeyPair::generate().expect("a key").serialize_pem();
    Server::open(Config::in_memory(name, key, Clock::System.now(), Box::new(|_| plugins))).await.expect("opens")
}

fn client(server: &Server) -> Client {
    Client::new(kube::Client::new(server.system_service(), "default"), "test")
}

impl Clusters {
    pub async fn start() -> Self {
        Self::start_with(Vec::new()).await
    }

    /// With a host whose API server has more plugins.
    pub async fn start_with(mut plugins: Vec<Box<dyn Plugin>>) -> Self {
        let (plugin, refuses_pods) = Switched::plugin("RefusePods", creates_pod, Then::Refuse("exceeded quota: small"));
        plugins.push(plugin);
        let (plugin, refuses_volume_edits) = Switched::plugin("RefuseVolumeEdits", edits_volume, Then::Refuse("not yours"));
        plugins.push(plugin);
        let host = server("host", plugins).await;
        let (plugin, slow_tokens) = Switched::plugin("SlowTokens", asks_for_token, Then::Wait(Duration::from_millis(300)));
        let tenant = server("tenant", vec![plugin]).await;
        let (tenant_client, host_client, servers) = (client(&tenant), client(&host), [tenant, host]);
        let clusters = Self { tenant: tenant_client, host: host_client, refuses_pods, refuses_volume_edits, slow_tokens, servers };
        clusters.add_namespace(&clusters.host, HOST_NAMESPACE).await;
        clusters
    }

    /// A namespace with what the controllers of a cluster would put there.
    pub async fn add_namespace(&self, client: &Client, name: &str) {
        client.create(&NAMESPACES, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await.expect("namespace");
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}});
        client.create(&SERVICE_ACCOUNTS, &account).await.expect("service account");
    }

    pub fn host_cache(&self) -> Arc<HostCache> {
        HostCache::new(self.host.clone(), HostScope::Cluster)
    }

    /// Runs a syncer until it has seen both sides.
    pub async fn sync(&self, name: &str, tenant: &Client) -> Running {
        self.sync_by(name, tenant, Clock::System).await
    }

    /// As [`Self::sync`], by a clock of the test.
    pub async fn sync_by(&self, name: &str, tenant: &Client, clock: Clock) -> Running {
        self.sync_with(name, tenant, clock, SyncRules::default()).await
    }

    /// As [`Self::sync`], by rules of the test.
    pub async fn sync_under(&self, name: &str, rules: SyncRules) -> Running {
        self.sync_with(name, &self.tenant, Clock::System, rules).await
    }

    async fn sync_with(&self, name: &str, tenant: &Client, clock: Clock, rules: SyncRules) -> Running {
        let cache = self.host_cache();
        let cancel = CancellationToken::new();
        let watching = tokio::spawn(cache.clone().run(cancel.clone()));
        let syncer = Syncer::new(SyncerConfig {
            tenant: TenantIdentity { name: name.into(), namespace: HOST_NAMESPACE.into(), uid: format!("uid-of-{name}") },
            tenant_client: tenant.clone(),
            host: HostHandle(cache.clone()),
            host_namespace: HOST_NAMESPACE.into(),
            layout: Layout::Single,
            clock,
            pods: PodConfig::default(),
            weight: 1,
            rules,
        });
        let mut status = syncer.status();
        let running = tokio::spawn(syncer.clone().run(cancel.clone()));
        status.wait_for(|s| *s == SyncerStatus::Running).await.expect("runs");
        Running { syncer, cache, tasks: vec![watching, running], cancel }
    }

    pub fn tenant_server(&self) -> &Server {
        &self.servers[0]
    }

    pub fn host_server(&self) -> &Server {
        &self.servers[1]
    }

    pub fn revisions(&self) -> [u64; 2] {
        [self.servers[0].store().revision(), self.servers[1].store().revision()]
    }

    /// The copy of a tenant object.
    pub async fn copy(&self, gvr: &Gvr, name: &str) -> Option<Value> {
        let options = ListOptions { label_selector: format!("sublet.dev/name={name}"), ..ListOptions::default() };
        self.host.list(gvr, HOST_NAMESPACE, &options).await.expect("lists").items.into_iter().next()
    }

    /// Everything of the kind that a syncer made.
    pub async fn host_copies(&self, gvr: &Gvr) -> Vec<Value> {
        let options = ListOptions { label_selector: "sublet.dev/managed-by=sublet".into(), ..ListOptions::default() };
        self.host.list(gvr, HOST_NAMESPACE, &options).await.expect("lists").items
    }

    /// What the host's scheduler and kubelet would do to a copy.
    pub async fn run_pod(&self, copy: &Value, node: &str) {
        let binding =
            json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": copy.name()}, "target": {"kind": "Node", "name": node}});
        self.host.create_subresource(&PODS, copy.namespace(), copy.name(), "binding", &binding).await.expect("binds");
        let status = json!({"status": {
            "phase": "Running", "podIP": "10.1.0.7", "podIPs": [{"ip": "10.1.0.7"}], "hostIP": "10.0.0.1", "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}],
        }});
        self.host.patch_status(&PODS, copy.namespace(), copy.name(), status).await.expect("reports");
    }
}

impl Running {
    pub fn identity(&self) -> TenantIdentity {
        TenantIdentity { name: "alpha".into(), namespace: HOST_NAMESPACE.into(), uid: "uid-of-alpha".into() }
    }

    /// The host name of an object in namespace `prod`.
    pub fn name_of(&self, name: &str) -> String {
        Names::new(self.identity(), HOST_NAMESPACE).host_name("prod", name, NAME_BYTES_MAX_SUBDOMAIN)
    }

    pub fn service_name_of(&self, name: &str) -> String {
        Names::new(self.identity(), HOST_NAMESPACE).host_name("prod", name, NAME_BYTES_MAX_LABEL)
    }

    pub async fn stop(self) {
        self.cancel.cancel();
        for task in self.tasks {
            task.await.expect("ends well");
        }
    }
}

/// Waits until `probe` gives a value.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, probe: impl Fn() -> F) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        assert!(tokio::time::Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
