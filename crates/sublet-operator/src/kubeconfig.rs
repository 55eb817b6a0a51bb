//! The admin kubeconfig of a tenant, published as a Secret.

use crate::StepError;
use crate::pki_secret::{own_labels, owner};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use sublet_api::VirtualCluster;
use sublet_machinery::ObjectExt;
use sublet_pki::{Credential, Kubeconfig, Pki};
use sublet_runtime::Client;
use sublet_runtime::resources::SECRETS;

pub fn secret_name(cluster: &str) -> String {
    format!("{cluster}-kubeconfig")
}

/// Writes the Secret when it is missing or says something else; returns its name.
pub async fn publish(
    host: &Client,
    cluster: &VirtualCluster<'_>,
    live: Option<&Value>,
    pki: &Pki,
    endpoint: &str,
) -> Result<String, StepError> {
    let name = secret_name(cluster.name());
    if let Some(live) = live
        && live.controller_owner().is_none_or(|o| o["uid"] != cluster.uid())
    {
        return Err(StepError::Stuck {
            reason: "SecretTaken",
            message: format!("Secret `{name}` exists and does not belong to this virtual cluster; delete or rename it"),
        });
    }
    let text = Kubeconfig {
        cluster: cluster.name(),
        server: endpoint,
        authority_pem: pki.authority.certificate_pem(),
        user: "admin",
        credential: Credential::Certificate(&pki.admin),
        namespace: None,
    }
    .render();
    let value = json!(BASE64_STANDARD.encode(text));
    let same = live.is_some_and(|s| s["data"]["value"] == value && s["data"]["config"] == value);
    if !same {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": name, "namespace": cluster.namespace(), "labels": own_labels(cluster), "ownerReferences": [owner(cluster)]},
            // Two names for the same text: `value` as Cluster API has it, `config` as kubectl users expect it.
            "data": {"value": value, "config": value},
        });
        host.apply(&SECRETS, &secret).await?;
    }
    Ok(name)
}
