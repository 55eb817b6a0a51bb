//! VolumeSnapshots of the tenant's claims, where the host serves them.

use super::manifest::{Field, copied, kept, parts, to_tenant, translated};
use super::persistentvolumeclaim::PERSISTENT_VOLUME_CLAIM;
use super::{KindId, Refusal, SyncedKind, Translation, Upward};
use crate::translate::to_tenant_text;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

pub const GROUP: &str = "snapshot.storage.k8s.io";

pub const VOLUME_SNAPSHOT: SyncedKind = SyncedKind {
    group: GROUP,
    fields: &[&FIELDS],
    hook: to_host,
    to_tenant: up,
    ..SyncedKind::core_v1(KindId::VolumeSnapshot, "VolumeSnapshot", "volumesnapshots")
};

const FIELDS: [Field; 6] = [
    parts("/spec"),
    copied("/spec/volumeSnapshotClassName"),
    parts("/spec/source"),
    translated("/spec/source/persistentVolumeClaimName"),
    kept("/spec/source/volumeSnapshotContentName", "refused: names an object of the host, which may be another tenant's"),
    to_tenant("/status"),
];

fn to_host(host: &mut Value, tenant: &Value, translation: &Translation<'_>) -> Result<(), Refusal> {
    let Some(claim) = tenant.str_at("/spec/source/persistentVolumeClaimName") else {
        let why = "snapshots that exist already are not available to virtual clusters; use persistentVolumeClaimName";
        return Err(Refusal::new("spec.source.volumeSnapshotContentName", why));
    };
    let claim = translation.refer(&PERSISTENT_VOLUME_CLAIM, tenant.namespace(), claim);
    host["spec"]["source"] = json!({"persistentVolumeClaimName": claim});
    Ok(())
}

fn up(tenant: &Value, host: &Value, translation: &Translation<'_>) -> Upward {
    // The host's default class, where the tenant named none.
    let class = &host["spec"]["volumeSnapshotClassName"];
    let unset = tenant["spec"]["volumeSnapshotClassName"].is_null() && class.is_string();
    let main = unset.then(|| json!({"spec": {"volumeSnapshotClassName": class}}));
    let mut status = host["status"].clone();
    if !status.is_object() {
        return Upward { status: None, main };
    }
    status.remove_at("/volumeGroupSnapshotName");
    if let Some(message) = status.str_at("/error/message") {
        let lookup =
            |name: &str| [KindId::VolumeSnapshot, KindId::PersistentVolumeClaim].iter().find_map(|k| translation.view.tenant_key(*k, name));
        status["error"]["message"] = json!(to_tenant_text(message, host.namespace(), lookup));
    }
    Upward { status: Some(status), main }
}
