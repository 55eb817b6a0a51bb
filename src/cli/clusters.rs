//! What the commands about virtual clusters share.

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use serde_json::Value;
use sublet_machinery::ObjectExt;
use sublet_runtime::Client;
use sublet_runtime::resources::{SECRETS, VIRTUAL_CLUSTERS};

#[derive(Args, Clone)]
pub struct NameArguments {
    /// The name of the virtual cluster
    pub name: String,
    /// The host namespace that it is in
    #[arg(short, long, default_value = "default", value_name = "NAMESPACE")]
    pub namespace: String,
}

pub async fn find(host: &Client, name: &NameArguments) -> Result<Value> {
    match host.get(&VIRTUAL_CLUSTERS, &name.namespace, &name.name).await {
        Ok(cluster) => Ok(cluster),
        Err(error) if error.is_not_found() && error.api().is_some_and(|e| e.name.is_empty()) => {
            bail!("the host does not know virtual clusters yet; start the operator (`sublet operator` or `sublet dev`) first")
        }
        Err(error) if error.is_not_found() => {
            bail!("there is no virtual cluster `{}` in namespace `{}`; `sublet list` shows all", name.name, name.namespace)
        }
        Err(error) => Err(error).context("cannot read the virtual cluster"),
    }
}

/// The text of the cluster's admin kubeconfig.
pub async fn kubeconfig(host: &Client, name: &NameArguments) -> Result<String> {
    let cluster = find(host, name).await?;
    let secret = cluster.str_at("/status/kubeconfigSecret").unwrap_or_default();
    if secret.is_empty() {
        bail!("virtual cluster `{}` has no kubeconfig yet: {}", name.name, message(&cluster));
    }
    kubeconfig_in(host, name, secret).await
}

/// The text of the kubeconfig in this Secret.
pub async fn kubeconfig_in(host: &Client, name: &NameArguments, secret: &str) -> Result<String> {
    let secret = host.get(&SECRETS, &name.namespace, secret).await.context("cannot read the kubeconfig Secret")?;
    // One that was given for an external cluster has the key that its giver chose.
    let encoded = ["config", "value", "kubeconfig"].iter().find_map(|key| secret["data"][key].as_str()).unwrap_or_default();
    let bytes = BASE64_STANDARD.decode(encoded).context("the kubeconfig Secret is damaged; delete it to have it written again")?;
    String::from_utf8(bytes).context("the kubeconfig Secret is damaged; delete it to have it written again")
}

pub fn ready(cluster: &Value) -> &str {
    cluster.condition("Ready").and_then(|c| c["status"].as_str()).unwrap_or("Unknown")
}

/// What the cluster waits for.
pub fn message(cluster: &Value) -> &str {
    cluster.condition("Ready").and_then(|c| c["message"].as_str()).unwrap_or("the operator has not seen it yet; is it running?")
}
