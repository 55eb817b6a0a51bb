//! Namespaces on their way out: their content is deleted, pods first, then they are finalized.

mod content;
mod report;

use crate::kit::{exec, time};
use async_trait::async_trait;
use content::Remains;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::ObjectExt;
use sublet_runtime::manager::{Mapping, map};
use sublet_runtime::resources::{NAMESPACES, PODS};
use sublet_runtime::{Change, ClientError, Controller, Ctx, Key, Outcome, Reconciler};

const FINALIZER: &str = "kubernetes";
/// When to look again for content that nothing here announces the end of.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(15);

pub(crate) fn controller() -> Controller {
    Controller::new("namespace-controller", Namespaces).workers(4).watches(NAMESPACES, map::itself).watches(PODS, ended_pods)
}

/// The end of a pod lets the deletion of its namespace go on.
fn ended_pods(change: &Change, mapping: &Mapping) -> Vec<Key> {
    if !change.is_delete() {
        return Vec::new();
    }
    let key = Key::new("", change.object().namespace());
    let ends = mapping.informer(&NAMESPACES).get_key(&key).is_some_and(|n| n.is_deleting());
    if ends { vec![key] } else { Vec::new() }
}

struct Namespaces;

#[async_trait]
impl Reconciler for Namespaces {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        match ctx.informer(&NAMESPACES).get_key(key) {
            Some(namespace) if namespace.is_deleting() => match sync(ctx, namespace).await {
                Ok(outcome) => outcome,
                Err(error) if error.is_not_found() => Outcome::Done,
                Err(error) => error.into(),
            },
            _ => Outcome::Done,
        }
    }
}

async fn sync(ctx: &Ctx, mut namespace: Arc<Value>) -> Result<Outcome, ClientError> {
    if namespace.str_at("/status/phase") != Some("Terminating") {
        let mut status = namespace.get("status").cloned().unwrap_or(json!({}));
        status["phase"] = json!("Terminating");
        exec::put_status(ctx, &NAMESPACES, &namespace, status).await?;
        namespace = ctx.informer(&NAMESPACES).get("", namespace.name()).unwrap_or(namespace);
    }
    if namespace.array_at("/spec/finalizers").is_empty() {
        return Ok(Outcome::Done);
    }
    let remains = content::delete_all(ctx, namespace.name()).await;
    let status = report::status(&namespace, &remains, &ctx.clock.rfc3339());
    if namespace.get("status") != Some(&status) {
        let mut changed = namespace.as_ref().clone();
        changed["status"] = status;
        namespace = Arc::new(exec::update_status(ctx, &NAMESPACES, &changed).await?);
    }
    if !remains.is_empty() {
        return Ok(Outcome::After(look_again(&namespace, &remains, ctx)));
    }
    let mut finalized = namespace.as_ref().clone();
    let rest: Vec<Value> = namespace.array_at("/spec/finalizers").iter().filter(|f| *f != FINALIZER).cloned().collect();
    finalized["spec"]["finalizers"] = json!(rest);
    ctx.client.update_subresource(&NAMESPACES, &finalized, "finalize").await?;
    Ok(Outcome::Done)
}

/// Soon at first, later the longer the deletion takes already.
fn look_again(namespace: &Value, remains: &Remains, ctx: &Ctx) -> Duration {
    let waited = time::at(namespace, "/metadata/deletionTimestamp").map_or(0.0, |since| time::seconds_between(since, ctx.clock.now()));
    let pause = Duration::from_secs_f64((waited / 4.0).clamp(LOOK_AGAIN.as_secs_f64(), LOOK_AGAIN_MAX.as_secs_f64()));
    // Pods report their end; the rest has to be asked.
    if remains.waits_for_pods() { pause.max(LOOK_AGAIN_MAX / 3) } else { pause }
}
