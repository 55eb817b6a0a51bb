//! `sublet create`

use super::clusters::{self, NameArguments};
use super::host::HostArguments;
use super::output::{self, Look};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;
use sublet_runtime::Client;
use sublet_runtime::resources::{NAMESPACES, VIRTUAL_CLUSTERS};

#[derive(Args)]
#[command(after_help = "Examples:
  sublet create alpha -n team-a --wait
  sublet create alpha -n team-a -o yaml --dry-run > alpha.yaml")]
pub struct Arguments {
    #[command(flatten)]
    name: NameArguments,
    #[command(flatten)]
    host: HostArguments,
    /// Give it these labels: KEY=VALUE, several with commas
    #[arg(short, long, value_delimiter = ',', value_parser = label, value_name = "LABELS")]
    labels: Vec<(String, String)>,
    /// Create the namespace when it does not exist
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    create_namespace: bool,
    /// Wait until the cluster answers
    #[arg(long)]
    wait: bool,
    /// Give up waiting after this many seconds
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    timeout: u64,
    /// Print the object without creating it
    #[arg(long)]
    dry_run: bool,
    /// Print the object
    #[arg(short, long, value_enum)]
    output: Option<output::Format>,
}

pub async fn run(arguments: Arguments) -> Result<ExitCode> {
    let NameArguments { name, namespace } = &arguments.name;
    let mut object = json!({
        "apiVersion": "sublet.dev/v1alpha1", "kind": "VirtualCluster",
        "metadata": {"name": name, "namespace": namespace}, "spec": {},
    });
    if !arguments.labels.is_empty() {
        object["metadata"]["labels"] = arguments.labels.iter().cloned().map(|(key, value)| (key, Value::from(value))).collect();
    }
    if arguments.dry_run {
        output::print(&object, arguments.output.unwrap_or(output::Format::Yaml))?;
        return Ok(ExitCode::SUCCESS);
    }
    let host = arguments.host.client().await?;
    if arguments.create_namespace && host.get_opt(&NAMESPACES, "", namespace).await?.is_none() {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        host.create(&NAMESPACES, &body).await.with_context(|| format!("cannot create namespace `{namespace}`"))?;
    }
    let mut created = match host.create(&VIRTUAL_CLUSTERS, &object).await {
        Ok(created) => created,
        Err(error) if error.is_not_found() => {
            bail!("the host does not know virtual clusters yet; start the operator (`sublet operator` or `sublet dev`) first")
        }
        Err(error) => return Err(error).context("cannot create the virtual cluster"),
    };
    if arguments.wait {
        created = wait_ready(&host, &arguments.name, Duration::from_secs(arguments.timeout)).await?;
    }
    match arguments.output {
        Some(format) => output::print(&created, format)?,
        None if arguments.wait => {
            println!("virtualcluster.sublet.dev/{name} created and ready");
            eprintln!("Next: sublet connect {name} -n {namespace} -- kubectl get ns");
        }
        None => println!("virtualcluster.sublet.dev/{name} created"),
    }
    Ok(ExitCode::SUCCESS)
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is no KEY=VALUE"))?;
    Ok((key.into(), value.into()))
}

/// Waits for the Ready condition, showing what the cluster waits for.
pub async fn wait_ready(host: &Client, name: &NameArguments, timeout: Duration) -> Result<Value> {
    output::wait(format!("waiting for {}", name.name), timeout, Duration::from_millis(50), async || {
        let cluster = clusters::find(host, name).await?;
        if clusters::ready(&cluster) == "True" {
            return Ok(Look::Done(cluster));
        }
        let message = clusters::message(&cluster);
        Ok(Look::NotYet {
            shown: format!("{}: {message}", name.name),
            error: format!(
                "virtual cluster `{}` is not ready after {}s: {message}; see `sublet describe {} -n {}`",
                name.name,
                timeout.as_secs(),
                name.name,
                name.namespace
            ),
        })
    })
    .await
}
