//! Where a request through `proxy` goes: `SCHEME:NAME:PORT` of a pod or node, or of a service, which leads to one of
//! the pods behind it, as in `registry/core/service/storage/storage.go`.

use super::Server;
use crate::hooks::{ConnectTarget, Proxied};
use crate::http::RequestInfo;
use crate::reader::Reader;
use crate::rest::ResourceRequest;
use rand::seq::SliceRandom;
use serde_json::Value;
use std::net::IpAddr;
use std::sync::Arc;
use sublet_machinery::{ApiError, ObjectExt};

/// The parts of `NAME`, `NAME:PORT` and `SCHEME:NAME:PORT`.
#[derive(Debug, PartialEq, Eq)]
struct Id<'a> {
    scheme: &'a str,
    name: &'a str,
    port: &'a str,
}

impl<'a> Id<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let (scheme, name, port) = match parts[..] {
            [name] => ("", name, ""),
            [name, port] => ("", name, port),
            [scheme, name, port] => (scheme, name, port),
            _ => return None,
        };
        (!name.is_empty() && matches!(scheme, "" | "http" | "https")).then_some(Self { scheme, name, port })
    }
}

/// The `path` of the options that admission sees.
pub(super) fn option_path(info: &RequestInfo) -> String {
    let mut path = info.rest.clone();
    if !path.is_empty() && !path.starts_with('/') {
        path.insert(0, '/');
    }
    if info.path.ends_with('/') && !path.ends_with('/') {
        path.push('/');
    }
    path
}

/// The path for the program: without `.` and `..`, which would lead out of the proxy, and with the slash at its end.
fn program_path(given: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in given.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            segment => kept.push(segment),
        }
    }
    if given.is_empty() {
        return String::new();
    }
    let path = format!("/{}", kept.join("/"));
    if given.ends_with('/') && !path.ends_with('/') { path + "/" } else { path }
}

impl Server {
    pub(super) fn proxy_target<'r>(&self, request: &'r ResourceRequest<'_>) -> Result<ConnectTarget<'r>, ApiError> {
        let info = request.info;
        let invalid = || ApiError::bad_request(format!("invalid {} request {:?}", request.resource.singular, info.name));
        let id = Id::parse(&info.name).ok_or_else(invalid)?;
        let (object, port) = match request.resource.plural.as_str() {
            "services" => {
                let (pod, port) = service_pod(self, request.namespace(), &id)?;
                (pod, port.to_string())
            }
            "pods" => {
                let pod = self.connected_object(request, id.name)?;
                let port = pod_port(&pod, id.port)?;
                (pod, port)
            }
            _ => (self.connected_object(request, id.name)?, id.port.to_string()),
        };
        let proxied = Proxied { scheme: id.scheme.into(), port, path: program_path(&option_path(info)) };
        Ok(ConnectTarget { info, query: request.query, user: request.user, object, proxied: Some(proxied) })
    }
}

/// The port of a pod: the one that is asked for, or the first that it declares.
fn pod_port(pod: &Value, wanted: &str) -> Result<String, ApiError> {
    let address = pod.str_at("/status/podIPs/0/ip").unwrap_or_default();
    if !address.parse().is_ok_and(is_global_unicast) {
        return Err(ApiError::bad_request("address not allowed"));
    }
    if !wanted.is_empty() {
        return Ok(wanted.to_string());
    }
    let mut declared = pod.array_at("/spec/containers").iter().filter_map(|c| c["ports"][0]["containerPort"].as_u64());
    Ok(declared.next().map(|port| port.to_string()).unwrap_or_default())
}

/// As Go has it: neither this machine, nor the link, nor many.
fn is_global_unicast(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast() || link_local)
}

/// A pod behind a service and the port there.
fn service_pod(reader: &dyn Reader, namespace: &str, id: &Id<'_>) -> Result<(Arc<Value>, u64), ApiError> {
    let name = id.name;
    let mut port_name = id.port.to_string();
    if let Ok(number) = id.port.parse::<i64>() {
        let service = reader.get("services", namespace, name).ok_or_else(|| ApiError::not_found("", "services", name))?;
        let port = service.array_at("/spec/ports").iter().find(|p| p["port"].as_i64() == Some(number));
        let missing = || ApiError::unavailable(format!("no service port {number} found for service {name:?}"));
        port_name = port.ok_or_else(missing)?["name"].as_str().unwrap_or_default().to_string();
    }
    let mut slices = reader.list("endpointslices.discovery.k8s.io", Some(namespace));
    slices.retain(|slice| slice.label("kubernetes.io/service-name") == Some(name));
    slices.shuffle(&mut rand::rng());
    slices.sort_by_key(|slice| slice.str_at("/addressType") != Some("IPv4"));
    for slice in &slices {
        let port = slice.array_at("/ports").iter().find(|p| p["name"].as_str().unwrap_or_default() == port_name);
        let Some(port) = port.and_then(|p| p["port"].as_u64()) else { continue };
        let mut endpoints: Vec<&Value> = slice.array_at("/endpoints").iter().filter(|e| e["conditions"]["ready"] != false).collect();
        endpoints.shuffle(&mut rand::rng());
        if let Some(pod) = endpoints.into_iter().find_map(|endpoint| endpoint_pod(reader, namespace, endpoint)) {
            return Ok((pod, port));
        }
    }
    Err(ApiError::unavailable(format!("no endpoints available for service {name:?}")))
}

