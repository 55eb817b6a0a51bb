//! `sublet list`

use super::clusters;
use super::host::HostArguments;
use super::output;
use anyhow::{Context as _, Result};
use clap::Args;
use jiff::Timestamp;
use serde_json::json;
use std::process::ExitCode;
use sublet_machinery::ObjectExt;
use sublet_runtime::ListOptions;
use sublet_runtime::resources::VIRTUAL_CLUSTERS;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    host: HostArguments,
    /// Only those in this host namespace [default: all]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[arg(short, long, value_enum)]
    output: Option<output::Format>,
}

pub async fn run(arguments: Arguments) -> Result<ExitCode> {
    let host = arguments.host.client().await?;
    let namespace = arguments.namespace.as_deref().unwrap_or_default();
    let list = match host.list(&VIRTUAL_CLUSTERS, namespace, &ListOptions::default()).await {
        Ok(list) => list,
        Err(error) if error.is_not_found() => Default::default(),
        Err(error) => return Err(error).context("cannot list virtual clusters"),
    };
    if let Some(format) = arguments.output {
        output::print(&json!({"apiVersion": "v1", "kind": "List", "items": list.items}), format)?;
        return Ok(ExitCode::SUCCESS);
    }
    if list.items.is_empty() {
        eprintln!("No virtual clusters found; `sublet create NAME -n NAMESPACE` makes one.");
        return Ok(ExitCode::SUCCESS);
    }
    let now = Timestamp::now();
    let rows: Vec<Vec<String>> = list
        .items
        .iter()
        .map(|cluster| {
            vec![
                cluster.namespace().to_string(),
                cluster.name().to_string(),
                clusters::ready(cluster).to_string(),
                output::age(cluster.str_at("/metadata/creationTimestamp").unwrap_or_default(), now),
                cluster.str_at("/status/version").unwrap_or_default().to_string(),
                cluster.i64_at("/status/usage/pods").unwrap_or(0).to_string(),
                if clusters::ready(cluster) == "True" { String::new() } else { clusters::message(cluster).to_string() },
            ]
        })
        .collect();
    print!("{}", output::columns(&["NAMESPACE", "NAME", "READY", "AGE", "VERSION", "PODS", "MESSAGE"], &rows));
    Ok(ExitCode::SUCCESS)
}
