//! The columns of services, endpoints, ingresses and their like.

use crate::registry::Column;
use crate::table::columns::{
    NONE, UNSET, age, count, joined, labels, name, named, selector, some_of, string, strings, text, text_or, wide,
};
use serde_json::Value;
use std::collections::BTreeSet;
use sublet_machinery::ObjectExt;

pub(in crate::table) fn columns(plural: &str) -> Option<Vec<Column>> {
    Some(match plural {
        "endpointslices" => vec![
            name(),
            string("AddressType", "IPv4, IPv6 or FQDN.", |o, _| text(o, "/addressType").into()),
            string("Ports", "The ports of the endpoints.", |o, _| slice_ports(o).into()),
            string("Endpoints", "The addresses of the endpoints.", |o, _| slice_addresses(o).into()),
            age(),
        ],
        "ingressclasses" => ingress_classes(),
        "ingresses" => ingresses(),
        "ipaddresses" => vec![name(), string("ParentRef", "What the address belongs to.", |o, _| parent(o).into())],
        "networkpolicies" => vec![
            name(),
            string("Pod-Selector", "The pods the policy is for.", |o, _| {
                let text = selector(&o["spec"]["podSelector"]);
                if text.is_empty() { NONE.into() } else { text.into() }
            }),
            age(),
        ],
        "servicecidrs" => vec![
            name(),
            string("CIDRs", "The ranges services take addresses from.", |o, _| joined(o.array_at("/spec/cidrs"), ",").into()),
            age(),
        ],
        _ => return None,
    })
}

pub(super) fn services() -> Vec<Column> {
    vec![
        name(),
        string("Type", "How the service is exposed.", |o, _| text(o, "/spec/type").into()),
        string("Cluster-IP", "The address inside the cluster.", |o, _| text_or(o, "/spec/clusterIPs/0", NONE).into()),
        string("External-IP", "The addresses outside the cluster.", |o, _| external_ip(o).into()),
        string("Port(s)", "Port, node port and protocol.", |o, _| service_ports(o).into()),
        age(),
        wide(string("Selector", "The labels of the pods behind the service.", |o, _| labels(o.object_at("/spec/selector")).into())),
    ]
}

fn external_ip(service: &Value) -> String {
    let external = joined(service.array_at("/spec/externalIPs"), ",");
    match text(service, "/spec/type") {
        "ClusterIP" | "NodePort" if external.is_empty() => NONE.into(),
        "ClusterIP" | "NodePort" => external,
        "LoadBalancer" => match (load_balancer(service), external) {
            (balancer, external) if balancer.is_empty() && external.is_empty() => "<pending>".into(),
            (balancer, external) if balancer.is_empty() || external.is_empty() => balancer + &external,
            (balancer, external) => format!("{balancer},{external}"),
        },
        "ExternalName" => text(service, "/spec/externalName").into(),
        _ => "<unknown>".into(),
    }
}

/// Addresses or names of the load balancer, sorted.
fn load_balancer(object: &Value) -> String {
    let points = object.array_at("/status/loadBalancer/ingress").iter();
    let each: BTreeSet<&str> = points.map(|p| text_or(p, "/ip", text(p, "/hostname"))).filter(|t| !t.is_empty()).collect();
    each.into_iter().collect::<Vec<_>>().join(",")
}

fn service_ports(service: &Value) -> String {
    let ports = service.array_at("/spec/ports").iter().map(|p| {
        let (port, protocol) = (count(p, "/port"), text(p, "/protocol"));
        match p.i64_at("/nodePort") {
            Some(node_port) if node_port > 0 => format!("{port}:{node_port}/{protocol}"),
            _ => format!("{port}/{protocol}"),
        }
    });
    let text = ports.collect::<Vec<_>>().join(",");
    if text.is_empty() { NONE.into() } else { text }
}

pub(super) fn endpoints() -> Vec<Column> {
    vec![name(), string("Endpoints", "Address and port of each.", |o, _| endpoint_addresses(o).into()), age()]
}

