//! Horizontal pod autoscalers: counts of replicas follow metrics.
//!
//! [`sources`] asks the metrics APIs, [`calculate`] turns numbers into counts, [`metric`] does both for one metric of an
//! autoscaler, [`behavior`] says how fast a count may follow, [`target`] reads and writes it. Nothing runs while there is
//! no autoscaler; each one is looked at every fifteen seconds, as upstream.

mod behavior;
mod calculate;
mod metric;
mod sources;
mod status;
mod target;

use async_trait::async_trait;
use behavior::{History, Wish};
use calculate::{Subject, Tolerances};
use jiff::SignedDuration;
use metric::{Asked, Computed, Failure};
use serde_json::{Value, json};
use status::Status;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use sublet_machinery::{Gvr, ObjectExt, Quantity, Selector};
use sublet_runtime::resources::PODS;
use sublet_runtime::{ClientError, Controller, Ctx, EventKind, Key, Outcome, Reconciler};

const AUTOSCALERS: Gvr = Gvr::new("autoscaling", "v2", "horizontalpodautoscalers");

const PERIOD: Duration = Duration::from_secs(15);
const TOLERANCE: f64 = 0.1;
const INITIALIZATION: SignedDuration = SignedDuration::from_mins(5);
const READINESS_DELAY: SignedDuration = SignedDuration::from_secs(30);

pub(crate) fn controller() -> Controller {
    Controller::new("horizontal-pod-autoscaler", Autoscalers::default()).reads(PODS).watches(AUTOSCALERS, |change, _| {
        // Our own words about it must not lead to more of them.
        let is_news = change.old.as_ref().zip(change.new.as_ref()).is_none_or(|(old, new)| old.generation() != new.generation());
        if is_news { vec![change.key()] } else { Vec::new() }
    })
}

/// What is remembered of one autoscaler.
#[derive(Default)]
struct Memory {
    history: History,
    selector: Option<Selector>,
}

#[derive(Default)]
struct Autoscalers {
    /// Guards what is remembered; one entry for each autoscaler that was looked at.
    memory: Mutex<HashMap<Key, Memory>>,
}

#[async_trait]
impl Reconciler for Autoscalers {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let Some(autoscaler) = ctx.informer(&AUTOSCALERS).get_key(key) else {
            self.memory.lock().expect("no holder panics").remove(key);
            return Outcome::Done;
        };
        let mut status = Status::of(&autoscaler, ctx.clock.rfc3339());
        if let Err(why) = self.look(ctx, key, &autoscaler, &mut status).await {
            tracing::debug!(%key, why, "autoscaler not satisfied, will look again");
        }
        if let Err(error) = status.write(ctx, &autoscaler).await
            && !error.is_not_found()
            && !error.is_conflict()
        {
            ctx.events.record(&autoscaler, EventKind::Warning, "FailedUpdateStatus", &error.to_string()).await;
        }
        Outcome::After(PERIOD)
    }
}

impl Autoscalers {
    async fn look(&self, ctx: &Ctx, key: &Key, autoscaler: &Value, status: &mut Status) -> Result<(), String> {
        let (gvr, scale) = match find(ctx, autoscaler).await {
            Ok(found) => found,
            Err(why) => {
                ctx.events.record(autoscaler, EventKind::Warning, "FailedGetScale", &why).await;
                let message = format!("the HPA controller was unable to get the target's current scale: {why}");
                status.condition("AbleToScale", false, "FailedGetScale", &message);
                return Err(why);
            }
        };
        status.condition("AbleToScale", true, "SucceededGetScale", "the HPA controller was able to get the target's current scale");
        status.forget_metrics();
        let current = scale.i64_at("/spec/replicas").unwrap_or_default();
        self.with(key, |memory| memory.history.begin(current, ctx.clock.now()));
        let min = autoscaler.i64_at("/spec/minReplicas").unwrap_or(1);
        let max = autoscaler.i64_at("/spec/maxReplicas").unwrap_or_default();
        let was_emptied = status.is_true("ScaledToZero");
        let (desired, reason) = if current == 0 && !(was_emptied && (min != 0 || has_outer_metric(autoscaler))) {
            status.condition(
                "ScalingActive",
                false,
                "ScalingDisabled",
                "scaling is disabled since the replica count of the target is zero",
            );
            status.counts(current, current);
            return Ok(());
        } else if current > max {
            (max, "Current number of replicas above Spec.MaxReplicas".to_string())
        } else if current < min && current != 0 {
            (min, "Current number of replicas below Spec.MinReplicas".to_string())
        } else {
            self.follow_metrics(ctx, key, autoscaler, &scale, status, Wish { current, desired: 0, min, max }).await?
        };
        if desired == current {
            status.counts(current, current);
            return Ok(());
        }
        let emptied = current > 0 && desired == 0 && min == 0 && has_outer_metric(autoscaler);
        match target::rescale(&ctx.client, &gvr, scale, desired).await {
            Ok(()) => {
                status.condition(
                    "AbleToScale",
                    true,
                    "SucceededRescale",
                    &format!("the HPA controller was able to update the target scale to {desired}"),
                );
                let message = format!("New size: {desired}; reason: {reason}");
                ctx.events.record(autoscaler, EventKind::Normal, "SuccessfulRescale", &message).await;
                let rules = autoscaler.pointer("/spec/behavior");
                self.with(key, |memory| memory.history.scaled(rules, current, desired, ctx.clock.now()));
                status.emptied(emptied);
                status.scaled(current, desired);
                Ok(())
            }
            Err(error) => {
                let message = format!("New size: {desired}; reason: {reason}; error: {error}");
                ctx.events.record(autoscaler, EventKind::Warning, "FailedRescale", &message).await;
                status.condition(
                    "AbleToScale",
                    false,
                    "FailedUpdateScale",
                    &format!("the HPA controller was unable to update the target scale: {error}"),
                );
                status.count(current);
                Err(error.to_string())
            }
        }
    }

