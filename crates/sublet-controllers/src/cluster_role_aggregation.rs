//! Cluster roles that gather the rules of others by label.
//!
//! Roles change rarely and there are many of them in every cluster, so nothing but a stub of each is
//! held: a change lists them all.

use crate::kit::selector::Selector;
use async_trait::async_trait;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;
use sublet_runtime::informer::Informers;
use sublet_runtime::manager::map;
use sublet_runtime::resources::CLUSTER_ROLES;
use sublet_runtime::{ClientError, Controller, Ctx, Key, ListOptions, Outcome, Reconciler, Scope};

/// Also the field manager that owns the gathered rules.
const CONTROLLER: &str = "clusterrole-aggregation-controller";
/// What is kept of the metadata: what tells versions and owners apart.
const KEPT: [&str; 6] = ["name", "uid", "resourceVersion", "ownerReferences", "finalizers", "deletionTimestamp"];

pub(crate) fn controller() -> Controller {
    // Any role may feed any aggregating one, so they are looked at together.
    Controller::new(CONTROLLER, Aggregation).workers(1).watches(CLUSTER_ROLES, map::singleton)
}

/// Has the informer of the manager keep stubs. Before anybody else asks for it.
pub(crate) fn keep_stubs(informers: &Informers) {
    informers.informer_with(&CLUSTER_ROLES, &Scope::default(), |role| {
        let mut metadata = role["metadata"].take();
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.retain(|key, _| KEPT.contains(&key.as_str()));
        }
        *role = json!({"metadata": metadata});
    });
}

struct Aggregation;

#[async_trait]
impl Reconciler for Aggregation {
    async fn reconcile(&self, ctx: &Ctx, _: &Key) -> Outcome {
        match aggregate(ctx).await {
            Ok(()) => Outcome::Done,
            Err(error) => error.into(),
        }
    }
}

/// Roles may feed each other in a row: what one pass changes queues the next.
async fn aggregate(ctx: &Ctx) -> Result<(), ClientError> {
    let roles = ctx.client.list(&CLUSTER_ROLES, "", &ListOptions::default()).await?.items;
    for role in &roles {
        let Some(rules) = gather(role, &roles) else { continue };
        if rules == role.array_at("/rules") {
            continue;
        }
        let applied =
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": role.name()}, "rules": rules});
        ctx.client.apply(&CLUSTER_ROLES, &applied).await?;
    }
    Ok(())
}

/// The rules of all selected roles, selector by selector and by name, each rule once.
fn gather(role: &Value, all: &[Value]) -> Option<Vec<Value>> {
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
        let role = |name: &str, label: &str, verb: &str| json!({"metadata": {"name": name, "labels": {"to": label}}, "rules": [{"verbs": [verb]}]});
        let all = [role("a", "x", "get"), role("b", "y", "list"), role("c", "x", "get"), role("d", "x", "watch")];
        let aggregate = json!({"metadata": {"name": "all"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "x"}}]}});
        assert_eq!(gather(&aggregate, &all), Some(vec![json!({"verbs": ["get"]}), json!({"verbs": ["watch"]})]));
        assert_eq!(gather(&all[0], &all), None);
    }
}
