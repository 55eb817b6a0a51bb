//! `sublet operator`

use super::apiserver::terminated;
use super::dev::start_operator;
use super::host::HostArguments;
use super::pod::PodArguments;
use super::shard::until_terminated;
use crate::compose::in_cluster;
use anyhow::{Context as _, Result};
use clap::Args;
use ipnet::IpNet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use sublet_storage::Journal;
use tokio_util::sync::CancellationToken;

#[derive(Args)]
#[command(after_help = "With --dir, tenants run in this process, which may be outside of the cluster. Without it, they run in the pods of
an installation (see `sublet install`), and of several operators one leads.

Example:
  sublet operator --dir /var/lib/sublet --kubeconfig host.kubeconfig --listen 10.0.0.5")]
pub struct Arguments {
    /// Run tenants in this process, with their stores here
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    host: HostArguments,
    #[command(flatten)]
    pod: PodArguments,
    /// The address that the tenants' API servers listen on, with --dir
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    listen: IpAddr,
    /// The address under which pods reach the tenants' API servers, with --dir [default: the one listened on]
    #[arg(long, value_name = "ADDRESS")]
    pods_reach: Option<String>,
    /// The service range of tenants, with --dir
    #[arg(long, default_value = "10.96.0.0/16", value_name = "CIDR")]
    service_cluster_ip_range: IpNet,
    /// Follow only the virtual clusters with these labels
    #[arg(short = 'l', long, default_value = "", hide_default_value = true, value_name = "LABELS")]
    selector: String,
}

pub async fn run(arguments: Arguments) -> Result<ExitCode> {
    match &arguments.dir {
        Some(dir) => run_here(&arguments, dir).await,
        None => {
            let host = arguments.host.client_or_in_cluster().await?;
            let cancel = CancellationToken::new();
            let running = in_cluster::run_operator(host, arguments.pod.identity()?, arguments.selector.clone(), cancel.clone());
            until_terminated(running, cancel).await
        }
    }
}

async fn run_here(arguments: &Arguments, dir: &Path) -> Result<ExitCode> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let host = arguments.host.client().await?;
    let streams = arguments.host.streams().await?;
    let reach = arguments.pods_reach.as_deref();
    let range = arguments.service_cluster_ip_range;
    let operator = start_operator(host, streams, dir, Journal::of(dir), arguments.listen, reach, range, &arguments.selector, false).await?;
    eprintln!("The operator follows VirtualCluster objects; Ctrl-C stops it and its tenants' API servers.");
    terminated().await;
    operator.stop().await;
    Ok(ExitCode::SUCCESS)
}
