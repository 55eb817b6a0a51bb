//! The contents behind the tenant's VolumeSnapshots.

use super::{ShownKind, is_shown_by_us, labels, pick};
use crate::engine::host::HostKind;
use crate::resources::{KindId, Translation};
use crate::translate::TenantKey;
use serde_json::{Value, json};
use sublet_api::marks;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources as gvr;

pub(super) const VOLUME_SNAPSHOT_CONTENT: ShownKind = ShownKind {
    id: KindId::VolumeSnapshotContent,
    host: HostKind::VolumeSnapshotContents,
    gvr: gvr::VOLUME_SNAPSHOT_CONTENTS,
    kind: "VolumeSnapshotContent",
    namespace: "",
    // What a deleted snapshot leaves behind stays in sight for as long as the host keeps it.
    select: |host, shown, translation| {
        is_in_our_namespace(host, translation)
            && (snapshot_of(host, translation).is_some()
                || shown.is_some_and(|s| is_shown_by_us(s) && s.annotation(marks::UID) == Some(host.uid())))
    },
    to_tenant: |host, shown, translation| {
        let mut spec = pick(&host["spec"], &["driver", "deletionPolicy", "source", "sourceVolumeMode", "volumeSnapshotClassName"]);
        spec["volumeSnapshotRef"] = match snapshot_of(host, translation) {
            Some(key) => reference(&key, translation),
            None => shown.map(|s| s["spec"]["volumeSnapshotRef"].clone()).unwrap_or_default(),
        };
        let status = pick(&host["status"], &["snapshotHandle", "creationTime", "restoreSize", "readyToUse"]);
        json!({"metadata": {"labels": labels(host)}, "spec": spec, "status": status})
    },
    edits: |_, _, _| None,
    linger_seconds: 0,
};

fn is_in_our_namespace(host: &Value, translation: &Translation<'_>) -> bool {
    host.str_at("/spec/volumeSnapshotRef/namespace") == Some(translation.names.host_namespace(""))
}

fn snapshot_of(host: &Value, translation: &Translation<'_>) -> Option<TenantKey> {
    let snapshot = &host["spec"]["volumeSnapshotRef"];
    let key = translation.view.tenant_key(KindId::VolumeSnapshot, snapshot["name"].as_str()?)?;
    let copy = translation.view.host_copy(KindId::VolumeSnapshot, &key)?;
    (snapshot["uid"].is_null() || snapshot["uid"].as_str() == Some(copy.uid())).then_some(key)
}

fn reference(key: &TenantKey, translation: &Translation<'_>) -> Value {
    let mut reference =
        json!({"apiVersion": gvr::VOLUME_SNAPSHOTS.api_version(), "kind": "VolumeSnapshot", "namespace": key.namespace, "name": key.name});
    if let Some(live) = translation.view.object(KindId::VolumeSnapshot, key) {
        reference["uid"] = json!(live.uid());
    }
    reference
}