/// The pod of an endpoint. Anybody can write endpoints, and with them addresses: only one that is a pod's own counts.
fn endpoint_pod(reader: &dyn Reader, namespace: &str, endpoint: &Value) -> Option<Arc<Value>> {
    let target = endpoint.get("targetRef")?;
    if target["namespace"].as_str() != Some(namespace) {
        return None;
    }
    let pod = reader.get("pods", namespace, target["name"].as_str()?)?;
    let address = endpoint["addresses"][0].as_str()?;
    let own = pod.array_at("/status/podIPs").iter().any(|ip| ip["ip"].as_str() == Some(address));
    own.then_some(pod)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::testing::FakeReader;
    use serde_json::json;

    #[test]
    fn names_have_a_scheme_and_a_port_around_them() {
        let id = |scheme, name, port| Some(Id { scheme, name, port });
        assert_eq!(Id::parse("web"), id("", "web", ""));
        assert_eq!(Id::parse("web:80"), id("", "web", "80"));
        assert_eq!(Id::parse("https:web:"), id("https", "web", ""));
        assert_eq!(Id::parse(":web:http"), id("", "web", "http"));
        for wrong in ["", ":80", "ftp:web:80", "http::80", "a:b:c:d"] {
            assert_eq!(Id::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn no_path_leads_out_of_the_proxy() {
        let path = |given: &str| program_path(given);
        assert_eq!(["", "/", "/a/b", "/a/b/", "//a"].map(path), ["", "/", "/a/b", "/a/b/", "/a"].map(String::from));
        assert_eq!(["/..", "/../", "/a/../../b", "/./a/", "/a/.."].map(path), ["/", "/", "/b", "/a/", "/"].map(String::from));
    }

    #[test]
    fn pods_on_links_and_loopback_are_not_called() {
        let pod = |ip: &str, ports: Value| json!({"status": {"podIPs": [{"ip": ip}]}, "spec": {"containers": [{}, {"ports": ports}]}});
        let port = |ip: &str, wanted: &str| pod_port(&pod(ip, json!([{"containerPort": 8080}])), wanted).map_err(|e| e.message);
        assert_eq!([port("10.0.0.7", ""), port("fd00::7", "http")], [Ok("8080".into()), Ok("http".into())]);
        for ip in ["", "127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "fe80::1", "::1"] {
            assert_eq!(port(ip, "80"), Err("address not allowed".into()), "{ip}");
        }
    }

    fn world(endpoints: Value) -> FakeReader {
        let reader = FakeReader::default();
        let named = |name: &str, namespace: &str| json!({"name": name, "namespace": namespace});
        reader.put(
            "services",
            json!({"metadata": named("web", "ns"), "spec": {"ports": [{"name": "x", "port": 81}, {"name": "http", "port": 80}]}}),
        );
        reader.put("pods", json!({"metadata": named("a", "ns"), "status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}}));
        reader.put("pods", json!({"metadata": named("b", "other"), "status": {"podIPs": [{"ip": "10.0.0.2"}]}}));
        reader.put(
            "endpointslices.discovery.k8s.io",
            json!({
                "metadata": {"name": "web-1", "namespace": "ns", "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
                "ports": [{"name": "http", "port": 8080}], "endpoints": endpoints,
            }),
        );
        reader
    }

    fn found(endpoints: Value, id: &str) -> Result<(String, u64), (u16, String)> {
        let found = service_pod(&world(endpoints), "ns", &Id::parse(id).unwrap());
        found.map(|(pod, port)| (pod.name().to_string(), port)).map_err(|e| (e.code, e.message))
    }

    fn endpoint(address: &str, namespace: &str, name: &str) -> Value {
        json!({"addresses": [address], "targetRef": {"kind": "Pod", "namespace": namespace, "name": name}})
    }

    #[test]
    fn services_lead_to_a_ready_pod_by_number_or_name() {
        let good = || json!([{"addresses": ["10.0.0.9"], "conditions": {"ready": false}}, endpoint("10.0.0.1", "ns", "a")]);
        let expected = Ok(("a".to_string(), 8080));
        assert_eq!([found(good(), "web:80"), found(good(), "https:web:http")], [expected.clone(), expected]);
        let none = |name: &str| Err((503, format!("no endpoints available for service {name:?}")));
        // A port without a name is asked for, and one that no slice has.
        assert_eq!(
            [found(good(), "web"), found(good(), "web:81"), found(good(), "absent:http")],
            [none("web"), none("web"), none("absent")]
        );
        assert_eq!(found(good(), "web:82"), Err((503, "no service port 82 found for service \"web\"".into())));
        assert_eq!(found(good(), "absent:80"), Err((404, "services \"absent\" not found".into())));
    }

    /// Endpoints are objects that any tenant can write.
    #[test]
    fn endpoints_that_are_not_the_pods_own_addresses_lead_nowhere() {
        let elsewhere = [
            json!({"addresses": ["169.254.169.254"]}),
            json!({"addresses": ["10.0.0.1"]}),
            endpoint("169.254.169.254", "ns", "a"),
            endpoint("10.0.0.2", "ns", "a"),
            endpoint("10.0.0.2", "other", "b"),
            endpoint("10.0.0.2", "ns", "b"),
            endpoint("10.0.0.1", "ns", "a-ns-abcdefghijk"),
        ];
        for endpoint in elsewhere {
            assert_eq!(found(json!([endpoint]), "web:80").map_err(|e| e.0), Err(503), "{endpoint}");
        }
    }
}
