//! EndpointSlices of services with a selector.

use super::address::{self, Family};
use super::pack::{self, Changes, Group};
use super::{HEADLESS, MANAGED_BY, SERVICE_NAME};
use crate::kit::selector::Selector;
use crate::kit::{exec, pods, template};
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use sublet_machinery::{Gvk, ObjectExt};
use sublet_runtime::manager::{Mapping, map};
use sublet_runtime::resources::{ENDPOINT_SLICES, NODES, PODS, SERVICES};
use sublet_runtime::{Change, ClientError, Controller, Ctx, DeleteOptions, Key, Outcome, Reconciler};

const MANAGER: &str = "endpointslice-controller.k8s.io";
const SERVICE: Gvk = Gvk::new("", "v1", "Service");

pub(crate) fn controller() -> Controller {
    Controller::new("endpointslice-controller", Slices)
        .watches(SERVICES, map::itself)
        .watches(PODS, super::services_of_pod)
        .watches(ENDPOINT_SLICES, super::service_of_slice(MANAGER))
        .watches(NODES, services_of_node)
}

/// Pods on a node that comes, goes or changes its zone.
fn services_of_node(change: &Change, mapping: &Mapping) -> Vec<Key> {
    let zone = |node: &Option<Arc<Value>>| node.as_ref().map(|n| n.label("topology.kubernetes.io/zone").map(str::to_string));
    if zone(&change.old) == zone(&change.new) {
        return Vec::new();
    }
    let mut keys = Vec::new();
    for pod in mapping.informer(&PODS).by_index(crate::kit::pods::BY_NODE, change.object().name()) {
        let change = Change { old: None, new: Some(pod) };
        keys.extend(super::services_of_pod(&change, mapping));
    }
    keys
}

struct Slices;

#[async_trait]
impl Reconciler for Slices {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        // Slices of a deleted service go with their owner.
        let Some(service) = ctx.informer(&SERVICES).get_key(key).filter(|s| super::is_selecting(s)) else { return Outcome::Done };
        match sync(ctx, &service).await {
            Ok(()) => Outcome::Done,
            Err(error) if exec::is_namespace_terminating(&error) => Outcome::Done,
            Err(error) => error.into(),
        }
    }
}

async fn sync(ctx: &Ctx, service: &Value) -> Result<(), ClientError> {
    let selector = Selector::of_map(service.object_at("/spec/selector"));
    let mut pods = ctx.informer(&PODS).list(Some(service.namespace()));
    pods.retain(|p| selector.matches_object(p) && super::is_endpoint(p, true));
    let families = address::families(service);
    let (mut current, mut changes) = (BTreeMap::<Family, Vec<Arc<Value>>>::new(), Vec::new());
    for slice in super::slices_of(ctx, service.namespace(), service.name(), MANAGER) {
        let family = families.iter().find(|f| slice["addressType"] == f.as_str());
        let is_ours = slice.owner_references().iter().any(|o| o["uid"] == service.uid());
        match family {
            Some(family) if is_ours => current.entry(*family).or_default().push(slice),
            // Of a family that the service has no more, or of a former service of this name.
            _ => exec::delete(ctx, &ENDPOINT_SLICES, &slice, DeleteOptions::default()).await?,
        }
    }
    for family in families {
        let groups = desired(service, &pods, family, &|node| super::zone_of(ctx, node));
        let existing = current.remove(&family).unwrap_or_default();
        changes.push(pack::pack(groups, existing, &|ports| new_slice(service, family, ports)));
    }
    for change in changes {
        apply(ctx, service, change).await?;
    }
    Ok(())
}

pub(super) async fn apply(ctx: &Ctx, owner: &Value, changes: Changes) -> Result<(), ClientError> {
    if !owner.is_deleting() {
        for slice in changes.create {
            exec::create(ctx, &ENDPOINT_SLICES, &slice).await?;
        }
    }
    for slice in changes.update {
        exec::update(ctx, &ENDPOINT_SLICES, &slice).await?;
    }
    for slice in changes.delete {
        exec::delete(ctx, &ENDPOINT_SLICES, &slice, DeleteOptions::default()).await?;
    }
    Ok(())
}

/// The endpoints of pods by set of ports. `zone_of` answers `None` for a node that does not exist.
fn desired(
    service: &Value,
    pods: &[Arc<Value>],
    family: Family,
    zone_of: &dyn Fn(&str) -> Option<Option<String>>,
) -> BTreeMap<String, Group> {
    let mut groups = BTreeMap::<String, Group>::new();
    for pod in pods {
        let ports = address::slice_ports(service, pod);
        let group = groups.entry(pack::ports_key(&ports)).or_insert_with(|| Group { ports, ..Group::default() });
        let zone = zone_of(pods::node(pod));
        // A pod on a node that does not exist is about to go; it is published only if asked for.
        if zone.is_none() && !super::publishes_not_ready(service) {
            continue;
        }
        let addresses = address::addresses(pod, family);
        if !addresses.is_empty() {
            let endpoint = endpoint(service, pod, addresses, zone.flatten());
            group.endpoints.insert(pack::identity(&endpoint), endpoint);
        }
    }
    groups
}

