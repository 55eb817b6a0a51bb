//! Where a pod may run: selectors over other pods see the tenant's pods alone, priorities stay below
//! the host's own, and a node that the tenant names is a wish that the host's scheduler grants.

use crate::resources::peers::namespaces_of;
use crate::resources::{KindId, Refusal, Translation};
use crate::translate::{Namespaces, TenantKey, scoped_selector};
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

/// Classes of the host's own components.
const SYSTEM_PREFIX: &str = "system-";

pub(super) fn translate(host: &mut Value, tenant: &Value, translation: &Translation<'_>) -> Result<(), Refusal> {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let mut affinity = tenant["spec"]["affinity"][kind].clone();
        if affinity.is_null() {
            continue;
        }
        for term in items(&mut affinity, "requiredDuringSchedulingIgnoredDuringExecution") {
            translate_term(term, tenant, translation);
        }
        for weighted in items(&mut affinity, "preferredDuringSchedulingIgnoredDuringExecution") {
            translate_term(&mut weighted["podAffinityTerm"], tenant, translation);
        }
        host["spec"]["affinity"][kind] = affinity;
    }
    let mut constraints = tenant["spec"]["topologySpreadConstraints"].clone();
    if let Some(list) = constraints.as_array_mut().filter(|list| !list.is_empty()) {
        for constraint in list {
            translate_spread(constraint, tenant, translation);
        }
        host["spec"]["topologySpreadConstraints"] = constraints;
    }
    if let Some(class) = priority_class(tenant, translation) {
        host["spec"]["priorityClassName"] = json!(class);
    }
    pin_to_node(host, tenant, translation)
}

fn items<'a>(value: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The namespaces of a term are those in its list and those that its selector matches; neither means
/// the pod's own. They are looked up once: a pod's affinity never changes.
fn translate_term(term: &mut Value, tenant: &Value, translation: &Translation<'_>) {
    let listed = term.array_at("/namespaces").iter().filter_map(Value::as_str).map(str::to_string).collect();
    let namespaces = namespaces_of(&term["namespaceSelector"], listed, tenant.namespace(), translation.view);
    merge_keys(term, "matchLabelKeys", "In", tenant);
    merge_keys(term, "mismatchLabelKeys", "NotIn", tenant);
    term["labelSelector"] = scoped_selector(&term["labelSelector"], &namespaces, translation.names);
    for field in ["/namespaces", "/namespaceSelector"] {
        term.remove_at(field);
    }
    if term["labelSelector"].is_null() {
        term.remove_at("/labelSelector");
    }
}

fn translate_spread(constraint: &mut Value, tenant: &Value, translation: &Translation<'_>) {
    merge_keys(constraint, "matchLabelKeys", "In", tenant);
    let namespaces = Namespaces::These(vec![tenant.namespace().to_string()]);
    constraint["labelSelector"] = scoped_selector(&constraint["labelSelector"], &namespaces, translation.names);
    if constraint["labelSelector"].is_null() {
        constraint.remove_at("/labelSelector");
    }
}

/// Folds `matchLabelKeys` into the selector, as the API server does at creation, unless the tenant's
/// did so already: a host that finds the key in both places refuses the pod.
fn merge_keys(term: &mut Value, field: &str, operator: &str, pod: &Value) {
    let keys = term.remove_at(&format!("/{field}")).unwrap_or_default();
    if term["labelSelector"].is_null() {
        return;
    }
    for key in keys.as_array().into_iter().flatten().filter_map(Value::as_str) {
        let Some(value) = pod.label(key) else { continue };
        let merged = json!({"key": key, "operator": operator, "values": [value]});
        let selector = &mut term["labelSelector"];
        if !selector.array_at("/matchExpressions").contains(&merged) {
            match selector["matchExpressions"].as_array_mut() {
                Some(expressions) => expressions.push(merged),
                None => selector["matchExpressions"] = json!([merged]),
            }
        }
    }
}

/// A class that the host offers to tenants keeps its name. Any other becomes the highest offered one
/// that is not above it; there may be none, and never is it one of the system's.
fn priority_class(tenant: &Value, translation: &Translation<'_>) -> Option<String> {
    let wanted = tenant.str_at("/spec/priorityClassName").filter(|name| !name.is_empty())?;
    let offered = translation.view.host_priority_classes();
    let offered = || offered.iter().filter(|c| !c.name().starts_with(SYSTEM_PREFIX));
    if offered().any(|c| c.name() == wanted) {
        return Some(wanted.to_string());
    }
    let value = |class: &Value| class["value"].as_i64().unwrap_or_default();
    let ceiling = match translation.view.priority_class(wanted) {
        Some(class) => value(&class),
        None => tenant.i64_at("/spec/priority").unwrap_or_default(),
    };
    // Lifting a pod above the default takes an offered class; without one it runs at the host's default.
    let best =
        offered().filter(|c| value(c) <= ceiling && (value(c) > 0) == (ceiling > 0)).max_by_key(|c| (value(c), c.name().to_string()))?;
    Some(best.name().to_string())
}

/// A tenant that sets `nodeName` itself would pass by the host's scheduler and its taints. The copy
/// asks for the node by affinity instead. Terms are alternatives, so each of them gets the field.
fn pin_to_node(host: &mut Value, tenant: &Value, translation: &Translation<'_>) -> Result<(), Refusal> {
    let Some(node) = tenant.str_at("/spec/nodeName").filter(|n| !n.is_empty()) else { return Ok(()) };
    // A node that goes away under a running pod is no fault of the pod.
    let is_new = translation.view.host_copy(KindId::Pod, &TenantKey::of(tenant)).is_none();
    if is_new && translation.view.host_has_node(node) == Some(false) {
        return Err(Refusal::new(
            "spec.nodeName",
            format!("there is no node {node:?}; leave the field to the scheduler, or name one that exists"),
        ));
    }
    let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let mut required = host["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"].clone();
    match required.get_mut("nodeSelectorTerms").and_then(Value::as_array_mut).filter(|terms| !terms.is_empty()) {
        Some(terms) => {
            for term in terms {
                match term["matchFields"].as_array_mut() {
                    Some(fields) => fields.push(field.clone()),
                    None => term["matchFields"] = json!([field]),
                }
            }
        }
        None => required = json!({"nodeSelectorTerms": [{"matchFields": [field]}]}),
    }
    host.set_at("/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution", required);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host refused pods whose key stood in `matchLabelKeys` and in the selector.
    #[test]
    fn label_keys_are_merged_once() {
        let pod = json!({"metadata": {"labels": {"hash": "1"}}});
        let expected = json!({"labelSelector": {"matchExpressions": [{"key": "hash", "operator": "In", "values": ["1"]}]}});
        let mut merged_by_tenant = expected.clone();
        merged_by_tenant["matchLabelKeys"] = json!(["hash"]);
        merge_keys(&mut merged_by_tenant, "matchLabelKeys", "In", &pod);
        assert_eq!(merged_by_tenant, expected);
        let mut unmerged = json!({"labelSelector": {}, "matchLabelKeys": ["hash", "absent"]});
        merge_keys(&mut unmerged, "matchLabelKeys", "In", &pod);
        assert_eq!(unmerged, expected);
    }
}
