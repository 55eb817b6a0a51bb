//! Rules for services.

use super::super::edit::is_zero;
use super::super::field::{Errors, Field, Seen};
use super::super::pod::validate::is_dual_stack;
use super::service::{is_external, needs_health_port};
use serde_json::{Value, json};
use std::net::IpAddr;
use sublet_machinery::{FieldError, FieldPath, ObjectExt, names};

const AFFINITY_SECONDS_MAX: i64 = 86_400;
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];

pub(super) fn validate(service: &Value) -> Vec<FieldError> {
    let spec = Field::root(service).at("spec");
    Errors::of(|errors| {
        validate_topology_annotations(service, errors);
        validate_type(&spec, errors);
        validate_ports(&spec, errors);
        errors.labels(&spec.at("selector"));
        validate_affinity(&spec, errors);
        validate_cluster_ips(&spec, errors);
        for ip in spec.at("externalIPs").items() {
            let wrong = names::validate_ip_legacy(&ip.path, ip.text(), true);
            if wrong.is_empty() {
                validate_endpoint_ip(&ip, errors);
            }
            errors.extend(wrong);
        }
        errors.required_one_of(&spec.at("type"), &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
        validate_repeated_ports(&spec, errors);
        validate_source_ranges(service, &spec, errors);
        validate_balancer(&spec, errors);
        validate_traffic(&spec, errors);
    })
}

fn is_headless(spec: &Value) -> bool {
    spec["clusterIPs"].as_array().is_some_and(|ips| ips.len() == 1 && ips[0] == "None")
}

fn validate_topology_annotations(service: &Value, errors: &mut Errors) {
    const MODE: &str = "service.kubernetes.io/topology-mode";
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    if let (Some(mode), Some(hints)) = (service.annotation(MODE), service.annotation(HINTS))
        && mode != hints
    {
        let path = FieldPath::new("metadata.annotations").key(MODE);
        errors.add(FieldError::invalid(&path, mode, format!("must match annotations[{HINTS}] when both are specified")));
    }
}

fn validate_type(spec: &Field<'_>, errors: &mut Errors) {
    let (kind, headless) = (spec.at("type").text(), is_headless(spec.value));
    if spec.at("ports").is_zero() && !headless && kind != "ExternalName" {
        errors.add(spec.at("ports").required(""));
    }
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            let first = Field::new(&Value::Null, spec.at("clusterIPs").path.index(0));
            errors.add(first.invalid_as("None", format!("may not be set to 'None' for {kind} services")));
        }
        "ExternalName" => {
            for key in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                let field = spec.at(key);
                if !field.is_zero() || field.value.is_string() {
                    errors.add(spec.at(key).forbidden("may not be set for ExternalName services"));
                }
            }
            let name = spec.at("externalName");
            let shown = name.text().strip_suffix('.').unwrap_or(name.text());
            if shown.is_empty() {
                errors.add(name.required(""));
            } else {
                errors.extend(names::dns_subdomain(shown).into_iter().map(|m| name.invalid_as(shown, m)));
            }
        }
        _ => {}
    }
}

fn validate_ports(spec: &Field<'_>, errors: &mut Errors) {
    let several = spec.at("ports").len() > 1;
    let mut seen = Seen::default();
    for port in spec.at("ports").items() {
        let name = port.at("name");
        if several && name.is_zero() {
            errors.add(name.required(""));
        } else if !name.is_zero() {
            errors.dns_label(&name);
            if seen.again(name.text()) {
                errors.add(name.duplicate());
            }
        }
        errors.port_number(&port.at("port"));
        errors.required_one_of(&port.at("protocol"), &PROTOCOLS);
        errors.port(&port.at("targetPort"));
        if port.at("appProtocol").is_set() {
            errors.qualified_name(&port.at("appProtocol"));
        }
    }
}

