//! The shared executor: applies what a step decided, and lets the local copies see each answer at once.
//!
//! Since the next step reads its own writes, no controller needs upstream's expectations to avoid
//! making the same thing twice while an informer lags.

use futures::future::join_all;
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::{Gvr, NamespacedName, ObjectExt};
use sublet_runtime::resources::PODS;
use sublet_runtime::{ClientError, Ctx, DeleteOptions, EventKind, Patch, PatchOptions};

/// Pods made or deleted for one owner in one step.
pub(crate) const BURST_PODS_MAX: usize = 500;
const SLOW_START_FIRST: usize = 1;

pub(crate) async fn create(ctx: &Ctx, gvr: &Gvr, object: &Value) -> Result<Value, ClientError> {
    let made = ctx.client.create(gvr, object).await?;
    took_in(ctx, gvr, &made);
    Ok(made)
}

pub(crate) async fn update(ctx: &Ctx, gvr: &Gvr, object: &Value) -> Result<Value, ClientError> {
    let made = ctx.client.update(gvr, object).await?;
    took_in(ctx, gvr, &made);
    Ok(made)
}

pub(crate) async fn update_status(ctx: &Ctx, gvr: &Gvr, object: &Value) -> Result<Value, ClientError> {
    update_subresource(ctx, gvr, object, "status").await
}

/// For subresources that are answered with the object itself.
pub(crate) async fn update_subresource(ctx: &Ctx, gvr: &Gvr, object: &Value, subresource: &str) -> Result<Value, ClientError> {
    let made = ctx.client.update_subresource(gvr, object, subresource).await?;
    took_in(ctx, gvr, &made);
    Ok(made)
}

/// Writes `status` unless the object already says so.
pub(crate) async fn put_status(ctx: &Ctx, gvr: &Gvr, object: &Value, status: Value) -> Result<(), ClientError> {
    if object.get("status").unwrap_or(&Value::Null) == &status {
        return Ok(());
    }
    let mut object = object.clone();
    object["status"] = status;
    update_status(ctx, gvr, &object).await.map(|_| ())
}

pub(crate) async fn merge_patch(ctx: &Ctx, gvr: &Gvr, target: &Value, patch: Value) -> Result<Value, ClientError> {
    let made = ctx.client.merge_patch(gvr, target.namespace(), target.name(), patch).await?;
    took_in(ctx, gvr, &made);
    Ok(made)
}

pub(crate) async fn strategic_patch(ctx: &Ctx, gvr: &Gvr, target: &Value, patch: Value) -> Result<Value, ClientError> {
    let patch = Patch::Strategic(patch);
    let made = ctx.client.patch(gvr, target.namespace(), target.name(), "", &patch, &PatchOptions::default()).await?;
    took_in(ctx, gvr, &made);
    Ok(made)
}

