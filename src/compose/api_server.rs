//! An API server with its keys, store and listener: what `sublet apiserver`, the embedded host and
//! every tenant have in common.

use super::allocator;
use anyhow::{Context as _, Result};
use ipnet::IpNet;
use jiff::Timestamp;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use sublet_apiserver::admission::{self, PodSecurityLevel};
use sublet_apiserver::allocator::AllocatorConfig;
use sublet_apiserver::auth::authn::StaticTokens;
use sublet_apiserver::auth::authz::Mode;
use sublet_apiserver::auth::bootstrap::BootstrapConfig;
use sublet_apiserver::auth::tls::{ServingCertificate, server_tls};
use sublet_apiserver::server::{Config, SecurityConfig, Server, listen};
use sublet_controllers::TokenMaker;
use sublet_pki::Pki;
use sublet_runtime::Client;
use sublet_storage::Backend;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How an API server is to be.
pub struct ApiServerSpec {
    pub name: String,
    pub pki: Pki,
    pub backend: Arc<dyn Backend>,
    pub listener: TcpListener,
    /// The address that clients are told when the listener is on all of them.
    pub reached_at: Option<String>,
    /// The port that clients are told, when another one than the listener's leads here.
    pub reached_port: Option<u16>,
    pub service_cidrs: Vec<IpNet>,
    /// The cluster IP of the Service `kubernetes`; `None`: the first of the range.
    pub service_ip: Option<IpAddr>,
    /// `None`: Services get their numbers from elsewhere, or none.
    pub node_ports: Option<(u16, u16)>,
    pub authorization: Vec<Mode>,
    /// As in `--token-auth-file`.
    pub static_tokens: Option<StaticTokens>,
    /// Authorities beside the server's own whose clients are accepted, in PEM.
    pub client_authorities_pem: String,
    pub enabled_plugins: Vec<String>,
    pub disabled_plugins: Vec<String>,
    /// What pods hold to whatever their namespaces say.
    pub least_pod_security: PodSecurityLevel,
}

/// A running API server.
pub struct ApiServer {
    pub server: Server,
    pub address: SocketAddr,
    /// Where clients reach it.
    pub url: String,
    /// The server as the system reaches it, without a network.
    local: kube::Client,
    backend: Arc<dyn Backend>,
    serving: Arc<ServingCertificate>,
    cancel: CancellationToken,
    listening: JoinHandle<()>,
}

impl ApiServer {
    pub async fn start(spec: ApiServerSpec) -> Result<Self> {
        let address = spec.listener.local_addr()?;
        let cidr = spec.service_cidrs.first().context("a service range is needed: --service-cluster-ip-range")?;
        let host = host_of(address.ip(), spec.reached_at.as_deref());
        let port = spec.reached_port.unwrap_or(address.port());
        let url = url(&host, port);
        // Endpoints hold addresses; who is told a name resolves it for themselves.
        let advertised = host.parse().unwrap_or(IpAddr::from([127, 0, 0, 1]));
        let (enabled, disabled, least_pod_security) = (spec.enabled_plugins, spec.disabled_plugins, spec.least_pod_security);
        let config = Config {
            backend: spec.backend.clone(),
            security: SecurityConfig {
                authorization: spec.authorization,
                static_tokens: spec.static_tokens,
                signing_key_pem: spec.pki.service_account_key_pem.clone(),
                url: url.clone(),
            },
            plugins: Box::new(move |signer_permission| {
                let signer_permission = Some(signer_permission);
                admission::default_plugins(&admission::Config { enabled, disabled, least_pod_security, signer_permission })
            }),
            bootstrap: BootstrapConfig {
                service_cidrs: spec.service_cidrs.iter().map(ToString::to_string).collect(),
                service_ip: spec.service_ip.unwrap_or_else(|| first_address(cidr)),
                addresses: vec![advertised],
                port,
                client_authority_pem: Some(spec.pki.authority.certificate_pem().to_string()),
                front_proxy_authority_pem: Some(spec.pki.front_proxy_authority.certificate_pem().to_string()),
                now: Timestamp::now(),
            },
            name: spec.name,
        };
        let server = Server::open(config).await.context("cannot open the store")?;
        server.set_front_proxy(&spec.pki.front_proxy.certificate_pem, &spec.pki.front_proxy.key_pem);
        if let Some(node_ports) = spec.node_ports {
            let ranges = AllocatorConfig { service_cidrs: spec.service_cidrs, node_ports, seed: u64::from(address.port()) };
            allocator::attach(&server, &ranges)?;
        }
        let serving = Arc::new(ServingCertificate::new(&spec.pki.serving.certificate_pem, &spec.pki.serving.key_pem)?);
        let authorities = format!("{}\n{}", spec.pki.authority.certificate_pem(), spec.client_authorities_pem);
        let tls = server_tls(serving.clone(), &authorities)?;
        let cancel = CancellationToken::new();
        let listening = listen(server.clone(), spec.listener, tls, cancel.clone())?;
        let local = kube::Client::new(server.system_service(), "default");
        Ok(Self { server, address, url, local, backend: spec.backend, serving, cancel, listening: listening.task })
    }

