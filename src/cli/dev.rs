//! `sublet dev`

use super::apiserver::{terminated, write_kubeconfig};
use super::host::{client, config};
use crate::compose::host::{EmbeddedHost, EmbeddedHostSpec, Operator};
use crate::compose::name_server::host_resolver;
use crate::compose::packed::PackedConfig;
use crate::compose::streams::Remote;
use crate::compose::tenant_reach;
use anyhow::{Context as _, Result};
use clap::Args;
use ipnet::IpNet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use sublet_host::HostConfig;
use sublet_runtime::Client;
use sublet_storage::Journal;

#[derive(Args)]
#[command(after_help = "Example:
  sublet dev --dir /tmp/sublet &
  export KUBECONFIG=/tmp/sublet/host.kubeconfig
  sublet create alpha -n team-a --wait
  sublet connect alpha -n team-a -- kubectl get ns")]
pub struct Arguments {
    /// Where all state lives; a second start finds everything as it was
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Simulated nodes of the embedded host
    #[arg(long, default_value_t = 2, value_name = "NUMBER")]
    pub nodes: usize,
    /// Use this cluster as the host instead of the embedded one
    #[arg(long, value_name = "FILE")]
    pub host_kubeconfig: Option<PathBuf>,
    /// The address that API servers listen on
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    pub listen: IpAddr,
    /// The address under which pods reach the tenants' API servers [default: the one listened on]
    #[arg(long, value_name = "ADDRESS")]
    pub pods_reach: Option<String>,
    /// Where the addresses of Services come from
    #[arg(long, default_value = "10.96.0.0/16", value_name = "CIDR")]
    pub service_cluster_ip_range: IpNet,
    /// Follow only the virtual clusters with these labels
    #[arg(short = 'l', long, default_value = "", hide_default_value = true, value_name = "LABELS")]
    pub selector: String,
}

/// Everything that `dev` runs.
pub struct Dev {
    pub host_kubeconfig: PathBuf,
    embedded: Option<EmbeddedHost>,
    operator: Operator,
}

impl Dev {
    pub async fn start(arguments: &Arguments) -> Result<Self> {
        let dir = &arguments.dir;
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let journal = Journal::of(dir);
        let (host, streams, host_kubeconfig, embedded) = match &arguments.host_kubeconfig {
            Some(path) => {
                let host = client(Some(path), None).await?;
                (host, streams(path).await?, path.clone(), None)
            }
            None => {
                let embedded = EmbeddedHost::start(EmbeddedHostSpec {
                    dir: &dir.join("host"),
                    journal: journal.clone(),
                    listen: arguments.listen,
                    service_cidr: arguments.service_cluster_ip_range,
                    host: HostConfig { nodes: arguments.nodes, ..HostConfig::default() },
                })
                .await?;
                let path = write_kubeconfig(dir, "host.kubeconfig", "host", embedded.api.address, &embedded.pki)?;
                (embedded.api.client("sublet"), streams(&path).await?, path, Some(embedded))
            }
        };
        let operator = start_operator(
            host,
            streams,
            dir,
            journal,
            arguments.listen,
            arguments.pods_reach.as_deref(),
            arguments.service_cluster_ip_range,
            &arguments.selector,
            embedded.is_some(),
        )
        .await?;
        Ok(Self { host_kubeconfig, embedded, operator })
    }

    pub async fn stop(self) {
        self.operator.stop().await;
        if let Some(embedded) = self.embedded {
            embedded.stop().await;
        }
    }
}

/// The operator with its tenants under `dir`; `simulated`: on a host whose pods run nothing.
pub async fn start_operator(
    host: Client,
    streams: Remote,
    dir: &Path,
    journal: Journal,
    listen: IpAddr,
    pods_reach: Option<&str>,
    service_cidr: IpNet,
    selector: &str,
    simulated: bool,
) -> Result<Operator> {
    let config = PackedConfig {
        dir: dir.join("tenants"),
        journal,
        listen,
        service_cidr,
        pods_reach: tenant_reach(listen, pods_reach),
        streams,
        resolver: host_resolver(),
        // Nobody looks where simulated pods are told to look.
        pods_resolve: simulated || pods_reach.is_some() || !listen.is_loopback() && !listen.is_unspecified(),
    };
    Operator::start(host, config, selector).await
}

/// Over the network: a client within the process cannot upgrade.
async fn streams(kubeconfig: &Path) -> Result<Remote> {
    Remote::of_host(&config(Some(kubeconfig), None).await?)
}

pub async fn run(arguments: Arguments) -> Result<ExitCode> {
    let dev = Dev::start(&arguments).await?;
    println!("{}", dev.host_kubeconfig.display());
    eprintln!("The host is ready. In another terminal:");
    eprintln!("  export KUBECONFIG={}", dev.host_kubeconfig.display());
    eprintln!("  sublet create alpha -n team-a --wait");
    eprintln!("  sublet connect alpha -n team-a -- kubectl get ns");
    terminated().await;
    eprintln!("stopping");
    dev.stop().await;
    Ok(ExitCode::SUCCESS)
}
