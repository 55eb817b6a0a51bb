//! Packing endpoints into slices with as few changes as possible (endpointslice/reconciler.go, 1.37).

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use sublet_machinery::ObjectExt;

/// Endpoints in one slice.
pub(super) const ENDPOINTS_PER_SLICE_MAX: usize = 100;

/// What the slices of one set of ports should hold: endpoints by identity.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) ports: Vec<Value>,
    pub(super) endpoints: BTreeMap<String, Value>,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    pub(super) create: Vec<Value>,
    pub(super) update: Vec<Value>,
    pub(super) delete: Vec<Arc<Value>>,
}

/// The identity of an endpoint: where it leads, not how it is.
pub(super) fn identity(endpoint: &Value) -> String {
    let mut addresses: Vec<&str> = endpoint.array_at("/addresses").iter().filter_map(Value::as_str).collect();
    addresses.sort_unstable();
    let text = |pointer: &str| endpoint.str_at(pointer).unwrap_or_default();
    format!("{}|{}|{}|{}", addresses.join(","), text("/hostname"), text("/targetRef/namespace"), text("/targetRef/name"))
}

/// The identity of a set of ports.
pub(super) fn ports_key(ports: &[Value]) -> String {
    let mut texts: Vec<String> = ports.iter().map(Value::to_string).collect();
    texts.sort_unstable();
    texts.join(",")
}

/// Packs all groups of one address family. `new_slice` makes a slice without name and endpoints for
/// ports; a slice with such labels and metadata is what existing ones are brought to.
pub(super) fn pack(mut groups: BTreeMap<String, Group>, existing: Vec<Arc<Value>>, new_slice: &dyn Fn(&[Value]) -> Value) -> Changes {
    let mut by_ports: BTreeMap<String, Vec<Arc<Value>>> = BTreeMap::new();
    let existing_count = existing.len();
    for slice in existing {
        by_ports.entry(ports_key(slice.array_at("/ports"))).or_default().push(slice);
    }
    let mut changes = Changes::default();
    for (key, group) in &mut groups {
        pack_group(group, by_ports.remove(key).unwrap_or_default(), new_slice, &mut changes);
    }
    changes.delete.extend(by_ports.into_values().flatten());
    // A service always has a slice, so that watchers learn of its state.
    if changes.delete.len() == existing_count && changes.create.is_empty() {
        let placeholder = new_slice(&[]);
        match changes.delete.as_slice() {
            [only] if is_placeholder(only, &placeholder) => changes.delete.clear(),
            _ => changes.create.push(placeholder),
        }
    }
    recycle(&mut changes);
    changes
}

fn pack_group(group: &mut Group, existing: Vec<Arc<Value>>, new_slice: &dyn Fn(&[Value]) -> Value, changes: &mut Changes) {
    let model = new_slice(&group.ports);
    let mut update: Vec<Value> = Vec::new();
    let mut unchanged: Vec<Arc<Value>> = Vec::new();
    for slice in existing {
        let mut kept = Vec::new();
        let mut differs = false;
        for endpoint in slice.array_at("/endpoints") {
            match group.endpoints.remove(&identity(endpoint)) {
                Some(wanted) => {
                    differs |= wanted != *endpoint;
                    kept.push(wanted);
                }
                None => differs = true,
            }
        }
        if kept.is_empty() && differs {
            changes.delete.push(slice);
        } else if differs || slice["metadata"]["labels"] != model["metadata"]["labels"] {
            update.push(with_endpoints(&slice, &model, kept));
        } else {
            unchanged.push(slice);
        }
    }
    // The fullest first, so that few slices stay partly filled.
    update.sort_by_key(|s| std::cmp::Reverse(s.array_at("/endpoints").len()));
    for slice in &mut update {
        fill(slice, group);
    }
    while !group.endpoints.is_empty() {
        let mut slice = match closest_fit(&unchanged, group.endpoints.len()) {
            Some(at) => {
                let slice = unchanged.remove(at);
                let kept = slice.array_at("/endpoints").to_vec();
                with_endpoints(&slice, &model, kept)
            }
            None => model.clone(),
        };
        fill(&mut slice, group);
        if slice.name().is_empty() { changes.create.push(slice) } else { update.push(slice) }
    }
    changes.update.extend(update);
}

fn with_endpoints(slice: &Value, model: &Value, endpoints: Vec<Value>) -> Value {
    let mut slice = slice.clone();
    slice["endpoints"] = Value::Array(endpoints);
    slice["metadata"]["labels"] = model["metadata"]["labels"].clone();
    slice
}

fn fill(slice: &mut Value, group: &mut Group) {
    let Some(endpoints) = slice["endpoints"].as_array_mut() else { return };
    while endpoints.len() < ENDPOINTS_PER_SLICE_MAX
        && let Some((_, endpoint)) = group.endpoints.pop_first()
    {
        endpoints.push(endpoint);
    }
}

/// The unchanged slice that `count` more endpoints would fill best.
fn closest_fit(slices: &[Arc<Value>], count: usize) -> Option<usize> {
    if count >= ENDPOINTS_PER_SLICE_MAX {
        return None;
    }
    let room = |slice: &Value| ENDPOINTS_PER_SLICE_MAX.checked_sub(count + slice.array_at("/endpoints").len());
    let fits = slices.iter().enumerate().filter_map(|(at, s)| Some((room(s)?, at)));
    fits.filter(|(room, _)| *room < ENDPOINTS_PER_SLICE_MAX).min().map(|(_, at)| at)
}

