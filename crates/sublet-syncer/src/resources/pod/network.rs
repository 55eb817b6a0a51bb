//! What a pod knows of its network: its own name, the name server, and the variables of services.

use crate::resources::{PodConfig, Refusal, Translation};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use sublet_machinery::ObjectExt;

/// The longest host name that Linux takes.
const HOSTNAME_BYTES_MAX: usize = 63;
const HOSTNAME_OVERRIDE_BYTES_MAX: usize = 64;
const NDOTS: &str = "5";
/// What resolvers take, and so what the host's API server lets through. A kubelet drops the rest as well.
const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCHES_BYTES_MAX: usize = 2048;

pub(super) fn translate(host: &mut Value, tenant: &Value, translation: &Translation<'_>) -> Result<(), Refusal> {
    if tenant.bool_at("/spec/hostNetwork") != Some(true) {
        translate_hostname(host, tenant, translation)?;
    }
    translate_dns(host, tenant, translation);
    Ok(())
}

/// The pod's own name is that in the tenant. `subdomain` stays in the tenant: a kubelet would write
/// the host's namespace into the full name; the tenant's name server answers for it.
fn translate_hostname(host: &mut Value, tenant: &Value, translation: &Translation<'_>) -> Result<(), Refusal> {
    if let Some(name) = tenant.str_at("/spec/hostnameOverride") {
        host["spec"]["hostnameOverride"] = json!(name);
        return Ok(());
    }
    let short = match tenant.str_at("/spec/hostname").filter(|h| !h.is_empty()) {
        Some(name) => name.to_string(),
        None => tenant.name().get(..HOSTNAME_BYTES_MAX).unwrap_or(tenant.name()).trim_end_matches(['-', '.']).to_string(),
    };
    let subdomain = tenant.str_at("/spec/subdomain").unwrap_or_default();
    if tenant.bool_at("/spec/setHostnameAsFQDN") == Some(true) && !subdomain.is_empty() {
        let full = format!("{short}.{subdomain}.{}.svc.{}", tenant.namespace(), translation.config.cluster_domain);
        if full.len() > HOSTNAME_OVERRIDE_BYTES_MAX {
            return Err(Refusal::new(
                "spec.setHostnameAsFQDN",
                format!("the full name {full} has more than {HOSTNAME_OVERRIDE_BYTES_MAX} characters"),
            ));
        }
        host["spec"]["hostnameOverride"] = json!(full);
    } else if short.contains('.') {
        // `hostname` takes one label only, while a kubelet makes a host name of any pod name.
        host["spec"]["hostnameOverride"] = json!(short);
    } else {
        host["spec"]["hostname"] = json!(short);
    }
    Ok(())
}

fn translate_dns(host: &mut Value, tenant: &Value, translation: &Translation<'_>) {
    let policy = tenant.str_at("/spec/dnsPolicy").unwrap_or("ClusterFirst");
    let on_host_network = tenant.bool_at("/spec/hostNetwork") == Some(true);
    let cluster = policy == "ClusterFirstWithHostNet" || policy == "ClusterFirst" && !on_host_network;
    let own = &tenant["spec"]["dnsConfig"];
    match &translation.config.dns_server {
        Some(server) if cluster => {
            host["spec"]["dnsPolicy"] = json!("None");
            host["spec"]["dnsConfig"] = cluster_dns(server, tenant.namespace(), translation.config, own);
        }
        _ => {
            host["spec"]["dnsPolicy"] = json!(policy);
            if own.is_object() {
                host["spec"]["dnsConfig"] = own.clone();
            }
        }
    }
}

/// What a kubelet makes of `ClusterFirst` in the tenant, with the pod's own wishes merged in: lists
/// are joined, and of an option set twice the pod's value counts.
fn cluster_dns(server: &str, namespace: &str, config: &PodConfig, own: &Value) -> Value {
    let domain = &config.cluster_domain;
    let mut searches = vec![json!(format!("{namespace}.svc.{domain}")), json!(format!("svc.{domain}")), json!(domain)];
    searches.extend(config.searches.iter().map(|s| json!(s)));
    let mut servers = vec![json!(server)];
    for (list, field) in [(&mut searches, "/searches"), (&mut servers, "/nameservers")] {
        for item in own.array_at(field) {
            if !list.contains(item) {
                list.push(item.clone());
            }
        }
    }
    servers.truncate(NAMESERVERS_MAX);
    searches.truncate(SEARCHES_MAX);
    // In the file they are one line, with a space between two.
    let mut room = SEARCHES_BYTES_MAX + 1;
    searches.retain(|search| match room.checked_sub(search.as_str().unwrap_or_default().len() + 1) {
        Some(left) => {
            room = left;
            true
        }
        None => false,
    });
    let mut options = BTreeMap::from([("ndots".to_string(), json!({"name": "ndots", "value": NDOTS}))]);
    for option in own.array_at("/options") {
        options.insert(option["name"].as_str().unwrap_or_default().to_string(), option.clone());
    }
    json!({"nameservers": servers, "searches": searches, "options": options.into_values().collect::<Vec<_>>()})
}

