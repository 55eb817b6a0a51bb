//! Creates many pods at once and tells how long the host takes to run and to remove them, beside the
//! time that the creates alone took: `cargo run -p sublet-host --example burst -- --kubeconfig FILE`.

use clap::Parser;
use futures::stream::{self, StreamExt};
use serde_json::json;
use std::time::{Duration, Instant};
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{NAMESPACES, PODS};
use sublet_runtime::{Client, DeleteOptions, Informer, ListOptions, Scope};
use tokio_util::sync::CancellationToken;

#[derive(Parser)]
struct Arguments {
    #[arg(long)]
    kubeconfig: std::path::PathBuf,
    #[arg(long, default_value_t = 500)]
    pods: usize,
    #[arg(long, default_value_t = 32)]
    clients: usize,
}

const NAMESPACE: &str = "burst";
const POLL: Duration = Duration::from_millis(10);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let kubeconfig = kube::config::Kubeconfig::read_from(&arguments.kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await?;
    let client = Client::new(kube::Client::try_from(config)?, "burst");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    if let Err(error) = client.create(&NAMESPACES, &namespace).await
        && !error.is_already_exists()
    {
        return Err(error.into());
    }
    let informer = Informer::new(PODS, Scope { namespace: NAMESPACE.into(), ..Scope::default() });
    let cancel = CancellationToken::new();
    let watching = tokio::spawn(informer.clone().run(client.clone(), cancel.clone()));
    informer.wait_synced().await;

    let started = Instant::now();
    let failures = stream::iter(0..arguments.pods)
        .map(|i| {
            let client = client.clone();
            async move { client.create(&PODS, &pod(i)).await.is_err() }
        })
        .buffer_unordered(arguments.clients)
        .filter(|failed| futures::future::ready(*failed))
        .count()
        .await;
    let created = started.elapsed();
    let wanted = arguments.pods - failures;
    let running = |pod: &serde_json::Value| pod.str_at("/status/phase") == Some("Running");
    while informer.list(None).iter().filter(|p| running(p)).count() < wanted {
        tokio::time::sleep(POLL).await;
    }
    let ran = started.elapsed();
    println!(
        "{wanted} pods ({failures} refused): created in {created:.2?}, all running after {ran:.2?}, {:.0} a second, {:.2} times the creates",
        wanted as f64 / ran.as_secs_f64(),
        ran.as_secs_f64() / created.as_secs_f64()
    );

    let started = Instant::now();
    client.delete_collection(&PODS, NAMESPACE, &ListOptions::default(), &DeleteOptions::background()).await?;
    let asked = started.elapsed();
    while !informer.is_empty() {
        tokio::time::sleep(POLL).await;
    }
    println!("deletion asked in {asked:.2?}, all gone after {:.2?}", started.elapsed());
    cancel.cancel();
    watching.await?;
    Ok(())
}

fn pod(index: usize) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{index}"), "namespace": NAMESPACE, "labels": {"app": "burst"}},
        "spec": {
            "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "10m", "memory": "10Mi"}}}],
        },
    })
}