fn validate_affinity(spec: &Field<'_>, errors: &mut Errors) {
    let (affinity, config) = (spec.at("sessionAffinity"), spec.at("sessionAffinityConfig"));
    errors.required_one_of(&affinity, &["ClientIP", "None"]);
    match affinity.text() {
        "ClientIP" => {
            let timeout = config.at("clientIP").at("timeoutSeconds");
            for part in [&config, &config.at("clientIP"), &timeout] {
                if !part.is_set() {
                    return errors.add(part.required("when session affinity type is ClientIP"));
                }
            }
            if !(1..=AFFINITY_SECONDS_MAX).contains(&timeout.int()) {
                errors.add(timeout.invalid(format!("must be greater than 0 and less than {AFFINITY_SECONDS_MAX}")));
            }
        }
        "None" if config.is_set() => errors.add(config.forbidden("must not be set when session affinity is None")),
        _ => {}
    }
}

fn is_ipv6(text: &str) -> bool {
    names::parse_ip_sloppy(text).is_some_and(|ip| ip.is_ipv6())
}

fn validate_cluster_ips(spec: &Field<'_>, errors: &mut Errors) {
    if spec.at("type").text() == "ExternalName" {
        return;
    }
    let (single, ips, families) = (spec.at("clusterIP"), spec.at("clusterIPs"), spec.at("ipFamilies"));
    match (single.is_zero(), ips.is_zero()) {
        (false, true) => errors.add(ips.required("")),
        (false, false) if ips.list()[0] != *single.value => errors.add(ips.invalid("first value must match `clusterIP`")),
        (true, false) => errors.add(ips.invalid("must be empty when `clusterIP` is not specified")),
        _ => {}
    }
    let mut seen = Seen::default();
    for family in families.items() {
        errors.one_of(&family, &FAMILIES);
        if seen.again(family.text()) {
            errors.add(family.duplicate());
        }
    }
    errors.one_of_if_set(&spec.at("ipFamilyPolicy"), &["PreferDualStack", "RequireDualStack", "SingleStack"]);
    let before = errors.0.len();
    for (index, ip) in ips.items().enumerate() {
        if index == 0 && ip.text() == "None" {
            if ips.len() > 1 {
                errors.add(ips.invalid("'None' must be the first and only value"));
            }
            continue;
        }
        errors.ip(&ip);
    }
    let all_valid = errors.0.len() == before;
    if ips.len() > 2 {
        errors.add(ips.invalid("may only hold up to 2 values"));
    }
    if !all_valid {
        return;
    }
    if ips.len() > 1 && !is_dual_stack(ips.items().map(|ip| ip.text().to_string())) {
        errors.add(ips.invalid("may specify no more than one IP for each IP family"));
    }
    if !is_headless(spec.value) {
        for (index, (ip, family)) in ips.items().zip(families.items()).enumerate() {
            let expected = family.text();
            if FAMILIES.contains(&expected) && is_ipv6(ip.text()) != (expected == "IPv6") {
                errors.add(ip.invalid(format!("expected an {expected} value as indicated by `ipFamilies[{index}]`")));
            }
        }
    }
}

/// Addresses that traffic can be sent to.
pub(super) fn validate_endpoint_ip(field: &Field<'_>, errors: &mut Errors) {
    let Some(ip) = names::parse_ip_sloppy(field.text()) else {
        return errors.add(field.invalid("must be a valid IP address"));
    };
    let (link_local, multicast) = match ip {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.segments()[0] & 0xffc0 == 0xfe80, v6.segments()[0] & 0xff0f == 0xff02),
    };
    if ip.is_unspecified() {
        errors.add(field.invalid(format!("may not be unspecified ({})", field.text())));
    }
    if ip.is_loopback() {
        errors.add(field.invalid("may not be in the loopback range (127.0.0.0/8, ::1/128)"));
    }
    if link_local {
        errors.add(field.invalid("may not be in the link-local range (169.254.0.0/16, fe80::/10)"));
    }
    if multicast {
        errors.add(field.invalid("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"));
    }
}