/// The variables that a kubelet would add for services, as the tenant's services are now: always those
/// of the API server, and the others of the namespace unless the pod wants no links.
pub(super) fn service_variables(tenant: &Value, translation: &Translation<'_>) -> Vec<(String, String)> {
    let mut all = BTreeMap::new();
    if tenant.bool_at("/spec/enableServiceLinks") != Some(false) {
        for service in translation.view.services(tenant.namespace()) {
            add_service(&mut all, &service);
        }
    }
    let config = translation.config;
    add_ports("kubernetes", &config.api_host, &[("https".into(), i64::from(config.api_port), "TCP".into())], &mut all);
    all.into_iter().collect()
}

fn add_service(all: &mut BTreeMap<String, String>, service: &Value) {
    let address = service.str_at("/spec/clusterIP").unwrap_or_default();
    if address.is_empty() || address == "None" || service.str_at("/spec/type") == Some("ExternalName") {
        return;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let ports: Vec<(String, i64, String)> = service
        .array_at("/spec/ports")
        .iter()
        .map(|p| (text(&p["name"]), p["port"].as_i64().unwrap_or_default(), p["protocol"].as_str().unwrap_or("TCP").to_string()))
        .collect();
    add_ports(service.name(), address, &ports, all);
}

/// The variables of one service, Kubernetes' and Docker's old ones.
fn add_ports(service: &str, address: &str, ports: &[(String, i64, String)], all: &mut BTreeMap<String, String>) {
    let Some((_, first, _)) = ports.first() else { return };
    let upper = |text: &str| text.to_ascii_uppercase().replace(['-', '.'], "_");
    let name = upper(service);
    let bracketed = if address.contains(':') { format!("[{address}]") } else { address.to_string() };
    all.insert(format!("{name}_SERVICE_HOST"), address.to_string());
    all.insert(format!("{name}_SERVICE_PORT"), first.to_string());
    for (index, (port_name, port, protocol)) in ports.iter().enumerate() {
        if !port_name.is_empty() {
            all.insert(format!("{name}_SERVICE_PORT_{}", upper(port_name)), port.to_string());
        }
        let scheme = protocol.to_ascii_lowercase();
        let url = format!("{scheme}://{bracketed}:{port}");
        let prefix = format!("{name}_PORT_{port}_{protocol}");
        if index == 0 {
            all.insert(format!("{name}_PORT"), url.clone());
        }
        all.insert(prefix.clone(), url);
        all.insert(format!("{prefix}_PROTO"), scheme);
        all.insert(format!("{prefix}_PORT"), port.to_string());
        all.insert(format!("{prefix}_ADDR"), address.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Options of the pod were dropped, so `ndots:5` stayed.
    #[test]
    fn the_pods_dns_options_win() {
        let own = json!({"options": [{"name": "ndots", "value": "2"}, {"name": "timeout", "value": "1"}], "searches": ["x.org"], "nameservers": ["9.9.9.9"]});
        let config = PodConfig { searches: vec!["corp.example".into()], ..PodConfig::default() };
        assert_eq!(
            cluster_dns("10.0.0.10", "prod", &config, &own),
            json!({
                "nameservers": ["10.0.0.10", "9.9.9.9"],
                "searches": ["prod.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp.example", "x.org"],
                "options": [{"name": "ndots", "value": "2"}, {"name": "timeout", "value": "1"}],
            })
        );
    }

    /// Three servers of its own are what a pod may have; with ours the host would refuse it.
    #[test]
    fn what_resolvers_do_not_take_is_left_out() {
        let servers = ["9.9.9.1", "9.9.9.2", "9.9.9.3"];
        let long: Vec<String> = (0..31).map(|n| format!("{n:02}{}", "x".repeat(98))).collect();
        let dns = cluster_dns("10.0.0.10", "prod", &PodConfig::default(), &json!({"nameservers": servers, "searches": long}));
        assert_eq!(dns["nameservers"], json!(["10.0.0.10", "9.9.9.1", "9.9.9.2"]));
        let searches: Vec<&str> = dns["searches"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(searches.len() > 10 && searches.join(" ").len() <= SEARCHES_BYTES_MAX, "{}", searches.join(" ").len());
    }

    #[test]
    fn services_become_the_variables_of_a_kubelet() {
        let mut all = BTreeMap::new();
        add_ports("my-db", "10.0.0.5", &[("sql".into(), 5432, "TCP".into()), ("".into(), 53, "UDP".into())], &mut all);
        let text: Vec<String> = all.into_iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(
            text,
            [
                "MY_DB_PORT=tcp://10.0.0.5:5432",
                "MY_DB_PORT_53_UDP=udp://10.0.0.5:53",
                "MY_DB_PORT_53_UDP_ADDR=10.0.0.5",
                "MY_DB_PORT_53_UDP_PORT=53",
                "MY_DB_PORT_53_UDP_PROTO=udp",
                "MY_DB_PORT_5432_TCP=tcp://10.0.0.5:5432",
                "MY_DB_PORT_5432_TCP_ADDR=10.0.0.5",
                "MY_DB_PORT_5432_TCP_PORT=5432",
                "MY_DB_PORT_5432_TCP_PROTO=tcp",
                "MY_DB_SERVICE_HOST=10.0.0.5",
                "MY_DB_SERVICE_PORT=5432",
                "MY_DB_SERVICE_PORT_SQL=5432",
            ]
        );
    }
}
