//! Kubeconfigs of a tenant, published as Secrets: the admin's, and those that the spec asks for.

use crate::pki_secret::{check_ours, is_ours, own_labels, owner};
use crate::{StepError, pki_secret};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use sublet_api::{VirtualCluster, WantedKubeconfig, marks};
use sublet_machinery::ObjectExt;
use sublet_pki::{ADMIN, ADMIN_GROUP, Credential, Kubeconfig, Pki};
use sublet_runtime::resources::SECRETS;
use sublet_runtime::{Client, DeleteOptions};

/// The label of Secrets that the spec asks for.
const COMPONENT: (&str, &str) = ("app.kubernetes.io/component", "kubeconfig");

pub fn secret_name(cluster: &str) -> String {
    format!("{cluster}-kubeconfig")
}

/// Writes the admin's Secret when it is missing or says something else; returns its name.
pub async fn publish(
    host: &Client,
    cluster: &VirtualCluster<'_>,
    live: Option<&Value>,
    pki: &Pki,
    endpoint: &str,
) -> Result<String, StepError> {
    let name = secret_name(cluster.name());
    live.map_or(Ok(()), |live| check_ours(cluster, live))?;
    let text = Kubeconfig {
        cluster: cluster.name(),
        server: endpoint,
        authority_pem: pki.authority.certificate_pem(),
        user: ADMIN,
        credential: Credential::Certificate(&pki.admin),
        namespace: None,
    }
    .render();
    let secret = secret(cluster, &name, &text);
    if live.is_none_or(|live| live["data"] != secret["data"]) {
        host.apply(&SECRETS, &secret).await?;
    }
    Ok(name)
}

/// One kubeconfig that the spec asks for: made when it is missing, when the spec says something else, and in time
/// before its certificate ends.
pub async fn publish_wanted(
    host: &Client,
    cluster: &VirtualCluster<'_>,
    wanted: &WantedKubeconfig<'_>,
    live: Option<&Value>,
    pki: &Pki,
    endpoint: &str,
    now: Timestamp,
) -> Result<(), StepError> {
    if [secret_name(cluster.name()), pki_secret::secret_name(cluster.name())].iter().any(|own| own == wanted.secret) {
        return Err(StepError::Stuck {
            reason: "SecretTaken",
            message: format!("spec.kubeconfigs: Secret `{}` is the operator's own; choose another secretName", wanted.secret),
        });
    }
    live.map_or(Ok(()), |live| check_ours(cluster, live))?;
    let server = wanted.server.unwrap_or(endpoint);
    let authority = pki.authority.certificate_pem();
    let request = format!("{:.16x}", Sha256::digest(format!("{wanted:?} {server} {authority}")));
    let good = |live: &Value| {
        let due: Option<Timestamp> = live.annotation(marks::REFRESH_AT).and_then(|at| at.parse().ok());
        live.annotation(marks::APPLIED) == Some(&request) && due.is_some_and(|due| now < due) && live["data"]["config"].is_string()
    };
    if live.is_some_and(good) {
        return Ok(());
    }
    let lifetime = SignedDuration::from_hours(wanted.days * 24);
    let group = wanted.group.or_else(|| (wanted.user == ADMIN).then_some(ADMIN_GROUP));
    let client = pki.client(wanted.user, group, lifetime, now)?;
    let credential = Credential::Certificate(&client);
    let config = Kubeconfig {
        cluster: cluster.name(),
        server,
        authority_pem: authority,
        user: wanted.user,
        credential,
        namespace: wanted.namespace,
    };
    let mut secret = secret(cluster, wanted.secret, &config.render());
    secret["metadata"]["labels"][COMPONENT.0] = json!(COMPONENT.1);
    secret["metadata"]["annotations"] = json!({marks::APPLIED: request, marks::REFRESH_AT: (now + lifetime * 3 / 4).to_string()});
    host.apply(&SECRETS, &secret).await?;
    Ok(())
}

/// Deletes the kubeconfigs among the operator's `own` Secrets that the spec asks for no more. What was handed out stays
/// good until its certificate ends.
pub async fn unpublish(host: &Client, cluster: &VirtualCluster<'_>, own: &[Arc<Value>]) -> Result<(), StepError> {
    let wanted = cluster.kubeconfigs();
    for secret in own {
        let asked_for = wanted.iter().any(|w| w.secret == secret.name());
        if secret.label(COMPONENT.0) == Some(COMPONENT.1) && is_ours(cluster, secret) && !asked_for {
            let options = DeleteOptions::background().uid(secret.uid());
            host.delete_if_exists(&SECRETS, secret.namespace(), secret.name(), &options).await?;
        }
    }
    Ok(())
}

fn secret(cluster: &VirtualCluster<'_>, name: &str, config: &str) -> Value {
    let value = json!(BASE64_STANDARD.encode(config));
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": name, "namespace": cluster.namespace(), "labels": own_labels(cluster), "ownerReferences": [owner(cluster)]},
        // Two names for the same text: `value` as Cluster API has it, `config` as kubectl users expect it.
        "data": {"value": value, "config": value},
    })
}
