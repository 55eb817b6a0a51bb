//! Services. Cluster IPs, families and node ports are given out by the allocator, not here.

use super::super::edit::{ensure, fill, fill_zero, is_zero, items, remove};
use super::super::field::Field;
use super::super::status::keep_spec;
use super::super::{NameRule, Strategy, keep_status};
use super::service_rules;
use serde_json::{Value, json};
use sublet_machinery::{ObjectExt, names};

pub(crate) const SERVICE: Strategy = Strategy {
    default,
    prepare_create,
    prepare_update,
    prepare_status_update: keep_spec,
    validate: service_rules::validate,
    validate_update: service_rules::validate_update,
    validate_status_update: service_rules::validate_status_update,
    fields,
    warnings,
    name_rule: NameRule::DnsLabel,
    create_on_update: true,
    ..Strategy::PLAIN
};

const AFFINITY_SECONDS: i64 = 10800;

fn default(service: &mut Value) {
    let spec = ensure(service, "spec");
    default_affinity(spec);
    fill_zero(spec, "type", "ClusterIP");
    for port in items(spec, "ports") {
        fill_zero(port, "protocol", "TCP");
        let number = port["port"].clone();
        fill_zero(port, "targetPort", number);
    }
    let kind = spec["type"].as_str().unwrap_or_default().to_string();
    if is_external(spec) {
        fill_zero(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
        fill(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        fill(spec, "allocateLoadBalancerNodePorts", true);
    }
    let balancer = ensure(ensure(service, "status"), "loadBalancer");
    if kind == "LoadBalancer" {
        for ingress in items(balancer, "ingress") {
            if !is_zero(&ingress["ip"]) {
                fill(ingress, "ipMode", "VIP");
            }
        }
    }
}

fn default_affinity(spec: &mut Value) {
    fill_zero(spec, "sessionAffinity", "None");
    match spec["sessionAffinity"].as_str() {
        Some("None") => {
            remove(spec, "sessionAffinityConfig");
        }
        Some("ClientIP") if spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"].is_null() => {
            spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}});
        }
        _ => {}
    }
}

fn prepare_create(service: &mut Value) {
    service["status"] = json!({"loadBalancer": {}});
    let spec = ensure(service, "spec");
    normalize_ips(spec, None);
    drop_traffic_policy(spec);
}

/// A name somewhere else has no traffic. A policy that nobody knows is for validation to refuse.
fn drop_traffic_policy(spec: &mut Value) {
    let is_known = spec["internalTrafficPolicy"].as_str().is_some_and(|policy| service_rules::TRAFFIC_POLICIES.contains(&policy));
    if spec["type"] == "ExternalName" && is_known {
        remove(spec, "internalTrafficPolicy");
    }
}

fn prepare_update(new: &mut Value, old: &Value) {
    keep_status(new, old);
    let spec = ensure(new, "spec");
    patch_allocated(spec, &old["spec"]);
    normalize_ips(spec, Some(&old["spec"]));
    drop_type_dependent(spec, &old["spec"]);
    drop_traffic_policy(spec);
    if spec["type"] != "LoadBalancer" {
        ensure(new, "status")["loadBalancer"] = json!({});
    }
}

/// What the server allocated stays when a client leaves it out.
fn patch_allocated(spec: &mut Value, old: &Value) {
    if needs_ip(old) && needs_ip(spec) {
        for key in ["clusterIP", "clusterIPs"] {
            if !is_zero(&old[key]) {
                fill_zero(spec, key, old[key].clone());
            }
        }
    }
    if needs_node_ports(old) && needs_node_ports(spec) {
        let (before, after) = (node_ports(old), node_ports(spec));
        for port in items(spec, "ports") {
            let same_name = |p: &&Value| p["name"].as_str().unwrap_or_default() == port["name"].as_str().unwrap_or_default();
            let known = old["ports"].as_array().into_iter().flatten().rfind(same_name);
            if let Some(number) = known.and_then(|p| p["nodePort"].as_i64())
                && !(before.contains(&number) && after.contains(&number))
                && number != 0
            {
                fill_zero(port, "nodePort", number);
            }
        }
    }
    if needs_health_port(old) && needs_health_port(spec) && !is_zero(&old["healthCheckNodePort"]) {
        fill_zero(spec, "healthCheckNodePort", old["healthCheckNodePort"].clone());
    }
}

/// Old clients know `clusterIP` alone; `clusterIPs` follows it.
fn normalize_ips(spec: &mut Value, old: Option<&Value>) {
    let first = json!([spec["clusterIP"]]);
    let Some(old) = old else {
        if !is_zero(&spec["clusterIP"]) {
            fill_zero(spec, "clusterIPs", first);
        }
        return;
    };
    let same_ip = same(&spec["clusterIP"], &old["clusterIP"]);
    if !is_zero(&old["clusterIPs"]) && is_zero(&spec["clusterIPs"]) && same_ip {
        spec["clusterIPs"] = old["clusterIPs"].clone();
    }
    if !same_ip && same(&spec["clusterIPs"], &old["clusterIPs"]) {
        if is_zero(&spec["clusterIP"]) {
            remove(spec, "clusterIPs");
        } else {
            spec["clusterIPs"] = first;
        }
    }
}

