//! Slices that mirror Endpoints made by hand, for services without a selector.

use super::pack::{self, Changes};
use super::{LAST_APPLIED, LEADER, MANAGED_BY, SERVICE_NAME, TRIGGER_TIME, address, slices, subsets};
use crate::kit::{exec, template};
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use sublet_machinery::{Gvk, ObjectExt};
use sublet_runtime::manager::map;
use sublet_runtime::resources::{ENDPOINT_SLICES, ENDPOINTS, SERVICES};
use sublet_runtime::{ClientError, Controller, Ctx, EventKind, Key, Outcome, Reconciler};

const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const ENDPOINTS_KIND: Gvk = Gvk::new("", "v1", "Endpoints");
/// Addresses of one subset that are mirrored.
const ENDPOINTS_PER_SUBSET_MAX: usize = 1000;

pub(crate) fn controller() -> Controller {
    Controller::new("endpointslice-mirroring-controller", Mirror)
        .watches(ENDPOINTS, map::itself)
        .watches(SERVICES, map::itself)
        .watches(ENDPOINT_SLICES, super::service_of_slice(MANAGER))
}

struct Mirror;

#[async_trait]
impl Reconciler for Mirror {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        match sync(ctx, key).await {
            Ok(()) => Outcome::Done,
            Err(error) if exec::is_namespace_terminating(&error) => Outcome::Done,
            Err(error) => error.into(),
        }
    }
}

async fn sync(ctx: &Ctx, key: &Key) -> Result<(), ClientError> {
    let existing = super::slices_of(ctx, &key.namespace, &key.name, MANAGER);
    let mirrored = |e: &Arc<Value>| e.label(SKIP) != Some("true") && e.annotation(LEADER).is_none();
    let endpoints = ctx.informer(&ENDPOINTS).get_key(key).filter(mirrored);
    let service = ctx.informer(&SERVICES).get_key(key).filter(|s| !s.pointer("/spec/selector").is_some_and(Value::is_object));
    let (Some(endpoints), Some(_)) = (endpoints, service) else {
        return slices::apply(ctx, &Value::Null, Changes { delete: existing, ..Changes::default() }).await;
    };
    let wanted = desired(&endpoints);
    if wanted.invalid > 0 {
        let message = format!("Skipped {} invalid IP addresses when mirroring to EndpointSlices", wanted.invalid);
        ctx.events.record(&endpoints, EventKind::Warning, "InvalidIPAddress", &message).await;
    }
    if wanted.skipped > 0 {
        let message = format!(
            "A max of {ENDPOINTS_PER_SUBSET_MAX} addresses can be mirrored to EndpointSlices per Endpoints subset. {} addresses were skipped",
            wanted.skipped
        );
        ctx.events.record(&endpoints, EventKind::Warning, "TooManyAddressesToMirror", &message).await;
    }
    slices::apply(ctx, &endpoints, changes(wanted.slices, existing)).await
}

#[derive(Default)]
struct Desired {
    slices: Vec<Value>,
    invalid: usize,
    skipped: usize,
}

/// One slice per subset and address family.
fn desired(endpoints: &Value) -> Desired {
    let mut desired = Desired::default();
    for subset in subsets::repack(endpoints.array_at("/subsets")) {
        let mut ports: Vec<Value> =
            subset.array_at("/ports").iter().map(|p| address::endpoint_port(p, p["port"].as_i64().unwrap_or(0), true)).collect();
        ports.sort_by_key(Value::to_string);
        let mut by_family: BTreeMap<address::Family, Vec<Value>> = BTreeMap::new();
        let mut taken = 0;
        let ready = subset.array_at("/addresses").iter().map(|a| (a, true));
        for (entry, ready) in ready.chain(subset.array_at("/notReadyAddresses").iter().map(|a| (a, false))) {
            if taken == ENDPOINTS_PER_SUBSET_MAX {
                desired.skipped += 1;
                continue;
            }
            let Some(ip) = entry["ip"].as_str().and_then(|ip| ip.parse::<IpAddr>().ok()) else {
                desired.invalid += 1;
                continue;
            };
            taken += 1;
            by_family.entry(address::Family::of(&ip)).or_default().push(endpoint(entry, ip, ready));
        }
        desired.slices.extend(by_family.into_iter().map(|(family, list)| new_slice(endpoints, family, &ports, list)));
    }
    desired
}

fn endpoint(entry: &Value, ip: IpAddr, ready: bool) -> Value {
    let mut endpoint = json!({"addresses": [ip.to_string()], "conditions": {"ready": ready}});
    for key in ["targetRef", "nodeName", "hostname"] {
        if let Some(value) = entry.get(key).filter(|v| !v.is_null() && **v != "") {
            endpoint[key] = value.clone();
        }
    }
    endpoint
}

