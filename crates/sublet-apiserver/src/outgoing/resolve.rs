//! From a Service to the addresses behind it.

use super::Place;
use crate::reader::Reader;
use rand::seq::SliceRandom;
use serde_json::Value;
use sublet_machinery::ObjectExt;

/// The most addresses that one call tries.
const CANDIDATES_MAX: usize = 4;

/// Addresses to try, `host:port`, in this order. The error is worded as upstream words it.
pub(super) fn candidates(reader: &dyn Reader, place: &Place) -> Result<Vec<String>, String> {
    match place {
        Place::Url { host, port } => Ok(vec![join(host, *port)]),
        Place::Service { namespace, name, port } => of_service(reader, namespace, name, *port),
    }
}

/// Ready endpoints of the tenant's own slices, which carry the addresses that pods have on the host's network; the
/// cluster address comes last, for services whose slices nobody writes.
fn of_service(reader: &dyn Reader, namespace: &str, name: &str, port: u16) -> Result<Vec<String>, String> {
    let service = reader.get("services", namespace, name).ok_or_else(|| format!("service {name:?} not found"))?;
    let kind = service.str_at("/spec/type").unwrap_or("ClusterIP");
    if kind == "ExternalName" {
        return Ok(vec![join(service.str_at("/spec/externalName").unwrap_or_default(), port)]);
    }
    let service_port = service.array_at("/spec/ports").iter().find(|p| p["port"].as_u64() == Some(port.into()));
    let service_port = service_port.ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
    let port_name = service_port["name"].as_str().unwrap_or_default();
    let slices = reader.list("endpointslices.discovery.k8s.io", Some(namespace));
    let mut slices: Vec<_> = slices.iter().filter(|s| s.str_at("/metadata/labels/kubernetes.io~1service-name") == Some(name)).collect();
    let family = service.str_at("/spec/ipFamilies/0").unwrap_or("IPv4").to_string();
    slices.sort_by_key(|slice| slice.str_at("/addressType") != Some(&family));
    let mut found: Vec<String> = Vec::new();
    for slice in &slices {
        let mut addresses = ready_addresses(slice, port_name);
        addresses.shuffle(&mut rand::rng());
        found.extend(addresses);
    }
    found.truncate(CANDIDATES_MAX);
    let cluster_ip = service.str_at("/spec/clusterIP").filter(|ip| !matches!(*ip, "" | "None"));
    match (found.is_empty(), cluster_ip) {
        (true, Some(ip)) if slices.is_empty() && service.pointer("/spec/selector").is_none() => Ok(vec![join(ip, port)]),
        (true, _) => Err(format!("no endpoints available for service {name:?}")),
        (false, _) => Ok(found),
    }
}

fn ready_addresses(slice: &Value, port_name: &str) -> Vec<String> {
    let port = slice.array_at("/ports").iter().find(|p| p["name"].as_str().unwrap_or_default() == port_name);
    let Some(port) = port.and_then(|p| p["port"].as_u64()).and_then(|p| u16::try_from(p).ok()) else { return Vec::new() };
    let ready = slice.array_at("/endpoints").iter().filter(|e| e["conditions"]["ready"] != false);
    ready.filter_map(|e| e["addresses"][0].as_str()).map(|address| join(address, port)).collect()
}

/// A host and its port as they stand in URLs.
pub(super) fn join(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::testing::FakeReader;
    use serde_json::json;

    fn place() -> Place {
        Place::Service { namespace: "ns".into(), name: "hook".into(), port: 443 }
    }

    #[test]
    fn services_lead_to_their_ready_endpoints_on_the_target_port() {
        let reader = FakeReader::default();
        assert_eq!(candidates(&reader, &place()), Err("service \"hook\" not found".into()));
        let service = json!({"metadata": {"name": "hook", "namespace": "ns"}, "spec": {"clusterIP": "10.0.0.1", "selector": {"a": "b"}, "ports": [{"port": 80, "name": "x"}, {"port": 443, "name": "web"}]}});
        reader.put("services", service.clone());
        assert_eq!(candidates(&reader, &place()), Err("no endpoints available for service \"hook\"".into()));
        reader.put("endpointslices.discovery.k8s.io", json!({
            "metadata": {"name": "hook-1", "namespace": "ns", "labels": {"kubernetes.io/service-name": "hook"}}, "addressType": "IPv4",
            "ports": [{"name": "x", "port": 8080}, {"name": "web", "port": 8444}],
            "endpoints": [{"addresses": ["10.1.0.1"], "conditions": {"ready": false}}, {"addresses": ["10.1.0.2"], "conditions": {"ready": true}}]
        }));
        assert_eq!(candidates(&reader, &place()), Ok(vec!["10.1.0.2:8444".into()]));
    }

    #[test]
    fn a_service_that_nobody_selects_for_is_called_by_its_address() {
        let reader = FakeReader::default();
        reader.put(
            "services",
            json!({"metadata": {"name": "hook", "namespace": "ns"}, "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 443}]}}),
        );
        assert_eq!(candidates(&reader, &place()), Ok(vec!["10.0.0.1:443".into()]));
        let other = Place::Service { namespace: "ns".into(), name: "hook".into(), port: 8443 };
        assert_eq!(candidates(&reader, &other), Err("no service port 8443 found for service \"hook\"".into()));
    }
}
