//! The same workloads under the same names in both tenants.

use super::{ALPHA, BETA, Story};
use crate::Cluster;
use crate::objects;
use crate::wait::eventually;
use anyhow::{Result, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::ListOptions;
use sublet_runtime::resources::{
    CONFIG_MAPS, DEPLOYMENTS, JOBS, NAMESPACES, PERSISTENT_VOLUME_CLAIMS, PODS, SECRETS, SERVICES, STATEFUL_SETS,
};

pub const NAMESPACE: &str = "prod";
/// Labels on host objects: which tenant, which of its namespaces, which name.
pub const LABEL_NAMESPACE: &str = "sublet.dev/namespace";
pub const LABEL_NAME: &str = "sublet.dev/name";

pub async fn run(story: &mut Story<'_>) -> Result<()> {
    let volumes = story.stage.has_volumes();
    for tenant in story.both()? {
        create_all(tenant, volumes).await?;
    }
    let patience = story.stage.patience_s();
    for (name, tenant) in [("alpha", story.alpha()?), ("beta", story.beta()?)] {
        deployment_ready(tenant, NAMESPACE, 3, patience).await?;
        reaches(tenant, &STATEFUL_SETS, "db", "/status/readyReplicas", 2, patience).await?;
        reaches(tenant, &JOBS, "once", "/status/succeeded", 1, patience).await?;
        if volumes {
            bound(tenant, "data-db-0", patience).await?;
            bound(tenant, "files", patience).await?;
        }
        story.report.fact(&format!(
            "{name}: Deployment web 3/3, StatefulSet db 2/2, Job once complete{}",
            if volumes { ", claims bound" } else { "" }
        ));
    }
    on_the_host(story).await
}

async fn create_all(tenant: &Cluster, volumes: bool) -> Result<()> {
    tenant.create(&NAMESPACES, &objects::namespace(NAMESPACE)).await?;
    let mut all: Vec<(Gvr, Value)> = vec![
        (CONFIG_MAPS, objects::config_map(NAMESPACE, "settings", "hello")),
        (SECRETS, objects::secret(NAMESPACE, "credentials")),
        (SERVICES, objects::service(NAMESPACE, "web", "web", false)),
        (SERVICES, objects::service(NAMESPACE, "db", "db", true)),
        (DEPLOYMENTS, objects::deployment(NAMESPACE, 3)),
        (STATEFUL_SETS, objects::stateful_set(NAMESPACE, volumes)),
        (JOBS, objects::job(NAMESPACE, volumes)),
    ];
    if volumes {
        all.push((PERSISTENT_VOLUME_CLAIMS, objects::claim(NAMESPACE, "files")));
    }
    for (gvr, object) in all {
        let created = tenant.create(&gvr, &object).await?;
        if gvr == SERVICES && object.name() == "web" {
            ensure!(created.str_at("/spec/clusterIP").is_some_and(|ip| !ip.is_empty()), "the reply to the Service has no cluster IP");
        }
    }
    Ok(())
}

/// Waits until a number in an object is reached.
pub async fn reaches(tenant: &Cluster, gvr: &Gvr, name: &str, pointer: &str, wanted: i64, seconds: u64) -> Result<()> {
    eventually(&format!("{} {name} {pointer} is {wanted}", gvr.resource), seconds, || async {
        let object = tenant.get(gvr, NAMESPACE, name).await?;
        let value = object.i64_at(pointer).unwrap_or(0);
        Ok(if value == wanted { Ok(()) } else { Err(format!("it is {value}; status {}", object["status"])) })
    })
    .await
}

pub async fn deployment_ready(tenant: &Cluster, namespace: &str, replicas: i64, seconds: u64) -> Result<()> {
    eventually(&format!("Deployment web has {replicas} updated ready pods"), seconds, || async {
        let object = tenant.get(&DEPLOYMENTS, namespace, "web").await?;
        let status = |field: &str| object["status"][field].as_i64().unwrap_or(0);
        let current = object.i64_at("/status/observedGeneration") == Some(object.generation());
        let settled = ["replicas", "updatedReplicas", "readyReplicas"].iter().all(|f| status(f) == replicas);
        Ok(if current && settled { Ok(()) } else { Err(object["status"].to_string()) })
    })
    .await
}

async fn bound(tenant: &Cluster, claim: &str, seconds: u64) -> Result<()> {
    eventually(&format!("claim {claim} is bound"), seconds, || async {
        let object = tenant.get(&PERSISTENT_VOLUME_CLAIMS, NAMESPACE, claim).await?;
        Ok(if object.str_at("/status/phase") == Some("Bound") { Ok(()) } else { Err(object["status"].to_string()) })
    })
    .await
}

pub fn from(label: &str, value: &str) -> ListOptions {
    ListOptions { label_selector: format!("{label}={value}"), ..ListOptions::default() }
}

async fn on_the_host(story: &Story<'_>) -> Result<()> {
    let mut seen: BTreeSet<(String, String)> = BTreeSet::new();
    for (namespace, name) in [ALPHA, BETA] {
        let pods = story.host.list(&PODS, namespace, &from(LABEL_NAMESPACE, NAMESPACE)).await?.items;
        ensure!(pods.len() >= 6, "{namespace} holds {} pods of {name}'s prod", pods.len());
        for pod in &pods {
            ensure!(pod.label("sublet.dev/virtual-cluster") == Some(name), "pod {} does not say whose it is", pod.name());
            ensure!(seen.insert((namespace.into(), pod.name().into())), "two pods are called {}", pod.name());
        }
        let services = story.host.list(&SERVICES, namespace, &from(LABEL_NAME, "web")).await?.items;
        ensure!(services.len() == 1, "{namespace} holds {} services web", services.len());
        let selector = services[0].object_at("/spec/selector").cloned().unwrap_or_default();
        ensure!(selector.get(LABEL_NAMESPACE).is_some(), "the host Service selects beyond its tenant namespace: {selector:?}");
        story.report.fact(&format!("{namespace} on the host: {} pods such as {}", pods.len(), pods[0].name()));
    }
    Ok(())
}
