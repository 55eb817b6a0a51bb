//! What an object counts for, by resource name, and which quota scopes it falls under.

use super::super::storage::class_of;
use super::super::{Attributes, Operation};
use crate::strategy::edit::is_zero;
use crate::strategy::pod::qos;
use crate::strategy::quantities::{ResourceList, is_pod_level, pod_sum, read_list};
use serde_json::Value;
use sublet_machinery::quantity::Format;
use sublet_machinery::{ObjectExt, Quantity, claims};

const STORAGE_CLASS_SUFFIX: &str = ".storageclass.storage.k8s.io/";

/// Whether a request can change usage at all.
pub(super) fn handles(attributes: &Attributes<'_>) -> bool {
    let update = attributes.operation == Operation::Update;
    match (attributes.resource.group_resource().as_str(), attributes.subresource) {
        ("pods", "") if update => match (&attributes.object, &attributes.old) {
            (Some(new), Some(old)) => is_terminating(new) != is_terminating(old),
            _ => false,
        },
        ("pods", "resize") => update,
        ("services" | "persistentvolumeclaims" | "resourceclaims.resource.k8s.io", "") => true,
        ("persistentvolumeclaims", "status") => update,
        (_, "") => !update,
        _ => false,
    }
}

pub(super) fn of(group_resource: &str, object: &Value) -> ResourceList {
    let one = Quantity::new(1, Format::DecimalSi);
    let mut usage = ResourceList::from([(format!("count/{group_resource}"), one.clone())]);
    match group_resource {
        "pods" => add_pod(&mut usage, object),
        "services" => add_service(&mut usage, object),
        "persistentvolumeclaims" => add_claim(&mut usage, object),
        "resourceclaims.resource.k8s.io" => {
            let devices = claims::devices_by_class(object).into_iter();
            usage.extend(devices.map(|(class, n)| (class + claims::DEVICES_SUFFIX, Quantity::new(n, Format::DecimalSi))));
        }
        "configmaps" | "resourcequotas" | "replicationcontrollers" | "secrets" => {
            usage.insert(group_resource.to_string(), one);
        }
        _ => {}
    }
    usage
}

/// The names of a quota that objects of the resource count for.
pub(super) fn matching<'a>(group_resource: &str, names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let count = format!("count/{group_resource}");
    let counts_for = |name: &str| match group_resource {
        "pods" => is_pod_resource(name),
        "services" => matches!(name, "services" | "services.nodeports" | "services.loadbalancers"),
        "persistentvolumeclaims" => ["persistentvolumeclaims", "requests.storage"]
            .iter()
            .any(|base| name == *base || name.ends_with(&format!("{STORAGE_CLASS_SUFFIX}{base}"))),
        "resourceclaims.resource.k8s.io" => name.ends_with(claims::DEVICES_SUFFIX),
        "configmaps" | "resourcequotas" | "replicationcontrollers" | "secrets" => name == group_resource,
        _ => false,
    };
    names.filter(|name| **name == count || counts_for(name)).cloned().collect()
}

fn is_pod_resource(name: &str) -> bool {
    let base = name.strip_prefix("requests.").or(name.strip_prefix("limits.")).unwrap_or(name);
    let compute = matches!(base, "cpu" | "memory" | "ephemeral-storage");
    name == "pods"
        || compute
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
        || name.strip_prefix("requests.").is_some_and(is_extended)
}

/// Resources that are not Kubernetes' own: those with a domain.
fn is_extended(name: &str) -> bool {
    name.contains('/') && (!name.contains("kubernetes.io/") || name.starts_with("deviceclass.resource.kubernetes.io/"))
}

fn add_pod(usage: &mut ResourceList, pod: &Value) {
    if matches!(pod.str_at("/status/phase"), Some("Failed" | "Succeeded")) {
        return;
    }
    let (requests, limits) = (pod_sum(&pod["spec"], "requests"), pod_sum(&pod["spec"], "limits"));
    usage.extend(pod_usage(&requests, &limits));
}

fn pod_usage(requests: &ResourceList, limits: &ResourceList) -> ResourceList {
    let mut usage = ResourceList::from([("pods".to_string(), Quantity::new(1, Format::DecimalSi))]);
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(request) = requests.get(name) {
            usage.insert(name.into(), request.clone());
            usage.insert(format!("requests.{name}"), request.clone());
        }
        if let Some(limit) = limits.get(name) {
            usage.insert(format!("limits.{name}"), limit.clone());
        }
    }
    for (name, request) in requests {
        if name.starts_with("hugepages-") {
            usage.insert(name.clone(), request.clone());
        }
        if name.starts_with("hugepages-") || is_extended(name) {
            usage.insert(format!("requests.{name}"), request.clone());
        }
    }
    usage
}

/// Why a quota of compute resources does not take the pod: every container must state what is limited.
pub(super) fn constraint_error(group_resource: &str, required: &[String], object: &Value) -> Option<String> {
    const CHECKED: [&str; 6] = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];
    let spec = &object["spec"];
    let pod_level = ["requests", "limits"].iter().any(|part| read_list(&spec["resources"][*part]).keys().any(|n| is_pod_level(n)));
    if group_resource != "pods" || pod_level {
        return None;
    }
    let mut messages = Vec::new();
    for name in CHECKED.iter().filter(|name| required.iter().any(|r| r == *name)) {
        let mut missing: Vec<&str> = ["containers", "initContainers"]
            .iter()
            .flat_map(|list| spec[*list].as_array().into_iter().flatten())
            .filter(|c| {
                let stated = pod_usage(&read_list(&c["resources"]["requests"]), &read_list(&c["resources"]["limits"]));
                !stated.contains_key(*name)
            })
            .map(|c| c["name"].as_str().unwrap_or_default())
            .collect();
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            messages.push(format!("{name} for: {}", missing.join(",")));
        }
    }
    (!messages.is_empty()).then(|| format!("must specify {}", messages.join("; ")))
}

