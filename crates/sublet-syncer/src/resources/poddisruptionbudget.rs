//! PodDisruptionBudgets: what the host may evict. The host cannot see whose pods the copies are (their
//! owners live in the tenant), so it is given the number that the tenant's own controller arrived at.

use super::manifest::{Field, copied, kept, parts, translated};
use super::{KindId, Refusal, SyncedKind, Translation};
use crate::translate::{Namespaces, scoped_selector};
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

pub const POD_DISRUPTION_BUDGET: SyncedKind = SyncedKind {
    group: "policy",
    fields: &[&FIELDS],
    select: |object, _| is_counted(object),
    hook: to_host,
    ..SyncedKind::core_v1(KindId::PodDisruptionBudget, "PodDisruptionBudget", "poddisruptionbudgets")
};

const FIELDS: [Field; 6] = [
    parts("/spec"),
    translated("/spec/selector"),
    translated("/spec/minAvailable"),
    translated("/spec/maxUnavailable"),
    copied("/spec/unhealthyPodEvictionPolicy"),
    kept("/status", "each side counts its own pods; they are the same"),
];

/// Until the tenant's controller has looked at it there is no number to tell the host.
fn is_counted(budget: &Value) -> bool {
    let observed = budget.i64_at("/status/observedGeneration");
    observed.is_some() && observed == budget.i64_at("/metadata/generation")
}

fn to_host(host: &mut Value, tenant: &Value, translation: &Translation<'_>) -> Result<(), Refusal> {
    let own = Namespaces::These(vec![tenant.namespace().to_string()]);
    let selector = scoped_selector(&tenant["spec"]["selector"], &own, translation.names);
    if !selector.is_null() {
        host["spec"]["selector"] = selector;
    }
    host["spec"]["minAvailable"] = json!(tenant.i64_at("/status/desiredHealthy").unwrap_or_default());
    Ok(())
}