    /// The count that the metrics want, as the rules allow it, and why.
    async fn follow_metrics(
        &self,
        ctx: &Ctx,
        key: &Key,
        autoscaler: &Value,
        scale: &Value,
        status: &mut Status,
        wish: Wish,
    ) -> Result<(i64, String), String> {
        let best = match self.ask(ctx, key, autoscaler, scale, status).await {
            Ok(best) => best,
            Err(why) => {
                status.count(wish.current);
                ctx.events.record(autoscaler, EventKind::Warning, "FailedComputeMetricsReplicas", &why).await;
                return Err(why);
            }
        };
        let wish = Wish { desired: best.replicas, ..wish };
        let mut reason = match wish.desired.cmp(&wish.current) {
            std::cmp::Ordering::Greater => format!("{} above target", best.name),
            std::cmp::Ordering::Less => "All metrics below target".into(),
            std::cmp::Ordering::Equal => String::new(),
        };
        let rules = autoscaler.pointer("/spec/behavior").filter(|rules| rules.is_object());
        let verdict = self.with(key, |memory| memory.history.normalize(wish, rules, ctx.clock.now()));
        status.condition("AbleToScale", true, verdict.able.0, verdict.able.1);
        status.condition("ScalingLimited", verdict.is_limited, verdict.limited.0, verdict.limited.1);
        let mut desired = verdict.replicas;
        if wish.current == 0 && desired < wish.min {
            desired = wish.min;
            if reason.is_empty() {
                reason = "Current number of replicas below Spec.MinReplicas".into();
            }
        }
        Ok((desired, reason))
    }

    /// The metric that wants most. Some that say nothing do not keep the others from raising the count.
    async fn ask(&self, ctx: &Ctx, key: &Key, autoscaler: &Value, scale: &Value, status: &mut Status) -> Result<Computed, String> {
        let selector = self.selector(ctx, key, autoscaler, scale, status).await?;
        let mut pods = ctx.informer(&PODS).list(Some(autoscaler.namespace()));
        pods.retain(|pod| selector.matches_object(pod));
        let current = scale.i64_at("/spec/replicas").unwrap_or_default();
        let subject = Subject {
            pods: &pods,
            current,
            tolerances: tolerances(autoscaler),
            now: ctx.clock.now(),
            initialization: INITIALIZATION,
            readiness_delay: READINESS_DELAY,
        };
        let asked = Asked {
            client: &ctx.client,
            namespace: autoscaler.namespace(),
            selector: scale.str_at("/status/selector").unwrap_or_default(),
            subject,
            replicas: scale.i64_at("/status/replicas").unwrap_or_default(),
        };
        let metrics = autoscaler.array_at("/spec/metrics");
        let (mut best, mut statuses, mut failures) = (None::<Computed>, Vec::new(), Vec::<Failure>::new());
        for metric in metrics {
            match metric::compute(&asked, metric).await {
                Ok(mut computed) => {
                    statuses.push(computed.status.take());
                    if best.as_ref().is_none_or(|b| b.replicas == 0 || computed.replicas > b.replicas) {
                        best = Some(computed);
                    }
                }
                Err(failure) => {
                    ctx.events.record(autoscaler, EventKind::Warning, failure.reason, &failure.why).await;
                    // Upstream shows it with nothing but an empty type.
                    statuses.push(json!({"type": ""}));
                    failures.push(failure);
                }
            }
        }
        status.metrics(statuses);
        match (best, failures.first()) {
            (Some(best), failure) if failure.is_none() || best.replicas >= current => {
                let message = format!("the HPA was able to successfully calculate a replica count from {}", best.name);
                status.condition("ScalingActive", true, "ValidMetricFound", &message);
                Ok(best)
            }
            (_, Some(first)) => {
                status.condition(
                    "ScalingActive",
                    false,
                    first.reason,
                    &format!("the HPA was unable to compute the replica count: {}", first.why),
                );
                Err(format!("invalid metrics ({} invalid out of {}), first error is: {}", failures.len(), metrics.len(), first.summary))
            }
            (_, None) => Err("there are no metrics".into()),
        }
    }

