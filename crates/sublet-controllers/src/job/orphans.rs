//! Pods that still carry the tracking finalizer although no running job will count them.

use super::facts::{self, FINALIZER};
use crate::kit::exec;
use async_trait::async_trait;
use serde_json::Value;
use sublet_machinery::ObjectExt;
use sublet_runtime::manager::Mapping;
use sublet_runtime::resources::{JOBS, PODS};
use sublet_runtime::{Change, ClientError, Controller, Ctx, Key, Outcome, Reconciler};

pub(crate) fn controller() -> Controller {
    Controller::new("job-controller", Orphans).watches(PODS, orphan).watches(JOBS, pods_of_ended)
}

fn orphan(change: &Change, mapping: &Mapping) -> Vec<Key> {
    let Some(pod) = change.new.as_ref().filter(|p| p.has_finalizer(FINALIZER)) else { return Vec::new() };
    let job = pod
        .controller_owner()
        .and_then(|r| mapping.informer(&JOBS).get(pod.namespace(), r["name"].as_str()?).filter(|j| r["uid"] == j.uid()));
    if job.is_some_and(|j| !facts::is_finished(&j)) { Vec::new() } else { vec![change.key()] }
}

fn pods_of_ended(change: &Change, mapping: &Mapping) -> Vec<Key> {
    if !change.is_delete() && !facts::is_finished(change.object()) {
        return Vec::new();
    }
    let pods = mapping.informer(&PODS).owned_by(change.object().uid());
    pods.iter().filter(|p| p.has_finalizer(FINALIZER)).map(|p| Key::of(p)).collect()
}

struct Orphans;

#[async_trait]
impl Reconciler for Orphans {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let Some(pod) = ctx.informer(&PODS).get_key(key).filter(|p| p.has_finalizer(FINALIZER)) else { return Outcome::Done };
        match release(ctx, &pod).await {
            Ok(()) => Outcome::Done,
            Err(error) => error.into(),
        }
    }
}

/// The local copy may not know the job yet, so the server is asked.
async fn release(ctx: &Ctx, pod: &Value) -> Result<(), ClientError> {
    if let Some(owner) = pod.controller_owner() {
        if owner["kind"] != "Job" || owner["apiVersion"] != "batch/v1" {
            return Ok(());
        }
        let job = ctx.client.get_opt(&JOBS, pod.namespace(), owner["name"].as_str().unwrap_or_default()).await?;
        let job = job.filter(|j| owner["uid"] == j.uid());
        if job.is_some_and(|j| !facts::is_finished(&j) || super::is_managed_elsewhere(&j)) {
            return Ok(());
        }
    }
    exec::untrack(ctx, pod, FINALIZER).await
}