fn endpoint_addresses(endpoints: &Value) -> String {
    let subsets = endpoints.array_at("/subsets");
    if subsets.is_empty() {
        return NONE.into();
    }
    let mut all = Vec::new();
    for subset in subsets {
        let addresses = || subset.array_at("/addresses").iter().map(|a| text(a, "/ip"));
        // Headless services may have no ports.
        if subset.array_at("/ports").is_empty() {
            all.extend(addresses().map(str::to_string));
        }
        for port in subset.array_at("/ports") {
            let port = count(port, "/port");
            all.extend(addresses().map(|ip| if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }));
        }
    }
    some_of(&all, SHOWN, ",")
}

fn slice_ports(slice: &Value) -> String {
    let ports = slice.array_at("/ports").iter().map(|p| match p.i64_at("/port") {
        Some(port) => port.to_string(),
        None => p.str_at("/name").unwrap_or("*").to_string(),
    });
    some_or_unset(&ports.collect::<Vec<_>>())
}

fn slice_addresses(slice: &Value) -> String {
    let endpoints = slice.array_at("/endpoints").iter();
    some_or_unset(&endpoints.flat_map(|e| strings(e.array_at("/addresses"))).map(str::to_string).collect::<Vec<_>>())
}

fn some_or_unset(values: &[String]) -> String {
    let text = some_of(values, SHOWN, ",");
    if text.is_empty() { UNSET.into() } else { text }
}

fn ingresses() -> Vec<Column> {
    vec![
        name(),
        string("Class", "The class that handles the ingress.", |o, _| o.str_at("/spec/ingressClassName").unwrap_or(NONE).into()),
        string("Hosts", "The hosts of the rules.", |o, _| hosts(o).into()),
        string("Address", "The addresses of the load balancer.", |o, _| load_balancer(o).into()),
        string("Ports", "80, and 443 with TLS.", |o, _| if o.array_at("/spec/tls").is_empty() { "80" } else { "80, 443" }.into()),
        age(),
    ]
}

/// Hosts of the first rules. As upstream counts, the rest is told only when three hosts were found and rules remain.
fn hosts(ingress: &Value) -> String {
    let rules = ingress.array_at("/spec/rules");
    let (mut list, mut more) = (Vec::new(), false);
    for host in rules.iter().map(|r| text(r, "/host")) {
        more |= list.len() == SHOWN;
        if !more && !host.is_empty() {
            list.push(host);
        }
    }
    match (list.is_empty(), more) {
        (true, _) => "*".into(),
        (false, false) => list.join(","),
        (false, true) => format!("{} + {} more...", list.join(","), rules.len() - SHOWN),
    }
}

fn ingress_classes() -> Vec<Column> {
    vec![
        named("Name", |o, _| {
            let default = o.annotation("ingressclass.kubernetes.io/is-default-class") == Some("true");
            if default { format!("{} (default)", o.name()).into() } else { o.name().into() }
        }),
        string("Controller", "The controller that handles the class.", |o, _| text(o, "/spec/controller").into()),
        string("Parameters", "Where more is configured.", |o, _| {
            let Some(parameters) = o.pointer("/spec/parameters").filter(|p| p.is_object()) else { return NONE.into() };
            let (kind, name) = (text(parameters, "/kind"), text(parameters, "/name"));
            match parameters.str_at("/apiGroup") {
                Some(group) => format!("{kind}.{group}/{name}").into(),
                None => format!("{kind}/{name}").into(),
            }
        }),
        age(),
    ]
}

fn parent(address: &Value) -> String {
    let Some(parent) = address.pointer("/spec/parentRef").filter(|p| p.is_object()) else { return NONE.into() };
    let mut out = match (text(parent, "/resource"), text(parent, "/group")) {
        (resource, "") => resource.to_lowercase(),
        (resource, group) => format!("{resource}.{group}").to_lowercase(),
    };
    for part in [text(parent, "/namespace"), text(parent, "/name")] {
        if !part.is_empty() {
            out.push('/');
            out.push_str(part);
        }
    }
    out
}

/// Ports, hosts and addresses shown before `+ n more...`.
const SHOWN: usize = 3;
