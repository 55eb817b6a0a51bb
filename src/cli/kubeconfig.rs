//! `sublet kubeconfig`

use super::clusters::{self, NameArguments};
use super::forward;
use super::host::HostArguments;
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;
use sublet_api::VirtualCluster;

#[derive(Args)]
#[command(after_help = "Example:
  sublet kubeconfig alpha -n team-a > alpha.kubeconfig
  KUBECONFIG=alpha.kubeconfig kubectl get ns")]
pub struct Arguments {
    #[command(flatten)]
    name: NameArguments,
    #[command(flatten)]
    host: HostArguments,
    /// The server as pods of the host cluster reach it, also when it is exposed to others
    #[arg(long)]
    internal: bool,
    /// Not the admin's, but the one in this Secret of `spec.kubeconfigs`, as it is
    #[arg(long, value_name = "SECRET", conflicts_with = "internal")]
    secret: Option<String>,
}

pub async fn run(arguments: Arguments) -> Result<ExitCode> {
    let host = arguments.host.client().await?;
    if let Some(secret) = &arguments.secret {
        print!("{}", clusters::kubeconfig_in(&host, &arguments.name, secret).await?);
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = clusters::kubeconfig(&host, &arguments.name).await?;
    if !arguments.internal {
        let cluster = clusters::find(&host, &arguments.name).await?;
        match cluster["status"]["controlPlane"]["external"].as_str() {
            Some(url) => text = forward::with_server(&text, url)?,
            None if VirtualCluster::new(&cluster).placement().is_some_and(|p| !p.address.is_empty()) => {
                let NameArguments { name, namespace } = &arguments.name;
                eprintln!("note: this server is reached inside of the host cluster; from here use `sublet connect {name} -n {namespace}`");
            }
            None => {}
        }
    }
    print!("{text}");
    Ok(ExitCode::SUCCESS)
}
