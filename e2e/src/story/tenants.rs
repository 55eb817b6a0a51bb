//! Two virtual clusters, and that they are apart.

use super::{ALPHA, BETA, Story};
use crate::objects;
use crate::wait::eventually;
use anyhow::{Result, ensure};
use std::time::Instant;
use sublet_machinery::{ObjectExt, Reason};
use sublet_runtime::ListOptions;
use sublet_runtime::resources::{NAMESPACES, VIRTUAL_CLUSTERS};

pub async fn create(story: &mut Story<'_>) -> Result<()> {
    for (namespace, name) in [ALPHA, BETA] {
        if story.host.get_opt(&NAMESPACES, "", namespace).await?.is_none() {
            story.host.create(&NAMESPACES, &objects::namespace(namespace)).await?;
            story.made.push(namespace);
        }
        let started = Instant::now();
        story.host.create(&VIRTUAL_CLUSTERS, &objects::virtual_cluster(namespace, name)).await?;
        wait_ready(story, namespace, name).await?;
        story.report.fact(&format!("{namespace}/{name} is ready after {} ms", started.elapsed().as_millis()));
    }
    story.reconnect().await
}

pub async fn wait_ready(story: &Story<'_>, namespace: &str, name: &str) -> Result<()> {
    eventually(&format!("virtual cluster {name} is ready"), 60, || async {
        let cluster = story.host.get(&VIRTUAL_CLUSTERS, namespace, name).await?;
        let ready = cluster.condition("Ready");
        Ok(match ready {
            Some(condition) if condition["status"] == "True" => Ok(()),
            Some(condition) => Err(condition["message"].to_string()),
            None => Err("no conditions".into()),
        })
    })
    .await
}

pub async fn are_apart(story: &mut Story<'_>) -> Result<()> {
    let (alpha, beta) = (story.alpha()?, story.beta()?);
    alpha.create(&NAMESPACES, &objects::namespace("only-in-alpha")).await?;
    let names = |items: Vec<serde_json::Value>| items.iter().map(|n| n.name().to_string()).collect::<Vec<_>>();
    let of_alpha = names(alpha.list(&NAMESPACES, "", &ListOptions::default()).await?.items);
    let of_beta = names(beta.list(&NAMESPACES, "", &ListOptions::default()).await?.items);
    ensure!(of_alpha.contains(&"only-in-alpha".into()), "alpha lacks its own namespace: {of_alpha:?}");
    ensure!(!of_alpha.contains(&"team-a".into()), "alpha sees the host's namespaces: {of_alpha:?}");
    ensure!(of_beta == ["default", "kube-node-lease", "kube-public", "kube-system"], "beta sees {of_beta:?}");
    story.report.fact(&format!("alpha sees {}", of_alpha.join(", ")));
    story.report.fact(&format!("beta sees {}", of_beta.join(", ")));
    // The identity of one tenant means nothing to the other: its certificate is from another authority.
    let crossed = cross_kubeconfig(&alpha.kubeconfig, &beta.kubeconfig);
    let stranger = crate::Cluster::from_text(&crossed).await?;
    let answer = stranger.list(&NAMESPACES, "", &ListOptions::default()).await;
    let refused = match &answer {
        Ok(_) => false,
        Err(error) => error.api().is_none_or(|e| matches!(e.reason, Reason::Unauthorized | Reason::Forbidden)),
    };
    ensure!(refused, "alpha accepts beta's client certificate");
    story.report.fact("alpha refuses beta's client certificate");
    Ok(())
}

/// The server of one kubeconfig with the user of the other.
fn cross_kubeconfig(server: &str, user: &str) -> String {
    let is_user =
        |line: &&str| line.trim_start().starts_with("client-certificate-data:") || line.trim_start().starts_with("client-key-data:");
    let mut users = user.lines().filter(is_user);
    server.lines().map(|line| if is_user(&line) { users.next().unwrap_or(line) } else { line }).collect::<Vec<_>>().join("\n") + "\n"
}
