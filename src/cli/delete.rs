//! `sublet delete`

use super::clusters::{self, NameArguments};
use super::host::HostArguments;
use super::output::{self, Look};
use anyhow::{Context as _, Result};
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;
use sublet_machinery::ObjectExt;
use sublet_runtime::DeleteOptions;
use sublet_runtime::resources::VIRTUAL_CLUSTERS;

#[derive(Args)]
#[command(after_help = "Everything in the cluster is deleted with it, and its pods, services and claims on the host.")]
pub struct Arguments {
    #[command(flatten)]
    name: NameArguments,
    #[command(flatten)]
    host: HostArguments,
    /// Wait until nothing of the cluster is left on the host
    #[arg(long)]
    wait: bool,
    /// Give up waiting after this many seconds; the deletion goes on
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    timeout: u64,
}

pub async fn run(arguments: Arguments) -> Result<ExitCode> {
    let host = arguments.host.client().await?;
    let NameArguments { name, namespace } = &arguments.name;
    let cluster = clusters::find(&host, &arguments.name).await?;
    let options = DeleteOptions::background().uid(cluster.uid());
    host.delete_if_exists(&VIRTUAL_CLUSTERS, namespace, name, &options).await.context("cannot delete the virtual cluster")?;
    if arguments.wait {
        let timeout = Duration::from_secs(arguments.timeout);
        output::wait(format!("deleting {name}"), timeout, Duration::from_millis(50), async || {
            let live = host.get_opt(&VIRTUAL_CLUSTERS, namespace, name).await?.filter(|l| l.uid() == cluster.uid());
            let Some(live) = live else { return Ok(Look::Done(())) };
            let message = clusters::message(&live);
            Ok(Look::NotYet {
                shown: format!("deleting {name}: {message}"),
                error: format!("virtual cluster `{name}` is not gone after {}s: {message}", timeout.as_secs()),
            })
        })
        .await?;
        println!("virtualcluster.sublet.dev/{name} deleted");
    } else {
        println!("virtualcluster.sublet.dev/{name} is being deleted");
    }
    Ok(ExitCode::SUCCESS)
}
