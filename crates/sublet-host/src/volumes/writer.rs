//! The writes of the volume loop: each is skipped when it would change nothing.

use super::COMPONENT;
use crate::events::{EventSink, Notice};
use crate::scheduler::claim_reference;
use serde_json::{Map, Value, json};
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES};
use sublet_runtime::{ClientError, Clock, Ctx};

pub(super) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
pub(super) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

pub(super) struct Writer<'a> {
    pub(super) ctx: &'a Ctx,
    pub(super) events: &'a EventSink,
    pub(super) clock: &'a Clock,
}

impl Writer<'_> {
    pub(super) fn tell(&self, object: &Value, notice: &Notice) {
        self.events.record(object, COMPONENT, "", notice);
    }

    /// Ties volume and claim to each other, volume first: a crash in between is mended by the next sync.
    pub(super) async fn bind(&self, volume: &Value, claim: &Value) -> Result<(), ClientError> {
        let volume = self.bind_volume(volume, claim).await?;
        let volume = self.volume_phase(&volume, "Bound", None).await?;
        let claim = self.bind_claim(claim, &volume).await?;
        self.claim_bound(&claim, &volume).await
    }

    async fn bind_volume(&self, volume: &Value, claim: &Value) -> Result<Value, ClientError> {
        if volume["spec"]["claimRef"]["uid"] == claim.uid() {
            return Ok(volume.clone());
        }
        let mut metadata = json!({"resourceVersion": volume.resource_version()});
        if !volume["spec"]["claimRef"].is_object() {
            metadata["annotations"] = json!({BOUND_BY_CONTROLLER: "yes"});
        }
        let patch = json!({"metadata": metadata, "spec": {"claimRef": claim_reference(claim)}});
        self.ctx.client.merge_patch(&PERSISTENT_VOLUMES, "", volume.name(), patch).await
    }

    async fn bind_claim(&self, claim: &Value, volume: &Value) -> Result<Value, ClientError> {
        let named = claim["spec"]["volumeName"] == volume.name();
        let mut annotations = Map::new();
        if claim.annotation(BIND_COMPLETED).is_none() {
            annotations.insert(BIND_COMPLETED.into(), json!("yes"));
        }
        if !named {
            annotations.insert(BOUND_BY_CONTROLLER.into(), json!("yes"));
        }
        if annotations.is_empty() {
            return Ok(claim.clone());
        }
        let patch = json!({
            "metadata": {"resourceVersion": claim.resource_version(), "annotations": annotations}, "spec": {"volumeName": volume.name()},
        });
        self.ctx.client.merge_patch(&PERSISTENT_VOLUME_CLAIMS, claim.namespace(), claim.name(), patch).await
    }

    async fn claim_bound(&self, claim: &Value, volume: &Value) -> Result<(), ClientError> {
        let mut status = json!({"phase": "Bound", "accessModes": volume["spec"]["accessModes"]});
        if claim.str_at("/status/phase") != Some("Bound") {
            status["capacity"] = volume["spec"]["capacity"].clone();
        }
        if let Some(class) = volume.str_at("/spec/volumeAttributesClassName") {
            status["currentVolumeAttributesClassName"] = json!(class);
        }
        self.claim_status(claim, status).await
    }

    pub(super) async fn claim_status(&self, claim: &Value, status: Value) -> Result<(), ClientError> {
        let same = status.as_object().is_none_or(|s| s.iter().all(|(k, v)| claim["status"].get(k).unwrap_or(&Value::Null) == v));
        if same {
            return Ok(());
        }
        let patch = json!({"metadata": {"uid": claim.uid()}, "status": status});
        self.ctx.client.patch_status(&PERSISTENT_VOLUME_CLAIMS, claim.namespace(), claim.name(), patch).await.map(drop)
    }

    pub(super) async fn volume_phase(&self, volume: &Value, phase: &str, message: Option<&str>) -> Result<Value, ClientError> {
        if volume.str_at("/status/phase") == Some(phase) {
            return Ok(volume.clone());
        }
        let patch = json!({
            "metadata": {"uid": volume.uid()},
            "status": {"phase": phase, "message": message, "lastPhaseTransitionTime": self.clock.rfc3339()},
        });
        self.ctx.client.patch_status(&PERSISTENT_VOLUMES, "", volume.name(), patch).await
    }
}
