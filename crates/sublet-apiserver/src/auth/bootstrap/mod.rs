//! What is there before anybody does anything: default roles and bindings, namespaces, priority levels and
//! the service by which pods find the server.
//!
//! `objects.json` holds what is the same everywhere (`generate.sh` makes it from a real server); what depends
//! on addresses and certificates is made here. Service accounts and root certificates are left to controllers.

mod plan;

pub use plan::{Change, plan};

use crate::reader::Writer;
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::net::IpAddr;
use sublet_machinery::{ApiError, ObjectExt};

const FACTS: &str = include_str!("objects.json");

#[derive(Clone, Debug)]
pub struct BootstrapConfig {
    /// `--service-cluster-ip-range`: one range, or one per IP family.
    pub service_cidrs: Vec<String>,
    /// The cluster IP of the service `kubernetes`, as a rule the first address of the first range.
    pub service_ip: IpAddr,
    /// Where the server can be reached by pods: behind the service `kubernetes`.
    pub addresses: Vec<IpAddr>,
    pub port: u16,
    /// Who signs client certificates: extension API servers read it from a ConfigMap.
    pub client_authority_pem: Option<String>,
    /// Who signs the certificate by which the server vouches for users to extension API servers.
    pub front_proxy_authority_pem: Option<String>,
    pub now: Timestamp,
}

/// Group resource (`roles.rbac.authorization.k8s.io`) and object, in an order in which they can be created.
pub fn objects(config: &BootstrapConfig) -> Vec<(String, Value)> {
    let mut objects: Vec<Value> = facts().collect();
    objects.extend(networking(config));
    objects.extend(config_maps(config));
    objects.iter_mut().for_each(|object| date_conditions(object, config.now));
    objects.into_iter().map(|object| (group_resource(&object), object)).collect()
}

/// Those of them that say which requests go before others.
pub(crate) fn flow_objects(now: Timestamp) -> Vec<(String, Value)> {
    let mut objects: Vec<Value> = facts().filter(|o| matches!(o.kind(), "FlowSchema" | "PriorityLevelConfiguration")).collect();
    objects.iter_mut().for_each(|object| date_conditions(object, now));
    objects.into_iter().map(|object| (group_resource(&object), object)).collect()
}

fn facts() -> impl Iterator<Item = Value> {
    FACTS.lines().map(|line| serde_json::from_str::<Value>(line).expect("the facts are JSON, as a test shows"))
}

/// Conditions in the facts say nothing about when.
fn date_conditions(object: &mut Value, now: Timestamp) {
    if let Some(conditions) = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
        for condition in conditions {
            condition["lastTransitionTime"] = json!(seconds(now));
        }
    }
}

/// Writes under way at once: they share commits, so that a new server is ready soon.
const WRITES_AT_ONCE: usize = 64;

/// Creates what is missing and brings up to date what the server manages. A user's own changes stay.
pub async fn apply(store: &dyn Writer, config: &BootstrapConfig) -> Result<(), ApiError> {
    let writes = objects(config).into_iter().map(|(resource, wanted)| apply_one(store, resource, wanted));
    futures::stream::iter(writes).buffer_unordered(WRITES_AT_ONCE).try_collect::<()>().await
}

async fn apply_one(store: &dyn Writer, resource: String, wanted: Value) -> Result<(), ApiError> {
    let existing = store.get(&resource, wanted.namespace(), wanted.name());
    match plan(existing.as_deref(), &wanted) {
        Change::None => {}
        Change::Create => _ = store.create(&resource, wanted).await?,
        Change::Update(object) => _ = store.update(&resource, object).await?,
        Change::Recreate => {
            store.delete(&resource, wanted.namespace(), wanted.name()).await?;
            store.create(&resource, wanted).await?;
        }
    }
    Ok(())
}

/// The service range and the service `kubernetes`.
fn networking(config: &BootstrapConfig) -> Vec<Value> {
    let metadata = |labels: Value| json!({"name": "kubernetes", "namespace": "default", "labels": labels});
    let family = |address: &IpAddr| if address.is_ipv4() { "IPv4" } else { "IPv6" };
    let service_ip = config.service_ip.to_string();
    let addresses: Vec<String> = config.addresses.iter().map(ToString::to_string).collect();
    let port = json!({"name": "https", "port": config.port, "protocol": "TCP"});
    let address_type = config.addresses.first().map_or("IPv4", family);
    vec![
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
            "spec": {"cidrs": config.service_cidrs},
            "status": {"conditions": [{
                "type": "Ready", "status": "True", "reason": "", "message": "Kubernetes default Service CIDR is ready",
            }]},
        }),
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
            "metadata": {"name": service_ip, "labels": {
                "ipaddress.kubernetes.io/ip-family": family(&config.service_ip),
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            }},
            "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "kubernetes"}},
        }),
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": metadata(json!({"component": "apiserver", "provider": "kubernetes"})),
            "spec": {
                "clusterIP": service_ip, "clusterIPs": [service_ip], "internalTrafficPolicy": "Cluster",
                "ipFamilies": [family(&config.service_ip)], "ipFamilyPolicy": "SingleStack",
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": config.port}],
                "sessionAffinity": "None", "type": "ClusterIP",
            },
            "status": {"loadBalancer": {}},
        }),
        json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": metadata(json!({"endpointslice.kubernetes.io/skip-mirror": "true"})),
            "subsets": [{"addresses": addresses.iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>(), "ports": [port]}],
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": metadata(json!({"kubernetes.io/service-name": "kubernetes"})),
            "addressType": address_type,
            "endpoints": addresses.iter().map(|ip| json!({"addresses": [ip], "conditions": {"ready": true}})).collect::<Vec<_>>(),
            "ports": [port],
        }),
    ]
}