fn add_service(usage: &mut ResourceList, service: &Value) {
    let count = |n: usize| Quantity::new(i64::try_from(n).unwrap_or(i64::MAX), Format::DecimalSi);
    let ports = service.array_at("/spec/ports");
    let balancer = service["spec"]["type"] == "LoadBalancer";
    let node_ports = match service.str_at("/spec/type") {
        Some("LoadBalancer") if service["spec"]["allocateLoadBalancerNodePorts"] == false => {
            ports.iter().filter(|p| !is_zero(&p["nodePort"])).count()
        }
        Some("NodePort" | "LoadBalancer") => ports.len(),
        _ => 0,
    };
    usage.insert("services".into(), count(1));
    usage.insert("services.nodeports".into(), count(node_ports));
    usage.insert("services.loadbalancers".into(), count(usize::from(balancer)));
}

fn add_claim(usage: &mut ResourceList, claim: &Value) {
    let class = class_of(claim);
    let mut add = |name: &str, quantity: &Quantity| {
        usage.insert(name.to_string(), quantity.clone());
        if !class.is_empty() {
            usage.insert(format!("{class}{STORAGE_CLASS_SUFFIX}{name}"), quantity.clone());
        }
    };
    add("persistentvolumeclaims", &Quantity::new(1, Format::DecimalSi));
    let size = |value: &Value| read_list(value).remove("storage");
    if let Some(mut requested) = size(&claim["spec"]["resources"]["requests"]) {
        if let Some(allocated) = size(&claim["status"]["allocatedResources"]).filter(|a| *a > requested) {
            requested = allocated;
        }
        requested.round_up(0);
        add("requests.storage", &requested);
    }
}

/// Whether the object falls under all scopes of the quota.
pub(super) fn in_scopes(group_resource: &str, quota: &Value, object: &Value) -> bool {
    let plain = quota.array_at("/spec/scopes").iter().all(|scope| in_scope(group_resource, object, scope, "Exists", &[]));
    let selected =
        |s: &Value| in_scope(group_resource, object, &s["scopeName"], s["operator"].as_str().unwrap_or_default(), s.array_at("/values"));
    plain && quota.array_at("/spec/scopeSelector/matchExpressions").iter().all(selected)
}

fn in_scope(group_resource: &str, object: &Value, scope: &Value, operator: &str, values: &[Value]) -> bool {
    match (group_resource, scope.as_str().unwrap_or_default()) {
        ("pods", "Terminating") => is_terminating(object),
        ("pods", "NotTerminating") => !is_terminating(object),
        ("pods", "BestEffort") => class_name(object) == "BestEffort",
        ("pods", "NotBestEffort") => class_name(object) != "BestEffort",
        ("pods", "PriorityClass") => {
            let name = object.str_at("/spec/priorityClassName").filter(|n| !n.is_empty());
            selects(operator, values, &name.into_iter().collect::<Vec<_>>())
        }
        ("pods", "CrossNamespacePodAffinity") => crosses_namespaces(object),
        ("persistentvolumeclaims", "VolumeAttributesClass") => {
            let paths = [
                "/spec/volumeAttributesClassName",
                "/status/currentVolumeAttributesClassName",
                "/status/modifyVolumeStatus/targetVolumeAttributesClassName",
            ];
            let names: Vec<&str> = paths.iter().filter_map(|p| object.str_at(p)).filter(|n| !n.is_empty()).collect();
            selects(operator, values, &names)
        }
        _ => false,
    }
}

/// A label selector over one key whose value is any of `names`.
fn selects(operator: &str, values: &[Value], names: &[&str]) -> bool {
    let listed = |name: &&str| values.iter().any(|v| v == name);
    match operator {
        "In" => names.iter().any(listed),
        "NotIn" => names.is_empty() || names.iter().any(|n| !listed(n)),
        "Exists" => !names.is_empty(),
        "DoesNotExist" => names.is_empty(),
        _ => false,
    }
}

fn class_name(pod: &Value) -> &str {
    pod.str_at("/status/qosClass").filter(|c| !c.is_empty()).unwrap_or_else(|| qos::class(pod))
}

fn is_terminating(pod: &Value) -> bool {
    pod.i64_at("/spec/activeDeadlineSeconds").is_some_and(|seconds| seconds >= 0)
}

fn crosses_namespaces(pod: &Value) -> bool {
    let crosses = |term: &Value| !is_zero(&term["namespaces"]) || !term["namespaceSelector"].is_null();
    ["podAffinity", "podAntiAffinity"].iter().any(|side| {
        let side = &pod["spec"]["affinity"][*side];
        side.array_at("/requiredDuringSchedulingIgnoredDuringExecution").iter().any(crosses)
            || side.array_at("/preferredDuringSchedulingIgnoredDuringExecution").iter().any(|p| crosses(&p["podAffinityTerm"]))
    })
}
