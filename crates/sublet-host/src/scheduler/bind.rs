//! What the scheduler writes: bindings with their volumes, refusals, preemptions.

use super::pod::PodInfo;
use super::preempt::Preemption;
use super::volumes::Action;
use crate::events::{EventSink, Notice};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS};
use sublet_runtime::{Client, ClientError, Clock, DeleteOptions, Informer, Patch, PatchOptions};

pub(crate) const COMPONENT: &str = "default-scheduler";
/// The node that the scheduler chose for a claim whose class waits for it.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const VOLUMES_BOUND_MAX: Duration = Duration::from_secs(600);
const VOLUMES_POLL: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub(crate) struct Writer {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) events: EventSink,
    pub(crate) claims: Arc<Informer>,
    pub(crate) volumes: Arc<Informer>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum BindError {
    /// The pod is gone, replaced or bound by somebody else: nothing is left to do.
    #[error("the pod is gone")]
    Gone,
    #[error(transparent)]
    Client(ClientError),
    #[error("{0}")]
    Volumes(String),
}

impl From<ClientError> for BindError {
    fn from(error: ClientError) -> Self {
        if error.is_not_found() { Self::Gone } else { Self::Client(error) }
    }
}

impl Writer {
    /// Binds the volumes, then the pod.
    pub(crate) async fn bind(&self, pod: &PodInfo, node: &str, actions: &[Action]) -> Result<(), BindError> {
        if !actions.is_empty() {
            self.bind_volumes(pod, node, actions).await?;
        }
        let key = &pod.key;
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": key.name, "namespace": key.namespace, "uid": pod.uid()},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        match self.client.create_subresource(&PODS, &key.namespace, &key.name, "binding", &binding).await {
            Ok(_) => {}
            Err(error) if error.is_conflict() => return Err(BindError::Gone),
            Err(error) => return Err(error.into()),
        }
        let message = format!("Successfully assigned {}/{} to {node}", key.namespace, key.name);
        self.events.record(&pod.object, COMPONENT, "", &Notice::normal("Scheduled", message));
        Ok(())
    }

    async fn bind_volumes(&self, pod: &PodInfo, node: &str, actions: &[Action]) -> Result<(), BindError> {
        let namespace = &pod.key.namespace;
        for action in actions {
            match action {
                Action::Bind { volume, claim } => {
                    let known = self.claims.get(namespace, claim).ok_or_else(|| BindError::Volumes(format!("claim {claim} is gone")))?;
                    let version = self.volumes.get("", volume).map(|v| v.resource_version().to_string()).unwrap_or_default();
                    let patch = json!({
                        "metadata": {"resourceVersion": version, "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
                        "spec": {"claimRef": claim_reference(&known)},
                    });
                    self.client.merge_patch(&PERSISTENT_VOLUMES, "", volume, patch).await?;
                }
                Action::Provision { claim } => {
                    let patch = json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
                    self.client.merge_patch(&PERSISTENT_VOLUME_CLAIMS, namespace, claim, patch).await?;
                }
            }
        }
        let wait = async {
            while !self.all_bound(pod, actions) {
                tokio::time::sleep(VOLUMES_POLL).await;
            }
        };
        let late = || BindError::Volumes("timed out waiting for the volumes of the pod".into());
        tokio::time::timeout(VOLUMES_BOUND_MAX, wait).await.map_err(|_| late())
    }

    fn all_bound(&self, pod: &PodInfo, actions: &[Action]) -> bool {
        actions.iter().all(|action| {
            let (Action::Bind { claim, .. } | Action::Provision { claim }) = action;
            self.claims.get(&pod.key.namespace, claim).is_some_and(|c| c.str_at("/status/phase") == Some("Bound"))
        })
    }

    /// Tells why the pod has no node.
    pub(crate) async fn refuse(&self, pod: &PodInfo, message: &str) {
        self.events.record(&pod.object, COMPONENT, "", &Notice::warning("FailedScheduling", message.into()));
        let old = pod.object.array_at("/status/conditions").iter().find(|c| c["type"] == "PodScheduled");
        let told = old.is_some_and(|c| c["status"] == "False" && c["reason"] == "Unschedulable" && c["message"] == message);
        if told {
            return;
        }
        let since = old.filter(|c| c["status"] == "False").map(|c| c["lastTransitionTime"].clone()).filter(Value::is_string);
        let mut condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message, "lastProbeTime": null,
            "lastTransitionTime": since.unwrap_or_else(|| json!(self.clock.rfc3339())),
        });
        if pod.object.generation() > 0 {
            condition["observedGeneration"] = json!(pod.object.generation());
        }
        self.patch_status(pod, json!({"conditions": [condition]})).await;
    }

    /// Makes room: the victims are marked and deleted, the pod gets its nomination.
    pub(crate) async fn preempt(&self, pod: &PodInfo, preemption: &Preemption) {
        self.patch_status(pod, json!({"nominatedNodeName": preemption.node})).await;
        for victim in preemption.victims.iter().filter(|v| !v.object.is_deleting()) {
            let mut condition = json!({
                "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "lastProbeTime": null,
                "message": format!("{COMPONENT}: preempting to accommodate a higher priority pod"), "lastTransitionTime": self.clock.rfc3339(),
            });
            if victim.object.generation() > 0 {
                condition["observedGeneration"] = json!(victim.object.generation());
            }
            self.patch_status(victim, json!({"conditions": [condition]})).await;
            let options = DeleteOptions::default().uid(victim.uid());
            match self.client.delete_if_exists(&PODS, &victim.key.namespace, &victim.key.name, &options).await {
                Ok(()) => {
                    let message = format!("Preempted by pod {} on node {}", pod.uid(), preemption.node);
                    self.events.record(&victim.object, COMPONENT, "", &Notice::normal("Preempted", message));
                }
                Err(error) => tracing::debug!(pod = %victim.key, %error, "victim not deleted"),
            }
        }
    }

    pub(crate) async fn clear_nomination(&self, pod: &PodInfo) {
        self.patch_status(pod, json!({"nominatedNodeName": null})).await;
    }

    async fn patch_status(&self, pod: &PodInfo, status: Value) {
        let patch = Patch::Strategic(json!({"metadata": {"uid": pod.uid()}, "status": status}));
        let result = self.client.patch(&PODS, &pod.key.namespace, &pod.key.name, "status", &patch, &PatchOptions::default()).await;
        if let Err(error) = result
            && !error.is_not_found()
        {
            tracing::debug!(pod = %pod.key, %error, "pod status not written");
        }
    }
}

/// The reference from a volume to its claim.
pub(crate) fn claim_reference(claim: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.namespace(), "name": claim.name(), "uid": claim.uid(),
        "resourceVersion": claim.resource_version(),
    })
}
