//! One claim: finds, makes or waits for its volume; once bound, follows its growth.

use super::default_class;
use super::matcher::{self, Match};
use super::provision::{is_ours, provision};
use super::writer::{BIND_COMPLETED, Writer};
use crate::events::Notice;
use crate::quantity::milli_of;
use crate::scheduler::SELECTED_NODE;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;
use sublet_runtime::ClientError;
use sublet_runtime::resources::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES};

pub(super) async fn sync(writer: &Writer<'_>, claim: &Value) -> Result<(), ClientError> {
    if claim.annotation(BIND_COMPLETED).is_some() {
        return sync_bound(writer, claim).await;
    }
    if claim.is_deleting() {
        return Ok(());
    }
    match claim.str_at("/spec/volumeName").filter(|v| !v.is_empty()) {
        Some(name) => sync_named(writer, claim, name).await,
        None => sync_unbound(writer, claim).await,
    }
}

async fn sync_bound(writer: &Writer<'_>, claim: &Value) -> Result<(), ClientError> {
    let name = claim.str_at("/spec/volumeName").unwrap_or_default();
    let Some(volume) = writer.ctx.informer(&PERSISTENT_VOLUMES).get("", name) else {
        // The copy may lag behind our own write; the server knows.
        if name.is_empty() || writer.ctx.client.get_opt(&PERSISTENT_VOLUMES, "", name).await?.is_none() {
            return lose(writer, claim, "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!").await;
        }
        return Ok(());
    };
    let reference = &volume["spec"]["claimRef"];
    if reference.is_object() && !reference["uid"].as_str().unwrap_or_default().is_empty() && reference["uid"] != claim.uid() {
        let message = "Two claims are bound to the same volume, this one is bound incorrectly";
        return lose(writer, claim, "ClaimMisbound", message).await;
    }
    writer.bind(&volume, claim).await?;
    grow(writer, claim, &volume).await?;
    modify(writer, claim, &volume).await
}

async fn lose(writer: &Writer<'_>, claim: &Value, reason: &'static str, message: &str) -> Result<(), ClientError> {
    if claim.str_at("/status/phase") != Some("Lost") {
        writer.tell(claim, &Notice::warning(reason, message.into()));
    }
    writer.claim_status(claim, json!({"phase": "Lost", "accessModes": null, "capacity": null})).await
}

/// The claim asks for one volume by name.
async fn sync_named(writer: &Writer<'_>, claim: &Value, name: &str) -> Result<(), ClientError> {
    let Some(volume) = writer.ctx.informer(&PERSISTENT_VOLUMES).get("", name) else {
        return pending(writer, claim).await;
    };
    if volume["spec"]["claimRef"].is_object() {
        if matcher::is_reserved_for(&volume, claim) {
            return writer.bind(&volume, claim).await;
        }
        let message = format!("volume \"{name}\" already bound to a different claim.");
        writer.tell(claim, &Notice::warning("FailedBinding", message));
        return pending(writer, claim).await;
    }
    if let Some(why) = matcher::mismatch(&volume, claim) {
        writer.tell(claim, &Notice::warning("VolumeMismatch", format!("Cannot bind to requested volume \"{name}\": {why}")));
        return pending(writer, claim).await;
    }
    writer.bind(&volume, claim).await
}

async fn sync_unbound(writer: &Writer<'_>, claim: &Value) -> Result<(), ClientError> {
    let ctx = writer.ctx;
    if claim["spec"].get("storageClassName").is_none_or(Value::is_null)
        && matcher::class(claim).is_empty()
        && let Some(class) = default_class(ctx)
    {
        // A default class that came later serves the claims that wait for one; the change brings us back.
        let patch = json!({"spec": {"storageClassName": class.name()}});
        return ctx.client.merge_patch(&PERSISTENT_VOLUME_CLAIMS, claim.namespace(), claim.name(), patch).await.map(drop);
    }
    let class_name = matcher::class(claim);
    let class = ctx.informer(&STORAGE_CLASSES).get("", class_name);
    let delayed = class.as_ref().is_some_and(|c| c["volumeBindingMode"] == "WaitForFirstConsumer");
    let waits = delayed && claim.annotation(SELECTED_NODE).is_none();
    let volumes = ctx.informer(&PERSISTENT_VOLUMES).list(None);
    let mode = if delayed { Match::Delayed } else { Match::Immediate };
    if let Some(volume) = matcher::find(claim, &volumes, mode, &|_| false) {
        return writer.bind(volume, claim).await;
    }
    if waits {
        let message = "waiting for first consumer to be created before binding";
        writer.tell(claim, &Notice::normal("WaitForFirstConsumer", message.into()));
    } else if let Some(class) = class {
        provision(writer, claim, &class).await?;
    } else if class_name.is_empty() {
        let message = "no persistent volumes available for this claim and no storage class is set";
        writer.tell(claim, &Notice::normal("FailedBinding", message.into()));
    } else {
        let message = format!("storageclass.storage.k8s.io \"{class_name}\" not found");
        writer.tell(claim, &Notice::warning("ProvisioningFailed", message));
    }
    pending(writer, claim).await
}

async fn pending(writer: &Writer<'_>, claim: &Value) -> Result<(), ClientError> {
    writer.claim_status(claim, json!({"phase": "Pending"})).await
}

/// A larger request: the volume grows first, then the claim says so.
async fn grow(writer: &Writer<'_>, claim: &Value, volume: &Value) -> Result<(), ClientError> {
    let wanted = &claim["spec"]["resources"]["requests"]["storage"];
    let granted = &claim["status"]["capacity"]["storage"];
    if !is_ours(volume) || claim.str_at("/status/phase") != Some("Bound") || milli_of(wanted) <= milli_of(granted) {
        return Ok(());
    }
    if milli_of(wanted) > matcher::capacity(volume) {
        let patch = json!({"spec": {"capacity": {"storage": wanted}}});
        writer.ctx.client.merge_patch(&PERSISTENT_VOLUMES, "", volume.name(), patch).await?;
        writer.tell(claim, &Notice::normal("VolumeResizeSuccessful", "Resize volume succeeded".into()));
    }
    let size = if milli_of(wanted) > matcher::capacity(volume) { wanted.clone() } else { volume["spec"]["capacity"]["storage"].clone() };
    let mut status = json!({"capacity": {"storage": size}, "allocatedResources": {"storage": size}});
    if claim["status"].get("conditions").is_some() {
        status["conditions"] = Value::Null;
    }
    writer.claim_status(claim, status).await
}

/// Another attributes class comes into force at once.
async fn modify(writer: &Writer<'_>, claim: &Value, volume: &Value) -> Result<(), ClientError> {
    let Some(wanted) = claim.str_at("/spec/volumeAttributesClassName").filter(|w| !w.is_empty()) else { return Ok(()) };
    if !is_ours(volume) || volume.str_at("/spec/volumeAttributesClassName") == Some(wanted) {
        return Ok(());
    }
    let patch = json!({"spec": {"volumeAttributesClassName": wanted}});
    writer.ctx.client.merge_patch(&PERSISTENT_VOLUMES, "", volume.name(), patch).await?;
    writer.claim_status(claim, json!({"currentVolumeAttributesClassName": wanted, "modifyVolumeStatus": null})).await
}