    /// A client in the same process, as the system.
    pub fn client(&self, field_manager: &str) -> Client {
        Client::new(self.local.clone(), field_manager).with_share(self.server.share().clone())
    }

    /// What its controllers need to put tokens into Secrets.
    pub fn token_maker(&self) -> TokenMaker {
        let server = self.server.clone();
        TokenMaker::new(move |account, secret| server.secret_token(account, secret).map_err(|e| e.to_string()))
    }

    /// New connections get the new certificate.
    pub fn replace_certificate(&self, pki: &Pki) -> Result<()> {
        self.server.set_front_proxy(&pki.front_proxy.certificate_pem, &pki.front_proxy.key_pem);
        self.serving.replace(&pki.serving.certificate_pem, &pki.serving.key_pem).context("the new certificate cannot be used")
    }

    /// Ends watches, finishes requests, closes the store.
    pub async fn stop(self) {
        self.server.stop();
        self.cancel.cancel();
        if let Err(error) = self.listening.await {
            tracing::error!(%error, "the listener ended badly");
        }
        if let Err(error) = self.server.set_audit(None).await {
            tracing::error!(%error, "the audit log ended badly");
        }
        // The store's file is made whole, which takes a moment on disk.
        if let Err(error) = tokio::task::spawn_blocking(move || self.backend.close()).await {
            tracing::error!(%error, "the store ended badly");
        }
    }
}

/// What clients are told: the address listened on, or when that is all of them, the one named.
fn host_of(listening: IpAddr, reached_at: Option<&str>) -> String {
    if !listening.is_unspecified() {
        return listening.to_string();
    }
    reached_at.unwrap_or("127.0.0.1").to_string()
}

/// Of an API server at a name or an address of either family.
pub fn url(host: &str, port: u16) -> String {
    if host.contains(':') { format!("https://[{host}]:{port}") } else { format!("https://{host}:{port}") }
}

/// The first address of the service range belongs to the API server.
pub fn first_address(cidr: &IpNet) -> IpAddr {
    cidr.hosts().next().unwrap_or_else(|| cidr.network())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_never_told_an_address_that_leads_nowhere() {
        let told = |listening: &str, reached_at| url(&host_of(listening.parse().unwrap(), reached_at), 6443);
        assert_eq!(told("10.1.2.3", Some("10.9.9.9")), "https://10.1.2.3:6443");
        assert_eq!(told("0.0.0.0", Some("10.9.9.9")), "https://10.9.9.9:6443");
        assert_eq!(told("0.0.0.0", None), "https://127.0.0.1:6443");
        assert_eq!(told("::", Some("fd00::2")), "https://[fd00::2]:6443");
    }
}
