//! Runs every controller against the cluster of a kubeconfig: `run [--without NAME,...] [KUBECONFIG]`.

use anyhow::Context;
use sublet_controllers::{ControllersConfig, add_all};
use sublet_runtime::{Client, Clock, Manager};
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).with_writer(std::io::stderr).init();
    let mut args = std::env::args().skip(1);
    let mut config = ControllersConfig::default();
    let mut path = None;
    while let Some(arg) = args.next() {
        if arg == "--without" {
            config.without = args.next().context("--without needs names")?.split(',').map(str::to_string).collect();
        } else {
            path = Some(arg);
        }
    }
    let kubeconfig = match path {
        Some(path) => kube::config::Kubeconfig::read_from(path)?,
        None => kube::config::Kubeconfig::read()?,
    };
    let kube_config = kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await?;
    config.root_ca_pem = "-----BEGIN CERTIFICATE-----\nexample\n-----END CERTIFICATE-----\n".into();
    let client = Client::new(kube::Client::try_from(kube_config)?, "sublet-controllers");
    let mut manager = Manager::new(client, Clock::System);
    add_all(&mut manager, &config);
    let cancel = CancellationToken::new();
    let running = tokio::spawn(manager.run(cancel.clone()));
    tokio::signal::ctrl_c().await?;
    cancel.cancel();
    running.await?;
    Ok(())
}
