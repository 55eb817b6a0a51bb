//! The keys of a tenant, kept in a Secret beside its `VirtualCluster`.

use crate::StepError;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sublet_api::{VirtualCluster, marks};
use sublet_machinery::ObjectExt;
use sublet_pki::{Authority, CertifiedKey, Pki, PkiConfig};
use sublet_runtime::Client;
use sublet_runtime::resources::SECRETS;

pub fn secret_name(cluster: &str) -> String {
    format!("{cluster}-pki")
}

/// Loads the keys, makes them when there are none, renews what ends soon. `held` are the keys of the
/// running control plane: a deleted Secret is written again from them.
pub async fn ensure(
    host: &Client,
    cluster: &VirtualCluster<'_>,
    live: Option<&Value>,
    held: Option<Pki>,
    names: &[String],
    now: Timestamp,
) -> Result<Pki, StepError> {
    let config = PkiConfig { cluster: cluster.name().to_string(), names: names.to_vec() };
    let (mut pki, stored) = match (live, held) {
        // The usual case, many times a minute: reading keys is work.
        (Some(live), Some(held)) if holds(live, cluster, &held) => (held, true),
        (Some(secret), _) => (read(secret, cluster)?, true),
        (None, Some(held)) => (held, false),
        (None, None) => (Pki::new(&config, now)?, false),
    };
    let renewed = pki.renew(&config, now)?;
    if !stored || renewed {
        host.apply(&SECRETS, &secret(cluster, &pki)).await?;
    }
    Ok(pki)
}

/// Names a set of keys without telling any of them.
pub fn digest(pki: &Pki) -> String {
    let mut sha = Sha256::new();
    for pair in [pki.authority.certified_key(), &pki.serving, &pki.admin, pki.front_proxy_authority.certified_key(), &pki.front_proxy] {
        sha.update(pair.certificate_pem.as_bytes());
    }
    sha.update(pki.service_account_key_pem.as_bytes());
    format!("{:.16x}", sha.finalize())
}

fn secret(cluster: &VirtualCluster<'_>, pki: &Pki) -> Value {
    let encode = |text: &str| json!(BASE64_STANDARD.encode(text));
    let pairs = [
        ("ca", pki.authority.certified_key()),
        ("apiserver", &pki.serving),
        ("admin", &pki.admin),
        ("front-proxy-ca", pki.front_proxy_authority.certified_key()),
        ("front-proxy-client", &pki.front_proxy),
    ];
    let mut data = serde_json::Map::new();
    for (name, pair) in pairs {
        data.insert(format!("{name}.crt"), encode(&pair.certificate_pem));
        data.insert(format!("{name}.key"), encode(&pair.key_pem));
    }
    data.insert("sa.key".into(), encode(&pki.service_account_key_pem));
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {
            "name": secret_name(cluster.name()), "namespace": cluster.namespace(),
            "labels": own_labels(cluster), "ownerReferences": [owner(cluster)],
        },
        "data": data,
    })
}

/// Whether the Secret is the cluster's and holds these keys.
fn holds(live: &Value, cluster: &VirtualCluster<'_>, pki: &Pki) -> bool {
    is_ours(cluster, live) && live["data"] == secret(cluster, pki)["data"]
}

pub fn read(secret: &Value, cluster: &VirtualCluster<'_>) -> Result<Pki, StepError> {
    check_ours(cluster, secret)?;
    let text = |key: &str| -> Result<String, StepError> {
        let encoded = secret["data"][key].as_str().unwrap_or_default();
        let bytes = BASE64_STANDARD.decode(encoded).unwrap_or_default();
        String::from_utf8(bytes).ok().filter(|t| !t.is_empty()).ok_or_else(|| StepError::Stuck {
            reason: "SecretIncomplete",
            message: format!("Secret `{}` lacks `{key}`; restore it, or delete the Secret to have it written again", secret.name()),
        })
    };
    let pair = |name: &str| -> Result<CertifiedKey, StepError> {
        Ok(CertifiedKey { certificate_pem: text(&format!("{name}.crt"))?, key_pem: text(&format!("{name}.key"))? })
    };
    Ok(Pki {
        authority: Authority::from_pem(pair("ca")?)?,
        serving: pair("apiserver")?,
        admin: pair("admin")?,
        front_proxy_authority: Authority::from_pem(pair("front-proxy-ca")?)?,
        front_proxy: pair("front-proxy-client")?,
        service_account_key_pem: text("sa.key")?,
    })
}

/// Labels of the operator's own objects. They carry no UID: the syncer does not take them for synced ones.
pub fn own_labels(cluster: &VirtualCluster<'_>) -> Value {
    json!({marks::VIRTUAL_CLUSTER: cluster.name(), "app.kubernetes.io/managed-by": marks::MANAGER})
}

pub fn owner(cluster: &VirtualCluster<'_>) -> Value {
    json!({
        "apiVersion": format!("{}/{}", sublet_api::GROUP, sublet_api::VERSION), "kind": "VirtualCluster",
        "name": cluster.name(), "uid": cluster.uid(), "controller": true,
    })
}

/// Whether the Secret was written for this virtual cluster.
pub fn is_ours(cluster: &VirtualCluster<'_>, secret: &Value) -> bool {
    secret.controller_owner().is_some_and(|o| o["uid"] == cluster.uid())
}

/// A Secret of somebody else is left as it is.
pub fn check_ours(cluster: &VirtualCluster<'_>, secret: &Value) -> Result<(), StepError> {
    if is_ours(cluster, secret) {
        return Ok(());
    }
    Err(StepError::Stuck {
        reason: "SecretTaken",
        message: format!("Secret `{}` exists and does not belong to this virtual cluster; delete or rename it", secret.name()),
    })
}
