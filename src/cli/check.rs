//! `sublet check`

use super::host::HostArguments;
use super::output;
use crate::install::{OPERATOR, SHARD};
use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::Value;
use std::process::ExitCode;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::resources::{
    CUSTOM_RESOURCE_DEFINITIONS, DEPLOYMENTS, INGRESS_CLASSES, NODES, SERVICES, STATEFUL_SETS, STORAGE_CLASSES,
};
use sublet_runtime::{Client, ListOptions};

/// The oldest host that copies are made for; the newest is what tenants are served.
const HOST_MINOR_MIN: u32 = 33;
const TENANT_MINOR: u32 = 37;

#[derive(Args)]
#[command(after_help = "Ends with 1 when something is missing that an installation needs.")]
pub struct Arguments {
    #[command(flatten)]
    host: HostArguments,
    /// The namespace of the installation
    #[arg(long, default_value = "sublet-system", value_name = "NAMESPACE")]
    namespace: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Ok,
    /// Something will not work; the rest does.
    Note,
    Fail,
}

struct Finding {
    subject: &'static str,
    verdict: Verdict,
    message: String,
}

fn finding(subject: &'static str, verdict: Verdict, message: impl Into<String>) -> Finding {
    Finding { subject, verdict, message: message.into() }
}

pub async fn run(arguments: Arguments) -> Result<ExitCode> {
    let host = arguments.host.client().await?;
    let version = host.get_raw("/version").await.context("the host does not answer")?;
    let mut all = vec![check_version(&version)];
    all.push(rights(&host).await?);
    all.push(nodes(&items(&host, &NODES).await?));
    all.push(storage(&items(&host, &STORAGE_CLASSES).await?));
    all.push(dns(&host).await?);
    all.push(ingress(&items(&host, &INGRESS_CLASSES).await?));
    all.extend(groups(&host).await?);
    all.push(finding(
        "network policy",
        Verdict::Note,
        "whether policies are enforced depends on the network plugin, and cannot be seen from here",
    ));
    all.push(installation(&host, &arguments.namespace).await?);
    let rows: Vec<Vec<String>> =
        all.iter().map(|f| vec![f.subject.to_string(), format!("{:?}", f.verdict).to_uppercase(), f.message.clone()]).collect();
    print!("{}", output::columns(&["CHECK", "RESULT", "MESSAGE"], &rows));
    Ok(if all.iter().any(|f| f.verdict == Verdict::Fail) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// An empty list where the host does not let us read.
async fn items(host: &Client, gvr: &Gvr) -> Result<Vec<Value>> {
    match host.list(gvr, "", &ListOptions::default()).await {
        Ok(list) => Ok(list.items),
        Err(error) if error.api().is_some_and(|e| matches!(e.code, 403 | 404)) => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", gvr.resource)),
    }
}

fn check_version(version: &Value) -> Finding {
    let text = version["gitVersion"].as_str().unwrap_or_default();
    let minor: u32 = version["minor"].as_str().unwrap_or_default().trim_end_matches('+').parse().unwrap_or_default();
    match minor {
        m if m < HOST_MINOR_MIN => finding("version", Verdict::Fail, format!("{text}: at least 1.{HOST_MINOR_MIN} is needed")),
        TENANT_MINOR => finding("version", Verdict::Ok, text),
        m if m < TENANT_MINOR => finding(
            "version",
            Verdict::Note,
            format!("{text} is older than the 1.{TENANT_MINOR} that tenants see: fields that it does not know have no effect"),
        ),
        _ => finding("version", Verdict::Note, format!("{text} is newer than the 1.{TENANT_MINOR} that tenants see")),
    }
}

/// What an installation does that only an administrator may.
async fn rights(host: &Client) -> Result<Finding> {
    let needed = [
        ("create", "", "namespaces"),
        ("create", "apiextensions.k8s.io", "customresourcedefinitions"),
        ("create", "rbac.authorization.k8s.io", "clusterroles"),
        ("escalate", "rbac.authorization.k8s.io", "clusterroles"),
        ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
        ("bind", "rbac.authorization.k8s.io", "clusterroles"),
        ("create", "apps", "deployments"),
        ("create", "apps", "statefulsets"),
    ];
    let mut missing = Vec::new();
    for (verb, group, resource) in needed {
        if !host.may(verb, group, resource).await.context("cannot ask for our rights")? {
            missing.push(format!("{verb} {resource}"));
        }
    }
    Ok(match missing.is_empty() {
        true => finding("rights", Verdict::Ok, "this user may install"),
        false => finding("rights", Verdict::Fail, format!("this user may not {}; installing needs an administrator", missing.join(", "))),
    })
}

fn nodes(all: &[Value]) -> Finding {
    let ready = |n: &&Value| n.is_condition_true("Ready");
    let fits = |n: &&Value| matches!(n.str_at("/status/nodeInfo/architecture"), Some("amd64" | "arm64"));
    let usable = all.iter().filter(ready).filter(fits).count();
    match usable {
        0 => finding("nodes", Verdict::Fail, "no ready node of architecture amd64 or arm64"),
        1 => finding("nodes", Verdict::Note, "one ready node: nothing survives its loss"),
        n => finding("nodes", Verdict::Ok, format!("{n} ready")),
    }
}

fn storage(classes: &[Value]) -> Finding {
    let is_default = |c: &&Value| c.annotation("storageclass.kubernetes.io/is-default-class") == Some("true");
    match classes.iter().find(is_default) {
        Some(class) => finding("storage", Verdict::Ok, format!("default class `{}`", class.name())),
        None if classes.is_empty() => finding(
            "storage",
            Verdict::Note,
            "no storage class: shards need volumes made by hand, or `sublet install --empty-dir` for a trial",
        ),
        None => finding("storage", Verdict::Note, "no default class: give one with `sublet install --storage-class`"),
    }
}

async fn dns(host: &Client) -> Result<Finding> {
    let found = host.get_opt(&SERVICES, "kube-system", "kube-dns").await.unwrap_or_default();
    Ok(match found {
        Some(service) => {
            finding("dns", Verdict::Ok, format!("kube-system/kube-dns at {}", service.str_at("/spec/clusterIP").unwrap_or("?")))
        }
        None => finding(
            "dns",
            Verdict::Note,
            "no Service kube-system/kube-dns: kubeconfig Secrets name a Service, which pods must be able to resolve",
        ),
    })
}

fn ingress(classes: &[Value]) -> Finding {
    match classes.is_empty() {
        true => finding("ingress", Verdict::Note, "no IngressClass: Ingresses of tenants have nobody to serve them"),
        false => finding("ingress", Verdict::Ok, classes.iter().map(ObjectExt::name).collect::<Vec<_>>().join(", ")),
    }
}

/// API groups that tenants profit from.
async fn groups(host: &Client) -> Result<Vec<Finding>> {
    let served = host.get_raw("/apis").await.context("cannot read what the host serves")?;
    let has = |group: &str| served.array_at("/groups").iter().any(|g| g["name"] == group);
    let wanted = [
        ("metrics", "metrics.k8s.io", "`kubectl top` has no figures"),
        ("gateway", "gateway.networking.k8s.io", "Gateways of tenants have nobody to serve them"),
        ("snapshots", "snapshot.storage.k8s.io", "volumes cannot be snapshotted"),
    ];
    Ok(wanted
        .into_iter()
        .map(|(subject, group, without)| match has(group) {
            true => finding(subject, Verdict::Ok, group),
            false => finding(subject, Verdict::Note, format!("{group} is not served: {without}")),
        })
        .collect())
}

async fn installation(host: &Client, namespace: &str) -> Result<Finding> {
    let definition = host.get_opt(&CUSTOM_RESOURCE_DEFINITIONS, "", "virtualclusters.sublet.dev").await.unwrap_or_default();
    let operator = host.get_opt(&DEPLOYMENTS, namespace, OPERATOR).await.unwrap_or_default();
    let shard = host.get_opt(&STATEFUL_SETS, namespace, SHARD).await.unwrap_or_default();
    let (Some(_), Some(operator), Some(shard)) = (definition, operator, shard) else {
        return Ok(finding("installation", Verdict::Note, format!("not in namespace `{namespace}`; `sublet install` installs")));
    };
    let ready = |w: &Value| w.i64_at("/status/readyReplicas").unwrap_or(0);
    let message = format!("{} operators and {} shards are ready", ready(&operator), ready(&shard));
    Ok(finding("installation", if ready(&operator) > 0 && ready(&shard) > 0 { Verdict::Ok } else { Verdict::Fail }, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_old_host_is_refused_and_a_different_one_is_noted() {
        let verdict = |minor: &str| check_version(&json!({"gitVersion": "v", "minor": minor})).verdict;
        assert_eq!(
            [verdict("32"), verdict("36+"), verdict("37"), verdict("39")],
            [Verdict::Fail, Verdict::Note, Verdict::Ok, Verdict::Note]
        );
    }

    #[test]
    fn a_missing_default_class_is_told_before_shards_hang() {
        let class =
            |default: &str| json!({"metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": default}}});
        assert_eq!(storage(&[class("true")]).verdict, Verdict::Ok);
        assert!(storage(&[class("false")]).message.contains("--storage-class"));
        assert!(storage(&[]).message.contains("--empty-dir"));
    }
}
