//! Services. The host allocates addresses and ports; what the tenant wrote is the tenant's.

use super::manifest::{Field, allocated, copied, parts, to_tenant, translated};
use super::{KindId, Refusal, SyncedKind, Translation, Upward};
use crate::translate::{NAME_BYTES_MAX_LABEL, TenantKey, scoped_map_selector};
use serde_json::{Map, Value, json};
use sublet_machinery::ObjectExt;

pub const SERVICE: SyncedKind = SyncedKind {
    name_bytes_max: NAME_BYTES_MAX_LABEL,
    fields: &[&FIELDS],
    select: |object, _| !is_api_service(&TenantKey::of(object)),
    hook: to_host,
    to_tenant: up,
    ..SyncedKind::core_v1(KindId::Service, "Service", "services")
};

const FIELDS: [Field; 29] = [
    parts("/spec"),
    copied("/spec/type"),
    translated("/spec/selector"),
    translated("/spec/ports"),
    copied("/spec/externalIPs"),
    copied("/spec/externalName"),
    copied("/spec/externalTrafficPolicy"),
    copied("/spec/internalTrafficPolicy"),
    copied("/spec/trafficDistribution"),
    copied("/spec/sessionAffinity"),
    copied("/spec/sessionAffinityConfig"),
    copied("/spec/publishNotReadyAddresses"),
    copied("/spec/loadBalancerClass"),
    copied("/spec/loadBalancerIP"),
    copied("/spec/loadBalancerSourceRanges"),
    copied("/spec/allocateLoadBalancerNodePorts"),
    allocated("/spec/clusterIP"),
    allocated("/spec/clusterIPs"),
    allocated("/spec/ipFamilies"),
    allocated("/spec/ipFamilyPolicy"),
    allocated("/spec/healthCheckNodePort"),
    parts("/spec/ports/*"),
    allocated("/spec/ports/*/nodePort"),
    translated("/spec/ports/*/name"),
    translated("/spec/ports/*/port"),
    translated("/spec/ports/*/protocol"),
    translated("/spec/ports/*/targetPort"),
    translated("/spec/ports/*/appProtocol"),
    to_tenant("/status"),
];

/// Fields that the host fills in when the tenant did not.
pub(crate) const ALLOCATED: [&str; 5] = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort"];

/// The service in front of the tenant's API server stands on the host under the operator's care.
pub fn is_api_service(key: &TenantKey) -> bool {
    key.namespace == "default" && key.name == "kubernetes"
}

fn to_host(host: &mut Value, tenant: &Value, translation: &Translation<'_>) -> Result<(), Refusal> {
    // Traffic of the whole host to such an address would go to the tenant's pods.
    if !tenant.array_at("/spec/externalIPs").is_empty() && !translation.config.allow_external_ips {
        return Err(Refusal::new(
            "spec.externalIPs",
            "are not available to virtual clusters; use a Service of type LoadBalancer or NodePort",
        ));
    }
    let selector = &tenant["spec"]["selector"];
    let is_external_name = tenant.str_at("/spec/type") == Some("ExternalName");
    if selector.as_object().is_some_and(|s| !s.is_empty()) {
        host["spec"]["selector"] = scoped_map_selector(selector, tenant.namespace(), translation.names);
    }
    let allocates = translation.config.host_allocates_addresses;
    let mut ports = tenant.array_at("/spec/ports").to_vec();
    for port in &mut ports {
        // Zero means "give me one", and so does absence.
        let unset = port["nodePort"].as_i64().unwrap_or_default() == 0;
        if (unset || !allocates)
            && let Some(port) = port.as_object_mut()
        {
            port.remove("nodePort");
        }
    }
    if !ports.is_empty() {
        host["spec"]["ports"] = Value::Array(ports);
    }
    let headless = tenant.str_at("/spec/clusterIP") == Some("None");
    for field in ALLOCATED {
        let value = &tenant["spec"][field];
        let set = !value.is_null() && *value != json!("") && *value != json!(0);
        let addresses = field.starts_with("clusterIP") || field == "healthCheckNodePort";
        if set && !is_external_name && (allocates || headless && addresses) {
            host["spec"][field] = value.clone();
        }
    }
    Ok(())
}

/// The status in full, and the allocated fields that the tenant object lacks.
fn up(tenant: &Value, host: &Value, translation: &Translation<'_>) -> Upward {
    let mut spec = Map::new();
    if translation.config.host_allocates_addresses && host.str_at("/spec/type") == tenant.str_at("/spec/type") {
        for field in ALLOCATED {
            let (ours, theirs) = (&tenant["spec"][field], &host["spec"][field]);
            let unset = ours.is_null() || *ours == json!("") || *ours == json!(0);
            if unset && !theirs.is_null() {
                spec.insert(field.into(), theirs.clone());
            }
        }
        if let Some(ports) = ports_with_node_ports(tenant, host) {
            spec.insert("ports".into(), ports);
        }
    }
    let main = (!spec.is_empty()).then(|| json!({"spec": spec}));
    // An address of a type that the service no longer has is stale on either side.
    let balanced = tenant.str_at("/spec/type") == Some("LoadBalancer");
    let mut status = if balanced { host["status"].clone() } else { json!({"loadBalancer": {}}) };
    if status["loadBalancer"].is_null() {
        status["loadBalancer"] = json!({});
    }
    // Conditions stay where they are: the tenant's controllers and our own write them there.
    match tenant.pointer("/status/conditions") {
        Some(conditions) => status["conditions"] = conditions.clone(),
        None => {
            status.remove_at("/conditions");
        }
    }
    Upward { status: Some(status), main }
}

/// The tenant's ports with the node ports that the host chose; `None` when none is missing.
pub(crate) fn ports_with_node_ports(tenant: &Value, host: &Value) -> Option<Value> {
    let mut ports = tenant.array_at("/spec/ports").to_vec();
    let mut changed = false;
    for port in &mut ports {
        let protocol = |p: &Value| p["protocol"].as_str().unwrap_or("TCP").to_string();
        let twin = host.array_at("/spec/ports").iter().find(|h| h["port"] == port["port"] && protocol(h) == protocol(port));
        let given = twin.map_or(0, |t| t["nodePort"].as_i64().unwrap_or_default());
        if port["nodePort"].as_i64().unwrap_or_default() == 0 && given != 0 {
            port["nodePort"] = json!(given);
            changed = true;
        }
    }
    changed.then_some(Value::Array(ports))
}

/// The label that ties slices to their service, for [`super::endpointslice`].
pub(super) const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
