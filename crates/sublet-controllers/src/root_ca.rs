//! The certificate authority of the API server as a ConfigMap in every namespace, for pods to trust.

use crate::kit::exec;
use async_trait::async_trait;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;
use sublet_runtime::manager::map;
use sublet_runtime::resources::{CONFIG_MAPS, NAMESPACES};
use sublet_runtime::{ClientError, Controller, Ctx, Key, Outcome, Reconciler};

const NAME: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
/// As upstream words it, for tools that compare.
const DESCRIPTION_TEXT: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

pub(crate) fn controller(ca_pem: String) -> Controller {
    Controller::new("root-ca-certificate-publisher", RootCa { ca_pem })
        .watches(NAMESPACES, map::itself)
        .watches(CONFIG_MAPS, |change, mapping| if change.object().name() == NAME { map::namespace(change, mapping) } else { Vec::new() })
}

struct RootCa {
    ca_pem: String,
}

#[async_trait]
impl Reconciler for RootCa {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        if ctx.informer(&NAMESPACES).get_key(key).is_none_or(|n| n.is_deleting()) {
            return Outcome::Done;
        }
        let current = ctx.informer(&CONFIG_MAPS).get(&key.name, NAME);
        match self.publish(ctx, &key.name, current.as_deref()).await {
            Ok(()) => Outcome::Done,
            Err(error) if error.is_not_found() || exec::is_namespace_terminating(&error) => Outcome::Done,
            Err(error) => error.into(),
        }
    }
}

impl RootCa {
    async fn publish(&self, ctx: &Ctx, namespace: &str, current: Option<&Value>) -> Result<(), ClientError> {
        let data = json!({"ca.crt": self.ca_pem});
        let Some(current) = current else {
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": data,
                "metadata": {"name": NAME, "namespace": namespace, "annotations": {DESCRIPTION: DESCRIPTION_TEXT}},
            });
            return exec::create(ctx, &CONFIG_MAPS, &map).await.map(|_| ());
        };
        if current["data"] == data && current.annotation(DESCRIPTION).is_some_and(|d| !d.is_empty()) {
            return Ok(());
        }
        let mut changed = current.clone();
        changed["data"] = data;
        changed.set_annotation(DESCRIPTION, DESCRIPTION_TEXT);
        exec::update(ctx, &CONFIG_MAPS, &changed).await.map(|_| ())
    }
}
