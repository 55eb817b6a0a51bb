//! Addresses and ports of one pod, as a service publishes them.

use serde_json::{Map, Value, json};
use std::net::IpAddr;
use sublet_machinery::ObjectExt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    pub(super) fn of(ip: &IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    fn parse(text: &str) -> Option<Self> {
        match text {
            "IPv4" => Some(Self::V4),
            "IPv6" => Some(Self::V6),
            _ => None,
        }
    }
}

/// The address families of a service. Those of a service without any (made before they were
/// allocated) follow from its cluster IP; headless ones get both.
pub(super) fn families(service: &Value) -> Vec<Family> {
    let stated: Vec<Family> = service.array_at("/spec/ipFamilies").iter().filter_map(|f| Family::parse(f.as_str()?)).collect();
    if !stated.is_empty() {
        return stated;
    }
    match service.str_at("/spec/clusterIP").and_then(|ip| ip.parse::<IpAddr>().ok()) {
        Some(ip) => vec![Family::of(&ip)],
        None => vec![Family::V4, Family::V6],
    }
}

/// The addresses of a pod in one family, in the canonical writing.
pub(super) fn addresses(pod: &Value, family: Family) -> Vec<String> {
    let all = pod.array_at("/status/podIPs").iter().filter_map(|i| i["ip"].as_str()?.parse::<IpAddr>().ok());
    all.filter(|ip| Family::of(ip) == family).map(|ip| ip.to_string()).collect()
}

/// The port of a pod that a service port leads to; `None` when no container names it.
pub(super) fn find_port(pod: &Value, service_port: &Value) -> Option<i64> {
    match &service_port["targetPort"] {
        Value::Number(number) => number.as_i64(),
        Value::String(name) => {
            let containers = pod.array_at("/spec/containers").iter();
            let sidecars = pod.array_at("/spec/initContainers").iter().filter(|c| c["restartPolicy"] == "Always");
            let mut ports = containers.chain(sidecars).flat_map(|c| c.array_at("/ports"));
            let protocol = |port: &Value| port["protocol"].as_str().unwrap_or("TCP").to_string();
            ports.find(|p| p["name"] == *name && protocol(p) == protocol(service_port))?["containerPort"].as_i64()
        }
        _ => service_port["port"].as_i64(),
    }
}

/// A port in the form of Endpoints; slices write an empty name, Endpoints leave it out.
pub(super) fn endpoint_port(service_port: &Value, number: i64, with_empty_name: bool) -> Value {
    let mut port = Map::new();
    let name = service_port["name"].as_str().unwrap_or_default();
    if with_empty_name || !name.is_empty() {
        port.insert("name".into(), json!(name));
    }
    port.insert("port".into(), json!(number));
    port.insert("protocol".into(), json!(service_port["protocol"].as_str().unwrap_or("TCP")));
    if let Some(protocol) = service_port.get("appProtocol").filter(|p| !p.is_null()) {
        port.insert("appProtocol".into(), protocol.clone());
    }
    Value::Object(port)
}

/// The ports of a pod for the slices of a service, in a fixed order.
pub(super) fn slice_ports(service: &Value, pod: &Value) -> Vec<Value> {
    let ports = service.array_at("/spec/ports").iter();
    let mut ports: Vec<Value> = ports.filter_map(|p| Some(endpoint_port(p, find_port(pod, p)?, true))).collect();
    ports.sort_by_key(Value::to_string);
    ports
}

/// The hostname under which a pod is found in the domain of a headless service.
pub(super) fn hostname<'a>(pod: &'a Value, service: &Value) -> Option<&'a str> {
    let hostname = pod.str_at("/spec/hostname").filter(|h| !h.is_empty())?;
    (pod.str_at("/spec/subdomain") == Some(service.name()) && pod.namespace() == service.namespace()).then_some(hostname)
}

pub(super) fn pod_reference(pod: &Value) -> Value {
    json!({"kind": "Pod", "namespace": pod.namespace(), "name": pod.name(), "uid": pod.uid()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_ports_are_found_in_containers_and_sidecars() {
        let pod = json!({"spec": {
            "containers": [{"ports": [{"name": "web", "containerPort": 80, "protocol": "UDP"}, {"name": "web", "containerPort": 8080, "protocol": "TCP"}]}],
            "initContainers": [{"ports": [{"name": "init", "containerPort": 1}]}, {"restartPolicy": "Always", "ports": [{"name": "mesh", "containerPort": 2}]}],
        }});
        let check = |target: Value, expected| {
            assert_eq!(find_port(&pod, &json!({"port": 9, "targetPort": target, "protocol": "TCP"})), expected, "{target}");
        };
        check(json!("web"), Some(8080));
        check(json!("mesh"), Some(2));
        check(json!("init"), None);
        check(json!(7), Some(7));
    }

    #[test]
    fn families_follow_from_the_cluster_ip_when_not_stated() {
        let check = |spec: Value, expected: &[Family]| assert_eq!(families(&json!({"spec": spec})), expected);
        check(json!({"ipFamilies": ["IPv6"]}), &[Family::V6]);
        check(json!({"clusterIP": "10.0.0.1"}), &[Family::V4]);
        check(json!({"clusterIP": "None"}), &[Family::V4, Family::V6]);
    }
}