fn validate_repeated_ports(spec: &Field<'_>, errors: &mut Errors) {
    let ports = spec.at("ports");
    if spec.at("type").text() == "ClusterIP" {
        for port in ports.items().filter(|p| !p.at("nodePort").is_zero()) {
            errors.add(port.at("nodePort").forbidden("may not be used when `type` is 'ClusterIP'"));
        }
    }
    let mut seen = Seen::default();
    for port in ports.items().filter(|p| !p.at("nodePort").is_zero()) {
        if seen.again(format!("{}/{}", port.at("protocol").text(), port.at("nodePort").int())) {
            errors.add(port.at("nodePort").duplicate());
        }
    }
    let mut seen = Seen::default();
    for port in ports.items() {
        if seen.again(format!("{}/{}", port.at("protocol").text(), port.at("port").int())) {
            let shown = json!({"port": port.at("port").value, "protocol": port.at("protocol").value});
            errors.add(FieldError::duplicate(&port.path, shown));
        }
    }
}

fn validate_source_ranges(service: &Value, spec: &Field<'_>, errors: &mut Errors) {
    const ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
    let balancer = spec.at("type").text() == "LoadBalancer";
    let ranges = spec.at_as("loadBalancerSourceRanges", "LoadBalancerSourceRanges");
    if !ranges.is_zero() {
        if !balancer {
            errors.add(ranges.forbidden(ONLY));
        }
        for range in ranges.items() {
            errors.extend(names::validate_cidr_legacy(&range.path, range.text().trim(), true));
        }
    } else if let Some(note) = service.annotation(SOURCE_RANGES) {
        let path = FieldPath::new("metadata.annotations").key(SOURCE_RANGES);
        if !balancer {
            errors.add(FieldError::forbidden(&path, ONLY));
        }
        for range in note.trim().split(',').filter(|_| !note.trim().is_empty()) {
            errors.extend(names::validate_cidr_legacy(&path, range.trim(), true));
        }
    }
}

fn validate_balancer(spec: &Field<'_>, errors: &mut Errors) {
    const ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
    let balancer = spec.at("type").text() == "LoadBalancer";
    let (allocate, class) = (spec.at("allocateLoadBalancerNodePorts"), spec.at("loadBalancerClass"));
    if allocate.is_set() && !balancer {
        errors.add(allocate.forbidden(ONLY));
    }
    if balancer && !allocate.is_set() {
        errors.add(FieldError::required(&FieldPath::new("allocateLoadBalancerNodePorts"), ""));
    }
    if class.is_set() {
        if balancer {
            errors.qualified_name(&class);
        } else {
            errors.add(class.forbidden(ONLY));
        }
    }
}

pub(super) const TRAFFIC_POLICIES: [&str; 2] = ["Cluster", "Local"];

