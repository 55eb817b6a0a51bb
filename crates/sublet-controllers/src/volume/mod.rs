//! Claims, volumes and their classes: protection from deletion while in use, and claims of ephemeral volumes.

mod class_protection;
mod ephemeral;
mod protection;

pub(crate) use class_protection::{controller as class_protection, index_by_class};
pub(crate) use ephemeral::controller as ephemeral_volumes;
pub(crate) use protection::{claims as claim_protection, volumes as volume_protection};

use serde_json::Value;
use std::sync::Arc;
use sublet_machinery::ObjectExt;
use sublet_runtime::Informer;

/// Pods by the claims that their volumes name, as `NAMESPACE/CLAIM`.
const BY_CLAIM: &str = "claim";

/// Lets pods be found by their claims; to be called before the informer runs.
pub(crate) fn index_by_claim(informer: &Informer) {
    informer.add_index(BY_CLAIM, |pod| {
        pod.array_at("/spec/volumes").iter().filter_map(|v| Some(format!("{}/{}", pod.namespace(), claim_name(pod, v)?))).collect()
    });
}

/// The claim behind a volume: a named one, or the one made for an ephemeral volume.
fn claim_name(pod: &Value, volume: &Value) -> Option<String> {
    if let Some(name) = volume.str_at("/persistentVolumeClaim/claimName") {
        return Some(name.to_string());
    }
    is_ephemeral(volume).then(|| format!("{}-{}", pod.name(), volume["name"].as_str().unwrap_or_default()))
}

fn is_ephemeral(volume: &Value) -> bool {
    volume.get("ephemeral").is_some_and(Value::is_object)
}

/// The claim was made for this very pod.
fn is_made_for(claim: &Value, pod: &Value) -> bool {
    claim.namespace() == pod.namespace() && claim.controller_owner().is_some_and(|r| r["uid"] == pod.uid())
}

fn pods_of_claim(informer: &Informer, claim: &Value) -> Vec<Arc<Value>> {
    informer.by_index(BY_CLAIM, &format!("{}/{}", claim.namespace(), claim.name()))
}
