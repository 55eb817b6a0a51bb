//! A Lease that says which API server serves, as tools that count API servers expect it.

use async_trait::async_trait;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::time::Duration;
use sublet_runtime::resources::LEASES;
use sublet_runtime::{ClientError, Clock, Controller, Ctx, Key, Outcome, Reconciler};

const NAMESPACE: &str = "kube-system";
const DURATION: Duration = Duration::from_secs(3600);
/// Upstream renews every ten seconds; thousands of tenants write to one disk. Pages of lists expire with the
/// history, which a store without any write does not have: a write now and then keeps that as it is upstream.
const RENEWAL: Duration = Duration::from_secs(120);
/// Of the digest in the name of the lease.
const HASH_DIGITS: usize = 26;

pub(crate) fn controller(host_name: String) -> Controller {
    let key = Key::new(NAMESPACE, format!("apiserver-{:.HASH_DIGITS$x}", Sha256::digest(host_name.as_bytes())));
    Controller::new("apiserver-identity-lease", IdentityLease { host_name }).starts_with(key)
}

struct IdentityLease {
    host_name: String,
}

#[async_trait]
impl Reconciler for IdentityLease {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        match self.renew(ctx, key).await {
            Ok(()) => Outcome::After(RENEWAL),
            Err(error) => error.into(),
        }
    }
}

impl IdentityLease {
    async fn renew(&self, ctx: &Ctx, key: &Key) -> Result<(), ClientError> {
        // Read directly: an informer would follow the heartbeats of all nodes.
        match ctx.client.get_opt(&LEASES, &key.namespace, &key.name).await? {
            Some(mut lease) => {
                lease["spec"] = self.spec(&key.name, &ctx.clock);
                ctx.client.update(&LEASES, &lease).await.map(|_| ())
            }
            None => {
                let lease: Value = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": key.name, "namespace": key.namespace, "labels": {
                        "apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": self.host_name,
                    }},
                    "spec": self.spec(&key.name, &ctx.clock),
                });
                ctx.client.create(&LEASES, &lease).await.map(|_| ())
            }
        }
    }

    fn spec(&self, name: &str, clock: &Clock) -> Value {
        let now = clock.now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        json!({"holderIdentity": name, "leaseDurationSeconds": DURATION.as_secs(), "renewTime": now})
    }
}
