//! PersistentVolumeClaims: the wish goes down, volume and phase come up as the host has them.

use super::manifest::{Field, allocated, copied, parts, to_tenant, translated};
use super::volumesnapshot::{self, VOLUME_SNAPSHOT};
use super::{KindId, Refusal, SyncedKind, Translation, Upward};
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

pub const PERSISTENT_VOLUME_CLAIM: SyncedKind = SyncedKind {
    fields: &[&FIELDS],
    hook: to_host,
    to_tenant: up,
    ..SyncedKind::core_v1(KindId::PersistentVolumeClaim, "PersistentVolumeClaim", "persistentvolumeclaims")
};

const FIELDS: [Field; 11] = [
    parts("/spec"),
    copied("/spec/accessModes"),
    copied("/spec/resources"),
    copied("/spec/selector"),
    copied("/spec/storageClassName"),
    copied("/spec/volumeAttributesClassName"),
    copied("/spec/volumeMode"),
    translated("/spec/dataSource"),
    translated("/spec/dataSourceRef"),
    allocated("/spec/volumeName"),
    to_tenant("/status"),
];

/// Annotations by which binder and provisioners talk: the tenant's have no meaning on the host.
const BINDER_ANNOTATIONS: [&str; 3] = ["pv.kubernetes.io/", "volume.kubernetes.io/", "volume.beta.kubernetes.io/"];

fn to_host(host: &mut Value, tenant: &Value, translation: &Translation<'_>) -> Result<(), Refusal> {
    if let Some(annotations) = host["metadata"]["annotations"].as_object_mut() {
        annotations.retain(|key, _| !BINDER_ANNOTATIONS.iter().any(|prefix| key.starts_with(prefix)));
    }
    for field in ["dataSource", "dataSourceRef"] {
        let mut source = tenant["spec"][field].clone();
        if source.is_null() {
            continue;
        }
        let group = source["apiGroup"].as_str().unwrap_or_default();
        let kind = match (group, source["kind"].as_str().unwrap_or_default()) {
            ("", "PersistentVolumeClaim") => &PERSISTENT_VOLUME_CLAIM,
            (volumesnapshot::GROUP, "VolumeSnapshot") if translation.view.is_up(KindId::VolumeSnapshot) => &VOLUME_SNAPSHOT,
            (_, kind) => {
                let why = format!("a source of kind {kind:?} does not exist on the host; use a PersistentVolumeClaim");
                return Err(Refusal::new(format!("spec.{field}"), why));
            }
        };
        // On the host all namespaces are one, so nobody there would ask for a grant.
        if source["namespace"].as_str().is_some_and(|n| n != tenant.namespace()) {
            let why = "sources in other namespaces are not available to virtual clusters";
            return Err(Refusal::new(format!("spec.{field}.namespace"), why));
        }
        source.remove_at("/namespace");
        source["name"] = json!(translation.refer(kind, tenant.namespace(), source["name"].as_str().unwrap_or_default()));
        host["spec"][field] = source;
    }
    if let Some(volume) = tenant.str_at("/spec/volumeName").filter(|v| !v.is_empty()) {
        host["spec"]["volumeName"] = json!(volume);
    }
    Ok(())
}

fn up(tenant: &Value, host: &Value, _: &Translation<'_>) -> Upward {
    let volume = host.str_at("/spec/volumeName").unwrap_or_default();
    let unset = tenant.str_at("/spec/volumeName").unwrap_or_default().is_empty();
    let mut spec = json!({});
    if unset && !volume.is_empty() {
        spec["volumeName"] = json!(volume);
    }
    // The host's default class, where the tenant had none to apply.
    if tenant["spec"]["storageClassName"].is_null() && host["spec"]["storageClassName"].is_string() {
        spec["storageClassName"] = host["spec"]["storageClassName"].clone();
    }
    let main = spec.as_object().is_some_and(|s| !s.is_empty()).then(|| json!({"spec": spec}));
    Upward { status: Some(host["status"].clone()).filter(Value::is_object), main }
}