    /// The selector of the target's pods, which no other autoscaler may select.
    async fn selector(&self, ctx: &Ctx, key: &Key, autoscaler: &Value, scale: &Value, status: &mut Status) -> Result<Selector, String> {
        let text = scale.str_at("/status/selector").unwrap_or_default();
        let (event, reason, why, told) = if text.is_empty() {
            (
                "SelectorRequired",
                "InvalidSelector",
                "selector is required".to_string(),
                "the HPA target's scale is missing a selector".to_string(),
            )
        } else {
            match Selector::parse(text) {
                Ok(selector) => {
                    let others = self.claimants(ctx, key, &selector);
                    if others.len() < 2 {
                        return Ok(selector);
                    }
                    let shown: Vec<String> = others.iter().map(|other| format!("{{{} {}}}", other.namespace, other.name)).collect();
                    let why = format!("pods by selector {text} are controlled by more than one HPA (e.g. [{}])", shown.join(" "));
                    ("AmbiguousSelector", "AmbiguousSelector", why.clone(), why)
                }
                Err(error) => {
                    let why = format!("couldn't convert selector into a corresponding internal selector object: {}", error.0);
                    ("InvalidSelector", "InvalidSelector", why.clone(), why)
                }
            }
        };
        ctx.events.record(autoscaler, EventKind::Warning, event, &why).await;
        status.condition("ScalingActive", false, reason, &told);
        Err(why)
    }

    /// Autoscalers of the namespace, this one first, that select one of the pods; two are enough.
    fn claimants(&self, ctx: &Ctx, key: &Key, selector: &Selector) -> Vec<Key> {
        self.with(key, |memory| memory.selector = Some(selector.clone()));
        let others: Vec<(Key, Selector)> = {
            let all = self.memory.lock().expect("no holder panics");
            let others = all.iter().filter(|(other, _)| *other != key && other.namespace == key.namespace);
            others.filter_map(|(other, memory)| Some((other.clone(), memory.selector.clone()?))).collect()
        };
        if others.is_empty() {
            return vec![key.clone()];
        }
        let pods: Vec<Arc<Value>> = ctx.informer(&PODS).list(Some(&key.namespace));
        let other = others.into_iter().find(|(_, other)| pods.iter().any(|pod| selector.matches_object(pod) && other.matches_object(pod)));
        std::iter::once(key.clone()).chain(other.map(|(other, _)| other)).collect()
    }

    fn with<T>(&self, key: &Key, use_it: impl FnOnce(&mut Memory) -> T) -> T {
        use_it(self.memory.lock().expect("no holder panics").entry(key.clone()).or_default())
    }
}

async fn find(ctx: &Ctx, autoscaler: &Value) -> Result<(Gvr, Value), String> {
    let reference = &autoscaler["spec"]["scaleTargetRef"];
    let text = |key: &str| reference[key].as_str().unwrap_or_default();
    let resources = target::resources(&ctx.client, text("apiVersion"), text("kind")).await?;
    target::scale(&ctx.client, resources, autoscaler.namespace(), text("name")).await.map_err(|error: ClientError| error.to_string())
}

/// A metric that says something while there are no pods.
fn has_outer_metric(autoscaler: &Value) -> bool {
    autoscaler.array_at("/spec/metrics").iter().any(|m| m["type"] == "Object" || m["type"] == "External")
}

fn tolerances(autoscaler: &Value) -> Tolerances {
    let of = |direction: &str| {
        let said = autoscaler.pointer(&format!("/spec/behavior/{direction}/tolerance")).filter(|said| !said.is_null());
        said.and_then(|said| Quantity::from_json(said).ok()).map_or(TOLERANCE, |q| q.as_f64())
    };
    Tolerances { down: of("scaleDown"), up: of("scaleUp") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerances_are_a_tenth_unless_something_is_said() {
        let check = |behavior: Value, down, up| assert_eq!(tolerances(&json!({"spec": {"behavior": behavior}})), Tolerances { down, up });
        check(Value::Null, 0.1, 0.1);
        check(json!({"scaleUp": {"tolerance": "0.01"}, "scaleDown": {}}), 0.1, 0.01);
        check(json!({"scaleDown": {"tolerance": "0"}}), 0.0, 0.1);
    }
}
