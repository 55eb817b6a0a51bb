//! One API server: its state, its rules, and the way of a request through them.

mod aggregation;
mod bounds;
mod connect;
mod convert;
mod counted;
mod custom;
mod documents;
mod flow_status;
mod handle;
mod health;
mod identity;
mod listen;
mod local;
mod metrics;
mod policies;
mod security;
mod system;
mod turns;
mod upkeep;
mod usage;
mod websocket;

pub use connect::is_upgrade;
pub use handle::{InProcess, Peer};
pub use listen::{Listening, listen};
pub use security::{ISSUER, SecurityConfig};

use crate::admission::{Attributes, Plugin, SignerPermission};
use crate::audit::Auditor;
use crate::auth::authz::{Authorization, Mode};
use crate::auth::bootstrap::{self, BootstrapConfig};
use crate::auth::tokens::KeyError;
use crate::crd::NamesInForce;
use crate::discovery::Documents;
use crate::flow::FlowControl;
use crate::hooks::{Connector, ServiceAllocator, UsageSource};
use crate::outgoing::{Identity, Outgoing};
use crate::reader::Reader;
use crate::registry::{Registry, builtin_rows};
use crate::rest::ResourceRequest;
use crate::store::Store;
use jiff::Timestamp;
use security::Security;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock, RwLock};
use sublet_machinery::ApiError;
use sublet_storage::{Backend, MemoryBackend, StorageError};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub type MakePlugins = Box<dyn FnOnce(SignerPermission) -> Vec<Box<dyn Plugin>> + Send>;

/// What an API server is made of.
pub struct Config {
    pub backend: Arc<dyn Backend>,
    pub security: SecurityConfig,
    /// Makes the admission plugins, told who may do what with signers of certificates.
    pub plugins: MakePlugins,
    /// What the objects say that exist before anybody does anything.
    pub bootstrap: BootstrapConfig,
    /// The name that this server has in logs.
    pub name: String,
}

impl Config {
    /// A server in memory that nobody outside of the process reaches.
    pub fn in_memory(name: &str, signing_key_pem: String, now: Timestamp, plugins: MakePlugins) -> Self {
        Self {
            backend: Arc::new(MemoryBackend::new()),
            security: SecurityConfig {
                authorization: vec![Mode::Rbac],
                static_tokens: None,
                signing_key_pem,
                url: "https://127.0.0.1:6443".into(),
            },
            plugins,
            bootstrap: BootstrapConfig {
                service_cidrs: vec!["10.96.0.0/16".into()],
                service_ip: IpAddr::from([10, 96, 0, 1]),
                addresses: vec![IpAddr::from([127, 0, 0, 1])],
                port: 6443,
                client_authority_pem: None,
                front_proxy_authority_pem: None,
                now,
            },
            name: name.into(),
        }
    }
}

/// An API server. Cheap to clone.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    registry: Registry,
    /// Of the definitions that are stored.
    names: NamesInForce,
    documents: Documents,
    security: Security,
    plugins: Vec<Box<dyn Plugin>>,
    service_allocator: OnceLock<Arc<dyn ServiceAllocator>>,
    connector: OnceLock<Arc<dyn Connector>>,
    usage_source: OnceLock<Arc<dyn UsageSource>>,
    /// Told when there may be figures of usage.
    usage_changed: Notify,
    outgoing: Outgoing,
    /// What this server shows to the servers behind APIServices; replaced when it is renewed.
    front_proxy: RwLock<Option<Arc<Identity>>>,
    /// Who is told about requests; nobody as a rule.
    auditor: RwLock<Option<Arc<Auditor>>>,
    flow: FlowControl,
    bounds: bounds::Bounds,
    turns: turns::Turns,
    stop: CancellationToken,
    metrics: metrics::Metrics,
    name: String,
}

impl Server {
    /// Loads the store, creates what must exist, and is ready to answer.
    pub async fn open(config: Config) -> Result<Self, StorageError> {
        let store = Store::open(config.backend)?;
        let reader: Arc<dyn Reader> = Arc::new(store.clone());
        let security = Security::new(config.security, reader).map_err(|e| StorageError::Failed(e.to_string()))?;
        let plugins = (config.plugins)(security::signer_permission(security.authorization.clone()));
        let server = Self {
            inner: Arc::new(Inner {
                store,
                registry: Registry::new(builtin_rows()),
                names: NamesInForce::default(),
                documents: Documents::default(),
                security,
                plugins,
                service_allocator: OnceLock::new(),
                connector: OnceLock::new(),
                usage_source: OnceLock::new(),
                usage_changed: Notify::new(),
                outgoing: Outgoing::default(),
                front_proxy: RwLock::default(),
                auditor: RwLock::default(),
                flow: FlowControl::default(),
                bounds: bounds::Bounds::default(),
                turns: turns::Turns::default(),
                stop: CancellationToken::new(),
                metrics: metrics::Metrics::default(),
                name: config.name,
            }),
        };
        server.load_custom_resources();
        bootstrap::apply(&server, &config.bootstrap).await.map_err(|e| StorageError::Failed(e.to_string()))?;
        let share = server.share();
        tokio::spawn(share.run(server.clone().keep_up()));
        tokio::spawn(share.run(server.clone().watch_api_services()));
        tokio::spawn(share.run(server.clone().check_policies()));
        Ok(server)
    }

    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Who gives Services their addresses. Set once, before Services are written.
    pub fn set_service_allocator(&self, allocator: Arc<dyn ServiceAllocator>) {
        // A second allocator would mean two owners of the same numbers.
        assert!(self.inner.service_allocator.set(allocator).is_ok(), "the allocator is set once");
    }