fn validate_traffic(spec: &Field<'_>, errors: &mut Errors) {
    let (external, internal) = (spec.at("externalTrafficPolicy"), spec.at("internalTrafficPolicy"));
    if is_external(spec.value) {
        errors.required_one_of(&external, &TRAFFIC_POLICIES);
    } else if !external.is_zero() {
        errors.add(external.invalid("may only be set for externally-accessible services"));
    }
    let health = spec.at("healthCheckNodePort");
    if needs_health_port(spec.value) {
        // The allocator gives out the number when the client has none.
        if !health.is_zero() {
            errors.port_number(&health);
        }
    } else if !health.is_zero() {
        errors.add(health.invalid("may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"));
    }
    if !internal.is_set() && matches!(spec.at("type").text(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        errors.add(internal.required(""));
    }
    errors.one_of_if_set(&internal, &TRAFFIC_POLICIES);
    errors.one_of_if_set(&spec.at("trafficDistribution"), &["PreferClose", "PreferSameZone", "PreferSameNode"]);
}

pub(super) fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let (spec, before) = (Field::root(new).at("spec"), &old["spec"]);
    Errors::of(|errors| {
        if spec.at("type").text() != "ExternalName" && before["type"] != "ExternalName" {
            validate_ip_changes(&spec, before, errors);
            validate_family_changes(&spec, before, errors);
        }
        let class = spec.at("loadBalancerClass");
        if spec.at("type").text() == "LoadBalancer" && before["type"] == "LoadBalancer" && *class.value != before["loadBalancerClass"] {
            errors.add(class.invalid("may not change once set"));
        }
        let health = spec.at("healthCheckNodePort");
        if needs_health_port(spec.value) && needs_health_port(before) && *health.value != before["healthCheckNodePort"] {
            errors.add(health.forbidden("field is immutable"));
        }
    })
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// Addresses stay; the second one may come and go.
fn validate_ip_changes(spec: &Field<'_>, before: &Value, errors: &mut Errors) {
    if is_headless(spec.value) && is_headless(before) {
        return;
    }
    let ips = spec.at("clusterIPs");
    let old = list(before, "clusterIPs");
    let place = |index: usize| Field::new(ips.value, ips.path.index(index));
    if old.len() == ips.len() {
        for (index, _) in old.iter().zip(ips.list()).enumerate().filter(|(_, (a, b))| a != b) {
            errors.add(place(index).invalid("may not change once set"));
        }
        return;
    }
    if ips.is_zero() {
        errors.add(place(0).invalid("primary clusterIP can not be unset"));
    } else if !old.is_empty() && ips.list()[0] != old[0] {
        errors.add(place(0).invalid("may not change once set"));
    }
    let policy = spec.at("ipFamilyPolicy");
    if old.len() > ips.len() && ips.len() == 1 && policy.text() != "SingleStack" {
        errors.add(policy.invalid("must be set to 'SingleStack' when releasing the secondary clusterIP"));
    }
}

fn validate_family_changes(spec: &Field<'_>, before: &Value, errors: &mut Errors) {
    if is_headless(spec.value) || is_headless(before) {
        return;
    }
    let families = spec.at("ipFamilies");
    let old = list(before, "ipFamilies");
    let first = Field::new(families.value, families.path.index(0));
    if old.len() == families.len() {
        for _ in old.iter().zip(families.list()).filter(|(a, b)| a != b) {
            errors.add(first.invalid("may not change once set"));
        }
        return;
    }
    if old.len() > families.len() && spec.at("clusterIPs").is_zero() {
        errors.add(first.invalid("primary ipFamily can not be unset"));
    }
    if !families.is_zero() && !old.is_empty() && families.list()[0] != old[0] {
        errors.add(first.invalid_as(spec.at("clusterIPs").value.clone(), "may not change once set"));
    }
    let policy = spec.at("ipFamilyPolicy");
    if old.len() > families.len() && families.len() == 1 && policy.text() != "SingleStack" {
        errors.add(policy.invalid("must be set to 'SingleStack' when releasing the secondary ipFamily"));
    }
}

pub(super) fn validate_status_update(new: &Value, _: &Value) -> Vec<FieldError> {
    let ingress = Field::root(new).at("status").at("loadBalancer").at("ingress");
    Errors::of(|errors| {
        if new["spec"]["type"] != "LoadBalancer" && !ingress.is_zero() {
            return errors.add(ingress.forbidden("may only be used when `spec.type` is 'LoadBalancer'"));
        }
        for point in ingress.items() {
            let (ip, mode, host) = (point.at("ip"), point.at("ipMode"), point.at("hostname"));
            if !ip.is_zero() {
                errors.ip(&ip);
            }
            match (mode.is_set(), !is_zero(ip.value)) {
                (false, true) => errors.add(mode.required("must be specified when `ip` is set")),
                (true, false) => errors.add(mode.forbidden("may not be specified when `ip` is not set")),
                (true, true) => errors.one_of(&mode, &["Proxy", "VIP"]),
                (false, false) => {}
            }
            if !host.is_zero() {
                errors.dns_subdomain(&host);
                if names::parse_ip_sloppy(host.text()).is_some() {
                    errors.add(host.invalid("must be a DNS name, not an IP address"));
                }
            }
        }
    })
}
