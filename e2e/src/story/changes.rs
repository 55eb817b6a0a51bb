//! Edits reach the host, and damage on the host is repaired from the tenant.

use super::workloads::{LABEL_NAME, LABEL_NAMESPACE, NAMESPACE, deployment_ready, from};
use super::{ALPHA, Story};
use crate::objects;
use crate::wait::eventually;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{CONFIG_MAPS, DEPLOYMENTS, PODS, SERVICES};
use sublet_runtime::{DeleteOptions, ListOptions};

pub async fn follow(story: &mut Story<'_>) -> Result<()> {
    let (host, alpha, patience) = (&story.host, story.alpha()?, story.stage.patience_s());
    let foreign = foreign_pod(story).await?;

    alpha.merge_patch(&DEPLOYMENTS, NAMESPACE, "web", json!({"spec": {"replicas": 5}})).await?;
    deployment_ready(alpha, NAMESPACE, 5, patience).await?;
    story.report.fact("scaled to 5");

    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": objects::IMAGE_NEXT}]}}}});
    let options = sublet_runtime::PatchOptions::default();
    alpha.patch(&DEPLOYMENTS, NAMESPACE, "web", "", &sublet_runtime::Patch::Strategic(image), &options).await?;
    deployment_ready(alpha, NAMESPACE, 5, patience).await?;
    eventually("host pods run the new image", patience, || async {
        let pods = host.list(&PODS, ALPHA.0, &from("app", "web")).await?.items;
        let old = pods.iter().filter(|p| p.str_at("/spec/containers/0/image") != Some(objects::IMAGE_NEXT)).count();
        Ok(if old == 0 && pods.len() == 5 { Ok(()) } else { Err(format!("{old} of {} are old", pods.len())) })
    })
    .await?;
    story.report.fact("rolled to a new image");

    let pods = alpha.list(&PODS, NAMESPACE, &from("app", "web")).await?.items;
    // The last of the old pods may still be on its way out.
    let current = |p: &&Value| !p.is_deleting() && p.str_at("/spec/containers/0/image") == Some(objects::IMAGE_NEXT);
    let victim = pods.iter().find(current).context("no pod to delete")?.clone();
    alpha.delete(&PODS, NAMESPACE, victim.name(), &DeleteOptions::default()).await?;
    eventually("the deleted pod is replaced", patience, || async {
        let gone = alpha.get_opt(&PODS, NAMESPACE, victim.name()).await?.is_none_or(|p| p.uid() != victim.uid());
        let on_host = host.list(&PODS, ALPHA.0, &from(LABEL_NAME, victim.name())).await?.items;
        Ok(if gone && on_host.is_empty() { Ok(()) } else { Err(format!("gone {gone}, on host {}", on_host.len())) })
    })
    .await?;
    deployment_ready(alpha, NAMESPACE, 5, patience).await?;
    story.report.fact("a deleted pod is gone on the host and replaced");

    alpha.merge_patch(&CONFIG_MAPS, NAMESPACE, "settings", json!({"data": {"greeting": "good evening"}})).await?;
    eventually("the edited ConfigMap reaches the host", 20, || async {
        let copies = host.list(&CONFIG_MAPS, ALPHA.0, &from(LABEL_NAME, "settings")).await?.items;
        let value = copies.first().and_then(|c| c.str_at("/data/greeting")).unwrap_or_default().to_string();
        Ok(if value == "good evening" { Ok(()) } else { Err(value) })
    })
    .await?;
    story.report.fact("an edited ConfigMap follows");

    service_comes_back(story).await?;
    let still = host.get(&PODS, ALPHA.0, "foreign").await?;
    ensure!(still.uid() == foreign && !still.is_deleting(), "the foreign pod was touched");
    story.report.fact("a foreign pod in the namespace is left alone");
    host.delete_if_exists(&PODS, ALPHA.0, "foreign", &DeleteOptions::now()).await?;
    Ok(())
}

async fn foreign_pod(story: &Story<'_>) -> Result<String> {
    let mut pod = objects::pod(ALPHA.0, "foreign");
    // It looks like one of ours, and is not.
    pod.set_label(LABEL_NAMESPACE, NAMESPACE);
    pod.set_label("sublet.dev/managed-by", "sublet");
    Ok(story.host.create(&PODS, &pod).await?.uid().to_string())
}

async fn service_comes_back(story: &Story<'_>) -> Result<()> {
    let (host, alpha) = (&story.host, story.alpha()?);
    let original = alpha.get(&SERVICES, NAMESPACE, "web").await?;
    let list = |options: ListOptions| async move { host.list(&SERVICES, ALPHA.0, &options).await.map(|l| l.items) };
    let copy = list(from(LABEL_NAME, "web")).await?.into_iter().next().context("no host copy of the Service")?;
    host.delete(&SERVICES, ALPHA.0, copy.name(), &DeleteOptions::default()).await?;
    eventually("the host Service is made again", 20, || async {
        let again = list(from(LABEL_NAME, "web")).await?.into_iter().find(|s| s.uid() != copy.uid());
        Ok(again.map(|_| ()).ok_or_else(|| "not there".into()))
    })
    .await?;
    let after = alpha.get(&SERVICES, NAMESPACE, "web").await?;
    ensure!(after.uid() == original.uid(), "the tenant's Service was replaced");
    story.report.fact("a Service deleted on the host comes back, the tenant's own is untouched");
    Ok(())
}
