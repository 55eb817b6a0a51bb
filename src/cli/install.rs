//! `sublet install`

use super::host::HostArguments;
use super::output::{self, Look};
use crate::install::{self, OPERATOR, Options, SHARD, Storage};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::Client;
use sublet_runtime::resources::{
    CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, CUSTOM_RESOURCE_DEFINITIONS, DEPLOYMENTS, NAMESPACES, POD_DISRUPTION_BUDGETS, ROLE_BINDINGS,
    ROLES, SERVICE_ACCOUNTS, SERVICES, STATEFUL_SETS,
};

const NETWORK_POLICIES: Gvr = Gvr::new("networking.k8s.io", "v1", "networkpolicies");
pub const FIELD_MANAGER: &str = "sublet-install";

#[derive(Args)]
#[command(after_help = "Applying again upgrades; virtual clusters go on meanwhile.

Examples:
  sublet check && sublet install
  sublet install --dry-run > sublet.yaml
  sublet install --empty-dir                  Without volumes: stores are gone with their pod")]
pub struct Arguments {
    #[command(flatten)]
    host: HostArguments,
    /// The namespace of the installation
    #[arg(long, default_value = "sublet-system", value_name = "NAMESPACE")]
    namespace: String,
    /// The image of all pods
    #[arg(long, default_value_t = Options::default().image, value_name = "NAME:TAG")]
    image: String,
    /// Operators, of which one leads
    #[arg(long, default_value_t = 2, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=5))]
    operators: u32,
    /// Processes that run the control planes of packed tenants
    #[arg(long, default_value_t = 1, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1000))]
    shards: u32,
    /// The storage class of the stores [default: that of the cluster]
    #[arg(long, default_value = "", value_name = "NAME", hide_default_value = true)]
    storage_class: String,
    /// The size of the volume of each shard
    #[arg(long, default_value = "10Gi", value_name = "QUANTITY")]
    storage_size: String,
    /// Keep stores in the pods of shards, for trials: they are gone with the pod
    #[arg(long, conflicts_with_all = ["storage_class", "storage_size"])]
    empty_dir: bool,
    /// Print what would be applied
    #[arg(long)]
    dry_run: bool,
    /// Do not wait until all pods are ready
    #[arg(long)]
    no_wait: bool,
    /// Give up waiting after this many seconds
    #[arg(long, default_value_t = 180, value_name = "SECONDS")]
    timeout: u64,
}

pub async fn run(arguments: Arguments) -> Result<ExitCode> {
    let options = Options {
        namespace: arguments.namespace.clone(),
        image: arguments.image.clone(),
        operators: json!(arguments.operators),
        shards: json!(arguments.shards),
        storage: match arguments.empty_dir {
            true => Storage::EmptyDir,
            false => Storage::Claim { class: arguments.storage_class.clone(), size: arguments.storage_size.clone() },
        },
        ..Options::default()
    };
    let parts = install::parts(&options);
    if arguments.dry_run {
        print!("{}", install::yaml(parts.all())?);
        return Ok(ExitCode::SUCCESS);
    }
    let host = arguments.host.client().await?.with_field_manager(FIELD_MANAGER);
    for object in parts.all() {
        apply(&host, object).await?;
        println!("{}/{} applied", object.kind().to_lowercase(), object.name());
    }
    if !arguments.no_wait {
        wait(&host, &options.namespace, Duration::from_secs(arguments.timeout)).await?;
        eprintln!("Next: sublet create alpha -n team-a --wait");
    }
    Ok(ExitCode::SUCCESS)
}

async fn apply(host: &Client, object: &Value) -> Result<()> {
    let what = format!("{} `{}`", object.kind(), object.name());
    match host.apply(&gvr(object.kind())?, object).await {
        Ok(_) => Ok(()),
        Err(error) if object.kind() == "StatefulSet" && error.api().is_some_and(|e| e.code == 422) => Err(error).with_context(|| {
            format!("cannot change {what}; the volumes of shards cannot be changed in place, so give the storage flags of the first installation")
        }),
        Err(error) => Err(error).with_context(|| format!("cannot apply {what}")),
    }
}

/// The resource of a kind that an installation consists of.
pub fn gvr(kind: &str) -> Result<Gvr> {
    Ok(match kind {
        "Namespace" => NAMESPACES,
        "CustomResourceDefinition" => CUSTOM_RESOURCE_DEFINITIONS,
        "ServiceAccount" => SERVICE_ACCOUNTS,
        "ClusterRole" => CLUSTER_ROLES,
        "ClusterRoleBinding" => CLUSTER_ROLE_BINDINGS,
        "Role" => ROLES,
        "RoleBinding" => ROLE_BINDINGS,
        "Deployment" => DEPLOYMENTS,
        "StatefulSet" => STATEFUL_SETS,
        "Service" => SERVICES,
        "PodDisruptionBudget" => POD_DISRUPTION_BUDGETS,
        "NetworkPolicy" => NETWORK_POLICIES,
        other => bail!("an installation has no {other}"),
    })
}

async fn wait(host: &Client, namespace: &str, timeout: Duration) -> Result<()> {
    output::wait("waiting for pods".into(), timeout, Duration::from_millis(250), async || {
        let operator = host.get(&DEPLOYMENTS, namespace, OPERATOR).await?;
        let shard = host.get(&STATEFUL_SETS, namespace, SHARD).await?;
        let waiting: Vec<String> = [&operator, &shard].into_iter().filter_map(not_ready).collect();
        if waiting.is_empty() {
            return Ok(Look::Done(()));
        }
        let shown = waiting.join(", ");
        let error = format!(
            "not ready after {}s: {shown}; see `kubectl -n {namespace} get pods` and `kubectl -n {namespace} describe pods`",
            timeout.as_secs()
        );
        Ok(Look::NotYet { shown, error })
    })
    .await
}

/// What a workload waits for.
fn not_ready(workload: &Value) -> Option<String> {
    let wanted = workload.i64_at("/spec/replicas").unwrap_or(1);
    let status = |field: &str| workload["status"][field].as_i64().unwrap_or(0);
    let current = status("observedGeneration") >= workload.generation();
    let (ready, updated) = (status("readyReplicas"), status("updatedReplicas"));
    (!current || ready < wanted || updated < wanted).then(|| format!("{} {ready}/{wanted} ready", workload.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_can_be_applied() {
        for object in install::parts(&Options::default()).all() {
            assert!(gvr(object.kind()).is_ok(), "{}", object.kind());
        }
    }

    #[test]
    fn a_rollout_that_has_not_begun_is_not_ready() {
        let mut workload = json!({
            "metadata": {"name": "x", "generation": 2}, "spec": {"replicas": 2},
            "status": {"observedGeneration": 1, "readyReplicas": 2, "updatedReplicas": 2},
        });
        assert_eq!(not_ready(&workload).unwrap(), "x 2/2 ready");
        workload["status"]["observedGeneration"] = json!(2);
        assert_eq!(not_ready(&workload), None);
    }
}
