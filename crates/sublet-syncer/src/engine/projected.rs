//! What a pod's Secret holds beside tokens: trust bundles and certificates.

use super::ownership;
use super::syncer::Inner;
use super::tokens::encoded;
use crate::resources::pod::{bundle, certificate};
use serde_json::{Map, Value};
use std::time::Duration;
use sublet_api::marks;
use sublet_machinery::ObjectExt;
use sublet_runtime::ClientError;
use sublet_runtime::client::ListOptions;
use sublet_runtime::resources::{CLUSTER_TRUST_BUNDLES, SECRETS};

/// How often trust bundles are read: as often as a kubelet writes the files of a volume anew.
const BUNDLES_PAUSE: Duration = Duration::from_secs(60);
/// The same while the pod waits for one.
const BUNDLES_PAUSE_MISSING: Duration = Duration::from_secs(3);

pub(super) struct Projected {
    pub data: Map<String, Value>,
    /// When it is looked at again; never for a pod that wants none of it.
    pub pause: Duration,
}

impl Projected {
    pub fn digest(&self) -> Option<String> {
        (!self.data.is_empty()).then(|| ownership::digest(&Value::Object(self.data.clone())))
    }

    pub fn is_that_of(&self, secret: &Value) -> bool {
        self.digest().as_deref() == secret.annotation(marks::PROJECTED)
    }
}

impl Inner {
    /// `secret` is what the host has by now.
    pub(super) async fn projected(&self, pod: &Value, secret: Option<&Value>) -> Result<Projected, ClientError> {
        let mut projected = Projected { data: Map::new(), pause: Duration::MAX };
        self.add_bundles(&mut projected, pod).await?;
        self.add_certificates(&mut projected, pod, secret).await?;
        Ok(projected)
    }

    async fn add_bundles(&self, projected: &mut Projected, pod: &Value) -> Result<(), ClientError> {
        for (index, one) in bundle::wanted(pod).iter().enumerate() {
            let pause = match bundle::content(one, &self.bundles_of(&one.by).await?) {
                Some(content) => {
                    projected.data.insert(bundle::data_key(index), encoded(&content));
                    BUNDLES_PAUSE
                }
                None => BUNDLES_PAUSE_MISSING,
            };
            projected.pause = projected.pause.min(pause);
        }
        Ok(())
    }

    async fn bundles_of(&self, by: &bundle::By) -> Result<Vec<Value>, ClientError> {
        match by {
            bundle::By::Name(name) => Ok(self.tenant_client.get_opt(&CLUSTER_TRUST_BUNDLES, "", name).await?.into_iter().collect()),
            bundle::By::Signer { name, .. } => {
                let options = ListOptions { field_selector: format!("spec.signerName={name}"), ..ListOptions::default() };
                match self.tenant_client.list(&CLUSTER_TRUST_BUNDLES, "", &options).await {
                    Ok(list) => Ok(list.items),
                    // An API server that does not know the kind has none.
                    Err(error) if error.is_not_found() => Ok(Vec::new()),
                    Err(error) => Err(error),
                }
            }
        }
    }

    async fn add_certificates(&self, projected: &mut Projected, pod: &Value, secret: Option<&Value>) -> Result<(), ClientError> {
        let found = self.certificates(pod).await;
        let Some(pause) = found.pause else { return Ok(()) };
        projected.pause = projected.pause.min(pause);
        projected.data.extend(found.files.iter().map(|(key, text)| (key.clone(), encoded(text))));
        // After a restart the certificates that the pod has are on the host alone.
        if let Some(secret) = secret.filter(|_| !found.missing.is_empty()) {
            let live = self.view.host.client().get_opt(&SECRETS, secret.namespace(), secret.name()).await?.unwrap_or_default();
            let held = live["data"].as_object().into_iter().flatten();
            let kept = held.filter(|(key, _)| found.missing.iter().any(|index| certificate::is_key_of(key, *index)));
            projected.data.extend(kept.map(|(key, value)| (key.clone(), value.clone())));
        }
        Ok(())
    }
}
