//! PodDisruptionBudgets: how many of the selected pods may be evicted now.

mod status;

use crate::kit::discovery;
use crate::kit::selector::Selector;
use crate::kit::{count_at, exec, pods, time};
use async_trait::async_trait;
use serde_json::{Value, json};
use status::Observed;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::resource::split_api_version;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::client::object_path;
use sublet_runtime::manager::{Mapping, map};
use sublet_runtime::resources::{DEPLOYMENTS, POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS};
use sublet_runtime::{Change, ClientError, Controller, Ctx, EventKind, Key, Outcome, Reconciler};

/// How long a pod may carry the mark of a disruption that does not happen.
const STALE_MARK: Duration = Duration::from_secs(120);

pub(crate) fn controller() -> Controller {
    Controller::new("disruption-controller", Disruption)
        .watches(POD_DISRUPTION_BUDGETS, map::itself)
        .watches(PODS, budgets_of_pod)
        .reads(REPLICA_SETS)
        .reads(REPLICATION_CONTROLLERS)
        .reads(STATEFUL_SETS)
        .reads(DEPLOYMENTS)
}

pub(crate) fn stale_marks() -> Controller {
    Controller::new("disruption-controller", StaleMarks).workers(1).watches(PODS, |change, mapping| {
        if change.new.as_ref().is_some_and(|p| stale_mark(p).is_some()) { map::itself(change, mapping) } else { Vec::new() }
    })
}

/// The budgets that select a changed pod, before or after, if the change matters to them.
fn budgets_of_pod(change: &Change, mapping: &Mapping) -> Vec<Key> {
    if let (Some(old), Some(new)) = (&change.old, &change.new) {
        let same = old["metadata"]["labels"] == new["metadata"]["labels"]
            && old.is_deleting() == new.is_deleting()
            && pods::is_ready(old) == pods::is_ready(new)
            && old.owner_references() == new.owner_references();
        if same {
            return Vec::new();
        }
    }
    let sides: Vec<&Arc<Value>> = [&change.old, &change.new].into_iter().flatten().collect();
    let budgets = mapping.informer(&POD_DISRUPTION_BUDGETS).list(Some(change.object().namespace()));
    let selects = |budget: &Value| {
        let selector = Selector::parse(budget.pointer("/spec/selector"));
        sides.iter().any(|pod| selector.matches_object(pod))
    };
    budgets.iter().filter(|b| selects(b)).map(|b| Key::of(b)).collect()
}

struct Disruption;

#[async_trait]
impl Reconciler for Disruption {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let Some(budget) = ctx.informer(&POD_DISRUPTION_BUDGETS).get_key(key) else { return Outcome::Done };
        match sync(ctx, &budget).await {
            Ok(outcome) => outcome,
            Err(error) => error.into(),
        }
    }
}

async fn sync(ctx: &Ctx, budget: &Value) -> Result<Outcome, ClientError> {
    let selector = Selector::parse(budget.pointer("/spec/selector"));
    let mut pods = ctx.informer(&PODS).list(Some(budget.namespace()));
    pods.retain(|p| selector.matches_object(p));
    if pods.is_empty() {
        ctx.events.record(budget, EventKind::Normal, "NoPods", "No matching pods found").await;
    }
    let now = ctx.clock.now();
    let expected = if status::needs_scale(budget) { expected_pods(ctx, budget, &pods).await? } else { Ok(pods.len() as i64) };
    let next = match expected {
        Ok(expected) => status::next(&Observed { budget, pods: &pods, expected, now }),
        Err(problem) => {
            let message = format!("Failed to calculate the number of expected pods: {problem}");
            ctx.events.record(budget, EventKind::Warning, "CalculateExpectedPodCountFailed", &message).await;
            status::fail_safe(budget, &problem, now)
        }
    };
    exec::put_status(ctx, &POD_DISRUPTION_BUDGETS, budget, next.clone()).await?;
    Ok(status::recheck(&next, now).map_or(Outcome::Done, Outcome::After))
}

/// The sum of the sizes of all controllers of the pods; the inner error is for the user.
async fn expected_pods(ctx: &Ctx, budget: &Value, pods: &[Arc<Value>]) -> Result<Result<i64, String>, ClientError> {
    let mut scales: BTreeMap<String, i64> = BTreeMap::new();
    let mut unmanaged = false;
    for pod in pods {
        let Some(owner) = pod.controller_owner() else {
            unmanaged = true;
            continue;
        };
        match scale_of(ctx, pod.namespace(), owner).await? {
            Ok(Some((uid, scale))) => _ = scales.insert(uid, scale),
            Ok(None) => return Ok(Err(format!("found no controllers for pod \"{}\"", pod.name()))),
            Err(problem) => return Ok(Err(problem)),
        }
    }
    if unmanaged {
        let message = format!(
            "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value.",
            budget["spec"]["selector"]
        );
        ctx.events.record(budget, EventKind::Warning, "UnmanagedPods", &message).await;
    }
    Ok(Ok(scales.values().sum()))
}