fn is_placeholder(slice: &Value, placeholder: &Value) -> bool {
    slice.array_at("/ports").is_empty()
        && slice.array_at("/endpoints").is_empty()
        && slice["metadata"]["labels"] == placeholder["metadata"]["labels"]
        && slice.owner_references().iter().map(|o| &o["uid"]).eq(placeholder.owner_references().iter().map(|o| &o["uid"]))
}

/// Uses slices that would be deleted in the place of new ones.
fn recycle(changes: &mut Changes) {
    let mut rest = Vec::new();
    for old in std::mem::take(&mut changes.delete) {
        let fits = |new: &Value| {
            let owners: BTreeSet<&str> = new.owner_references().iter().filter_map(|o| o["uid"].as_str()).collect();
            new["addressType"] == old["addressType"]
                && old.owner_references().iter().any(|o| o["uid"].as_str().is_some_and(|uid| owners.contains(uid)))
        };
        match changes.create.iter().rposition(fits) {
            Some(at) => {
                let mut slice = changes.create.remove(at);
                slice.remove_at("/metadata/generateName");
                slice["metadata"]["name"] = json!(old.name());
                slice["metadata"]["resourceVersion"] = json!(old.resource_version());
                changes.update.push(slice);
            }
            None => rest.push(old),
        }
    }
    changes.delete = rest;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(ports: &[Value]) -> Value {
        json!({
            "metadata": {"generateName": "s-", "labels": {"l": "1"}, "ownerReferences": [{"uid": "svc"}]},
            "addressType": "IPv4", "ports": ports, "endpoints": [],
        })
    }

    fn endpoint(n: usize, ready: bool) -> Value {
        json!({"addresses": [format!("10.0.{}.{}", n / 250, n % 250)], "conditions": {"ready": ready}})
    }

    fn group(ports: &[Value], endpoints: impl IntoIterator<Item = Value>) -> BTreeMap<String, Group> {
        let endpoints = endpoints.into_iter().map(|e| (identity(&e), e)).collect();
        BTreeMap::from([(ports_key(ports), Group { ports: ports.to_vec(), endpoints })])
    }

    fn slice(name: &str, ports: &[Value], endpoints: Vec<Value>) -> Arc<Value> {
        let mut slice = model(ports);
        slice["metadata"]["name"] = json!(name);
        slice["endpoints"] = Value::Array(endpoints);
        Arc::new(slice)
    }

    fn sizes(slices: &[Value]) -> Vec<usize> {
        slices.iter().map(|s| s.array_at("/endpoints").len()).collect()
    }

    #[test]
    fn many_endpoints_take_full_slices() {
        let ports = [json!({"port": 80})];
        let changes = pack(group(&ports, (0..250).map(|n| endpoint(n, true))), vec![], &model);
        assert_eq!(sizes(&changes.create), [100, 100, 50]);
    }

    #[test]
    fn nothing_changes_when_nothing_changed() {
        let ports = [json!({"port": 80})];
        let changes = pack(group(&ports, [endpoint(1, true)]), vec![slice("a", &ports, vec![endpoint(1, true)])], &model);
        assert_eq!(changes, Changes::default());
    }

    #[test]
    fn a_changed_endpoint_is_updated_in_its_slice_and_new_ones_join_it() {
        let ports = [json!({"port": 80})];
        let existing = vec![slice("a", &ports, vec![endpoint(1, true)]), slice("b", &ports, vec![endpoint(2, true)])];
        let changes = pack(group(&ports, [endpoint(1, false), endpoint(2, true), endpoint(3, true)]), existing, &model);
        assert_eq!((changes.create.len(), changes.delete.len(), sizes(&changes.update)), (0, 0, vec![2]));
        assert_eq!(changes.update[0].name(), "a");
    }

    #[test]
    fn an_empty_service_keeps_one_placeholder() {
        let changes = pack(BTreeMap::new(), vec![], &model);
        assert_eq!(sizes(&changes.create), [0]);
        assert_eq!(pack(BTreeMap::new(), vec![slice("a", &[], vec![])], &model), Changes::default());
    }

    #[test]
    fn a_slice_with_other_ports_is_used_again() {
        let (old, new) = ([json!({"port": 80})], [json!({"port": 81})]);
        let changes = pack(group(&new, [endpoint(1, true)]), vec![slice("a", &old, vec![endpoint(1, true)])], &model);
        assert_eq!((changes.create.len(), changes.delete.len()), (0, 0));
        assert_eq!((changes.update[0].name(), &changes.update[0]["ports"]), ("a", &json!(new)));
    }

    #[test]
    fn changed_labels_are_carried_over() {
        let ports = [json!({"port": 80})];
        let mut old = slice("a", &ports, vec![endpoint(1, true)]).as_ref().clone();
        old["metadata"]["labels"] = json!({"l": "0"});
        let changes = pack(group(&ports, [endpoint(1, true)]), vec![Arc::new(old)], &model);
        assert_eq!(changes.update[0]["metadata"]["labels"], json!({"l": "1"}));
    }
}