    pub fn set_connector(&self, connector: Arc<dyn Connector>) {
        assert!(self.inner.connector.set(connector).is_ok(), "the connector is set once");
    }

    /// Who tells what pods and nodes use; `metrics.k8s.io` is served while there are figures.
    pub fn set_usage_source(&self, source: Arc<dyn UsageSource>) {
        assert!(self.inner.usage_source.set(source).is_ok(), "the source of usage is set once");
        self.inner.usage_changed.notify_one();
    }

    pub(crate) fn usage_source(&self) -> Option<&Arc<dyn UsageSource>> {
        self.inner.usage_source.get()
    }

    pub(crate) fn usage_changed(&self) -> &Notify {
        &self.inner.usage_changed
    }

    /// Tenants of a shared machine do not call what listens on it alone.
    pub fn refuse_local_calls(&self) {
        self.inner.outgoing.refuse_local();
    }

    /// The client certificate by which the servers behind APIServices know this server, in PEM.
    pub fn set_front_proxy(&self, certificate_pem: &str, key_pem: &str) {
        let identity = Arc::new(Identity::new(certificate_pem.to_string(), key_pem.to_string()));
        *self.inner.front_proxy.write().expect("no holder of this lock panics") = Some(identity);
    }

    pub(crate) fn front_proxy(&self) -> Option<Arc<Identity>> {
        self.inner.front_proxy.read().expect("no holder of this lock panics").clone()
    }

    /// The token of a service account for a Secret that is to hold it.
    pub fn secret_token(&self, service_account: &serde_json::Value, secret: &serde_json::Value) -> Result<String, KeyError> {
        self.inner.security.tokens.secret_token(service_account, secret)
    }

    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    pub fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// Ends watches and refuses new requests; the store is closed by its owner afterwards.
    pub fn stop(&self) {
        self.inner.stop.cancel();
    }

    pub(crate) fn stop_token(&self) -> &CancellationToken {
        &self.inner.stop
    }

    pub(crate) fn security(&self) -> &Security {
        &self.inner.security
    }

    pub(crate) fn authorization(&self) -> &Arc<Authorization> {
        &self.inner.security.authorization
    }

    pub(crate) fn outgoing(&self) -> &Outgoing {
        &self.inner.outgoing
    }

    pub(crate) fn bounds(&self) -> &bounds::Bounds {
        &self.inner.bounds
    }

    pub(crate) fn flow(&self) -> &FlowControl {
        &self.inner.flow
    }

    pub(crate) fn metrics(&self) -> &metrics::Metrics {
        &self.inner.metrics
    }

    pub(crate) fn connector(&self) -> Option<&Arc<dyn Connector>> {
        self.inner.connector.get()
    }

    pub(crate) fn documents(&self) -> &Documents {
        &self.inner.documents
    }

    pub(crate) fn service_allocator(&self) -> Option<&Arc<dyn ServiceAllocator>> {
        self.inner.service_allocator.get()
    }

    pub(crate) fn clock_now(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }

    /// `metav1.Time` of this moment.
    pub(crate) fn now(&self) -> String {
        self.clock_now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// All plugins change the object; once more when webhooks or policies changed what others had seen.
    pub(crate) async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), ApiError> {
        let started = Instant::now();
        let admitted = self.mutate_all(attributes).await;
        self.metrics().admission.observe("", attributes.operation_name(), "admit", admitted.is_err(), started.elapsed());
        admitted
    }

    async fn mutate_all(&self, attributes: &mut Attributes<'_>) -> Result<(), ApiError> {
        let store: Arc<dyn crate::reader::Writer> = Arc::new(self.clone());
        self.mutate_once(attributes, &store).await?;
        if attributes.reinvocation.is_wanted {
            attributes.reinvocation.is_again = true;
            self.mutate_once(attributes, &store).await?;
        }
        Ok(())
    }

    /// Mutation and validation of a request that nothing happens to in between.
    pub(crate) async fn admit(&self, request: &ResourceRequest<'_>, attributes: &mut Attributes<'_>) -> Result<(), ApiError> {
        let mut admitted = self.mutate(attributes).await;
        if admitted.is_ok() {
            admitted = self.validate_admission(attributes).await;
        }
        request.pass_warnings(attributes);
        admitted
    }

    async fn mutate_once(&self, attributes: &mut Attributes<'_>, store: &Arc<dyn crate::reader::Writer>) -> Result<(), ApiError> {
        for plugin in &self.inner.plugins {
            if plugin.handles(attributes) {
                plugin.mutate(attributes, store).await?;
            }
        }
        Ok(())
    }

    pub(crate) async fn validate_admission(&self, attributes: &mut Attributes<'_>) -> Result<(), ApiError> {
        let started = Instant::now();
        let admitted = self.validate_all(attributes).await;
        self.metrics().admission.observe("", attributes.operation_name(), "validate", admitted.is_err(), started.elapsed());
        admitted
    }

    async fn validate_all(&self, attributes: &mut Attributes<'_>) -> Result<(), ApiError> {
        let store: Arc<dyn crate::reader::Writer> = Arc::new(self.clone());
        for plugin in &self.inner.plugins {
            if plugin.handles(attributes) {
                plugin.validate(attributes, &store).await?;
            }
        }
        Ok(())
    }
}
