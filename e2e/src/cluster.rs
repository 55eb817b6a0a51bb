//! A cluster as its users have it: a kubeconfig.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use std::ops::Deref;
use sublet_runtime::Client;
use sublet_runtime::resources::SECRETS;

/// A client made from the text of a kubeconfig, and the text for programs that need it.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    pub kubeconfig: String,
}

impl Cluster {
    pub async fn from_text(text: &str) -> Result<Self> {
        let file = Kubeconfig::from_yaml(text).context("the kubeconfig is no kubeconfig")?;
        let config =
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.context("the kubeconfig is not usable")?;
        let client = kube::Client::try_from(config).context("no client from the kubeconfig")?;
        Ok(Self { client: Client::new(client, "story"), kubeconfig: text.to_string() })
    }

    /// The cluster whose kubeconfig the host keeps in a Secret.
    pub async fn from_secret(host: &Client, namespace: &str, name: &str) -> Result<Self> {
        let secret: Value = host.get(&SECRETS, namespace, name).await.with_context(|| format!("Secret {namespace}/{name}"))?;
        let encoded = secret["data"]["config"].as_str().context("the Secret has no `config`")?;
        Self::from_text(&String::from_utf8(BASE64_STANDARD.decode(encoded)?)?).await
    }
}

impl Deref for Cluster {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}
