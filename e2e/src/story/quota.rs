//! What the host refuses is told on the tenant's object, in the tenant's words.

use super::{ALPHA, Story};
use crate::objects;
use crate::wait::eventually;
use anyhow::Result;
use serde_json::json;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{EVENTS, PODS, RESOURCE_QUOTAS};
use sublet_runtime::{DeleteOptions, ListOptions};

pub async fn is_told(story: &mut Story<'_>) -> Result<()> {
    let (host, alpha, patience) = (&story.host, story.alpha()?, story.stage.patience_s());
    let pods = host.list(&PODS, ALPHA.0, &ListOptions::default()).await?.items;
    // Ended pods do not count.
    let used = pods.iter().filter(|p| !matches!(p.str_at("/status/phase"), Some("Succeeded" | "Failed"))).count();
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "cap", "namespace": ALPHA.0}, "spec": {"hard": {"pods": used.to_string()}},
    });
    host.create(&RESOURCE_QUOTAS, &quota).await?;
    eventually("the quota is counted", 30, || async {
        let quota = host.get(&RESOURCE_QUOTAS, ALPHA.0, "cap").await?;
        Ok(if quota["status"]["used"]["pods"].is_string() { Ok(()) } else { Err(quota["status"].to_string()) })
    })
    .await?;
    alpha.create(&PODS, &objects::pod("default", "one-too-many")).await?;
    let message = eventually("the tenant reads why its pod does not run", 30, || async {
        let pod = alpha.get(&PODS, "default", "one-too-many").await?;
        let events = alpha.list(&EVENTS, "default", &ListOptions::default()).await?.items;
        let event = events.iter().find(|e| e.str_at("/involvedObject/name") == Some("one-too-many") && e["type"] == "Warning");
        let condition = pod
            .array_at("/status/conditions")
            .iter()
            .any(|c| c["status"] == "False" && c["message"].as_str().is_some_and(|m| m.contains("quota")));
        Ok(match event {
            Some(event) if condition => Ok(event["message"].as_str().unwrap_or_default().to_string()),
            _ => Err(format!("event {:?}, conditions {}", event.map(|e| &e["message"]), pod["status"]["conditions"])),
        })
    })
    .await?;
    story.report.fact(&format!("refused: {message}"));
    host.delete(&RESOURCE_QUOTAS, ALPHA.0, "cap", &DeleteOptions::default()).await?;
    eventually("the pod runs once the quota is lifted", patience.max(60), || async {
        let pod = alpha.get(&PODS, "default", "one-too-many").await?;
        Ok(if pod.str_at("/status/phase") == Some("Running") { Ok(()) } else { Err(pod["status"].to_string()) })
    })
    .await?;
    story.report.fact("lifted: it runs");
    Ok(())
}