fn config_maps(config: &BootstrapConfig) -> Vec<Value> {
    let config_map = |name: &str, data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "kube-system"}, "data": data});
    let mut authentication = json!({});
    if let Some(pem) = &config.client_authority_pem {
        authentication["client-ca-file"] = json!(pem);
    }
    if let Some(pem) = &config.front_proxy_authority_pem {
        // Lists in JSON inside strings, as extension API servers read them.
        authentication["requestheader-client-ca-file"] = json!(pem);
        authentication["requestheader-allowed-names"] = json!(r#"["front-proxy-client"]"#);
        authentication["requestheader-username-headers"] = json!(r#"["X-Remote-User"]"#);
        authentication["requestheader-uid-headers"] = json!(r#"["X-Remote-Uid"]"#);
        authentication["requestheader-group-headers"] = json!(r#"["X-Remote-Group"]"#);
        authentication["requestheader-extra-headers-prefix"] = json!(r#"["X-Remote-Extra-"]"#);
    }
    let today = seconds(config.now)[..10].to_string();
    vec![
        config_map("extension-apiserver-authentication", authentication),
        config_map("kube-apiserver-legacy-service-account-token-tracking", json!({"since": today})),
    ]
}

fn group_resource(object: &Value) -> String {
    match object.kind() {
        "Namespace" => "namespaces",
        "PriorityClass" => "priorityclasses.scheduling.k8s.io",
        "ClusterRole" => "clusterroles.rbac.authorization.k8s.io",
        "ClusterRoleBinding" => "clusterrolebindings.rbac.authorization.k8s.io",
        "Role" => "roles.rbac.authorization.k8s.io",
        "RoleBinding" => "rolebindings.rbac.authorization.k8s.io",
        "APIService" => "apiservices.apiregistration.k8s.io",
        "PriorityLevelConfiguration" => "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
        "FlowSchema" => "flowschemas.flowcontrol.apiserver.k8s.io",
        "ServiceCIDR" => "servicecidrs.networking.k8s.io",
        "IPAddress" => "ipaddresses.networking.k8s.io",
        "Service" => "services",
        "Endpoints" => "endpoints",
        "EndpointSlice" => "endpointslices.discovery.k8s.io",
        "ConfigMap" => "configmaps",
        other => unreachable!("{other} is no kind of the facts, as a test shows"),
    }
    .to_string()
}

fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn config() -> BootstrapConfig {
        BootstrapConfig {
            service_cidrs: vec!["10.96.0.0/16".into()],
            service_ip: "10.96.0.1".parse().unwrap(),
            addresses: vec!["192.0.2.7".parse().unwrap()],
            port: 6443,
            client_authority_pem: Some("CA".into()),
            front_proxy_authority_pem: None,
            now: "2026-05-01T10:00:00Z".parse().unwrap(),
        }
    }

    /// `names.tsv` lists what a real server of 1.37 has, without what its controllers make.
    #[test]
    fn everything_a_real_server_starts_with_is_there() {
        let made: BTreeSet<(String, String, String)> = objects(&config())
            .into_iter()
            .map(|(resource, object)| (resource, object.namespace().to_string(), object.name().to_string()))
            .collect();
        let listed: BTreeSet<(String, String, String)> = include_str!("names.tsv")
            .lines()
            .map(|line| {
                let columns: Vec<&str> = line.split('\t').collect();
                (columns[0].to_string(), columns[1].to_string(), columns[2].to_string())
            })
            .collect();
        assert_eq!(listed.difference(&made).collect::<Vec<_>>(), Vec::<&_>::new(), "missing");
        assert_eq!(made.difference(&listed).collect::<Vec<_>>(), Vec::<&_>::new(), "not on a real server");
    }

    #[test]
    fn the_service_leads_to_the_server() {
        let objects = objects(&config());
        let find = |resource: &str| &objects.iter().find(|(r, o)| r == resource && o.name() == "kubernetes").unwrap().1;
        assert_eq!(find("services").str_at("/spec/clusterIP"), Some("10.96.0.1"));
        assert_eq!(find("services").i64_at("/spec/ports/0/targetPort"), Some(6443));
        assert_eq!(find("endpointslices.discovery.k8s.io").str_at("/endpoints/0/addresses/0"), Some("192.0.2.7"));
        assert_eq!(find("servicecidrs.networking.k8s.io").str_at("/status/conditions/0/lastTransitionTime"), Some("2026-05-01T10:00:00Z"));
    }
}
