//! Names as long as they may be, and pairs that collide when joined naively.

use super::workloads::{LABEL_NAMESPACE, from};
use super::{ALPHA, Story};
use crate::objects;
use crate::wait::eventually;
use anyhow::{Result, ensure};
use std::collections::BTreeSet;
use sublet_machinery::ObjectExt;
use sublet_runtime::DeleteOptions;
use sublet_runtime::resources::{NAMESPACES, PODS};

pub async fn hold(story: &mut Story<'_>) -> Result<()> {
    let (host, alpha, patience) = (&story.host, story.alpha()?, story.stage.patience_s());
    let long_namespace = "n".repeat(63);
    let pairs = [
        (long_namespace.as_str(), "p".repeat(63)),
        ("team", "web-x-team".into()),
        ("x-team", "web".into()),
        ("a-b", "c".into()),
        ("a", "b-c".into()),
    ];
    for (namespace, name) in &pairs {
        if alpha.get_opt(&NAMESPACES, "", namespace).await?.is_none() {
            alpha.create(&NAMESPACES, &objects::namespace(namespace)).await?;
        }
        // The default account is made by a controller; pods need it.
        eventually("the default service account", 20, || async {
            let account = alpha.get_opt(&sublet_runtime::resources::SERVICE_ACCOUNTS, namespace, "default").await?;
            Ok(account.map(|_| ()).ok_or_else(|| "not there".into()))
        })
        .await?;
        alpha.create(&PODS, &objects::pod(namespace, name)).await?;
    }
    let mut host_names = BTreeSet::new();
    for (namespace, name) in &pairs {
        eventually(&format!("pod {namespace}/{name} runs"), patience, || async {
            let pod = alpha.get(&PODS, namespace, name).await?;
            Ok(if pod.str_at("/status/phase") == Some("Running") { Ok(()) } else { Err(pod["status"].to_string()) })
        })
        .await?;
        let label = if namespace.len() > 50 { None } else { Some(*namespace) };
        if let Some(label) = label {
            for pod in host.list(&PODS, ALPHA.0, &from(LABEL_NAMESPACE, label)).await?.items {
                host_names.insert(pod.name().to_string());
            }
        }
    }
    ensure!(host_names.len() == 4, "four pods have {} host names: {host_names:?}", host_names.len());
    story.report.fact("a 63-character pod in a 63-character namespace runs, and look-alikes stay apart");
    for (namespace, _) in &pairs {
        alpha.delete(&NAMESPACES, "", namespace, &DeleteOptions::default()).await?;
    }
    for (namespace, _) in &pairs {
        eventually(&format!("namespace {namespace} is gone"), patience.max(60), || async {
            let left = alpha.get_opt(&NAMESPACES, "", namespace).await?;
            Ok(left.map_or(Ok(()), |n| Err(n["status"].to_string())))
        })
        .await?;
    }
    story.report.fact("their namespaces are deleted with everything in them");
    Ok(())
}
