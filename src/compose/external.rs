//! A tenant whose API server runs elsewhere: the syncer alone, with a kubeconfig that somebody gave.

use super::tenant::{RunningSyncer, kinds_off, syncer};
use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use sublet_machinery::ObjectExt;
use sublet_operator::{ControlPlaneError, PlaneStatus, Tenant};
use sublet_runtime::Client;
use sublet_runtime::resources::{NAMESPACES, SECRETS};
use sublet_syncer::engine::host::HostKind;
use sublet_syncer::{HostCache, PodConfig, SyncRules};

/// The keys under which Secrets hold a kubeconfig, by custom.
const KEYS: [&str; 3] = ["config", "value", "kubeconfig"];
const DEFAULT_PORT: u16 = 443;

/// The syncer of one external tenant.
pub struct External {
    client: Client,
    host: Arc<HostCache>,
    uid: String,
    url: String,
    /// Of the kubeconfig that it was started with.
    digest: String,
    /// The UID of the tenant's namespace `kube-system`: another cluster has another one.
    identity: String,
    syncer: Option<RunningSyncer>,
    rules: SyncRules,
    /// Why it does not answer.
    trouble: Option<String>,
}

impl External {
    pub async fn start(tenant: &Tenant, text: &str, host: &Arc<HostCache>) -> Result<Self> {
        let config = Kubeconfig::from_yaml(text).context("the kubeconfig cannot be read")?;
        check(&config)?;
        let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        let url = config.cluster_url.clone();
        let client = Client::new(kube::Client::try_from(config)?, "sublet");
        let identity = identity(&client).await?;
        let pods = PodConfig {
            api_host: url.host().unwrap_or_default().trim_matches(['[', ']']).to_string(),
            api_port: url.port_u16().unwrap_or(DEFAULT_PORT),
            // Its API server gives the numbers itself, and nobody asks the host before.
            host_allocates_addresses: false,
            ..PodConfig::default()
        };
        let syncer = (!tenant.paused).then(|| RunningSyncer::start(syncer(tenant, client.clone(), host, pods)));
        let (host, uid, digest) = (host.clone(), tenant.uid.clone(), digest(text));
        Ok(Self {
            client,
            host,
            uid,
            url: url.to_string(),
            digest,
            identity,
            syncer,
            rules: SyncRules::of(&tenant.cluster()),
            trouble: None,
        })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Whether it was started with this kubeconfig, in this state.
    pub fn is_as_wanted(&self, tenant: &Tenant, text: &str) -> bool {
        self.digest == digest(text) && self.syncer.is_none() == tenant.paused && self.rules == SyncRules::of(&tenant.cluster())
    }

    /// Looks whether the API server is there, and still the same.
    pub async fn look(&mut self) {
        self.trouble = match identity(&self.client).await {
            Ok(found) if found == self.identity => None,
            Ok(found) => Some(format!("the cluster behind the kubeconfig is another one by now (`{found}`)")),
            Err(error) => Some(format!("{error:#}")),
        };
    }

    pub fn status(&self) -> PlaneStatus {
        PlaneStatus {
            serving: self.trouble.is_none(),
            synced: self.syncer.as_ref().is_some_and(RunningSyncer::is_running),
            pods: self.host.of_tenant(HostKind::Pods, &self.uid).len(),
            message: self.trouble.clone().unwrap_or_default(),
            off: self.syncer.as_ref().map(|s| kinds_off(s.syncer())).unwrap_or_default(),
            ..PlaneStatus::default()
        }
    }

    pub async fn stop(&mut self) {
        if let Some(syncer) = self.syncer.take() {
            syncer.stop().await;
        }
    }
}

async fn identity(client: &Client) -> Result<String> {
    let namespace = client.get(&NAMESPACES, "", "kube-system").await.context("the API server of the tenant does not answer")?;
    Ok(namespace.uid().to_string())
}

fn digest(text: &str) -> String {
    format!("{:x}", Sha256::digest(text.as_bytes()))
}

/// The kubeconfig that the `VirtualCluster` names.
pub async fn kubeconfig(host: &Client, tenant: &Tenant) -> Result<String, ControlPlaneError> {
    let failed = |message: String| ControlPlaneError::Failed(message);
    let name = tenant.cluster().external_kubeconfig().unwrap_or_default().to_string();
    let secret: Option<Value> = host.get_opt(&SECRETS, &tenant.namespace, &name).await.map_err(|e| failed(e.to_string()))?;
    let Some(secret) = secret else { return Err(failed(format!("Secret `{name}` with the kubeconfig does not exist"))) };
    let encoded = KEYS.iter().find_map(|key| secret["data"][key].as_str());
    let Some(encoded) = encoded else { return Err(failed(format!("Secret `{name}` has no key `config`, `value` or `kubeconfig`"))) };
    let text = BASE64_STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    text.ok_or_else(|| failed(format!("the kubeconfig in Secret `{name}` is no text")))
}

/// A kubeconfig is somebody else's text: it may carry credentials, and must not make this process run
/// programs or read files of its own.
fn check(config: &Kubeconfig) -> Result<()> {
    for cluster in config.clusters.iter().filter_map(|c| c.cluster.as_ref()) {
        if cluster.certificate_authority.is_some() || cluster.proxy_url.is_some() {
            bail!("the kubeconfig names files or a proxy; use `certificate-authority-data`");
        }
    }
    for user in config.auth_infos.iter().filter_map(|u| u.auth_info.as_ref()) {
        if user.exec.is_some() || user.auth_provider.is_some() {
            bail!("the kubeconfig names a program to run; use a token or `client-certificate-data`");
        }
        if user.token_file.is_some() || user.client_certificate.is_some() || user.client_key.is_some() {
            bail!("the kubeconfig names files; use `token`, `client-certificate-data` and `client-key-data`");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(cluster: &str, user: &str) -> String {
        let text = format!(
            "apiVersion: v1\nkind: Config\nclusters: [{{name: a, cluster: {{server: https://x{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
        );
        check(&Kubeconfig::from_yaml(&text).unwrap()).err().map(|e| e.to_string()).unwrap_or_default()
    }

    /// The shard's own token is a file, and its rights are those of all tenants.
    #[test]
    fn a_given_kubeconfig_reads_no_files_and_runs_nothing() {
        assert_eq!(refusal("", "token: t"), "");
        assert!(refusal("", "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token").contains("files"));
        assert!(refusal("", "client-certificate: /a, client-key: /b").contains("files"));
        assert!(refusal(", certificate-authority: /etc/passwd", "token: t").contains("files"));
        assert!(refusal(", proxy-url: http://p", "token: t").contains("proxy"));
        assert!(refusal("", "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}").contains("program"));
    }
}
