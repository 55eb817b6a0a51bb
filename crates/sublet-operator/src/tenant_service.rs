//! The Service under which one tenant's API server, and its name server, are reached on the host.
//!
//! It lives in the namespace of the control planes and stays as long as its tenant: its name and cluster
//! IP go into certificates, kubeconfigs and pods. Which pod and which ports stand behind it may change.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::net::IpAddr;
use sublet_api::{Expose, VirtualCluster, marks};
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{ENDPOINT_SLICES, INGRESSES, SERVICES};
use sublet_runtime::{Client, ClientError, DeleteOptions};

/// The port of every tenant's API server, as clients see it.
pub const API_PORT: u16 = 443;
/// The port of every tenant's name server, as clients see it.
pub const DNS_PORT: u16 = 53;

/// How controllers of Ingresses are told to pass TLS through, each in its own words.
const PASS_TLS_THROUGH: [(&str, &str); 4] = [
    ("haproxy-ingress.github.io/ssl-passthrough", "true"),
    ("haproxy.org/ssl-passthrough", "true"),
    ("nginx.ingress.kubernetes.io/backend-protocol", "HTTPS"),
    ("nginx.ingress.kubernetes.io/ssl-passthrough", "true"),
];

const NAME_BYTES_MAX: usize = 63;
/// Of the hash that ends a name: 50 bits.
const HASH_CHARS: usize = 10;
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Names and addresses under which every API server is known, to its pods and on its own machine.
pub const USUAL_NAMES: [&str; 6] =
    ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "127.0.0.1"];

/// What stands behind the Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behind {
    /// The pods with these labels: the host finds their addresses.
    Pods(Value),
    /// A process at this address, on no node or on one.
    Address(IpAddr),
}

/// Where the servers of the tenant listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    pub api: u16,
    pub dns: Option<u16>,
}

/// How the Service is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    pub name: String,
    pub namespace: String,
    pub cluster_ips: Vec<String>,
    /// The node port of the API server, when it has one.
    pub node_port: Option<u16>,
    /// Addresses and names that a load balancer gave.
    pub load_balancer: Vec<String>,
}

impl Reached {
    /// The URL of the API server for everybody inside the host cluster.
    pub fn url(&self) -> String {
        format!("https://{}.{}.svc:{API_PORT}", self.name, self.namespace)
    }

    /// What the certificate of the API server has to cover.
    pub fn names(&self) -> Vec<String> {
        let host = format!("{}.{}", self.name, self.namespace);
        let mut names: Vec<String> = USUAL_NAMES.map(String::from).to_vec();
        names.extend([host.clone(), format!("{host}.svc"), format!("{host}.svc.cluster.local")]);
        names.extend(self.cluster_ips.iter().chain(&self.load_balancer).cloned());
        names
    }
}

/// The name of the Service: readable, and one for each tenant.
pub fn name(cluster: &VirtualCluster<'_>) -> String {
    // A Service's name begins with a letter, and has no dots.
    let readable: String = format!("vc-{}-{}", cluster.name(), cluster.namespace()).replace('.', "-");
    let room = NAME_BYTES_MAX - HASH_CHARS - 1;
    format!("{}-{}", readable.get(..room).unwrap_or(&readable).trim_end_matches('-'), hash(cluster))
}

/// For objects whose names others add to.
pub fn short_name(cluster: &VirtualCluster<'_>) -> String {
    format!("vc-{}", hash(cluster))
}

fn hash(cluster: &VirtualCluster<'_>) -> String {
    let mut digest = Sha256::new();
    for part in [cluster.uid(), cluster.namespace(), cluster.name()] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part.as_bytes());
    }
    let bits = digest.finalize().iter().take(8).fold(0u64, |all, byte| all << 8 | u64::from(*byte));
    (0..HASH_CHARS).map(|i| char::from(ALPHABET[(bits >> (5 * i)) as usize & 31])).collect()
}

/// The labels of the Service and of whatever else is made for the control plane of this tenant.
pub fn labels(cluster: &VirtualCluster<'_>) -> Value {
    json!({
        "app.kubernetes.io/name": "sublet", "app.kubernetes.io/component": "control-plane",
        "app.kubernetes.io/managed-by": "sublet-operator", marks::CONTROL_PLANE_OF: cluster.uid(),
    })
}