fn endpoint(service: &Value, pod: &Value, addresses: Vec<String>, zone: Option<String>) -> Value {
    let serving = pods::is_ready(pod);
    let terminating = pod.is_deleting();
    let ready = super::publishes_not_ready(service) || (serving && !terminating);
    let node = pods::node(pod);
    let mut endpoint = json!({
        "addresses": addresses,
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "targetRef": address::pod_reference(pod),
    });
    if !node.is_empty() {
        endpoint["nodeName"] = json!(node);
    }
    if let Some(zone) = &zone {
        endpoint["zone"] = json!(zone);
    }
    if let Some(hostname) = address::hostname(pod, service) {
        endpoint["hostname"] = json!(hostname);
    }
    if ready && let Some(hints) = hints(service, node, zone.as_deref()) {
        endpoint["hints"] = hints;
    }
    endpoint
}

/// `trafficDistribution`: each endpoint is hinted for where it is itself.
fn hints(service: &Value, node: &str, zone: Option<&str>) -> Option<Value> {
    let distribution = service.str_at("/spec/trafficDistribution")?;
    if !matches!(distribution, "PreferClose" | "PreferSameZone" | "PreferSameNode") {
        return None;
    }
    let mut hints = Map::new();
    if let Some(zone) = zone {
        hints.insert("forZones".into(), json!([{"name": zone}]));
    }
    if distribution == "PreferSameNode" && !node.is_empty() {
        hints.insert("forNodes".into(), json!([{"name": node}]));
    }
    (!hints.is_empty()).then_some(Value::Object(hints))
}

fn new_slice(service: &Value, family: Family, ports: &[Value]) -> Value {
    let reserved = |key: &str| matches!(key, SERVICE_NAME | MANAGED_BY | HEADLESS);
    let own = service.labels().into_iter().flatten().filter(|(k, _)| !reserved(k));
    let mut labels: Map<String, Value> = own.map(|(k, v)| (k.clone(), v.clone())).collect();
    if super::is_headless(service) {
        labels.insert(HEADLESS.into(), json!(""));
    }
    labels.insert(SERVICE_NAME.into(), json!(service.name()));
    labels.insert(MANAGED_BY.into(), json!(MANAGER));
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "generateName": format!("{}-", service.name()), "namespace": service.namespace(), "labels": labels,
            "ownerReferences": [template::controller_reference(service, &SERVICE)],
        },
        "addressType": family.as_str(), "ports": ports, "endpoints": [],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(ready: bool, deleting: bool) -> Arc<Value> {
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"nodeName": "node"},
            "status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::0:1"}], "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
        });
        if deleting {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Arc::new(pod)
    }

    fn first(service: &Value, pod: Arc<Value>, family: Family) -> Option<Value> {
        let groups = desired(service, &[pod], family, &|node| (node == "node").then(|| Some("z".to_string())));
        groups.into_values().flat_map(|g| g.endpoints.into_values()).next()
    }

    #[test]
    fn conditions_tell_readiness_and_end() {
        let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80, "targetPort": 80, "protocol": "TCP"}]}});
        let check = |ready, deleting, expected: [bool; 3]| {
            let endpoint = first(&service, pod(ready, deleting), Family::V4).expect("published");
            let of = |key: &str| endpoint["conditions"][key] == true;
            assert_eq!([of("ready"), of("serving"), of("terminating")], expected);
        };
        check(true, false, [true, true, false]);
        check(false, false, [false, false, false]);
        check(true, true, [false, true, true]);
    }

    #[test]
    fn addresses_are_of_the_family_and_canonical() {
        let service = json!({"metadata": {"name": "s"}, "spec": {"trafficDistribution": "PreferSameNode"}});
        let endpoint = first(&service, pod(true, false), Family::V6).expect("published");
        assert_eq!(endpoint["addresses"], json!(["fd00::1"]));
        assert_eq!(endpoint["hints"], json!({"forZones": [{"name": "z"}], "forNodes": [{"name": "node"}]}));
    }

    #[test]
    fn pods_on_missing_nodes_are_published_only_when_asked() {
        let mut lost = pod(true, false).as_ref().clone();
        lost["spec"]["nodeName"] = json!("gone");
        let lost = Arc::new(lost);
        assert!(first(&json!({"metadata": {"name": "s"}}), lost.clone(), Family::V4).is_none());
        assert!(first(&json!({"metadata": {"name": "s"}, "spec": {"publishNotReadyAddresses": true}}), lost, Family::V4).is_some());
    }
}