/// Uid and size of the controller behind a reference, or of the deployment above it.
async fn scale_of(ctx: &Ctx, namespace: &str, owner: &Value) -> Result<Result<Option<(String, i64)>, String>, ClientError> {
    let text = |key: &str| owner[key].as_str().unwrap_or_default();
    let (group, _) = split_api_version(text("apiVersion"));
    let held = |gvr: &Gvr| ctx.informer(gvr).get(namespace, text("name")).filter(|o| o.uid() == text("uid"));
    let scale = |object: &Value| (object.uid().to_string(), count_at(object, "/spec/replicas"));
    let found = match (group, text("kind")) {
        ("apps", "ReplicaSet") => {
            let Some(set) = held(&REPLICA_SETS) else { return Ok(Ok(None)) };
            let above = set.controller_owner().filter(|r| r["kind"] == "Deployment");
            let deployment =
                above.and_then(|r| ctx.informer(&DEPLOYMENTS).get(namespace, r["name"].as_str()?).filter(|d| r["uid"] == d.uid()));
            Some(scale(&deployment.unwrap_or(set)))
        }
        ("apps", "StatefulSet") => held(&STATEFUL_SETS).map(|o| scale(&o)),
        ("", "ReplicationController") => held(&REPLICATION_CONTROLLERS).map(|o| scale(&o)),
        _ => return scale_subresource(ctx, namespace, group, owner).await,
    };
    Ok(Ok(found))
}

async fn scale_subresource(
    ctx: &Ctx,
    namespace: &str,
    group: &str,
    owner: &Value,
) -> Result<Result<Option<(String, i64)>, String>, ClientError> {
    let text = |key: &str| owner[key].as_str().unwrap_or_default();
    let found = discovery::discover(&ctx.client).await?;
    let Some(resource) = found.resources.into_iter().find(|r| r.gvr.group == group && r.kind == text("kind")) else {
        return Ok(Err(format!("no matches for kind \"{}\" in version \"{}\"", text("kind"), text("apiVersion"))));
    };
    match ctx.client.get_raw(&object_path(&resource.gvr, namespace, text("name"), "scale")).await {
        Ok(scale) if scale.uid() == text("uid") => Ok(Ok(Some((scale.uid().to_string(), count_at(&scale, "/spec/replicas"))))),
        Ok(_) => Ok(Ok(None)),
        Err(error) if error.is_not_found() => match ctx.client.get_opt(&resource.gvr, namespace, text("name")).await? {
            Some(_) => Ok(Err(format!("{} does not implement the scale subresource", resource.gvr.group_resource()))),
            None => Ok(Ok(None)),
        },
        Err(error) => Err(error),
    }
}

/// Takes the mark of a disruption from pods that were not disrupted after all.
struct StaleMarks;

#[async_trait]
impl Reconciler for StaleMarks {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let Some(pod) = ctx.informer(&PODS).get_key(key) else { return Outcome::Done };
        let Some(at) = stale_mark(&pod) else { return Outcome::Done };
        let now = ctx.clock.now();
        if at > now {
            return Outcome::After(time::until(now, at));
        }
        let mut changed = pod.as_ref().clone();
        if let Some(conditions) = changed.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
            for condition in conditions.iter_mut().filter(|c| c["type"] == "DisruptionTarget") {
                *condition = json!({"type": "DisruptionTarget", "status": "False", "lastTransitionTime": ctx.clock.rfc3339()});
            }
        }
        exec::update_status(ctx, &PODS, &changed).await.map_or_else(Outcome::from, |_| Outcome::Done)
    }
}

/// When the mark of the pod is to be taken, if it carries one that somebody else than its kubelet set.
fn stale_mark(pod: &Value) -> Option<jiff::Timestamp> {
    let mark = pod.condition("DisruptionTarget").filter(|c| c["status"] == "True" && c["reason"] != "TerminationByKubelet")?;
    if pod.is_deleting() || pods::is_terminal(pod) {
        return None;
    }
    let seconds = i64::try_from(STALE_MARK.as_secs()).expect("minutes");
    Some(time::plus_seconds(time::at(mark, "/lastTransitionTime")?, seconds))
}
