//! Cluster roles that gather the rules of others by label.

use crate::kit::selector::Selector;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::ObjectExt;
use sublet_runtime::manager::Mapping;
use sublet_runtime::resources::CLUSTER_ROLES;
use sublet_runtime::{Change, Controller, Ctx, Key, Outcome, Reconciler};

/// Also the field manager that owns the gathered rules.
const CONTROLLER: &str = "clusterrole-aggregation-controller";

pub(crate) fn controller() -> Controller {
    Controller::new(CONTROLLER, Aggregation).watches(CLUSTER_ROLES, aggregating_roles)
}

/// Any role may feed any aggregating one; these are few.
fn aggregating_roles(_: &Change, mapping: &Mapping) -> Vec<Key> {
    let roles = mapping.informer(&CLUSTER_ROLES).list(None);
    roles.iter().filter(|r| r.get("aggregationRule").is_some_and(Value::is_object)).map(|r| Key::of(r)).collect()
}

struct Aggregation;

#[async_trait]
impl Reconciler for Aggregation {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let informer = ctx.informer(&CLUSTER_ROLES);
        let Some(role) = informer.get_key(key) else { return Outcome::Done };
        let Some(rules) = gather(&role, &informer.list(None)) else { return Outcome::Done };
        if rules == role.array_at("/rules") {
            return Outcome::Done;
        }
        let applied =
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": role.name()}, "rules": rules});
        match ctx.client.apply(&CLUSTER_ROLES, &applied).await {
            Ok(role) => {
                informer.wrote(&role);
                Outcome::Done
            }
            Err(error) => error.into(),
        }
    }
}

/// The rules of all selected roles, selector by selector and by name, each rule once.
fn gather(role: &Value, all: &[Arc<Value>]) -> Option<Vec<Value>> {
    role.get("aggregationRule").filter(|r| r.is_object())?;
    let mut rules: Vec<Value> = Vec::new();
    for selector in role.array_at("/aggregationRule/clusterRoleSelectors") {
        let selector = Selector::parse(Some(selector));
        for other in all.iter().filter(|o| o.name() != role.name() && selector.matches_object(o)) {
            for rule in other.array_at("/rules") {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    Some(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_gathered_once_and_in_order() {
        let role = |name: &str, label: &str, verb: &str| {
            Arc::new(json!({"metadata": {"name": name, "labels": {"to": label}}, "rules": [{"verbs": [verb]}]}))
        };
        let all = [role("a", "x", "get"), role("b", "y", "list"), role("c", "x", "get"), role("d", "x", "watch")];
        let aggregate = json!({"metadata": {"name": "all"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "x"}}]}});
        assert_eq!(gather(&aggregate, &all), Some(vec![json!({"verbs": ["get"]}), json!({"verbs": ["watch"]})]));
        assert_eq!(gather(&all[0], &all), None);
    }
}
