//! Classes: what the host offers by name. Parameters stay on the host, since they may name its secrets.

use super::{ShownKind, labels, pick};
use crate::engine::host::HostKind;
use crate::resources::KindId;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;
use sublet_runtime::resources as gvr;

pub(super) const STORAGE_CLASS: ShownKind = ShownKind {
    id: KindId::StorageClass,
    host: HostKind::StorageClasses,
    gvr: gvr::STORAGE_CLASSES,
    kind: "StorageClass",
    namespace: "",
    select: |_, _, _| true,
    to_tenant: |host, _, _| {
        let fields = ["provisioner", "reclaimPolicy", "volumeBindingMode", "allowVolumeExpansion", "mountOptions", "allowedTopologies"];
        with_metadata(pick(host, &fields), host)
    },
    edits: |_, _, _| None,
    linger_seconds: 0,
};

pub(super) const PRIORITY_CLASS: ShownKind = ShownKind {
    id: KindId::PriorityClass,
    host: HostKind::PriorityClasses,
    gvr: gvr::PRIORITY_CLASSES,
    kind: "PriorityClass",
    namespace: "",
    // The tenant's API server has system classes of its own, which never reach the host.
    select: |host, _, _| !host.name().starts_with("system-"),
    to_tenant: |host, _, _| with_metadata(pick(host, &["value", "globalDefault", "description", "preemptionPolicy"]), host),
    edits: |_, _, _| None,
    linger_seconds: 0,
};

pub(super) const RUNTIME_CLASS: ShownKind = ShownKind {
    id: KindId::RuntimeClass,
    host: HostKind::RuntimeClasses,
    gvr: gvr::RUNTIME_CLASSES,
    kind: "RuntimeClass",
    namespace: "",
    select: |_, _, _| true,
    to_tenant: |host, _, _| with_metadata(pick(host, &["handler", "overhead", "scheduling"]), host),
    edits: |_, _, _| None,
    linger_seconds: 0,
};

pub(super) const INGRESS_CLASS: ShownKind = ShownKind {
    id: KindId::IngressClass,
    host: HostKind::IngressClasses,
    gvr: gvr::INGRESS_CLASSES,
    kind: "IngressClass",
    namespace: "",
    select: |_, _, _| true,
    to_tenant: |host, _, _| with_metadata(json!({"spec": pick(&host["spec"], &["controller"])}), host),
    edits: |_, _, _| None,
    linger_seconds: 0,
};

pub(super) const VOLUME_SNAPSHOT_CLASS: ShownKind = ShownKind {
    id: KindId::VolumeSnapshotClass,
    host: HostKind::VolumeSnapshotClasses,
    gvr: gvr::VOLUME_SNAPSHOT_CLASSES,
    kind: "VolumeSnapshotClass",
    namespace: "",
    select: |_, _, _| true,
    to_tenant: |host, _, _| with_metadata(pick(host, &["driver", "deletionPolicy"]), host),
    edits: |_, _, _| None,
    linger_seconds: 0,
};

pub(super) const GATEWAY_CLASS: ShownKind = ShownKind {
    id: KindId::GatewayClass,
    host: HostKind::GatewayClasses,
    gvr: gvr::GATEWAY_CLASSES,
    kind: "GatewayClass",
    namespace: "",
    select: |_, _, _| true,
    to_tenant: |host, _, _| {
        let mut status = pick(&host["status"], &["conditions", "supportedFeatures"]);
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            // Of the host's class, which counts its own changes.
            condition.remove_at("/observedGeneration");
        }
        with_metadata(json!({"spec": pick(&host["spec"], &["controllerName", "description"]), "status": status}), host)
    },
    edits: |_, _, _| None,
    linger_seconds: 0,
};

/// Annotations that make a class the default one.
const DEFAULT_MARKS: [&str; 4] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
    "ingressclass.kubernetes.io/is-default-class",
    "snapshot.storage.kubernetes.io/is-default-class",
];

fn with_metadata(mut object: Value, host: &Value) -> Value {
    object["metadata"]["labels"] = labels(host);
    for mark in DEFAULT_MARKS {
        object["metadata"]["annotations"][mark] = host["metadata"]["annotations"][mark].clone();
    }
    object
}
