//! Single steps, and the conditions that tell of them.

use super::CLAIM;
use crate::control_planes::{Offers, PlaneStatus};
use crate::{ControlPlaneError, StepError};
use serde_json::json;
use sublet_api::condition::{self, Condition, STEPS};
use sublet_api::{Expose, Layout, Mode, State, Store, VirtualCluster};
use sublet_machinery::ObjectExt;
use sublet_runtime::Ctx;
use sublet_runtime::resources::{NAMESPACES, VIRTUAL_CLUSTERS};

/// How far the steps came in one round.
#[derive(Default)]
pub struct Progress {
    done: Vec<(String, String)>,
    stopped: Option<(String, String)>,
    pub endpoint: String,
    pub secret: String,
    pub store_identity: Option<String>,
    pub plane: PlaneStatus,
    /// The message of the Ready condition.
    pub message: String,
}

/// A condition that owns its texts.
pub struct OwnedCondition {
    type_: &'static str,
    status: bool,
    reason: String,
    message: String,
    generation: i64,
}

impl OwnedCondition {
    pub fn borrow(&self) -> Condition<'_> {
        Condition {
            type_: self.type_,
            status: self.status,
            reason: &self.reason,
            message: &self.message,
            observed_generation: self.generation,
        }
    }
}

impl Progress {
    pub fn done(&mut self, reason: &str, message: String) {
        self.done.push((reason.to_string(), message));
    }

    /// The step after the last done one did not succeed.
    pub fn stop(&mut self, error: &StepError) {
        let reason = match error {
            StepError::Stuck { reason, .. } | StepError::Waiting { reason, .. } => reason,
            StepError::Client(_) => "HostRefused",
            StepError::Pki(_) => "KeysUnusable",
            StepError::ControlPlane(ControlPlaneError::WrongStore(_)) => "WrongStore",
            StepError::ControlPlane(ControlPlaneError::HostTaken(_)) => "HostTaken",
            StepError::ControlPlane(_) => "StartFailed",
        };
        self.message = error.to_string();
        self.stopped = Some((reason.to_string(), error.to_string()));
    }

    /// Conditions of all steps, and `Ready`.
    pub fn conditions(&self, generation: i64) -> Vec<OwnedCondition> {
        let mut all = Vec::new();
        for (index, type_) in STEPS.into_iter().enumerate() {
            let (status, reason, message) = match (self.done.get(index), &self.stopped) {
                (Some((reason, message)), _) => (true, reason.clone(), message.clone()),
                (None, Some((reason, message))) if index == self.done.len() => (false, reason.clone(), message.clone()),
                _ => (false, "Waiting".into(), format!("waits for {}", STEPS[self.done.len().min(STEPS.len() - 1)])),
            };
            all.push(OwnedCondition { type_, status, reason, message, generation });
        }
        let ready = self.stopped.is_none() && self.done.len() == STEPS.len();
        let (reason, message) = match &self.stopped {
            Some((reason, message)) => (reason.clone(), message.clone()),
            None => ("Ready".into(), String::new()),
        };
        all.push(OwnedCondition { type_: condition::READY, status: ready, reason, message, generation });
        all
    }
}

/// What this release does not do is said, not ignored.
pub fn check_supported(cluster: &VirtualCluster<'_>, offers: Offers) -> Result<(), StepError> {
    let unsupported = |field: &str, value: &str, instead: &str| {
        Err(StepError::Stuck {
            reason: "NotSupported",
            message: format!("`{field}: {value}` is not supported by this release; use {instead}"),
        })
    };
    match cluster.mode() {
        Mode::Packed => {}
        Mode::Dedicated if offers.dedicated => {}
        Mode::External if offers.external => {}
        Mode::Dedicated => return unsupported("spec.controlPlane.mode", "Dedicated", "Packed"),
        Mode::External => return unsupported("spec.controlPlane.mode", "External", "Packed"),
    }
    if cluster.store() == Store::Etcd {
        return unsupported("spec.controlPlane.store.type", "Etcd", "Embedded");
    }
    if cluster.layout() == Layout::Mapped {
        return unsupported("spec.layout", "Mapped", "Single");
    }
    if !cluster.class().is_empty() {
        return unsupported("spec.class", cluster.class(), "an empty class");
    }
    if cluster.state() == State::Asleep {
        return unsupported("spec.state", "Asleep", "Running or Paused");
    }
    match cluster.expose() {
        Expose::NodePort | Expose::LoadBalancer | Expose::Ingress if !offers.exposure => {
            return unsupported("spec.controlPlane.expose.type", "NodePort, LoadBalancer or Ingress", "ClusterIP or None");
        }
        _ => {}
    }
    if !cluster.version().starts_with("1.37") {
        return unsupported("spec.version", cluster.version(), "1.37");
    }
    Ok(())
}

/// One namespace holds one virtual cluster: who looks at the namespace sees whose objects these are.
pub async fn claim_namespace(ctx: &Ctx, cluster: &VirtualCluster<'_>) -> Result<(), StepError> {
    let name = cluster.namespace();
    let Some(namespace) = ctx.informer(&NAMESPACES).get("", name) else {
        return Err(StepError::Waiting { reason: "NamespaceMissing", message: format!("namespace `{name}` does not exist") });
    };
    if namespace.is_deleting() {
        return Err(StepError::Stuck { reason: "NamespaceTerminating", message: format!("namespace `{name}` is being deleted") });
    }
    match namespace.label(CLAIM) {
        Some(holder) if holder == cluster.name() => Ok(()),
        Some(holder) if ctx.client.get_opt(&VIRTUAL_CLUSTERS, name, holder).await?.is_some() => Err(StepError::Stuck {
            reason: "NamespaceTaken",
            message: format!("namespace `{name}` already holds virtual cluster `{holder}`; create this one in a namespace of its own"),
        }),
        _ => {
            let patch = json!({"metadata": {"labels": {CLAIM: cluster.name()}}});
            ctx.client.merge_patch(&NAMESPACES, "", name, patch).await?;
            Ok(())
        }
    }
}

pub async fn release_namespace(ctx: &Ctx, cluster: &VirtualCluster<'_>) -> Result<(), StepError> {
    let Some(namespace) = ctx.client.get_opt(&NAMESPACES, "", cluster.namespace()).await? else { return Ok(()) };
    if namespace.label(CLAIM) == Some(cluster.name()) {
        let patch = json!({"metadata": {"labels": {CLAIM: null}}});
        match ctx.client.merge_patch(&NAMESPACES, "", cluster.namespace(), patch).await {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(progress: &Progress) -> Vec<(&'static str, bool, String)> {
        progress.conditions(1).into_iter().map(|c| (c.type_, c.status, c.reason)).collect()
    }

    #[test]
    fn conditions_tell_how_far_it_came_and_why_no_further() {
        let mut progress = Progress::default();
        progress.done("Claimed", String::new());
        progress.stop(&StepError::Stuck { reason: "SecretTaken", message: "m".into() });
        let told = told(&progress);
        assert_eq!(told[0], ("NamespaceClaimed", true, "Claimed".into()));
        assert_eq!(told[1], ("CertificatesReady", false, "SecretTaken".into()));
        assert_eq!(told[2], ("ControlPlaneReady", false, "Waiting".into()));
        assert_eq!(told[5], ("Ready", false, "SecretTaken".into()));
    }

    #[test]
    fn ready_is_all_steps_together() {
        let mut progress = Progress::default();
        for _ in STEPS {
            progress.done("Done", String::new());
        }
        assert!(told(&progress).iter().all(|(_, status, _)| *status));
    }
}
