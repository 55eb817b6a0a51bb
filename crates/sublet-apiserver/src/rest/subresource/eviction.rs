//! Eviction: a delete that asks the disruption budgets first.

use super::{check_body_name, success};
use crate::http::HttpResponse;
use crate::reader::{Reader, Writer};
use crate::rest::delete::DeleteOptions;
use crate::rest::{ResourceRequest, decode, options};
use crate::server::Server;
use serde_json::{Value, json};
use sublet_machinery::selector::Selector;
use sublet_machinery::{ApiError, Cause, ObjectExt, Reason};

const BUDGETS: &str = "poddisruptionbudgets.policy";
/// Tries against a budget that others change at the same time.
const TRIES_MAX: usize = 8;
/// Most evictions that wait in `disruptedPods` for the controller, as upstream.
const DISRUPTED_PODS_MAX: usize = 2000;

impl Server {
    pub(crate) async fn evict(&self, request: &ResourceRequest<'_>) -> Result<HttpResponse, ApiError> {
        let dry_run = options::dry_run(request.query, "CreateOptions")?;
        let eviction = decode::body_of_kind(request, "policy", "Eviction")?;
        check_body_name(request, &eviction)?;
        let eviction = self.admit_body(request, eviction, dry_run).await?;
        let pod = self.live(request).await?;
        if needs_budget(&pod) {
            self.take_from_budget(&pod, dry_run || !eviction.array_at("/deleteOptions/dryRun").is_empty()).await?;
        }
        let text = |pointer: &str| eviction.str_at(pointer).map(str::to_string);
        let mut delete = DeleteOptions {
            grace_period_seconds: eviction.i64_at("/deleteOptions/gracePeriodSeconds"),
            propagation_policy: text("/deleteOptions/propagationPolicy"),
            uid: text("/deleteOptions/preconditions/uid").or_else(|| Some(pod.uid().to_string())),
            resource_version: text("/deleteOptions/preconditions/resourceVersion"),
            dry_run: dry_run || !eviction.array_at("/deleteOptions/dryRun").is_empty(),
        };
        if !delete.dry_run {
            self.mark_disrupted(&pod, &mut delete).await?;
        }
        self.delete_object_in(request, pod.namespace(), pod.name(), &delete).await?;
        Ok(success(request))
    }

