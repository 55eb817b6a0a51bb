//! What the host's controllers say of gateways and routes, in the tenant's terms.

use super::{GROUP, parents};
use crate::resources::Translation;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

/// Under this name routes hear from us, who judge which namespaces may attach.
const JUDGE: &str = "sublet.dev/syncer";

/// The status of a gateway.
pub(super) fn of(tenant: &Value, host: &Value) -> Option<Value> {
    let mut status = host.get("status").filter(|s| s.is_object())?.clone();
    translate_generations(&mut status, tenant, host);
    for listener in status["listeners"].as_array_mut().into_iter().flatten() {
        translate_generations(listener, tenant, host);
    }
    Some(status)
}

/// The status of a route: what the host says about each parent, and what the host never heard of.
pub(super) fn of_route(kind: &str, tenant: &Value, host: &Value, translation: &Translation<'_>) -> Option<Value> {
    let parents = parents::all(tenant, translation);
    let mut said: Vec<Value> = Vec::new();
    for status in host.array_at("/status/parents") {
        // One that stands for a part of a parent keeps the section.
        let whole = |p: &&parents::Parent<'_>| p.host.iter().any(|h| same_parent(h, &status["parentRef"]));
        let Some(parent) = parents.iter().find(whole) else { continue };
        let mut told = status.clone();
        translate_generations(&mut told, tenant, host);
        told["parentRef"] = parent.tenant.clone();
        if parent.host.len() > 1 {
            told["parentRef"]["sectionName"] = status["parentRef"]["sectionName"].clone();
        }
        said.push(told);
    }
    said.extend(parents.iter().filter(|p| p.host.is_empty()).map(|p| shut_out(kind, p.tenant, tenant)));
    // A route without parents has none to speak of.
    (!said.is_empty() || host["status"].is_object()).then(|| json!({"parents": said}))
}

fn same_parent(a: &Value, b: &Value) -> bool {
    let text = |v: &Value, field: &str, default: &str| v[field].as_str().unwrap_or(default).to_string();
    text(a, "group", GROUP) == text(b, "group", GROUP)
        && text(a, "kind", "Gateway") == text(b, "kind", "Gateway")
        && ["name", "sectionName", "port"].iter().all(|f| a[*f] == b[*f])
}

fn shut_out(kind: &str, parent: &Value, route: &Value) -> Value {
    json!({
        "parentRef": parent, "controllerName": JUDGE,
        "conditions": [{
            "type": "Accepted", "status": "False", "reason": "NotAllowedByListeners",
            "message": format!("no listener of the parent lets in a {kind} of namespace {:?}", route.namespace()),
            "observedGeneration": route.generation(), "lastTransitionTime": route["metadata"]["creationTimestamp"],
        }],
    })
}

/// Generations count each side's own changes: what the host said of its newest, it said of ours.
fn translate_generations(holder: &mut Value, tenant: &Value, host: &Value) {
    for condition in holder["conditions"].as_array_mut().into_iter().flatten() {
        match condition["observedGeneration"].as_i64() {
            Some(seen) if seen == host.generation() => condition["observedGeneration"] = json!(tenant.generation()),
            _ => {
                condition.remove_at("/observedGeneration");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_of_an_older_gateway_is_not_said_of_this_one() {
        let tenant = json!({"metadata": {"generation": 7}});
        let host = json!({"metadata": {"generation": 3}, "status": {
            "conditions": [{"type": "Accepted", "observedGeneration": 3}, {"type": "Programmed", "observedGeneration": 2}],
            "listeners": [{"name": "http", "conditions": [{"type": "Accepted", "observedGeneration": 3}]}],
        }});
        let status = of(&tenant, &host).unwrap();
        assert_eq!(status["conditions"], json!([{"type": "Accepted", "observedGeneration": 7}, {"type": "Programmed"}]));
        assert_eq!(status["listeners"][0]["conditions"][0]["observedGeneration"], 7);
        assert_eq!(of(&tenant, &json!({})), None);
    }

    #[test]
    fn defaults_of_a_parent_are_its_values() {
        assert!(same_parent(&json!({"name": "a"}), &json!({"name": "a", "kind": "Gateway", "group": GROUP})));
        assert!(!same_parent(&json!({"name": "a"}), &json!({"name": "a", "sectionName": "s"})));
    }
}
