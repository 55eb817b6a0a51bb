//! Defaults of volumes, shared by pods, templates and persistent volumes.

use super::super::edit::{child, fill, fill_zero, items};
use super::defaults::{default_field_ref, default_resource_ref, default_resources, pull_policy};
use serde_json::{Value, json};

const MODE: i64 = 0o644;
const TOKEN_SECONDS: i64 = 3600;

pub(crate) fn default_volume(volume: &mut Value) {
    let has_source = volume.as_object().is_some_and(|m| m.iter().any(|(key, value)| key != "name" && !value.is_null()));
    if !has_source {
        fill(volume, "emptyDir", json!({}));
    }
    if let Some(image) = child(volume, "image") {
        let policy = pull_policy(image["reference"].as_str().unwrap_or_default());
        fill_zero(image, "pullPolicy", policy);
    }
    default_source(volume);
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = child(volume, source) {
            fill(source, "defaultMode", MODE);
        }
    }
    if let Some(downward) = child(volume, "downwardAPI") {
        items(downward, "items").for_each(default_item);
    }
    if let Some(projected) = child(volume, "projected") {
        for source in items(projected, "sources") {
            if let Some(downward) = child(source, "downwardAPI") {
                items(downward, "items").for_each(default_item);
            }
            if let Some(token) = child(source, "serviceAccountToken") {
                fill(token, "expirationSeconds", TOKEN_SECONDS);
            }
        }
    }
    if let Some(template) = child(volume, "ephemeral").and_then(|e| child(e, "volumeClaimTemplate")) {
        fill(template, "metadata", json!({}));
        if let Some(spec) = child(template, "spec") {
            default_claim_spec(spec);
        }
    }
}

fn default_item(item: &mut Value) {
    default_field_ref(item);
    default_resource_ref(item);
}

/// The sources that persistent volumes know as well.
pub(crate) fn default_source(volume: &mut Value) {
    if let Some(path) = child(volume, "hostPath") {
        fill(path, "type", "");
    }
    if let Some(iscsi) = child(volume, "iscsi") {
        fill_zero(iscsi, "iscsiInterface", "default");
    }
    if let Some(rbd) = child(volume, "rbd") {
        fill_zero(rbd, "pool", "rbd");
        fill_zero(rbd, "user", "admin");
        fill_zero(rbd, "keyring", "/etc/ceph/keyring");
    }
    if let Some(disk) = child(volume, "azureDisk") {
        fill(disk, "cachingMode", "ReadWrite");
        fill(disk, "fsType", "ext4");
        fill(disk, "readOnly", false);
        fill(disk, "kind", "Shared");
    }
    if let Some(scale) = child(volume, "scaleIO") {
        fill_zero(scale, "storageMode", "ThinProvisioned");
        fill_zero(scale, "fsType", "xfs");
    }
}

pub(crate) fn default_claim_spec(spec: &mut Value) {
    fill(spec, "volumeMode", "Filesystem");
    fill(spec, "resources", json!({}));
    default_resources(&mut spec["resources"]);
}