    /// The pod says why it goes: job controllers tell an eviction from a failure by it.
    async fn mark_disrupted(&self, pod: &Value, delete: &mut DeleteOptions) -> Result<(), ApiError> {
        for _ in 0..TRIES_MAX {
            let Some(live) = self.get("pods", pod.namespace(), pod.name()).filter(|p| p.uid() == pod.uid()) else { return Ok(()) };
            let Some(marked) = with_disruption(&live, &self.now()) else { return Ok(()) };
            if delete.resource_version.as_deref().is_some_and(|v| v != live.resource_version()) {
                return Ok(());
            }
            match Writer::update(self, "pods", marked).await {
                Ok(written) => {
                    // A precondition on the version is about the pod as it was before the mark.
                    if delete.resource_version.is_some() {
                        delete.resource_version = Some(written.resource_version().to_string());
                    }
                    return Ok(());
                }
                Err(error) if error.is(Reason::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        Err(ApiError::modified("", "pods", pod.name()))
    }

    async fn take_from_budget(&self, pod: &Value, dry_run: bool) -> Result<(), ApiError> {
        let mut turn = None;
        for _ in 0..TRIES_MAX {
            let budgets: Vec<_> = self.list(BUDGETS, Some(pod.namespace())).into_iter().filter(|b| covers(b, pod)).collect();
            let budget = match budgets.as_slice() {
                [] => return Ok(()),
                [budget] => budget,
                _ => {
                    let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                    return Err(ApiError::new(500, Reason::Unknown, why));
                }
            };
            if is_unhealthy_and_free(pod, budget) {
                return Ok(());
            }
            let updated = disrupt(budget, pod, &self.now())?;
            if dry_run {
                return Ok(());
            }
            let name = updated.name().to_string();
            match Writer::update(self, BUDGETS, updated).await {
                Ok(_) => return Ok(()),
                Err(error) if error.is(Reason::Conflict) && turn.is_none() => turn = self.turn(BUDGETS, pod.namespace(), &name).await,
                Err(error) if error.is(Reason::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        let mut error = ApiError::too_many_requests("the disruption budget is changing too quickly; try again", 10);
        error.causes.push(Cause { reason: "DisruptionBudget".into(), message: error.message.clone(), field: String::new() });
        Err(error)
    }
}

/// The pod with the condition of an eviction; `None` when it has it already.
fn with_disruption(pod: &Value, now: &str) -> Option<Value> {
    let mut condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
        "lastProbeTime": null, "lastTransitionTime": now,
    });
    if pod.generation() > 0 {
        condition["observedGeneration"] = json!(pod.generation());
    }
    let mut conditions = pod.array_at("/status/conditions").to_vec();
    match conditions.iter_mut().find(|c| c["type"] == "DisruptionTarget") {
        Some(old) if old["status"] == "True" && old["reason"] == condition["reason"] => return None,
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
    let mut marked = pod.clone();
    marked.set_at("/status/conditions", Value::Array(conditions));
    Some(marked)
}

/// Pods that do not count as running may go at once.
fn needs_budget(pod: &Value) -> bool {
    !(matches!(pod.str_at("/status/phase"), Some("Succeeded" | "Failed" | "Pending")) || pod.is_deleting())
}

fn covers(budget: &Value, pod: &Value) -> bool {
    match Selector::from_object(&budget["spec"]["selector"]) {
        Ok(selector) => selector.matches_object(pod),
        Err(_) => false,
    }
}

fn is_unhealthy_and_free(pod: &Value, budget: &Value) -> bool {
    let ready = pod.is_condition_true("Ready");
    if ready {
        return false;
    }
    let (healthy, desired) = (number(budget, "currentHealthy"), number(budget, "desiredHealthy"));
    budget.str_at("/spec/unhealthyPodEvictionPolicy") == Some("AlwaysAllow") || (healthy >= desired && desired > 0)
}

fn number(budget: &Value, field: &str) -> i64 {
    budget["status"][field].as_i64().unwrap_or(0)
}

/// The budget with one disruption less.
fn disrupt(budget: &Value, pod: &Value, now: &str) -> Result<Value, ApiError> {
    let refuse = |message: String| {
        let mut error = ApiError::too_many_requests("Cannot evict pod as it would violate the pod's disruption budget.", 0);
        error.causes.push(Cause { reason: "DisruptionBudget".into(), message, field: String::new() });
        Err(error)
    };
    if budget.i64_at("/status/observedGeneration").unwrap_or(0) < budget.generation() {
        let mut error = ApiError::too_many_requests("Cannot evict pod as it would violate the pod's disruption budget.", 10);
        let message = format!("The disruption budget {} is still being processed by the server.", budget.name());
        error.causes.push(Cause { reason: "DisruptionBudget".into(), message, field: String::new() });
        return Err(error);
    }
    let allowed = number(budget, "disruptionsAllowed");
    if allowed < 0 {
        return Err(ApiError::forbidden("policy", "poddisruptionbudgets", budget.name(), "pdb disruptions allowed is negative"));
    }
    if budget["status"]["disruptedPods"].as_object().is_some_and(|p| p.len() > DISRUPTED_PODS_MAX) {
        return Err(ApiError::forbidden(
            "policy",
            "poddisruptionbudgets",
            budget.name(),
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        ));
    }
    if allowed == 0 {
        let failed = budget.array_at("/status/conditions").iter().find(|c| c["type"] == "DisruptionAllowed" && c["reason"] == "SyncFailed");
        let (name, desired, current) = (budget.name(), number(budget, "desiredHealthy"), number(budget, "currentHealthy"));
        return refuse(match failed {
            Some(condition) => {
                let why = condition["message"].as_str().unwrap_or_default();
                format!("The disruption budget {name} does not allow evicting pods currently because it failed sync: {why}")
            }
            None if current <= desired => format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently"),
            None => format!("The disruption budget {name} does not allow evicting pods currently"),
        });
    }
    let mut updated = budget.clone();
    updated["status"]["disruptionsAllowed"] = json!(allowed - 1);
    updated.set_at(&format!("/status/disruptedPods/{}", pod.name()), json!(now));
    Ok(updated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_evicted_pod_says_why_it_goes() {
        let pod = json!({"metadata": {"generation": 2}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let marked = with_disruption(&pod, "t").unwrap();
        let condition = &marked["status"]["conditions"][1];
        assert_eq!((&condition["reason"], &condition["observedGeneration"]), (&json!("EvictionByEvictionAPI"), &json!(2)));
        assert_eq!(with_disruption(&marked, "u"), None);
    }

    #[test]
    fn a_budget_is_spent_one_by_one() {
        let pod = json!({"metadata": {"name": "p"}});
        let budget = json!({"metadata": {"name": "b", "generation": 1}, "status": {"observedGeneration": 1, "disruptionsAllowed": 1, "desiredHealthy": 2, "currentHealthy": 2}});
        let spent = disrupt(&budget, &pod, "t").unwrap();
        assert_eq!(spent["status"]["disruptedPods"]["p"], "t");
        let refused = disrupt(&spent, &pod, "t").unwrap_err();
        assert_eq!(
            (refused.code, refused.causes[0].message.as_str()),
            (429, "The disruption budget b needs 2 healthy pods and has 2 currently")
        );
    }
}
