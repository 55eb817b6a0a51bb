//! What an object counts for, by the names that quotas use.

use super::compute;
use crate::kit::pods;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use sublet_machinery::quantity::Format;
use sublet_machinery::{Gvr, ObjectExt, Quantity, claims};
use sublet_runtime::resources::{
    CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, PODS, REPLICATION_CONTROLLERS, RESOURCE_CLAIMS, RESOURCE_QUOTAS, SECRETS, SERVICES,
};

pub(super) type ResourceList = BTreeMap<String, Quantity>;

const STORAGE_CLASS_SUFFIX: &str = ".storageclass.storage.k8s.io/";
const STORAGE_CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// The resources with names of their own in quotas; all others count as `count/RESOURCE.GROUP`.
pub(super) fn known() -> [Gvr; 8] {
    [PODS, SERVICES, PERSISTENT_VOLUME_CLAIMS, CONFIG_MAPS, SECRETS, REPLICATION_CONTROLLERS, RESOURCE_QUOTAS, RESOURCE_CLAIMS]
}

pub(super) fn zero() -> Quantity {
    Quantity::new(0, Format::DecimalSi)
}

fn count(n: usize) -> Quantity {
    Quantity::new(i64::try_from(n).unwrap_or(i64::MAX), Format::DecimalSi)
}

pub(super) fn quantity(value: &Value) -> Option<Quantity> {
    Quantity::from_json(value).ok()
}

/// The readable quantities of a list.
pub(super) fn read(list: &Value) -> ResourceList {
    list.as_object().into_iter().flatten().filter_map(|(name, value)| Some((name.clone(), quantity(value)?))).collect()
}

/// Adds what the sum has a name for.
pub(super) fn add(sum: &mut ResourceList, usage: &ResourceList) {
    for (name, total) in sum {
        if let Some(used) = usage.get(name) {
            if total.is_zero() {
                // A sum is written as its first part is.
                *total = used.clone();
            } else {
                total.add(used);
            }
        }
    }
}

/// Whether objects of the resource count for the name.
pub(super) fn counts(group_resource: &str, name: &str) -> bool {
    if name.strip_prefix("count/") == Some(group_resource) {
        return true;
    }
    match group_resource {
        "pods" => is_pod_resource(name),
        "services" => matches!(name, "services" | "services.nodeports" | "services.loadbalancers"),
        "persistentvolumeclaims" => ["persistentvolumeclaims", "requests.storage"]
            .iter()
            .any(|base| name == *base || name.strip_suffix(base).is_some_and(|class| class.ends_with(STORAGE_CLASS_SUFFIX))),
        "resourceclaims.resource.k8s.io" => name.ends_with(claims::DEVICES_SUFFIX),
        "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas" => name == group_resource,
        _ => false,
    }
}

fn is_pod_resource(name: &str) -> bool {
    let base = name.strip_prefix("requests.").or(name.strip_prefix("limits.")).unwrap_or(name);
    let requested = name.strip_prefix("requests.");
    name == "pods"
        || matches!(base, "cpu" | "memory" | "ephemeral-storage")
        || name.starts_with("hugepages-")
        || requested.is_some_and(|r| r.starts_with("hugepages-") || is_extended(r))
}

/// Resources with a domain other than Kubernetes' own.
fn is_extended(name: &str) -> bool {
    name.contains('/') && (!name.contains("kubernetes.io/") || name.starts_with("deviceclass.resource.kubernetes.io/"))
}

pub(super) fn of(group_resource: &str, object: &Value, now: Timestamp) -> ResourceList {
    let mut usage = ResourceList::from([(format!("count/{group_resource}"), count(1))]);
    match group_resource {
        "pods" if !has_ended(object, now) => add_pod(&mut usage, object),
        "services" => add_service(&mut usage, object),
        "persistentvolumeclaims" => add_claim(&mut usage, object),
        "resourceclaims.resource.k8s.io" => {
            let devices = claims::devices_by_class(object).into_iter();
            usage.extend(devices.map(|(class, n)| (class + claims::DEVICES_SUFFIX, Quantity::new(n, Format::DecimalSi))));
        }
        "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas" => _ = usage.insert(group_resource.into(), count(1)),
        _ => {}
    }
    usage
}

/// Pods that have ended, or should have by now, are not charged.
fn has_ended(pod: &Value, now: Timestamp) -> bool {
    let overdue = || {
        let deleted = crate::kit::time::at(pod, "/metadata/deletionTimestamp")?;
        let grace = pod.i64_at("/metadata/deletionGracePeriodSeconds")?;
        Some(crate::kit::time::plus_seconds(deleted, grace) < now)
    };
    pods::is_terminal(pod) || overdue().unwrap_or(false)
}

