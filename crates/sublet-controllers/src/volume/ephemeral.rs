//! Claims for the generic ephemeral volumes of pods. They belong to the pod and go with it.

use super::{claim_name, is_ephemeral, is_made_for};
use crate::kit::{exec, template};
use async_trait::async_trait;
use serde_json::{Value, json};
use sublet_machinery::{Gvk, ObjectExt};
use sublet_runtime::manager::{Mapping, map};
use sublet_runtime::resources::{PERSISTENT_VOLUME_CLAIMS, PODS};
use sublet_runtime::{Change, ClientError, Controller, Ctx, EventKind, Key, Outcome, Reconciler};

const POD: Gvk = Gvk::new("", "v1", "Pod");

pub(crate) fn controller() -> Controller {
    Controller::new("ephemeral-volume-controller", Ephemeral)
        .watches(PODS, |change, mapping| {
            let is_new = change.old.is_none();
            if is_new && change.object().array_at("/spec/volumes").iter().any(is_ephemeral) {
                map::itself(change, mapping)
            } else {
                Vec::new()
            }
        })
        .watches(PERSISTENT_VOLUME_CLAIMS, owners_of_deleted)
}

/// A claim that somebody deleted is made again for its pod.
fn owners_of_deleted(change: &Change, mapping: &Mapping) -> Vec<Key> {
    if change.is_delete() { map::owner("Pod")(change, mapping) } else { Vec::new() }
}

struct Ephemeral;

#[async_trait]
impl Reconciler for Ephemeral {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let Some(pod) = ctx.informer(&PODS).get_key(key).filter(|p| !p.is_deleting()) else { return Outcome::Done };
        for volume in pod.array_at("/spec/volumes").iter().filter(|v| is_ephemeral(v)) {
            let name = volume["name"].as_str().unwrap_or_default();
            let problem = match make(ctx, &pod, volume).await {
                Ok(true) => continue,
                Ok(false) => {
                    let claim = claim_name(&pod, volume).unwrap_or_default();
                    format!("PVC {}/{claim} was not created for pod {}/{} (pod is not owner)", pod.namespace(), pod.namespace(), pod.name())
                }
                Err(error) if exec::is_namespace_terminating(&error) => return Outcome::Done,
                Err(error) => {
                    let claim = claim_name(&pod, volume).unwrap_or_default();
                    let message = format!("ephemeral volume {name}: create PVC {claim}: {error}");
                    ctx.events.record(&pod, EventKind::Warning, "FailedBinding", &message).await;
                    return error.into();
                }
            };
            ctx.events.record(&pod, EventKind::Warning, "FailedBinding", &format!("ephemeral volume {name}: {problem}")).await;
            return Outcome::Stuck(problem);
        }
        Outcome::Done
    }
}

/// Answers whether the claim is there and the pod's own.
async fn make(ctx: &Ctx, pod: &Value, volume: &Value) -> Result<bool, ClientError> {
    let name = claim_name(pod, volume).unwrap_or_default();
    if let Some(claim) = ctx.informer(&PERSISTENT_VOLUME_CLAIMS).get(pod.namespace(), &name) {
        return Ok(is_made_for(&claim, pod));
    }
    let template = &volume["ephemeral"]["volumeClaimTemplate"];
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": template["spec"].clone(),
        "metadata": {"name": name, "namespace": pod.namespace(), "ownerReferences": [template::controller_reference(pod, &POD)]},
    });
    for key in ["labels", "annotations"] {
        if let Some(value) = template["metadata"].get(key) {
            claim["metadata"][key] = value.clone();
        }
    }
    exec::create(ctx, &PERSISTENT_VOLUME_CLAIMS, &claim).await.map(|_| true)
}
