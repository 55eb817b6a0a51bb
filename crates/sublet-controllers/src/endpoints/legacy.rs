//! Endpoints of services with a selector: one object per service, the form before slices.

use super::{HEADLESS, LEADER, TRIGGER_TIME, address, subsets};
use crate::kit::selector::Selector;
use crate::kit::{exec, pods};
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use sublet_machinery::ObjectExt;
use sublet_runtime::manager::{Mapping, map};
use sublet_runtime::resources::{ENDPOINTS, PODS, SERVICES};
use sublet_runtime::{Change, ClientError, Controller, Ctx, DeleteOptions, EventKind, Key, Outcome, Reconciler};

const CONTROLLER: &str = "endpoint-controller";
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

/// Before the name in the key of a service that was seen going: its Endpoints go, whoever made them.
const GONE: char = '!';

pub(crate) fn controller() -> Controller {
    Controller::new(CONTROLLER, Endpoints).watches(SERVICES, service_keys).watches(PODS, super::services_of_pod).watches(
        ENDPOINTS,
        |change, mapping| {
            // Endpoints that vanish are made again; ours without a service are a leftover.
            let is_ours = change.object().label(MANAGED_BY) == Some(CONTROLLER);
            if change.is_delete() || (change.old.is_none() && is_ours) { map::itself(change, mapping) } else { Vec::new() }
        },
    )
}

fn service_keys(change: &Change, _: &Mapping) -> Vec<Key> {
    let mut key = change.key();
    if change.is_delete() {
        key.name.insert(0, GONE);
    }
    vec![key]
}

struct Endpoints;

#[async_trait]
impl Reconciler for Endpoints {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let name = key.name.trim_start_matches(GONE);
        let current = ctx.informer(&ENDPOINTS).get(&key.namespace, name);
        let result = match ctx.informer(&SERVICES).get(&key.namespace, name) {
            None => clean_up(ctx, current, key.name.starts_with(GONE)).await,
            Some(service) if super::is_selecting(&service) => sync(ctx, &service, current).await,
            Some(_) => Ok(()),
        };
        match result {
            Ok(()) => Outcome::Done,
            Err(error) if exec::is_namespace_terminating(&error) => Outcome::Done,
            Err(error) => error.into(),
        }
    }
}

async fn clean_up(ctx: &Ctx, current: Option<Arc<Value>>, service_went: bool) -> Result<(), ClientError> {
    match current {
        // Old leader elections live in Endpoints without a service.
        Some(endpoints) if endpoints.annotation(LEADER).is_none() && (service_went || endpoints.label(MANAGED_BY) == Some(CONTROLLER)) => {
            exec::delete(ctx, &ENDPOINTS, &endpoints, DeleteOptions::default()).await
        }
        _ => Ok(()),
    }
}

async fn sync(ctx: &Ctx, service: &Value, current: Option<Arc<Value>>) -> Result<(), ClientError> {
    let selector = Selector::of_map(service.object_at("/spec/selector"));
    let mut pods = ctx.informer(&PODS).list(Some(service.namespace()));
    pods.retain(|p| selector.matches_object(p) && super::is_endpoint(p, super::publishes_not_ready(service)));
    let Some(wanted) = next(service, &pods, current.as_deref()) else { return Ok(()) };
    let (result, reason, what) = match current {
        None => (exec::create(ctx, &ENDPOINTS, &wanted).await, "FailedToCreateEndpoint", "Failed to create endpoint for service"),
        Some(_) => (exec::update(ctx, &ENDPOINTS, &wanted).await, "FailedToUpdateEndpoint", "Failed to update endpoint"),
    };
    match result {
        Ok(_) => Ok(()),
        Err(error) => {
            if !exec::is_namespace_terminating(&error) && !error.is_conflict() {
                let message = format!("{what} {}/{}: {error}", service.namespace(), service.name());
                ctx.events.record(&wanted, EventKind::Warning, reason, &message).await;
            }
            Err(error)
        }
    }
}

