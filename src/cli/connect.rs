//! `sublet connect`

use super::clusters::{self, NameArguments};
use super::forward::{self, Way};
use super::host::HostArguments;
use anyhow::{Context as _, Result};
use clap::Args;
use std::io::Write as _;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Examples:
  sublet connect alpha -n team-a -- kubectl get ns
  sublet connect alpha -n team-a -- helm list -A
  sublet connect alpha -n team-a            A shell with KUBECONFIG set")]
pub struct Arguments {
    #[command(flatten)]
    name: NameArguments,
    #[command(flatten)]
    host: HostArguments,
    /// The command to run, with KUBECONFIG set [default: $SHELL]
    #[arg(last = true)]
    command: Vec<String>,
}

pub async fn run(arguments: Arguments) -> Result<ExitCode> {
    let host = arguments.host.client().await?;
    let mut text = clusters::kubeconfig(&host, &arguments.name).await?;
    let cluster = clusters::find(&host, &arguments.name).await?;
    // Held until the command ends.
    let way = forward::way(&host, &cluster, &arguments.name).await?;
    match &way {
        Way::Direct => {}
        Way::Exposed(url) => text = forward::with_server(&text, url)?,
        Way::Forwarded(forward) => text = forward::with_server(&text, &format!("https://127.0.0.1:{}", forward.port))?,
    }
    // Readable by this user alone, and gone when the command ends.
    let mut file = tempfile::Builder::new().prefix("sublet-").suffix(".kubeconfig").tempfile().context("cannot write a temporary file")?;
    file.write_all(text.as_bytes())?;
    file.flush()?;
    let command = if arguments.command.is_empty() { vec![shell()] } else { arguments.command };
    let status = tokio::process::Command::new(&command[0])
        .args(&command[1..])
        .env("KUBECONFIG", file.path())
        .status()
        .await
        .with_context(|| format!("cannot run `{}`", command[0]))?;
    drop(way);
    Ok(ExitCode::from(status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(1)))
}

fn shell() -> String {
    std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".into())
}
