//! Which host cluster a command talks to.

use crate::compose::streams::Remote;
use anyhow::{Context as _, Result};
use clap::Args;
use std::path::{Path, PathBuf};
use sublet_runtime::Client;

#[derive(Args, Clone)]
pub struct HostArguments {
    /// The kubeconfig of the host cluster [default: $KUBECONFIG, ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context in it [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

impl HostArguments {
    pub async fn client(&self) -> Result<Client> {
        client(self.kubeconfig.as_deref(), self.context.as_deref()).await
    }

    /// The same host for streams.
    pub async fn streams(&self) -> Result<Remote> {
        Remote::of_host(&config(self.kubeconfig.as_deref(), self.context.as_deref()).await?)
    }

    /// As [`Self::client`]; without flags, and in a pod, the cluster around it.
    pub async fn client_or_in_cluster(&self) -> Result<Client> {
        if self.kubeconfig.is_some() || self.context.is_some() {
            return self.client().await;
        }
        match kube::Config::incluster() {
            Ok(config) => {
                let client = kube::Client::try_from(config).context("cannot make a client from the pod's service account")?;
                Ok(Client::new(client, "sublet"))
            }
            Err(_) => self.client().await,
        }
    }

    /// The host of [`Self::client_or_in_cluster`] for streams.
    pub async fn streams_or_in_cluster(&self) -> Result<Remote> {
        match kube::Config::incluster() {
            Ok(config) if self.kubeconfig.is_none() && self.context.is_none() => Remote::of_host(&config),
            _ => self.streams().await,
        }
    }
}

/// A client for the cluster that a kubeconfig names.
pub async fn client(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Client> {
    let config = config(kubeconfig, context).await?;
    let client = kube::Client::try_from(config).context("cannot make a client from the kubeconfig")?;
    Ok(Client::new(client, "sublet-cli"))
}

/// How the cluster that a kubeconfig names is reached.
pub async fn config(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<kube::Config> {
    let options = kube::config::KubeConfigOptions { context: context.map(str::to_string), ..Default::default() };
    match kubeconfig {
        Some(path) => {
            let file = kube::config::Kubeconfig::read_from(path).with_context(|| format!("cannot read kubeconfig {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(file, &options).await.with_context(|| format!("cannot use kubeconfig {}", path.display()))
        }
        None => kube::Config::from_kubeconfig(&options)
            .await
            .context("no host cluster: give --kubeconfig FILE or set KUBECONFIG (`sublet dev` writes one)"),
    }
}
