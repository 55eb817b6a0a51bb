//! Reading a Service, and keeping the values that the server once gave it.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use sublet_machinery::ObjectExt;

pub(super) const NONE: &str = "None";

pub(super) fn kind(service: &Value) -> &str {
    service.str_at("/spec/type").filter(|t| !t.is_empty()).unwrap_or("ClusterIP")
}

pub(super) fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_string).collect()
}

pub(super) fn cluster_ips(service: &Value) -> Vec<String> {
    strings(&service["spec"]["clusterIPs"])
}

pub(super) fn ip_families(service: &Value) -> Vec<String> {
    strings(&service["spec"]["ipFamilies"])
}

pub(super) fn is_headless(service: &Value) -> bool {
    service["spec"]["clusterIP"] == NONE || cluster_ips(service).first().is_some_and(|ip| ip == NONE)
}

pub(super) fn has_selector(service: &Value) -> bool {
    service.object_at("/spec/selector").is_some_and(|s| !s.is_empty())
}

pub(super) fn has_node_ports(service: &Value) -> bool {
    matches!(kind(service), "NodePort" | "LoadBalancer")
}

/// Whether ports without a number get one.
pub(super) fn wants_node_ports(service: &Value) -> bool {
    kind(service) == "NodePort" || (kind(service) == "LoadBalancer" && service["spec"]["allocateLoadBalancerNodePorts"] != false)
}

pub(super) fn needs_health_check(service: &Value) -> bool {
    kind(service) == "LoadBalancer" && service["spec"]["externalTrafficPolicy"] == "Local"
}

pub(super) fn node_port(port: &Value) -> u64 {
    port["nodePort"].as_u64().unwrap_or(0)
}

pub(super) fn node_ports(service: &Value) -> Vec<u64> {
    service.array_at("/spec/ports").iter().map(node_port).filter(|p| *p != 0).collect()
}

pub(super) fn health_check_port(service: &Value) -> u64 {
    service["spec"]["healthCheckNodePort"].as_u64().unwrap_or(0)
}

/// An update may leave out what the server allocated: it keeps it.
pub(super) fn keep_allocated(service: &mut Value, old: &Value) {
    if kind(service) != "ExternalName" && kind(old) != "ExternalName" {
        for field in ["clusterIP", "clusterIPs"] {
            if is_empty(&service["spec"][field]) && !is_empty(&old["spec"][field]) {
                service["spec"][field] = old["spec"][field].clone();
            }
        }
    }
    if wants_node_ports(service) && wants_node_ports(old) {
        let wanted = node_ports(service);
        let used: Vec<u64> = node_ports(old).into_iter().filter(|p| wanted.contains(p)).collect();
        let by_name: BTreeMap<&str, u64> =
            old.array_at("/spec/ports").iter().map(|p| (p["name"].as_str().unwrap_or_default(), node_port(p))).collect();
        for port in service["spec"]["ports"].as_array_mut().into_iter().flatten().filter(|p| node_port(p) == 0) {
            let known = by_name.get(port["name"].as_str().unwrap_or_default()).filter(|p| **p != 0 && !used.contains(p));
            if let Some(known) = known {
                port["nodePort"] = json!(known);
            }
        }
    }
    if needs_health_check(service) && needs_health_check(old) && health_check_port(service) == 0 && health_check_port(old) != 0 {
        service["spec"]["healthCheckNodePort"] = old["spec"]["healthCheckNodePort"].clone();
    }
}

/// Old clients know `clusterIP` alone; `clusterIPs` follows it.
pub(super) fn sync_cluster_ips(service: &mut Value, old: Option<&Value>) {
    let first = service.str_at("/spec/clusterIP").unwrap_or_default().to_string();
    let Some(old) = old else {
        if !first.is_empty() && cluster_ips(service).is_empty() {
            service["spec"]["clusterIPs"] = json!([first]);
        }
        return;
    };
    let old_first = old.str_at("/spec/clusterIP").unwrap_or_default();
    let old_ips = cluster_ips(old);
    if old_first == first {
        if !old_ips.is_empty() && cluster_ips(service).is_empty() && kind(service) != "ExternalName" {
            service["spec"]["clusterIPs"] = json!(old_ips);
        }
    } else if cluster_ips(service) == old_ips {
        if first.is_empty() {
            service.remove_at("/spec/clusterIPs");
        } else {
            service["spec"]["clusterIPs"] = json!([first]);
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}
