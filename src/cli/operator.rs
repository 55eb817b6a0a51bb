//! `sublet operator`

use super::apiserver::terminated;
use super::dev::start_operator;
use super::host::HostArguments;
use anyhow::{Context as _, Result};
use clap::Args;
use ipnet::IpNet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Example:
  sublet operator --dir /var/lib/sublet --kubeconfig host.kubeconfig --listen 10.0.0.5")]
pub struct Arguments {
    /// Where the stores of tenants live
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    #[command(flatten)]
    host: HostArguments,
    /// The address that the tenants' API servers listen on
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    listen: IpAddr,
    /// The address under which pods reach the tenants' API servers [default: the one listened on]
    #[arg(long, value_name = "ADDRESS")]
    pods_reach: Option<String>,
    /// The service range of tenants
    #[arg(long, default_value = "10.96.0.0/16", value_name = "CIDR")]
    service_cluster_ip_range: IpNet,
}

pub async fn run(arguments: Arguments) -> Result<ExitCode> {
    std::fs::create_dir_all(&arguments.dir).with_context(|| format!("cannot create {}", arguments.dir.display()))?;
    let host = arguments.host.client().await?;
    let reach = arguments.pods_reach.as_deref();
    let operator =
        start_operator(host.clone(), host, &arguments.dir, arguments.listen, reach, arguments.service_cluster_ip_range, false).await?;
    eprintln!("The operator follows VirtualCluster objects; Ctrl-C stops it and its tenants' API servers.");
    terminated().await;
    operator.stop().await;
    Ok(ExitCode::SUCCESS)
}