/// Deletes this very object; one that is already gone, or replaced by another of its name, is success.
pub(crate) async fn delete(ctx: &Ctx, gvr: &Gvr, target: &Value, options: DeleteOptions) -> Result<(), ClientError> {
    let answer = ctx.client.delete(gvr, target.namespace(), target.name(), &options.uid(target.uid())).await;
    let cached = ctx.cached(gvr);
    match answer {
        Ok(left) if left.kind() != "Status" && !is_removed(&left) => took_in(ctx, gvr, &left),
        Ok(_) => {
            if let Some(informer) = cached {
                informer.deleted(&NamespacedName::of(target), target.uid());
            }
        }
        Err(error) if error.is_not_found() || error.is_conflict() => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The answer to a delete shows an object that is gone already: nothing holds it any longer.
/// A namespace is held by finalizers in its spec.
fn is_removed(left: &Value) -> bool {
    left.finalizers().is_empty()
        && left.array_at("/spec/finalizers").is_empty()
        && left.i64_at("/metadata/deletionGracePeriodSeconds").unwrap_or(0) == 0
}

/// An object on its way out that lost what held it is gone with that very write.
fn took_in(ctx: &Ctx, gvr: &Gvr, made: &Value) {
    match ctx.cached(gvr) {
        Some(informer) if made.is_deleting() && is_removed(made) => informer.deleted(&NamespacedName::of(made), made.uid()),
        Some(informer) => informer.wrote(made),
        None => {}
    }
}

/// The namespace is on its way out, so nothing can be made in it and nobody needs to hear of it.
pub(crate) fn is_namespace_terminating(error: &ClientError) -> bool {
    error.api().is_some_and(|e| e.causes.iter().any(|c| c.reason == "NamespaceTerminating"))
}

/// Creates pods for `owner` in batches that double, so that a refusal of all of them (a quota, a
/// policy) costs few requests. Answers how many were made, with the first failure.
pub(crate) async fn create_pods(ctx: &Ctx, owner: &Value, pods: &[Value]) -> (usize, Result<(), ClientError>) {
    let mut made = 0;
    let mut batch = SLOW_START_FIRST;
    let mut rest = pods;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(batch.min(rest.len()));
        let results = join_all(now.iter().map(|pod| create_pod(ctx, owner, pod))).await;
        let mut failure = None;
        for result in results {
            match result {
                Ok(()) => made += 1,
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        if let Some(error) = failure {
            return (made, if is_namespace_terminating(&error) { Ok(()) } else { Err(error) });
        }
        rest = later;
        batch *= 2;
    }
    (made, Ok(()))
}

async fn create_pod(ctx: &Ctx, owner: &Value, pod: &Value) -> Result<(), ClientError> {
    match create(ctx, &PODS, pod).await {
        Ok(made) => {
            let message = format!("Created pod: {}", made.name());
            ctx.events.record(owner, EventKind::Normal, "SuccessfulCreate", &message).await;
            Ok(())
        }
        Err(error) => {
            if !is_namespace_terminating(&error) {
                ctx.events.record(owner, EventKind::Warning, "FailedCreate", &format!("Error creating: {error}")).await;
            }
            Err(error)
        }
    }
}

/// Deletes pods of `owner`, all at once, and answers the first failure.
pub(crate) async fn delete_pods(ctx: &Ctx, owner: &Value, pods: &[Arc<Value>]) -> Result<(), ClientError> {
    let results = join_all(pods.iter().map(|pod| delete_pod(ctx, owner, pod))).await;
    results.into_iter().collect()
}

pub(crate) async fn delete_pod(ctx: &Ctx, owner: &Value, pod: &Value) -> Result<(), ClientError> {
    match delete(ctx, &PODS, pod, DeleteOptions::default()).await {
        Ok(()) => {
            let message = format!("Deleted pod: {}", pod.name());
            ctx.events.record(owner, EventKind::Normal, "SuccessfulDelete", &message).await;
            Ok(())
        }
        Err(error) => {
            ctx.events.record(owner, EventKind::Warning, "FailedDelete", &format!("Error deleting: {error}")).await;
            Err(error)
        }
    }
}

/// Removes one finalizer from the object, if it is still as it was read.
pub(crate) async fn remove_finalizer(ctx: &Ctx, gvr: &Gvr, target: &Value, finalizer: &str) -> Result<(), ClientError> {
    let rest: Vec<&str> = target.finalizers().into_iter().filter(|f| *f != finalizer).collect();
    let patch = json!({"metadata": {"uid": target.uid(), "resourceVersion": target.resource_version(), "finalizers": rest}});
    match merge_patch(ctx, gvr, target, patch).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// Removes a finalizer from a pod, whatever else changed in it. A pod that is gone is success.
pub(crate) async fn untrack(ctx: &Ctx, pod: &Value, finalizer: &str) -> Result<(), ClientError> {
    if !pod.has_finalizer(finalizer) {
        return Ok(());
    }
    let patch = json!({"metadata": {"uid": pod.uid(), "$deleteFromPrimitiveList/finalizers": [finalizer]}});
    match strategic_patch(ctx, &PODS, pod, patch).await {
        // A conflict means another pod of that name.
        Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminating namespace was taken for a removed one after its status was written, and its
    /// deletion never went on.
    #[test]
    fn a_namespace_is_there_until_its_spec_lets_it_go() {
        let held = json!({"metadata": {"deletionTimestamp": "t"}, "spec": {"finalizers": ["kubernetes"]}});
        assert!(!is_removed(&held));
        assert!(is_removed(&json!({"metadata": {"deletionTimestamp": "t"}, "spec": {}})));
    }
}
