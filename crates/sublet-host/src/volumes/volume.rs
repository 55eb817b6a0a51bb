//! One volume: its phase, and what becomes of it when its claim goes.

use super::provision::is_ours;
use super::writer::{BOUND_BY_CONTROLLER, Writer};
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES};
use sublet_runtime::{ClientError, DeleteOptions, Key};

pub(super) async fn sync(writer: &Writer<'_>, volume: &Value) -> Result<(), ClientError> {
    let reference = &volume["spec"]["claimRef"];
    let uid = reference["uid"].as_str().unwrap_or_default();
    let key = Key::new(reference["namespace"].as_str().unwrap_or_default(), reference["name"].as_str().unwrap_or_default());
    if uid.is_empty() {
        // Free, or reserved for a claim that is yet to come.
        if reference.is_object() {
            writer.ctx.queue().add(key);
        }
        return if volume.is_deleting() { Ok(()) } else { writer.volume_phase(volume, "Available", None).await.map(drop) };
    }
    let claim = writer.ctx.informer(&PERSISTENT_VOLUME_CLAIMS).get_key(&key).filter(|c| c.uid() == uid);
    let Some(claim) = claim else {
        // Data is at stake: the server is asked, not the copy.
        let live = writer.ctx.client.get_opt(&PERSISTENT_VOLUME_CLAIMS, &key.namespace, &key.name).await?;
        return if live.is_some_and(|c| c.uid() == uid) { Ok(()) } else { reclaim(writer, volume).await };
    };
    match claim.str_at("/spec/volumeName").filter(|v| !v.is_empty()) {
        Some(name) if name == volume.name() => writer.volume_phase(volume, "Bound", None).await.map(drop),
        Some(_) if volume.annotation(BOUND_BY_CONTROLLER).is_some() => free(writer, volume).await,
        Some(_) if is_ours(volume) => reclaim(writer, volume).await,
        Some(_) => Ok(()),
        None => {
            writer.ctx.queue().add(key);
            Ok(())
        }
    }
}

async fn reclaim(writer: &Writer<'_>, volume: &Value) -> Result<(), ClientError> {
    let volume = writer.volume_phase(volume, "Released", None).await?;
    match volume.str_at("/spec/persistentVolumeReclaimPolicy") {
        Some("Delete") if is_ours(&volume) && !volume.is_deleting() => {
            let options = DeleteOptions::default().uid(volume.uid());
            writer.ctx.client.delete_if_exists(&PERSISTENT_VOLUMES, "", volume.name(), &options).await
        }
        Some("Recycle") => free(writer, &volume).await,
        _ => Ok(()),
    }
}

/// The volume may serve another claim.
async fn free(writer: &Writer<'_>, volume: &Value) -> Result<(), ClientError> {
    let patch = json!({
        "metadata": {"resourceVersion": volume.resource_version(), "annotations": {BOUND_BY_CONTROLLER: null}}, "spec": {"claimRef": null},
    });
    let volume = writer.ctx.client.merge_patch(&PERSISTENT_VOLUMES, "", volume.name(), patch).await?;
    writer.volume_phase(&volume, "Available", None).await.map(drop)
}
