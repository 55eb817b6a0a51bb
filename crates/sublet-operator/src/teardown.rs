//! Deleting everything a tenant has on the host, and telling what is still there.

use crate::StepError;
use sublet_api::{VirtualCluster, marks};
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::resources::{CONFIG_MAPS, ENDPOINT_SLICES, ENDPOINTS, PERSISTENT_VOLUME_CLAIMS, PODS, SECRETS, SERVICES};
use sublet_runtime::{Client, DeleteOptions, ListOptions};

/// Kinds that the syncer writes, pods first: others are in use by them.
const KINDS: [Gvr; 7] = [PODS, SERVICES, ENDPOINT_SLICES, ENDPOINTS, PERSISTENT_VOLUME_CLAIMS, CONFIG_MAPS, SECRETS];

/// Deletes the tenant's host objects. `Waiting` names what is still there.
pub async fn delete_host_objects(host: &Client, cluster: &VirtualCluster<'_>) -> Result<(), StepError> {
    let selector = format!("{}={},{}={}", marks::MANAGED_BY, marks::MANAGER, marks::VIRTUAL_CLUSTER_UID, cluster.uid());
    let options = ListOptions { label_selector: selector, ..ListOptions::default() };
    let mut remaining = Vec::new();
    for gvr in &KINDS {
        let list = host.list(gvr, cluster.namespace(), &options).await?;
        for object in &list.items {
            if !object.is_deleting() {
                let delete = DeleteOptions::background().uid(object.uid());
                match host.delete_if_exists(gvr, object.namespace(), object.name(), &delete).await {
                    Err(error) if !error.is_conflict() => return Err(error.into()),
                    _ => {}
                }
            }
        }
        if !list.items.is_empty() {
            let again = host.list(gvr, cluster.namespace(), &options).await?.items;
            if let Some(first) = again.first() {
                remaining.push(format!("{} {} (such as `{}`{})", again.len(), gvr.resource, first.name(), held_by(first)));
            }
        }
    }
    if remaining.is_empty() {
        return Ok(());
    }
    Err(StepError::Waiting { reason: "DeletingHostObjects", message: format!("waits for the deletion of {}", remaining.join(", ")) })
}

fn held_by(object: &serde_json::Value) -> String {
    match object.finalizers().as_slice() {
        [] => String::new(),
        finalizers => format!(", held by finalizers {}", finalizers.join(", ")),
    }
}
