//! `sublet kubeconfig`

use super::clusters::{self, NameArguments};
use super::host::HostArguments;
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Example:
  sublet kubeconfig alpha -n team-a > alpha.kubeconfig
  KUBECONFIG=alpha.kubeconfig kubectl get ns")]
pub struct Arguments {
    #[command(flatten)]
    name: NameArguments,
    #[command(flatten)]
    host: HostArguments,
}

pub async fn run(arguments: Arguments) -> Result<ExitCode> {
    let host = arguments.host.client().await?;
    print!("{}", clusters::kubeconfig(&host, &arguments.name).await?);
    Ok(ExitCode::SUCCESS)
}
