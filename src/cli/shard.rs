//! `sublet shard`

use super::apiserver::terminated;
use super::host::HostArguments;
use super::pod::PodArguments;
use crate::compose::in_cluster;
use crate::compose::name_server::host_resolver;
use crate::compose::packed::PackedConfig;
use crate::compose::tenant::PodReach;
use anyhow::Result;
use clap::Args;
use ipnet::IpNet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use sublet_storage::Journal;
use tokio_util::sync::CancellationToken;

#[derive(Args)]
#[command(after_help = "Started by an installation; see `sublet install`.")]
pub struct Arguments {
    /// Where the stores of tenants live
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    #[command(flatten)]
    host: HostArguments,
    #[command(flatten)]
    pod: PodArguments,
    /// The address that the tenants' servers listen on
    #[arg(long, default_value = "0.0.0.0", value_name = "ADDRESS")]
    listen: IpAddr,
    /// The service range that tenants are told
    #[arg(long, default_value = "10.96.0.0/16", value_name = "CIDR")]
    service_cluster_ip_range: IpNet,
}

pub async fn run(arguments: Arguments) -> Result<ExitCode> {
    let host = arguments.host.client_or_in_cluster().await?;
    let config = PackedConfig {
        journal: Journal::of(&arguments.dir),
        dir: arguments.dir,
        listen: arguments.listen,
        service_cidr: arguments.service_cluster_ip_range,
        pods_reach: PodReach::Service,
        streams: arguments.host.streams_or_in_cluster().await?,
        resolver: host_resolver(),
        pods_resolve: true,
    };
    let cancel = CancellationToken::new();
    let running = in_cluster::run_shard(host, config, arguments.pod.identity()?, cancel.clone());
    until_terminated(running, cancel).await
}

/// Runs to its end, which SIGTERM asks for.
pub async fn until_terminated(running: impl Future<Output = Result<()>>, cancel: CancellationToken) -> Result<ExitCode> {
    let stop = async {
        terminated().await;
        cancel.cancel();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        result = running => result.map(|()| ExitCode::SUCCESS),
        () = stop => Ok(ExitCode::SUCCESS),
    }
}