/// The Service as it is wanted.
pub fn service(cluster: &VirtualCluster<'_>, namespace: &str, behind: &Behind, ports: Ports) -> Value {
    let port = |name: &str, protocol: &str, port: u16, target: u16| json!({"name": name, "protocol": protocol, "port": port, "targetPort": target});
    let mut all = vec![port("https", "TCP", API_PORT, ports.api)];
    if let Some(dns) = ports.dns {
        all.push(port("dns", "UDP", DNS_PORT, dns));
        all.push(port("dns-tcp", "TCP", DNS_PORT, dns));
    }
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": name(cluster), "namespace": namespace, "labels": labels(cluster),
            "annotations": {marks::VIRTUAL_CLUSTER: format!("{}/{}", cluster.namespace(), cluster.name())},
        },
        // A client must reach a control plane that is not ready, to be told why.
        "spec": {"type": "ClusterIP", "ports": all, "publishNotReadyAddresses": true},
    });
    if let Behind::Pods(labels) = behind {
        service["spec"]["selector"] = labels.clone();
    }
    service
}

/// The Service for clients outside of the host: the API alone, names are nobody's business there.
pub fn external_service(cluster: &VirtualCluster<'_>, namespace: &str, behind: &Behind, ports: Ports) -> Option<Value> {
    let kind = match cluster.expose() {
        Expose::NodePort => "NodePort",
        Expose::LoadBalancer => "LoadBalancer",
        _ => return None,
    };
    let mut service = service(cluster, namespace, behind, Ports { dns: None, ..ports });
    service["metadata"]["name"] = json!(external_name(cluster));
    service["spec"]["type"] = json!(kind);
    Some(service)
}

/// The Ingress for clients outside of the host. TLS ends at the tenant's API server and nowhere before: clients
/// prove who they are by certificates.
pub fn ingress(cluster: &VirtualCluster<'_>, namespace: &str) -> Option<Value> {
    if cluster.expose() != Expose::Ingress {
        return None;
    }
    let backend = json!({"service": {"name": name(cluster), "port": {"number": API_PORT}}});
    let rule = |host: &str| json!({"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}});
    let hosts = cluster.host_names();
    let rules: Vec<Value> = hosts.iter().copied().map(rule).collect();
    let mut ingress = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": external_name(cluster), "namespace": namespace, "labels": labels(cluster), "annotations": PASS_TLS_THROUGH.iter().copied().collect::<BTreeMap<_, _>>()},
        "spec": {"rules": rules, "tls": [{"hosts": hosts}]},
    });
    if let Some(class) = cluster.ingress_class() {
        ingress["spec"]["ingressClassName"] = json!(class);
    }
    Some(ingress)
}

fn external_name(cluster: &VirtualCluster<'_>) -> String {
    format!("{}-external", short_name(cluster))
}

/// The EndpointSlice of a Service that selects no pods.
pub fn endpoint_slice(cluster: &VirtualCluster<'_>, namespace: &str, address: IpAddr, ports: Ports) -> Value {
    let name = name(cluster);
    let mut labels = labels(cluster);
    labels["kubernetes.io/service-name"] = json!(name);
    labels["endpointslice.kubernetes.io/managed-by"] = json!("sublet-operator");
    let mut all = vec![json!({"name": "https", "protocol": "TCP", "port": ports.api})];
    if let Some(dns) = ports.dns {
        all.push(json!({"name": "dns", "protocol": "UDP", "port": dns}));
        all.push(json!({"name": "dns-tcp", "protocol": "TCP", "port": dns}));
    }
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "addressType": if address.is_ipv6() { "IPv6" } else { "IPv4" },
        "endpoints": [{"addresses": [address.to_string()], "conditions": {"ready": true}}],
        "ports": all,
    })
}

