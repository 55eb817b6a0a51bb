//! Runs the host's loops against any API server: `cargo run -p sublet-host --example run -- --kubeconfig FILE`.

use clap::Parser;
use sublet_host::HostConfig;
use sublet_runtime::{Client, Clock, Manager};
use tokio_util::sync::CancellationToken;

#[derive(Parser)]
struct Arguments {
    #[arg(long)]
    kubeconfig: std::path::PathBuf,
    #[arg(long, default_value_t = 2)]
    nodes: usize,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::new("info")).with_writer(std::io::stderr).init();
    let arguments = Arguments::parse();
    let kubeconfig = kube::config::Kubeconfig::read_from(&arguments.kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await?;
    let client = Client::new(kube::Client::try_from(config)?, "sublet-host");
    let mut manager = Manager::new(client.clone(), Clock::System);
    let tasks = sublet_host::add_all(&mut manager, &HostConfig { nodes: arguments.nodes, ..HostConfig::default() });
    let cancel = CancellationToken::new();
    tokio::spawn({
        let cancel = cancel.clone();
        async move {
            let _ = tokio::signal::ctrl_c().await;
            cancel.cancel();
        }
    });
    tokio::join!(manager.run(cancel.clone()), tasks.run(client, cancel));
    Ok(())
}
