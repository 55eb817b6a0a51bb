//! Everything stops and starts again: same objects, same pods.

use super::{ALPHA, BETA, Story};
use crate::wait::eventually;
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{DEPLOYMENTS, NAMESPACES, PODS, SERVICES, VIRTUAL_CLUSTERS};
use sublet_runtime::{Client, ListOptions};

/// How long a quiet system is watched after a restart.
const QUIET: Duration = Duration::from_secs(3);

pub async fn changes_nothing(story: &mut Story<'_>) -> Result<()> {
    let before = photograph(story).await?;
    let started = Instant::now();
    if !story.stage.restart().await? {
        story.report.fact("this stage cannot restart Sublet; nothing to see");
        return Ok(());
    }
    story.host = eventually("the host answers", 60, || async {
        let host = story.stage.host().await?;
        Ok(match host.list(&NAMESPACES, "", &ListOptions::default()).await {
            Ok(_) => Ok(host),
            Err(error) => Err(error.to_string()),
        })
    })
    .await?;
    story.reconnect().await?;
    for (namespace, name) in [ALPHA, BETA] {
        super::tenants::wait_ready(story, namespace, name).await?;
    }
    for tenant in story.both()? {
        eventually("the tenant answers", 60, || async {
            Ok(tenant.list(&NAMESPACES, "", &ListOptions::default()).await.map(|_| ()).map_err(|e| e.to_string()))
        })
        .await?;
    }
    story.report.fact(&format!("all answer again after {} ms", started.elapsed().as_millis()));
    tokio::time::sleep(QUIET).await;
    let after = photograph(story).await?;
    ensure!(before == after, "UIDs changed: {}", difference(&before, &after));
    story.report.fact(&format!("{} objects have the UIDs they had; no pod was made again", after.len()));
    Ok(())
}

type Photograph = BTreeMap<String, String>;

async fn photograph(story: &Story<'_>) -> Result<Photograph> {
    let mut all = Photograph::new();
    for (namespace, _) in [ALPHA, BETA] {
        add(&mut all, "host", &story.host, namespace, &[PODS, SERVICES, VIRTUAL_CLUSTERS]).await?;
    }
    add(&mut all, "alpha", story.alpha()?, "", &[PODS, SERVICES, NAMESPACES, DEPLOYMENTS]).await?;
    add(&mut all, "beta", story.beta()?, "", &[PODS, SERVICES, NAMESPACES, DEPLOYMENTS]).await?;
    Ok(all)
}

async fn add(all: &mut Photograph, place: &str, client: &Client, namespace: &str, kinds: &[sublet_machinery::Gvr]) -> Result<()> {
    for gvr in kinds {
        for object in client.list(gvr, namespace, &ListOptions::default()).await?.items {
            all.insert(format!("{place} {} {}/{}", gvr.resource, object.namespace(), object.name()), object.uid().to_string());
        }
    }
    Ok(())
}

fn difference(before: &Photograph, after: &Photograph) -> String {
    let lost = before.iter().filter(|(k, v)| after.get(*k) != Some(v)).map(|(k, _)| format!("-{k}"));
    let new = after.iter().filter(|(k, v)| before.get(*k) != Some(v)).map(|(k, _)| format!("+{k}"));
    lost.chain(new).take(8).collect::<Vec<_>>().join(", ")
}