/// A service that changes its type loses what belonged to the old one, unless the client changed that too,
/// in which case validation tells (as in registry/core/service/strategy.go).
fn drop_type_dependent(spec: &mut Value, old: &Value) {
    let gone = |needs: fn(&Value) -> bool, spec: &Value| needs(old) && !needs(spec);
    let rules: [(fn(&Value) -> bool, &[&str]); 7] = [
        (needs_ip, &["clusterIP", "clusterIPs"]),
        (needs_ip, &["ipFamilies"]),
        (needs_ip, &["ipFamilyPolicy"]),
        (needs_health_port, &["healthCheckNodePort"]),
        (is_balancer, &["allocateLoadBalancerNodePorts"]),
        (is_balancer, &["loadBalancerClass"]),
        (is_external, &["externalTrafficPolicy"]),
    ];
    for (needs, keys) in rules {
        if gone(needs, spec) && keys.iter().all(|key| same(&spec[*key], &old[*key])) {
            for key in keys {
                remove(spec, key);
            }
        }
    }
    if gone(needs_node_ports, spec) && node_ports(spec).iter().all(|p| node_ports(old).contains(p)) {
        for port in items(spec, "ports") {
            remove(port, "nodePort");
        }
    }
}

fn needs_ip(spec: &Value) -> bool {
    spec["type"] != "ExternalName"
}

fn needs_node_ports(spec: &Value) -> bool {
    spec["type"] == "NodePort" || spec["type"] == "LoadBalancer"
}

fn is_balancer(spec: &Value) -> bool {
    spec["type"] == "LoadBalancer"
}

pub(super) fn needs_health_port(spec: &Value) -> bool {
    is_balancer(spec) && spec["externalTrafficPolicy"] == "Local"
}

/// Reachable from outside the cluster.
pub(super) fn is_external(spec: &Value) -> bool {
    needs_node_ports(spec) || (spec["type"] == "ClusterIP" && !is_zero(&spec["externalIPs"]))
}

fn same(a: &Value, b: &Value) -> bool {
    (is_zero(a) && is_zero(b)) || a == b
}

fn node_ports(spec: &Value) -> Vec<i64> {
    spec["ports"].as_array().into_iter().flatten().filter_map(|p| p["nodePort"].as_i64()).filter(|n| *n != 0).collect()
}

fn warnings(service: &Value) -> Vec<String> {
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    let spec = Field::root(service).at("spec");
    let mut warnings = Vec::new();
    let external_ips = spec.at("externalIPs");
    let headless = spec.at("type").text() == "ClusterIP" && spec.at("clusterIP").text() == "None";
    let external_name = spec.at("type").text() == "ExternalName";
    if service.annotation(HINTS).is_some() {
        warnings.push(format!("annotation {HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"));
    }
    for ip in spec.at("clusterIPs").items().filter(|ip| ip.text() != "None") {
        warnings.extend(names::ip_warnings(&ip.path, ip.text()));
    }
    if headless {
        let ignored = [
            ("loadBalancerIP", !spec.at("loadBalancerIP").is_zero()),
            ("externalIPs", !external_ips.is_zero()),
            ("SessionAffinity", spec.at("sessionAffinity").text() != "None"),
        ];
        warnings.extend(ignored.iter().filter(|(_, set)| *set).map(|(key, _)| format!("spec.{key} is ignored for headless services")));
    }
    external_ips.items().for_each(|ip| warnings.extend(names::ip_warnings(&ip.path, ip.text())));
    if !external_ips.is_zero() && !headless && !external_name {
        warnings.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".into());
    }
    let balancer = spec.at("loadBalancerIP");
    if !balancer.is_zero() {
        warnings.extend(names::ip_warnings(&balancer.path, balancer.text()));
    }
    for range in spec.at("loadBalancerSourceRanges").items() {
        warnings.extend(names::cidr_warnings(&range.path, range.text()));
    }
    if external_name && !external_ips.is_zero() {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".into());
    }
    if !external_name && !spec.at("externalName").is_zero() {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".into());
    }
    if spec.at("trafficDistribution").text() == "PreferClose" {
        warnings.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".into());
    }
    warnings
}

fn fields(service: &Value) -> Vec<(&'static str, String)> {
    ["spec.clusterIP", "spec.type"]
        .into_iter()
        .map(|field| (field, service["spec"][&field[5..]].as_str().unwrap_or_default().to_string()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaulted(spec: Value) -> Value {
        let mut service = json!({"spec": spec});
        default(&mut service);
        service["spec"].take()
    }

    #[test]
    fn a_plain_service_gets_ports_and_policies() {
        assert_eq!(
            defaulted(json!({"ports": [{"port": 80}, {"port": 81, "targetPort": "http", "protocol": "UDP"}]})),
            json!({"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                   "ports": [{"port": 80, "targetPort": 80, "protocol": "TCP"}, {"port": 81, "targetPort": "http", "protocol": "UDP"}]})
        );
    }

    #[test]
    fn session_affinity_has_a_timeout() {
        let spec = defaulted(json!({"sessionAffinity": "ClientIP"}));
        assert_eq!(spec["sessionAffinityConfig"], json!({"clientIP": {"timeoutSeconds": 10800}}));
        assert_eq!(defaulted(json!({"type": "ExternalName"}))["internalTrafficPolicy"], Value::Null);
    }

    #[test]
    fn a_service_that_becomes_external_loses_its_ips_and_ports() {
        let old = json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "externalTrafficPolicy": "Cluster",
            "ports": [{"port": 80, "nodePort": 30000}]}});
        let mut new = old.clone();
        new["spec"]["type"] = json!("ExternalName");
        prepare_update(&mut new, &old);
        assert_eq!(new["spec"], json!({"type": "ExternalName", "ports": [{"port": 80}]}));
    }

    #[test]
    fn allocated_values_survive_an_update_without_them() {
        let old = json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [{"name": "a", "port": 80, "nodePort": 30000}]}});
        let mut new = json!({"spec": {"type": "NodePort", "ports": [{"name": "a", "port": 81}]}});
        prepare_update(&mut new, &old);
        assert_eq!(new["spec"]["ports"], json!([{"name": "a", "port": 81, "nodePort": 30000}]));
        assert_eq!(new["spec"]["clusterIPs"], json!(["10.0.0.1"]));
    }
}
