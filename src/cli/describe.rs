//! `sublet describe`

use super::clusters::{self, NameArguments};
use super::host::HostArguments;
use super::output;
use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use std::process::ExitCode;
use sublet_machinery::ObjectExt;
use sublet_runtime::ListOptions;
use sublet_runtime::resources::EVENTS;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    name: NameArguments,
    #[command(flatten)]
    host: HostArguments,
    #[arg(short, long, value_enum)]
    output: Option<output::Format>,
}

pub async fn run(arguments: Arguments) -> Result<ExitCode> {
    let host = arguments.host.client().await?;
    let cluster = clusters::find(&host, &arguments.name).await?;
    if let Some(format) = arguments.output {
        output::print(&cluster, format)?;
        return Ok(ExitCode::SUCCESS);
    }
    let now = Timestamp::now();
    let text = |pointer: &str| cluster.str_at(pointer).unwrap_or("<none>").to_string();
    let count = |pointer: &str| cluster.i64_at(pointer).unwrap_or(0);
    println!("Name:        {}", cluster.name());
    println!("Namespace:   {}", cluster.namespace());
    println!("Ready:       {}", clusters::ready(&cluster));
    println!("Age:         {}", output::age(&text("/metadata/creationTimestamp"), now));
    println!("Version:     {}", text("/status/version"));
    println!("Endpoint:    {}", text("/status/endpoint"));
    println!("Kubeconfig:  Secret {}", text("/status/kubeconfigSecret"));
    println!(
        "Usage:       {} pods, {} namespaces, {} objects, {} KiB",
        count("/status/usage/pods"),
        count("/status/usage/namespaces"),
        count("/status/usage/objects"),
        count("/status/usage/bytes") / 1024
    );
    println!("Conditions:");
    let rows: Vec<Vec<String>> = cluster
        .array_at("/status/conditions")
        .iter()
        .map(|c| ["type", "status", "reason", "message"].iter().map(|k| c[*k].as_str().unwrap_or_default().to_string()).collect())
        .collect();
    indent(&output::columns(&["TYPE", "STATUS", "REASON", "MESSAGE"], &rows));
    let selector = format!("involvedObject.uid={}", cluster.uid());
    let events = host.list(&EVENTS, cluster.namespace(), &ListOptions { field_selector: selector, ..ListOptions::default() }).await?;
    if events.items.is_empty() {
        println!("Events:      <none>");
        return Ok(ExitCode::SUCCESS);
    }
    println!("Events:");
    let rows: Vec<Vec<String>> = events
        .items
        .iter()
        .map(|e| {
            let at = e.str_at("/lastTimestamp").or_else(|| e.str_at("/eventTime")).unwrap_or_default();
            vec![
                output::age(at, now),
                e["type"].as_str().unwrap_or_default().into(),
                e["reason"].as_str().unwrap_or_default().into(),
                e["message"].as_str().unwrap_or_default().into(),
            ]
        })
        .collect();
    indent(&output::columns(&["AGE", "TYPE", "REASON", "MESSAGE"], &rows));
    Ok(ExitCode::SUCCESS)
}

fn indent(text: &str) {
    for line in text.lines() {
        println!("  {line}");
    }
}
