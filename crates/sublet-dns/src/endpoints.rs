//! The endpoints of a Service, from its EndpointSlices.

use serde_json::Value;
use std::net::IpAddr;
use std::sync::Arc;
use sublet_machinery::ObjectExt;

/// Endpoints in one answer. A reply holds some four thousand addresses at the most.
pub const ENDPOINTS_MAX: usize = 2000;

/// One address that serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub address: IpAddr,
    /// Its name below the Service: what the pod gave itself, or its address with dashes.
    pub host: String,
    pub ports: Arc<[Port]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub name: String,
    /// In lower case.
    pub protocol: String,
    pub number: u16,
}

/// The endpoints that a Service shows, each address and name once.
pub fn of_slices(slices: &[Arc<Value>], not_ready_too: bool) -> Vec<Endpoint> {
    let mut all: Vec<Endpoint> = Vec::new();
    for slice in slices {
        let ports: Arc<[Port]> = slice.array_at("/ports").iter().filter_map(port).collect();
        for endpoint in slice.array_at("/endpoints") {
            if !not_ready_too && endpoint.bool_at("/conditions/ready") == Some(false) {
                continue;
            }
            for address in endpoint.array_at("/addresses").iter().filter_map(|a| a.as_str()?.parse().ok()) {
                if all.len() == ENDPOINTS_MAX {
                    return all;
                }
                all.push(Endpoint { address, host: host(endpoint, address), ports: ports.clone() });
            }
        }
    }
    all
}

/// Ports of a Service.
pub fn service_ports(service: &Value) -> Vec<Port> {
    service.array_at("/spec/ports").iter().filter_map(port).collect()
}

fn port(value: &Value) -> Option<Port> {
    Some(Port {
        name: value["name"].as_str().unwrap_or_default().to_string(),
        protocol: value["protocol"].as_str().unwrap_or("TCP").to_ascii_lowercase(),
        number: u16::try_from(value["port"].as_u64()?).ok()?,
    })
}

/// The name of an endpoint below its Service.
pub fn host(endpoint: &Value, address: IpAddr) -> String {
    match endpoint.str_at("/hostname").filter(|h| !h.is_empty()) {
        Some(name) => name.to_ascii_lowercase(),
        None => dashed(address),
    }
}

/// An address as one label.
pub fn dashed(address: IpAddr) -> String {
    address.to_string().replace(['.', ':'], "-")
}

/// The address that a label spells with dashes.
pub fn undashed(label: &str) -> Option<IpAddr> {
    let dotted = label.replace('-', ".").parse().ok().map(IpAddr::V4);
    // Groups of an IPv6 address; two dashes stand for the gap.
    dotted.or_else(|| label.replace('-', ":").parse().ok().map(IpAddr::V6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_are_labels_and_back() {
        for (address, label) in [("10.1.2.3", "10-1-2-3"), ("2001:db8::1", "2001-db8--1"), ("fd00:1:2:3:4:5:6:7", "fd00-1-2-3-4-5-6-7")] {
            assert_eq!(dashed(address.parse().unwrap()), label);
            assert_eq!(undashed(label), Some(address.parse().unwrap()));
        }
        for label in ["web", "1-2-3", "1-2-3-4-5", "300-1-1-1", ""] {
            assert_eq!(undashed(label), None, "{label}");
        }
    }

    #[test]
    fn unready_endpoints_are_shown_when_the_service_says_so() {
        let slice = Arc::new(json!({"ports": [{"name": "web", "port": 80}], "endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "hostname": "web-0"},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
            {"addresses": ["10.0.0.3"]},
        ]}));
        let shown = |all| of_slices(std::slice::from_ref(&slice), all).into_iter().map(|e| e.host).collect::<Vec<_>>();
        assert_eq!(shown(false), ["web-0", "10-0-0-3"]);
        assert_eq!(shown(true), ["web-0", "10-0-0-2", "10-0-0-3"]);
    }
}
