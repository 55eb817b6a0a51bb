//! `sublet uninstall`

use super::host::HostArguments;
use super::install::{FIELD_MANAGER, gvr};
use super::output::{self, Look};
use crate::install::{self, Options, SHARD};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::Value;
use std::process::ExitCode;
use std::time::Duration;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{NAMESPACES, PERSISTENT_VOLUME_CLAIMS, VIRTUAL_CLUSTERS};
use sublet_runtime::{Client, DeleteOptions, ListOptions};

#[derive(Args)]
#[command(after_help = "Refuses while there are virtual clusters, unless told what becomes of them.")]
pub struct Arguments {
    #[command(flatten)]
    host: HostArguments,
    /// The namespace of the installation
    #[arg(long, default_value = "sublet-system", value_name = "NAMESPACE")]
    namespace: String,
    /// Delete all virtual clusters first, with everything in them
    #[arg(long, conflicts_with = "leave_tenants")]
    delete_tenants: bool,
    /// Leave virtual clusters as they are: their pods go on, their API servers end, their stores stay
    #[arg(long)]
    leave_tenants: bool,
    /// Delete the volumes with the stores, and the namespace
    #[arg(long, conflicts_with = "leave_tenants")]
    delete_stores: bool,
    /// Give up waiting for virtual clusters, and for the namespace, after this many seconds
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    timeout: u64,
}

pub async fn run(arguments: Arguments) -> Result<ExitCode> {
    let host = arguments.host.client().await?.with_field_manager(FIELD_MANAGER);
    let tenants = tenants(&host).await?;
    if !tenants.is_empty() && !arguments.leave_tenants {
        if !arguments.delete_tenants {
            let names: Vec<String> = tenants.iter().take(5).map(|t| format!("{}/{}", t.namespace(), t.name())).collect();
            bail!(
                "there are {} virtual clusters ({}{}); give --delete-tenants to delete them and everything in them, or --leave-tenants",
                tenants.len(),
                names.join(", "),
                if tenants.len() > names.len() { ", ..." } else { "" }
            );
        }
        delete_tenants(&host, &tenants, Duration::from_secs(arguments.timeout)).await?;
    }
    let options = Options { namespace: arguments.namespace.clone(), ..Options::default() };
    let parts = install::parts(&options);
    for object in parts.all().rev() {
        let keep = match object.kind() {
            "Namespace" => true,
            "CustomResourceDefinition" => arguments.leave_tenants,
            _ => false,
        };
        if !keep {
            delete(&host, object).await?;
        }
    }
    if arguments.delete_stores {
        delete_claims(&host, &options.namespace).await?;
        delete_namespace(&host, &options.namespace, Duration::from_secs(arguments.timeout)).await?;
    } else {
        eprintln!("Namespace `{}` stays, and the volumes of shards in it; --delete-stores deletes them.", options.namespace);
    }
    Ok(ExitCode::SUCCESS)
}

async fn tenants(host: &Client) -> Result<Vec<Value>> {
    match host.list(&VIRTUAL_CLUSTERS, "", &ListOptions::default()).await {
        Ok(list) => Ok(list.items),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error).context("cannot read virtual clusters"),
    }
}

/// The operator is still there to do it.
async fn delete_tenants(host: &Client, all: &[Value], timeout: Duration) -> Result<()> {
    for tenant in all {
        let options = DeleteOptions::background().uid(tenant.uid());
        host.delete_if_exists(&VIRTUAL_CLUSTERS, tenant.namespace(), tenant.name(), &options).await?;
    }
    output::wait("deleting virtual clusters".into(), timeout, Duration::from_millis(250), async || {
        let left = tenants(host).await?;
        let Some(first) = left.first() else { return Ok(Look::Done(())) };
        Ok(Look::NotYet {
            shown: format!("deleting virtual clusters: {} left", left.len()),
            error: format!(
                "{} virtual clusters are left after {}s, `{}/{}` because: {}",
                left.len(),
                timeout.as_secs(),
                first.namespace(),
                first.name(),
                super::clusters::message(first)
            ),
        })
    })
    .await
}

async fn delete(host: &Client, object: &Value) -> Result<()> {
    let what = format!("{}/{}", object.kind().to_lowercase(), object.name());
    let options = DeleteOptions::background();
    match host.delete(&gvr(object.kind())?, object.namespace(), object.name(), &options).await {
        Ok(_) => println!("{what} deleted"),
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error).with_context(|| format!("cannot delete {what}")),
    }
    Ok(())
}

/// Until it is gone: who installs again right away would be refused.
async fn delete_namespace(host: &Client, name: &str, timeout: Duration) -> Result<()> {
    host.delete_if_exists(&NAMESPACES, "", name, &DeleteOptions::background()).await?;
    output::wait(format!("deleting namespace {name}"), timeout, Duration::from_millis(250), async || {
        let Some(left) = host.get_opt(&NAMESPACES, "", name).await? else { return Ok(Look::Done(())) };
        let conditions = left.array_at("/status/conditions").iter().filter(|c| c["status"] == "True");
        let why: Vec<&str> = conditions.filter_map(|c| c["message"].as_str()).collect();
        Ok(Look::NotYet {
            shown: format!("deleting namespace {name}"),
            error: format!("namespace `{name}` is left after {}s: {}", timeout.as_secs(), why.join("; ")),
        })
    })
    .await?;
    println!("namespace/{name} deleted");
    Ok(())
}

async fn delete_claims(host: &Client, namespace: &str) -> Result<()> {
    for claim in host.list(&PERSISTENT_VOLUME_CLAIMS, namespace, &ListOptions::default()).await?.items {
        if claim.name().starts_with(&format!("stores-{SHARD}-")) {
            host.delete_if_exists(&PERSISTENT_VOLUME_CLAIMS, namespace, claim.name(), &DeleteOptions::background()).await?;
            println!("persistentvolumeclaim/{} deleted", claim.name());
        }
    }
    Ok(())
}