fn add_pod(usage: &mut ResourceList, pod: &Value) {
    usage.insert("pods".into(), count(1));
    let (requests, limits) = (compute::requests(pod), compute::limits(pod));
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(request) = requests.get(name) {
            usage.insert(name.into(), request.clone());
            usage.insert(format!("requests.{name}"), request.clone());
        }
        if let Some(limit) = limits.get(name) {
            usage.insert(format!("limits.{name}"), limit.clone());
        }
    }
    for (name, request) in &requests {
        let is_huge = name.starts_with("hugepages-");
        if is_huge {
            usage.insert(name.clone(), request.clone());
        }
        if is_huge || is_extended(name) {
            usage.insert(format!("requests.{name}"), request.clone());
        }
    }
}

fn add_service(usage: &mut ResourceList, service: &Value) {
    let ports = service.array_at("/spec/ports");
    let kind = service.str_at("/spec/type").unwrap_or_default();
    let node_ports = match kind {
        "LoadBalancer" if service["spec"]["allocateLoadBalancerNodePorts"] == false => {
            ports.iter().filter(|p| p["nodePort"].as_i64().unwrap_or(0) != 0).count()
        }
        "NodePort" | "LoadBalancer" => ports.len(),
        _ => 0,
    };
    usage.insert("services".into(), count(1));
    usage.insert("services.nodeports".into(), count(node_ports));
    usage.insert("services.loadbalancers".into(), count(usize::from(kind == "LoadBalancer")));
}

fn add_claim(usage: &mut ResourceList, claim: &Value) {
    let class =
        claim.annotation(STORAGE_CLASS_ANNOTATION).filter(|a| !a.is_empty()).or(claim.str_at("/spec/storageClassName")).unwrap_or_default();
    let mut add = |name: &str, amount: Quantity| {
        if !class.is_empty() {
            usage.insert(format!("{class}{STORAGE_CLASS_SUFFIX}{name}"), amount.clone());
        }
        usage.insert(name.to_string(), amount);
    };
    add("persistentvolumeclaims", count(1));
    let size = |pointer: &str| claim.pointer(pointer).and_then(quantity);
    if let Some(requested) = size("/spec/resources/requests/storage") {
        let mut charged = size("/status/allocatedResources/storage").filter(|a| *a > requested).unwrap_or(requested);
        charged.round_up(0);
        add("requests.storage", charged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(group_resource: &str, object: Value, expected: Value) {
        let usage = of(group_resource, &object, "2026-01-01T00:00:00Z".parse().expect("a time"));
        let written: serde_json::Map<String, Value> = usage.iter().map(|(n, q)| (n.clone(), json!(q.to_string()))).collect();
        assert_eq!(Value::Object(written), expected);
    }

    #[test]
    fn objects_count_by_their_kind() {
        check("configmaps", json!({}), json!({"count/configmaps": "1", "configmaps": "1"}));
        check("deployments.apps", json!({}), json!({"count/deployments.apps": "1"}));
        check(
            "services",
            json!({"spec": {"type": "NodePort", "ports": [{"port": 1}, {"port": 2}]}}),
            json!({"count/services": "1", "services": "1", "services.nodeports": "2", "services.loadbalancers": "0"}),
        );
        check(
            "persistentvolumeclaims",
            json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}}}),
            json!({
                "count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1", "requests.storage": "1Gi",
                "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1", "gold.storageclass.storage.k8s.io/requests.storage": "1Gi",
            }),
        );
    }

    #[test]
    fn ended_pods_count_only_as_objects() {
        let pod = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "100m", "example.com/gpu": "2"}, "limits": {"memory": "1Gi"}}}]}});
        check(
            "pods",
            pod.clone(),
            json!({"count/pods": "1", "pods": "1", "cpu": "100m", "requests.cpu": "100m", "limits.memory": "1Gi", "requests.example.com/gpu": "2"}),
        );
        let mut ended = pod.clone();
        ended["status"] = json!({"phase": "Failed"});
        check("pods", ended, json!({"count/pods": "1"}));
        let mut overdue = pod;
        overdue["metadata"] = json!({"deletionTimestamp": "2025-12-31T23:59:00Z", "deletionGracePeriodSeconds": 30});
        check("pods", overdue, json!({"count/pods": "1"}));
    }

    #[test]
    fn names_find_their_resource() {
        let check = |resource: &str, names: &[&str], expected: bool| {
            names.iter().for_each(|n| assert_eq!(counts(resource, n), expected, "{resource} {n}"))
        };
        check("pods", &["pods", "cpu", "limits.memory", "requests.example.com/gpu", "hugepages-2Mi", "count/pods"], true);
        check("pods", &["services", "requests.storage", "example.com/gpu", "count/deployments.apps"], false);
        check("persistentvolumeclaims", &["requests.storage", "gold.storageclass.storage.k8s.io/requests.storage"], true);
        check("deployments.apps", &["count/deployments.apps"], true);
    }
}
