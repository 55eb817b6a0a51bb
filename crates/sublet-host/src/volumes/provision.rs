//! Making a volume for a claim.

use super::writer::Writer;
use super::{PROVISIONER, matcher};
use crate::events::Notice;
use crate::scheduler::{SELECTED_NODE, claim_reference};
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;
use sublet_runtime::ClientError;
use sublet_runtime::resources::{NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES};

/// The driver that volumes name as their source.
const DRIVER: &str = "simulated.sublet.dev";
/// A class parameter: `node` or `zone` ties volumes to where they were made.
const TOPOLOGY_PARAMETER: &str = "topology";
pub(super) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const STORAGE_PROVISIONER: [&str; 2] = ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];

pub(super) async fn provision(writer: &Writer<'_>, claim: &Value, class: &Value) -> Result<(), ClientError> {
    let provisioner = class["provisioner"].as_str().unwrap_or_default();
    if claim.annotation(STORAGE_PROVISIONER[0]) != Some(provisioner) {
        let annotations = json!({STORAGE_PROVISIONER[0]: provisioner, STORAGE_PROVISIONER[1]: provisioner});
        let patch = json!({"metadata": {"annotations": annotations}});
        writer.ctx.client.merge_patch(&PERSISTENT_VOLUME_CLAIMS, claim.namespace(), claim.name(), patch).await?;
    }
    if provisioner != PROVISIONER {
        let message = format!(
            "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."
        );
        writer.tell(claim, &Notice::normal("ExternalProvisioning", message));
        return Ok(());
    }
    let node = claim.annotation(SELECTED_NODE).and_then(|name| writer.ctx.informer(&NODES).get("", name));
    let volume = volume(claim, class, node.as_deref());
    match writer.ctx.client.create(&PERSISTENT_VOLUMES, &volume).await {
        Ok(_) => {
            let message = format!("Successfully provisioned volume {}", volume.name());
            writer.tell(claim, &Notice::normal("ProvisioningSucceeded", message));
            Ok(())
        }
        // An earlier step made it; the informer will bring it.
        Err(error) if error.is_already_exists() => Ok(()),
        Err(error) => {
            let message = format!("failed to provision volume with StorageClass \"{}\": {error}", class.name());
            writer.tell(claim, &Notice::warning("ProvisioningFailed", message));
            Err(error)
        }
    }
}

/// Whether the host made the volume, and so may grow and delete it.
pub(super) fn is_ours(volume: &Value) -> bool {
    volume.annotation(PROVISIONED_BY) == Some(PROVISIONER)
}

fn volume(claim: &Value, class: &Value, node: Option<&Value>) -> Value {
    let mut spec = json!({
        "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
        "accessModes": claim["spec"]["accessModes"],
        "persistentVolumeReclaimPolicy": class["reclaimPolicy"].as_str().unwrap_or("Delete"),
        "storageClassName": matcher::class(claim),
        "volumeMode": claim.str_at("/spec/volumeMode").unwrap_or("Filesystem"),
        "claimRef": claim_reference(claim),
        "csi": {"driver": DRIVER, "volumeHandle": format!("pvc-{}", claim.uid())},
    });
    if !class.array_at("/mountOptions").is_empty() {
        spec["mountOptions"] = class["mountOptions"].clone();
    }
    if let Some(attributes) = claim.str_at("/spec/volumeAttributesClassName") {
        spec["volumeAttributesClassName"] = json!(attributes);
    }
    let label = match class["parameters"][TOPOLOGY_PARAMETER].as_str() {
        Some("node") => Some("kubernetes.io/hostname"),
        Some("zone") => Some("topology.kubernetes.io/zone"),
        _ => None,
    };
    if let Some((label, value)) = label.and_then(|l| Some((l, node?.label(l)?))) {
        spec["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": label, "operator": "In", "values": [value]}]}]}});
    }
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": format!("pvc-{}", claim.uid()), "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": spec,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_takes_after_claim_and_class() {
        let claim = json!({"metadata": {"name": "c", "namespace": "n", "uid": "u"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "storageClassName": "s", "resources": {"requests": {"storage": "3Gi"}}}});
        let class =
            json!({"metadata": {"name": "s"}, "reclaimPolicy": "Retain", "mountOptions": ["ro"], "parameters": {"topology": "node"}});
        let node = json!({"metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1"}}});
        let made = volume(&claim, &class, Some(&node));
        assert_eq!((made.name(), &made["spec"]["capacity"]["storage"]), ("pvc-u", &json!("3Gi")));
        assert_eq!(made["spec"]["persistentVolumeReclaimPolicy"], "Retain");
        assert_eq!(made["spec"]["claimRef"]["uid"], "u");
        assert_eq!(made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"], json!(["n1"]));
        assert!(is_ours(&made) && volume(&claim, &json!({}), None)["spec"].get("nodeAffinity").is_none());
    }
}
