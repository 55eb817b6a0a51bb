//! The finalizers that keep claims in use by pods, and volumes bound to claims.

use super::{claim_name, is_ephemeral, is_made_for, pods_of_claim};
use crate::kit::exec;
use crate::kit::pods;
use async_trait::async_trait;
use serde_json::{Value, json};
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::manager::{Mapping, map};
use sublet_runtime::resources::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS};
use sublet_runtime::{Change, ClientError, Controller, Ctx, Key, ListOptions, Outcome, Reconciler};

const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

pub(crate) fn claims() -> Controller {
    Controller::new("pvc-protection-controller", Claims).watches(PERSISTENT_VOLUME_CLAIMS, map::itself).watches(PODS, claims_of_pod)
}

pub(crate) fn volumes() -> Controller {
    Controller::new("pv-protection-controller", Volumes).watches(PERSISTENT_VOLUMES, map::itself)
}

/// The claims that a pod may have let go of: it went, was shut down, or another took its name.
fn claims_of_pod(change: &Change, mapping: &Mapping) -> Vec<Key> {
    let before = change.old.as_ref().filter(|old| change.new.as_ref().is_none_or(|new| new.uid() != old.uid() || is_shut_down(new)));
    let Some(pod) = before else { return Vec::new() };
    let claims = mapping.informer(&PERSISTENT_VOLUME_CLAIMS);
    let names = pod.array_at("/spec/volumes").iter().filter_map(|v| claim_name(pod, v));
    let keys = names.map(|name| Key::new(pod.namespace(), name));
    keys.filter(|key| claims.get_key(key).is_some_and(|c| c.is_deleting())).collect()
}

/// The kubelet is done with the pod, or it was deleted by force: only finalizers hold it.
fn is_shut_down(pod: &Value) -> bool {
    pod.is_deleting() && pod.i64_at("/metadata/deletionGracePeriodSeconds") == Some(0)
}

/// A pod holds a claim once it is on a node: kubelets start no pod on a claim that is being deleted.
fn holds(pod: &Value, claim: &Value) -> bool {
    let uses = |volume: &Value| {
        claim_name(pod, volume).as_deref() == Some(claim.name())
            && (!is_ephemeral(volume) || (!is_shut_down(pod) && is_made_for(claim, pod)))
    };
    !pods::node(pod).is_empty() && pod.array_at("/spec/volumes").iter().any(uses)
}

struct Claims;

#[async_trait]
impl Reconciler for Claims {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let Some(claim) = ctx.informer(&PERSISTENT_VOLUME_CLAIMS).get_key(key) else { return Outcome::Done };
        let result = match (claim.is_deleting(), claim.has_finalizer(CLAIM_FINALIZER)) {
            (true, true) => release(ctx, &claim).await,
            (false, false) => add_finalizer(ctx, &PERSISTENT_VOLUME_CLAIMS, &claim, CLAIM_FINALIZER).await,
            _ => Ok(()),
        };
        result.map_or_else(Outcome::from, |()| Outcome::Done)
    }
}

async fn release(ctx: &Ctx, claim: &Value) -> Result<(), ClientError> {
    if pods_of_claim(&ctx.informer(&PODS), claim).iter().any(|p| holds(p, claim)) {
        return Ok(());
    }
    // The local copy may not know the newest pod yet, and the claim's end cannot be undone.
    let live = ctx.client.list(&PODS, claim.namespace(), &ListOptions::default()).await?;
    if live.items.iter().any(|p| holds(p, claim)) {
        return Ok(());
    }
    exec::remove_finalizer(ctx, &PERSISTENT_VOLUME_CLAIMS, claim, CLAIM_FINALIZER).await
}

struct Volumes;

#[async_trait]
impl Reconciler for Volumes {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let Some(volume) = ctx.informer(&PERSISTENT_VOLUMES).get_key(key) else { return Outcome::Done };
        let is_bound = volume.str_at("/status/phase") == Some("Bound");
        let result = match (volume.is_deleting(), volume.has_finalizer(VOLUME_FINALIZER)) {
            (true, true) if !is_bound => exec::remove_finalizer(ctx, &PERSISTENT_VOLUMES, &volume, VOLUME_FINALIZER).await,
            (false, false) => add_finalizer(ctx, &PERSISTENT_VOLUMES, &volume, VOLUME_FINALIZER).await,
            _ => Ok(()),
        };
        result.map_or_else(Outcome::from, |()| Outcome::Done)
    }
}

/// For objects from before the admission plugin that sets the finalizer.
pub(super) async fn add_finalizer(ctx: &Ctx, gvr: &Gvr, object: &Value, finalizer: &str) -> Result<(), ClientError> {
    let mut finalizers = object.finalizers();
    finalizers.push(finalizer);
    let patch = json!({"metadata": {"resourceVersion": object.resource_version(), "finalizers": finalizers}});
    exec::merge_patch(ctx, gvr, object, patch).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pods_on_a_node_hold_claims() {
        let claim = json!({"metadata": {"name": "c", "namespace": "n"}});
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
        let pod = |node: &str| json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": node, "volumes": volumes}});
        assert!(holds(&pod("node"), &claim));
        assert!(!holds(&pod(""), &claim));
    }

    #[test]
    fn a_shut_down_pod_lets_its_ephemeral_claim_go() {
        let claim = json!({"metadata": {"name": "p-v", "namespace": "n", "ownerReferences": [{"uid": "pod", "controller": true}]}});
        let mut pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "pod"}, "spec": {"nodeName": "node", "volumes": [{"name": "v", "ephemeral": {}}]}});
        assert!(holds(&pod, &claim));
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        assert!(!holds(&pod, &claim));
    }
}
