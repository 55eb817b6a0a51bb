//! `sublet apiserver`

use super::audit::AuditArguments;
use super::authentication::AuthenticationArguments;
use crate::compose::api_server::{ApiServer, ApiServerSpec, url};
use crate::compose::controllers;
use crate::compose::streams::{KubeletClient, KubeletStreams};
use crate::compose::tenant::listener;
use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use ipnet::IpNet;
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use sublet_apiserver::admission::{ORDER, PodSecurityLevel};
use sublet_apiserver::auth::authn::StaticTokens;
use sublet_apiserver::auth::authz::Mode;
use sublet_apiserver::server::ISSUER;
use sublet_controllers::ControllersConfig;
use sublet_operator::tenant_service::USUAL_NAMES;
use sublet_pki::{Credential, Kubeconfig, Pki, PkiConfig};
use sublet_storage::{Backend, EmbeddedBackend, MemoryBackend, Options};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

#[derive(Args)]
#[command(after_help = "Flags are named as kube-apiserver's where they exist there.
Example:
  sublet apiserver --dir /tmp/api &
  KUBECONFIG=/tmp/api/admin.kubeconfig kubectl get ns")]
pub struct Arguments {
    /// Where state, keys and admin.kubeconfig live
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The address to serve HTTPS on; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// The address that members of the cluster are told, where it listens on all or on loopback
    #[arg(long, value_name = "IP")]
    advertise_address: Option<IpAddr>,
    /// What keeps the objects
    #[arg(long, value_enum, default_value = "embedded")]
    store: Store,
    /// Tokens as CSV: token,user,uid,"group1,group2"
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
    /// Accept client certificates of these authorities as well
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// The certificate that kubelets know this server by, for `kubectl logs`, `exec` and the like
    #[arg(long, value_name = "FILE", requires = "kubelet_client_key")]
    kubelet_client_certificate: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "kubelet_client_certificate")]
    kubelet_client_key: Option<PathBuf>,
    /// Accept only kubelets with a certificate of these authorities
    #[arg(long, value_name = "FILE", requires = "kubelet_client_certificate")]
    kubelet_certificate_authority: Option<PathBuf>,
    /// Modes of authorization, in order
    #[arg(long, value_delimiter = ',', default_value = "RBAC", value_name = "MODES")]
    authorization_mode: Vec<Mode>,
    /// Admission plugins to turn on beside the default ones
    #[arg(long, value_delimiter = ',', value_name = "PLUGINS")]
    enable_admission_plugins: Vec<String>,
    /// Admission plugins to turn off
    #[arg(long, value_delimiter = ',', value_name = "PLUGINS")]
    disable_admission_plugins: Vec<String>,
    #[command(flatten)]
    audit: AuditArguments,
    #[command(flatten)]
    authentication: AuthenticationArguments,
    /// Where the addresses of Services come from; one range, or one of each family
    #[arg(long, value_delimiter = ',', default_value = "10.96.0.0/16", value_name = "CIDRS")]
    service_cluster_ip_range: Vec<IpNet>,
    /// Where the node ports of Services come from
    #[arg(long, default_value = "30000-32767", value_name = "FIRST-LAST")]
    service_node_port_range: String,
    /// Controllers to run: `*` for all, `name` for one, `-name` to leave one out
    #[arg(long, value_delimiter = ',', default_value = "*", allow_hyphen_values = true, value_name = "NAMES")]
    controllers: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum, PartialEq, Eq)]
enum Store {
    Embedded,
    Memory,
}

pub async fn run(arguments: Arguments) -> Result<ExitCode> {
    let dir = &arguments.dir;
    check_plugins("--enable-admission-plugins", &arguments.enable_admission_plugins)?;
    check_plugins("--disable-admission-plugins", &arguments.disable_admission_plugins)?;
    let without = left_out(&arguments.controllers)?;
    let audit = arguments.audit.config()?;
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let backend: Arc<dyn Backend> = match arguments.store {
        Store::Memory => Arc::new(MemoryBackend::new()),
        Store::Embedded => Arc::new(EmbeddedBackend::open(dir.join("store.redb"), Options::default())?),
    };
    // The free port of the first start stays, so that kubeconfigs stay good.
    let listener = match arguments.listen.port() {
        0 => listener(dir, arguments.listen.ip()).await?,
        _ => TcpListener::bind(arguments.listen).await.with_context(|| format!("cannot listen on {}", arguments.listen))?,
    };
    let address = listener.local_addr()?;
    let pki = Pki::open(&dir.join("pki"), &pki_config("sublet", address, arguments.advertise_address), Timestamp::now())?;
    let root_ca_pem = pki.authority.certificate_pem().to_string();
    let authority = Some(pki.authority.clone());
    let kubeconfig = write_kubeconfig(dir, "admin.kubeconfig", "sublet", address, &pki)?;
    let api = ApiServer::start(ApiServerSpec {
        name: "apiserver".into(),
        pki,
        backend,
        listener,
        reached_at: arguments.advertise_address.map(|ip| ip.to_string()),
        reached_port: None,
        service_cidrs: arguments.service_cluster_ip_range,
        service_ip: None,
        node_ports: Some(port_range(&arguments.service_node_port_range)?),
        authorization: arguments.authorization_mode,
        static_tokens: arguments.token_auth_file.as_deref().map(static_tokens).transpose()?,
        client_authorities_pem: match &arguments.client_ca_file {
            Some(path) => read("--client-ca-file", path)?,
            None => String::new(),
        },
        enabled_plugins: arguments.enable_admission_plugins,
        disabled_plugins: arguments.disable_admission_plugins,
        least_pod_security: PodSecurityLevel::Privileged,
    })
    .await?;
    if let (Some(certificate), Some(key)) = (&arguments.kubelet_client_certificate, &arguments.kubelet_client_key) {
        let authorities = arguments.kubelet_certificate_authority.as_deref();
        let client = KubeletClient {
            certificate_pem: read("--kubelet-client-certificate", certificate)?,
            key_pem: read("--kubelet-client-key", key)?,
            authorities_pem: authorities.map(|path| read("--kubelet-certificate-authority", path)).transpose()?,
        };
        api.server.set_connector(Arc::new(KubeletStreams::new(api.server.clone(), &client)?));
    }
    let cancel = CancellationToken::new();
    api.server.set_audit(audit).await.context("--audit-log-path")?;
    arguments.authentication.apply(&api.server, cancel.clone())?;
    let controllers = without.map(|without| {
        controllers::start(
            api.client("sublet"),
            &ControllersConfig {
                root_ca_pem,
                authority,
                token_maker: Some(api.token_maker()),
                host_name: controllers::host_name(),
                without,
                ..ControllersConfig::default()
            },
            |_| {},
            cancel.clone(),
        )
    });
    println!("{}", kubeconfig.display());
    terminated().await;
    cancel.cancel();
    if let Some(controllers) = controllers {
        controllers.await?;
    }
    api.stop().await;
    Ok(ExitCode::SUCCESS)
}