fn new_slice(endpoints: &Value, family: address::Family, ports: &[Value], list: Vec<Value>) -> Value {
    let mut labels = endpoints.labels().cloned().unwrap_or_default();
    labels.insert(SERVICE_NAME.into(), json!(endpoints.name()));
    labels.insert(MANAGED_BY.into(), json!(MANAGER));
    let copied = endpoints.annotations().into_iter().flatten().filter(|(k, _)| *k != LAST_APPLIED && *k != TRIGGER_TIME);
    let annotations: Map<String, Value> = copied.map(|(k, v)| (k.clone(), v.clone())).collect();
    let mut slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "generateName": format!("{}-", endpoints.name()), "namespace": endpoints.namespace(), "labels": labels,
            "ownerReferences": [template::controller_reference(endpoints, &ENDPOINTS_KIND)],
        },
        "addressType": family.as_str(), "ports": ports, "endpoints": list,
    });
    if !annotations.is_empty() {
        slice["metadata"]["annotations"] = Value::Object(annotations);
    }
    slice
}

/// Finds for each wanted slice an existing one with its ports, or any other of its family to use again.
fn changes(wanted: Vec<Value>, mut existing: Vec<Arc<Value>>) -> Changes {
    let mut changes = Changes::default();
    let mut homeless = Vec::new();
    for slice in wanted {
        let key = |s: &Value| (s["addressType"].to_string(), pack::ports_key(s.array_at("/ports")));
        match existing.iter().position(|e| key(e) == key(&slice)) {
            Some(at) => {
                let old = existing.remove(at);
                if !is_same(&old, &slice) {
                    changes.update.push(in_place_of(&old, slice));
                }
            }
            None => homeless.push(slice),
        }
    }
    for slice in homeless {
        match existing.iter().position(|e| e["addressType"] == slice["addressType"]) {
            Some(at) => changes.update.push(in_place_of(&existing.remove(at), slice)),
            None => changes.create.push(slice),
        }
    }
    changes.delete = existing;
    changes
}

fn is_same(old: &Value, wanted: &Value) -> bool {
    let sorted = |slice: &Value| {
        let mut list: Vec<String> = slice.array_at("/endpoints").iter().map(Value::to_string).collect();
        list.sort_unstable();
        list
    };
    let metadata = |slice: &Value| {
        let owners: Vec<Value> = slice.owner_references().iter().map(|o| o["uid"].clone()).collect();
        (slice.labels().cloned(), slice.annotations().cloned().unwrap_or_default(), owners)
    };
    sorted(old) == sorted(wanted) && metadata(old) == metadata(wanted)
}

fn in_place_of(old: &Value, mut slice: Value) -> Value {
    slice.remove_at("/metadata/generateName");
    slice["metadata"]["name"] = json!(old.name());
    slice["metadata"]["resourceVersion"] = json!(old.resource_version());
    slice
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(subsets: Value) -> Value {
        json!({"metadata": {"name": "s", "namespace": "n", "uid": "e", "labels": {"a": "b"}, "annotations": {LAST_APPLIED: "x", "k": "v"}}, "subsets": subsets})
    }

    #[test]
    fn each_family_of_a_subset_becomes_a_slice() {
        let wanted = desired(&endpoints(
            json!([{"addresses": [{"ip": "1.2.3.4"}, {"ip": "fd00::1"}, {"ip": "nonsense"}], "ports": [{"port": 80, "protocol": "TCP"}]}]),
        ));
        assert_eq!((wanted.slices.len(), wanted.invalid, wanted.skipped), (2, 1, 0));
        assert_eq!(wanted.slices[0]["ports"], json!([{"name": "", "port": 80, "protocol": "TCP"}]));
        assert_eq!(wanted.slices[0]["metadata"]["annotations"], json!({"k": "v"}));
    }

    #[test]
    fn a_mirror_that_is_right_is_left_alone() {
        let mut existing = desired(&endpoints(json!([{"addresses": [{"ip": "1.2.3.4"}], "ports": [{"port": 80}]}]))).slices.remove(0);
        existing["metadata"]["name"] = json!("s-1");
        let again = desired(&endpoints(json!([{"addresses": [{"ip": "1.2.3.4"}], "ports": [{"port": 80}]}]))).slices;
        assert_eq!(changes(again, vec![Arc::new(existing.clone())]), Changes::default());
        let other = desired(&endpoints(json!([{"addresses": [{"ip": "1.2.3.5"}], "ports": [{"port": 81}]}]))).slices;
        let changed = changes(other, vec![Arc::new(existing)]);
        assert_eq!((changed.update.len(), changed.create.len(), changed.delete.len()), (1, 0, 0));
    }
}
