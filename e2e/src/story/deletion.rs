//! Deleting a virtual cluster leaves nothing of it on the host, and its neighbour alone.

use super::{ALPHA, BETA, Story};
use crate::wait::eventually;
use anyhow::{Result, ensure};
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{
    CONFIG_MAPS, ENDPOINT_SLICES, NAMESPACES, PERSISTENT_VOLUME_CLAIMS, PODS, SECRETS, SERVICES, VIRTUAL_CLUSTERS,
};
use sublet_runtime::{Client, DeleteOptions, ListOptions};

pub async fn leaves_nothing(story: &mut Story<'_>) -> Result<()> {
    let host = &story.host;
    let of_beta = uids(story, BETA.0).await?;
    host.delete(&VIRTUAL_CLUSTERS, ALPHA.0, ALPHA.1, &DeleteOptions::default()).await?;
    eventually("alpha is gone", story.stage.patience_s().max(90), || async {
        let left = host.get_opt(&VIRTUAL_CLUSTERS, ALPHA.0, ALPHA.1).await?;
        Ok(left.map_or(Ok(()), |cluster| {
            let message = cluster.condition("Ready").map(|c| c["message"].to_string());
            Err(message.unwrap_or_default())
        }))
    })
    .await?;
    for gvr in [PODS, SERVICES, CONFIG_MAPS, SECRETS, PERSISTENT_VOLUME_CLAIMS, ENDPOINT_SLICES] {
        let left: Vec<String> = host
            .list(&gvr, ALPHA.0, &ListOptions::default())
            .await?
            .items
            .iter()
            .filter(|o| o.labels().is_some_and(|l| l.keys().any(|k| k.starts_with("sublet.dev/"))))
            .map(|o| o.name().to_string())
            .collect();
        ensure!(left.is_empty(), "{} of alpha remain: {left:?}", gvr.resource);
    }
    story.report.fact("team-a holds nothing of alpha");
    ensure!(uids(story, BETA.0).await? == of_beta, "beta's host objects changed");
    story.beta()?.list(&PODS, "", &ListOptions::default()).await?;
    story.report.fact("beta runs on unaffected");
    Ok(())
}

/// Deletes a namespace of the story: its virtual clusters first, while somebody is there to do it.
pub async fn clear(host: &Client, namespace: &str, seconds: u64) -> Result<()> {
    for cluster in host.list(&VIRTUAL_CLUSTERS, namespace, &ListOptions::default()).await?.items {
        host.delete_if_exists(&VIRTUAL_CLUSTERS, namespace, cluster.name(), &DeleteOptions::default()).await?;
    }
    eventually(&format!("the virtual clusters of {namespace} are gone"), seconds, || async {
        let left = host.list(&VIRTUAL_CLUSTERS, namespace, &ListOptions::default()).await?.items;
        Ok(if left.is_empty() { Ok(()) } else { Err(left[0]["status"]["conditions"].to_string()) })
    })
    .await?;
    host.delete_if_exists(&NAMESPACES, "", namespace, &DeleteOptions::default()).await?;
    eventually(&format!("namespace {namespace} is gone"), seconds, || async {
        let left = host.get_opt(&NAMESPACES, "", namespace).await?;
        Ok(left.map_or(Ok(()), |namespace| Err(namespace["status"].to_string())))
    })
    .await
}

async fn uids(story: &Story<'_>, namespace: &str) -> Result<Vec<String>> {
    let pods = story.host.list(&PODS, namespace, &ListOptions::default()).await?.items;
    Ok(pods.iter().map(|p| p.uid().to_string()).collect())
}