fn read(flag: &str, path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("{flag}: cannot read {}", path.display()))
}

/// The names to leave out; `None` runs no controllers at all.
fn left_out(controllers: &[String]) -> Result<Option<BTreeSet<String>>> {
    let all: BTreeSet<String> = sublet_controllers::names().map(str::to_string).collect();
    let mut without = if controllers.iter().any(|c| c == "*") { BTreeSet::new() } else { all.clone() };
    for name in controllers.iter().filter(|c| !matches!(c.as_str(), "*" | "")) {
        let (name, leave_out) = name.strip_prefix('-').map_or((name.as_str(), false), |name| (name, true));
        if !all.contains(name) {
            bail!("--controllers: there is no controller `{name}`; there are {}", all.into_iter().collect::<Vec<_>>().join(", "));
        }
        if leave_out {
            without.insert(name.to_string());
        } else {
            without.remove(name);
        }
    }
    Ok((without != all).then_some(without))
}

fn check_plugins(flag: &str, names: &[String]) -> Result<()> {
    match names.iter().find(|n| !ORDER.contains(&n.as_str())) {
        Some(unknown) => bail!("{flag}: there is no admission plugin `{unknown}`; there are {}", ORDER.join(", ")),
        None => Ok(()),
    }
}

fn static_tokens(path: &Path) -> Result<StaticTokens> {
    StaticTokens::parse(&read("--token-auth-file", path)?, vec![ISSUER.into()])
        .with_context(|| format!("--token-auth-file: {}", path.display()))
}

fn port_range(text: &str) -> Result<(u16, u16)> {
    let parsed = text.split_once('-').and_then(|(first, last)| Some((first.trim().parse().ok()?, last.trim().parse().ok()?)));
    match parsed {
        Some((first, last)) if first <= last => Ok((first, last)),
        _ => bail!("--service-node-port-range: {text:?} is no range of ports; write 30000-32767"),
    }
}

/// Names in the serving certificate: the usual ones, the address listened on, and the one that is `told`.
pub fn pki_config(cluster: &str, address: SocketAddr, told: Option<IpAddr>) -> PkiConfig {
    let mut names: Vec<String> = USUAL_NAMES.map(String::from).to_vec();
    names.push("10.96.0.1".into());
    if !address.ip().is_unspecified() && !address.ip().is_loopback() {
        names.push(address.ip().to_string());
    }
    names.extend(told.map(|ip| ip.to_string()));
    PkiConfig { cluster: cluster.into(), names }
}

/// Writes the admin kubeconfig, readable by its owner alone.
pub fn write_kubeconfig(dir: &Path, file: &str, cluster: &str, address: SocketAddr, pki: &Pki) -> Result<PathBuf> {
    let host = if address.ip().is_unspecified() { "127.0.0.1".to_string() } else { address.ip().to_string() };
    let text = Kubeconfig {
        cluster,
        server: &url(&host, address.port()),
        authority_pem: pki.authority.certificate_pem(),
        user: "admin",
        credential: Credential::Certificate(&pki.admin),
        namespace: None,
    }
    .render();
    let path = dir.join(file);
    let mut temporary = tempfile::NamedTempFile::new_in(dir)?;
    std::io::Write::write_all(&mut temporary, text.as_bytes())?;
    temporary.persist(&path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// SIGTERM or Ctrl-C.
pub async fn terminated() {
    let mut term = match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(term) => term,
        Err(error) => {
            tracing::warn!(%error, "SIGTERM is not handled");
            return std::future::pending().await;
        }
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