/// Makes the Service be as wanted, and says how it is reached. Safe to repeat; writes only what differs. `known` is
/// the address that it had: pods that run were told it, so it is asked for again when the Service was lost.
pub async fn ensure(
    host: &Client,
    cluster: &VirtualCluster<'_>,
    namespace: &str,
    behind: &Behind,
    ports: Ports,
    known: Option<IpAddr>,
) -> Result<Reached, ClientError> {
    let wanted = service(cluster, namespace, behind, ports);
    let mut live = host.get_opt(&SERVICES, namespace, wanted.name()).await?;
    if let (None, Some(known)) = (&live, known) {
        let mut again = wanted.clone();
        again["spec"]["clusterIP"] = json!(known.to_string());
        match host.create(&SERVICES, &again).await {
            Ok(made) => live = Some(made),
            // Somebody else may have the address by now: then another one must do.
            Err(error) => {
                tracing::warn!(%error, %known, "a lost Service does not get its address back; pods that run do not find their API server");
            }
        }
    }
    let live = match live {
        Some(live) if holds(&live["spec"], &wanted["spec"]) => live,
        _ => host.apply(&SERVICES, &wanted).await?,
    };
    if let Behind::Address(address) = behind {
        let wanted = endpoint_slice(cluster, namespace, *address, ports);
        let live = host.get_opt(&ENDPOINT_SLICES, namespace, wanted.name()).await?;
        if !live.is_some_and(|live| holds(&live["endpoints"], &wanted["endpoints"]) && holds(&live["ports"], &wanted["ports"])) {
            host.apply(&ENDPOINT_SLICES, &wanted).await?;
        }
    }
    Ok(reached(&live))
}

/// Makes what leads clients from outside here be as wanted, or not be, and adds to `into` how they come.
pub async fn ensure_external(
    host: &Client,
    cluster: &VirtualCluster<'_>,
    namespace: &str,
    behind: &Behind,
    ports: Ports,
    into: &mut Reached,
) -> Result<(), ClientError> {
    let name = external_name(cluster);
    for (gvr, wanted) in [(SERVICES, external_service(cluster, namespace, behind, ports)), (INGRESSES, ingress(cluster, namespace))] {
        let live = host.get_opt(&gvr, namespace, &name).await?;
        let live = match (live, wanted) {
            (None, None) => continue,
            (Some(live), None) => {
                host.delete_if_exists(&gvr, namespace, live.name(), &DeleteOptions::background()).await?;
                continue;
            }
            (Some(live), Some(wanted)) if is_as(&live, &wanted) => live,
            (_, Some(wanted)) => host.apply(&gvr, &wanted).await?,
        };
        if gvr == SERVICES {
            let external = reached(&live);
            into.node_port = external.node_port;
            into.load_balancer = external.load_balancer;
        }
    }
    Ok(())
}

/// Whether nothing has to be written: what controllers read of an Ingress is in its annotations as well.
fn is_as(live: &Value, wanted: &Value) -> bool {
    holds(&live["spec"], &wanted["spec"]) && holds(&live["metadata"]["annotations"], &wanted["metadata"]["annotations"])
}

/// How a live Service is reached.
pub fn reached(service: &Value) -> Reached {
    let texts =
        |values: &[Value], field: &str| -> Vec<String> { values.iter().filter_map(|v| v[field].as_str()).map(str::to_string).collect() };
    let balancer = service.array_at("/status/loadBalancer/ingress");
    Reached {
        name: service.name().to_string(),
        namespace: service.namespace().to_string(),
        cluster_ips: service.array_at("/spec/clusterIPs").iter().filter_map(Value::as_str).map(str::to_string).collect(),
        node_port: service
            .array_at("/spec/ports")
            .iter()
            .find(|p| p["name"] == "https")
            .and_then(|p| p["nodePort"].as_u64())
            .and_then(|p| u16::try_from(p).ok()),
        load_balancer: [texts(balancer, "ip"), texts(balancer, "hostname")].concat(),
    }
}

/// Deletes what [`ensure`] made. Gone already is success.
pub async fn remove(host: &Client, cluster: &VirtualCluster<'_>, namespace: &str) -> Result<(), ClientError> {
    let options = DeleteOptions::background();
    host.delete_if_exists(&ENDPOINT_SLICES, namespace, &name(cluster), &options).await?;
    for gvr in [INGRESSES, SERVICES] {
        host.delete_if_exists(&gvr, namespace, &external_name(cluster), &options).await?;
    }
    host.delete_if_exists(&SERVICES, namespace, &name(cluster), &options).await
}

