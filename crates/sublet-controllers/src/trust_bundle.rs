//! The certificate authority of the API server as a ClusterTrustBundle, for pods that project it by its signer.

use crate::kit::exec;
use async_trait::async_trait;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::{ClientError, Controller, Ctx, DeleteOptions, Key, Outcome, Reconciler};

const BUNDLES: Gvr = Gvr::new("certificates.k8s.io", "v1", "clustertrustbundles");
const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";
/// Of the digest in the name of a bundle.
const HASH_DIGITS: usize = 24;

pub(crate) fn controller(ca_pem: String) -> Controller {
    let key = Key::new("", name_of(&ca_pem));
    Controller::new("kube-apiserver-serving-clustertrustbundle-publisher", Publisher { ca_pem })
        .starts_with(key.clone())
        .watches(BUNDLES, move |change, _| if change.object()["spec"]["signerName"] == SIGNER { vec![key.clone()] } else { Vec::new() })
}

fn name_of(ca_pem: &str) -> String {
    format!("{}:{:.HASH_DIGITS$x}", SIGNER.replace('/', ":"), Sha256::digest(ca_pem.as_bytes()))
}

struct Publisher {
    ca_pem: String,
}

#[async_trait]
impl Reconciler for Publisher {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        match self.publish(ctx, &key.name).await {
            Ok(()) => Outcome::Done,
            Err(error) => error.into(),
        }
    }
}

impl Publisher {
    /// One bundle under the name that its content gives it; earlier ones of the signer go.
    async fn publish(&self, ctx: &Ctx, name: &str) -> Result<(), ClientError> {
        let spec = json!({"signerName": SIGNER, "trustBundle": self.ca_pem});
        let bundles = ctx.informer(&BUNDLES);
        match bundles.get("", name) {
            None => {
                let bundle =
                    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle", "metadata": {"name": name}, "spec": spec});
                exec::create(ctx, &BUNDLES, &bundle).await.map(|_| ())?;
            }
            Some(current) if current["spec"] != spec => {
                let mut changed = (*current).clone();
                changed["spec"] = spec;
                exec::update(ctx, &BUNDLES, &changed).await.map(|_| ())?;
            }
            Some(_) => {}
        }
        for old in bundles.list(None).iter().filter(|b| b["spec"]["signerName"] == SIGNER && b.name() != name) {
            ctx.client.delete_if_exists(&BUNDLES, "", old.name(), &DeleteOptions::default()).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_named_after_its_signer_and_content() {
        let name = name_of("a");
        assert_eq!(name, "kubernetes.io:kube-apiserver-serving:ca978112ca1bbdcafac231b3");
        assert_ne!(name, name_of("b"));
    }
}
