//! Syncs one tenant to one host, both given by kubeconfig:
//! `sync TENANT_KUBECONFIG HOST_KUBECONFIG HOST_NAMESPACE NAME`.

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use sublet_runtime::{Client, Clock};
use sublet_syncer::{HostCache, HostHandle, HostScope, Layout, PodConfig, SyncRules, Syncer, SyncerConfig, TenantIdentity};
use tokio_util::sync::CancellationToken;

async fn client(path: &str) -> anyhow::Result<Client> {
    let kubeconfig = Kubeconfig::read_from(path)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::new(kube::Client::try_from(config)?, "sublet"))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).with_writer(std::io::stderr).init();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [tenant, host, namespace, name] = args.as_slice() else { anyhow::bail!("usage: sync TENANT HOST NAMESPACE NAME") };
    let cancel = CancellationToken::new();
    let cache = HostCache::new(client(host).await.context("host")?, HostScope::Cluster);
    let watching = tokio::spawn(cache.clone().run(cancel.clone()));
    let syncer = Syncer::new(SyncerConfig {
        tenant: TenantIdentity { name: name.clone(), namespace: namespace.clone(), uid: format!("uid-of-{name}") },
        tenant_client: client(tenant).await.context("tenant")?,
        host: HostHandle(cache),
        host_namespace: namespace.clone(),
        layout: Layout::Single,
        clock: Clock::System,
        // A tenant API server of another make allocates addresses of its own.
        pods: PodConfig { host_allocates_addresses: false, ..PodConfig::default() },
        weight: 1,
        rules: SyncRules::default(),
    });
    let running = tokio::spawn(syncer.run(cancel.clone()));
    tokio::signal::ctrl_c().await?;
    cancel.cancel();
    running.await?;
    watching.await?;
    Ok(())
}