/// Whether `live` says everything that `wanted` says; the host adds defaults and allocated fields.
pub fn holds(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| live.get(key).is_some_and(|live| holds(live, value)))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| holds(live, wanted))
        }
        (live, wanted) => live == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(namespace: &str, cluster: &str, uid: &str) -> Value {
        json!({"metadata": {"name": cluster, "namespace": namespace, "uid": uid}, "spec": {}})
    }

    fn named(namespace: &str, cluster: &str, uid: &str) -> String {
        name(&VirtualCluster::new(&object(namespace, cluster, uid)))
    }

    #[test]
    fn names_are_valid_readable_and_injective() {
        let plain = named("team-a", "alpha", "1");
        assert!(plain.starts_with("vc-alpha-team-a-") && plain.len() == "vc-alpha-team-a-".len() + HASH_CHARS, "{plain}");
        // Joined, these two would be one.
        assert_ne!(named("a-b", "c", "1"), named("b", "c-a", "1"));
        // A cluster of the same name that was created anew is another one.
        assert_ne!(plain, named("team-a", "alpha", "2"));
        let long = named(&"n".repeat(63), &"9".repeat(50), "1");
        assert!(long.len() <= NAME_BYTES_MAX && long.starts_with("vc-9"), "{long}");
        assert!(!named("x", "a.b", "1").contains('.'));
    }

    #[test]
    fn an_ingress_leads_every_host_to_the_service_and_opens_nothing() {
        let mut object = object("team-a", "alpha", "1");
        object["spec"] = json!({"controlPlane": {"expose": {"type": "Ingress", "hosts": ["a.example.org", "192.0.2.1", "b.example.org"], "ingressClassName": "edge"}}});
        let cluster = VirtualCluster::new(&object);
        let made = ingress(&cluster, "sublet-system").unwrap();
        let hosts: Vec<_> = made.array_at("/spec/rules").iter().map(|r| r["host"].as_str().unwrap()).collect();
        assert_eq!(hosts, ["a.example.org", "b.example.org"]);
        assert_eq!(made["spec"]["rules"][1]["http"]["paths"][0]["backend"]["service"]["name"], name(&cluster));
        assert_eq!((made["spec"]["ingressClassName"].as_str(), made["spec"]["tls"][0]["secretName"].as_str()), (Some("edge"), None));
        assert!(external_service(&cluster, "sublet-system", &Behind::Pods(json!({})), Ports { api: 1, dns: None }).is_none());
        // Each controller has its own word for it: HAProxy's company, HAProxy Ingress, ingress-nginx.
        for word in ["haproxy.org", "haproxy-ingress.github.io", "nginx.ingress.kubernetes.io"] {
            assert_eq!(made.annotation(&format!("{word}/ssl-passthrough")), Some("true"), "{word}");
        }
        // One that was made before a word was known learns it.
        let mut before = made.clone();
        before["metadata"]["annotations"].as_object_mut().unwrap().remove("haproxy-ingress.github.io/ssl-passthrough");
        assert!(is_as(&made, &made) && !is_as(&before, &made));
    }

    #[test]
    fn a_live_service_that_says_more_is_left_alone() {
        let object = object("team-a", "alpha", "1");
        let cluster = VirtualCluster::new(&object);
        let ports = Ports { api: 20001, dns: Some(30001) };
        let wanted = service(&cluster, "sublet-system", &Behind::Pods(json!({"app": "shard"})), ports);
        let mut live = wanted.clone();
        live["spec"]["clusterIPs"] = json!(["10.96.0.7"]);
        live["spec"]["ports"][0]["nodePort"] = json!(31000);
        assert_eq!(external_service(&cluster, "sublet-system", &Behind::Pods(json!({})), ports), None);
        assert!(holds(&live["spec"], &wanted["spec"]));
        let reached = reached(&live);
        assert_eq!((reached.node_port, reached.url()), (Some(31000), format!("https://{}.sublet-system.svc:443", wanted.name())));
        assert!(reached.names().contains(&"10.96.0.7".to_string()));
        live["spec"]["ports"][0]["targetPort"] = json!(20002);
        assert!(!holds(&live["spec"], &wanted["spec"]));
    }
}