/// The Endpoints to write; `None` when the current ones are right.
fn next(service: &Value, pods: &[Arc<Value>], current: Option<&Value>) -> Option<Value> {
    let mut all = subsets::repack(&pods.iter().flat_map(|p| of_pod(service, p)).collect::<Vec<_>>());
    let over_capacity = subsets::truncate(&mut all);
    let mut labels: Map<String, Value> = service.labels().cloned().unwrap_or_default();
    labels.remove(HEADLESS);
    if super::is_headless(service) {
        labels.insert(HEADLESS.into(), json!(""));
    }
    labels.insert(MANAGED_BY.into(), json!(CONTROLLER));
    let mut wanted = current.cloned().unwrap_or_else(
        || json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": service.name(), "namespace": service.namespace()}}),
    );
    wanted["metadata"]["labels"] = Value::Object(labels);
    if all.is_empty() {
        wanted.remove_at("/subsets");
    } else {
        wanted["subsets"] = Value::Array(all);
    }
    wanted.metadata_mut().entry("annotations").or_insert(json!({}));
    if let Some(annotations) = wanted["metadata"]["annotations"].as_object_mut() {
        annotations.remove(TRIGGER_TIME);
        annotations.remove(OVER_CAPACITY);
        if over_capacity {
            annotations.insert(OVER_CAPACITY.into(), json!("truncated"));
        }
        if annotations.is_empty() {
            wanted.remove_at("/metadata/annotations");
        }
    }
    let is_same = current.is_some_and(|c| {
        c["metadata"] == wanted["metadata"]
            && (c.get("subsets") == wanted.get("subsets") || subsets::repack(c.array_at("/subsets")) == wanted.array_at("/subsets"))
    });
    (!is_same).then_some(wanted)
}

/// A subset for each port of a pod.
fn of_pod(service: &Value, pod: &Value) -> Vec<Value> {
    let families = address::families(service);
    let Some(ip) = families.iter().take(1).flat_map(|f| address::addresses(pod, *f)).next() else { return Vec::new() };
    let mut entry = json!({"ip": ip, "targetRef": address::pod_reference(pod)});
    if !pods::node(pod).is_empty() {
        entry["nodeName"] = json!(pods::node(pod));
    }
    if let Some(hostname) = address::hostname(pod, service) {
        entry["hostname"] = json!(hostname);
    }
    let ready = super::publishes_not_ready(service) || pods::is_ready(pod);
    let list = if ready { "addresses" } else { "notReadyAddresses" };
    let ports = service.array_at("/spec/ports");
    if ports.is_empty() {
        return if super::is_headless(service) { vec![json!({list: [entry]})] } else { Vec::new() };
    }
    let found = ports.iter().filter_map(|p| Some(address::endpoint_port(p, address::find_port(pod, p)?, false)));
    found.map(|port| json!({list: [entry.clone()], "ports": [port]})).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> Value {
        json!({
            "metadata": {"name": "s", "namespace": "n", "labels": {"a": "b"}},
            "spec": {"clusterIP": "10.96.0.1", "ipFamilies": ["IPv4"], "ports": [{"name": "web", "port": 80, "targetPort": 8080, "protocol": "TCP"}]},
        })
    }

    fn pod(name: &str, ip: &str, ready: &str) -> Arc<Value> {
        Arc::new(json!({
            "metadata": {"name": name, "namespace": "n", "uid": name}, "spec": {"nodeName": "node"},
            "status": {"podIP": ip, "podIPs": [{"ip": ip}], "conditions": [{"type": "Ready", "status": ready}]},
        }))
    }

    #[test]
    fn pods_become_addresses_by_readiness() {
        let wanted = next(&service(), &[pod("a", "1.2.3.4", "True"), pod("b", "1.2.3.5", "False")], None).expect("new");
        let entry = |name: &str, ip: &str| json!({"ip": ip, "nodeName": "node", "targetRef": {"kind": "Pod", "namespace": "n", "name": name, "uid": name}});
        assert_eq!(
            wanted["subsets"],
            json!([{
                "addresses": [entry("a", "1.2.3.4")], "notReadyAddresses": [entry("b", "1.2.3.5")],
                "ports": [{"name": "web", "port": 8080, "protocol": "TCP"}],
            }])
        );
        assert_eq!(wanted["metadata"]["labels"], json!({"a": "b", MANAGED_BY: CONTROLLER}));
        assert_eq!(next(&service(), &[pod("b", "1.2.3.5", "False"), pod("a", "1.2.3.4", "True")], Some(&wanted)), None);
    }

    #[test]
    fn a_headless_service_needs_no_ports() {
        let mut headless = service();
        headless["spec"] = json!({"clusterIP": "None", "ipFamilies": ["IPv4"]});
        let wanted = next(&headless, &[pod("a", "1.2.3.4", "True")], None).expect("new");
        assert!(wanted["subsets"][0].get("ports").is_none());
        assert_eq!(wanted.label(HEADLESS), Some(""));
    }
}
