//! Updates of the status of a pod.

use super::super::super::field::{Errors, Field, Seen};
use super::annotations;
use serde_json::Value;
use std::net::IpAddr;
use sublet_machinery::{FieldError, FieldPath, names};

pub(crate) fn validate_status_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let status = Field::root(new).at("status");
    Errors::of(|errors| {
        annotations::validate_update(new, old, errors);
        validate_conditions(&status.at("conditions"), errors);
        validate_nominated_node(&status.at("nominatedNodeName"), old, errors);
        if status.at("observedGeneration").int() < 0 {
            errors.add(status.at("observedGeneration").invalid("must be a non-negative integer"));
        }
        errors.immutable(&status.at("qosClass"), &old["status"]["qosClass"]);
        for (list, containers) in [
            ("containerStatuses", Some("containers")),
            ("initContainerStatuses", Some("initContainers")),
            ("ephemeralContainerStatuses", None),
        ] {
            validate_transitions(&status.at(list), &old["status"][list], containers, &old["spec"], errors);
        }
        validate_claims(&status.at("resourceClaimStatuses"), &new["spec"]["resourceClaims"], errors);
        validate_pod_ips(&status, errors);
        validate_host_ips(&status, errors);
    })
}

fn validate_conditions(conditions: &Field<'_>, errors: &mut Errors) {
    for condition in conditions.items() {
        if condition.at("observedGeneration").int() < 0 {
            errors.add(condition.at("observedGeneration").invalid("must be a non-negative integer"));
        }
        let kind = condition.at_as("type", "Type");
        if !matches!(kind.text(), "PodScheduled" | "Ready" | "Initialized") {
            errors.qualified_name(&kind);
        }
    }
}

fn validate_nominated_node(name: &Field<'_>, old: &Value, errors: &mut Errors) {
    let changed = !name.is_zero() && *name.value != old["status"]["nominatedNodeName"];
    if changed {
        errors.dns_subdomain(name);
        if old["spec"]["nodeName"].as_str().is_some_and(|n| !n.is_empty()) {
            errors.add(name.forbidden("may not be set on pods that are already bound to a node"));
        }
    }
}

/// A container that ended runs again only where something restarts it.
fn validate_transitions(new: &Field<'_>, old: &Value, containers: Option<&str>, spec: &Value, errors: &mut Errors) {
    if containers.is_some() && all_could_restart(spec) {
        return;
    }
    for (index, before) in old.as_array().into_iter().flatten().enumerate() {
        let ended = &before["state"]["terminated"];
        if !ended.is_object() {
            continue;
        }
        let Some(now) = new.list().iter().find(|s| s["name"] == before["name"]) else { continue };
        if now["state"]["terminated"].is_object() {
            continue;
        }
        let container = containers.and_then(|list| spec[list].as_array()?.iter().find(|c| c["name"] == before["name"]));
        let code = ended["exitCode"].as_i64().unwrap_or_default();
        if !container.is_some_and(|c| restarts(c, spec, code)) {
            let field = Field::new(&Value::Null, new.path.index(index).child("state"));
            errors.add(field.forbidden("may not be transitioned to non-terminated state"));
        }
    }
}

/// Whether a container starts again after it exited with the code.
fn restarts(container: &Value, spec: &Value, code: i64) -> bool {
    for rule in container["restartPolicyRules"].as_array().into_iter().flatten() {
        let listed = rule["exitCodes"]["values"].as_array().into_iter().flatten().any(|v| v.as_i64() == Some(code));
        let matched = match rule["exitCodes"]["operator"].as_str() {
            Some("In") => listed,
            Some("NotIn") => !listed,
            _ => false,
        };
        if matched {
            return true;
        }
    }
    let policy = container["restartPolicy"].as_str().or(spec["restartPolicy"].as_str()).unwrap_or_default();
    match policy {
        "Always" => true,
        "OnFailure" => code != 0,
        _ => false,
    }
}

fn all_could_restart(spec: &Value) -> bool {
    ["containers", "initContainers"].iter().flat_map(|list| spec[*list].as_array().into_iter().flatten()).any(|container| {
        let rules = container["restartPolicyRules"].as_array().into_iter().flatten();
        rules.into_iter().any(|rule| rule["action"] == "RestartAllContainers")
    })
}

fn validate_claims(statuses: &Field<'_>, claims: &Value, errors: &mut Errors) {
    let mut seen = Seen::default();
    for status in statuses.items() {
        let (name, claim) = (status.at("name"), status.at("resourceClaimName"));
        if !claims.as_array().is_some_and(|list| list.iter().any(|c| c["name"] == *name.value)) {
            errors.add(name.invalid("must match the name of an entry in `spec.resourceClaims`"));
        }
        if seen.again(name.text()) {
            errors.add(name.duplicate());
        }
        if claim.is_set() {
            errors.dns_subdomain(&claim);
        }
    }
}

fn validate_pod_ips(status: &Field<'_>, errors: &mut Errors) {
    let list = status.at("podIPs");
    validate_ip_list(&list, errors);
    let (single, first) = (status.at("podIP").text(), list.value[0]["ip"].as_str().unwrap_or_default());
    if single.is_empty() == list.is_zero() {
        if !list.is_zero() && single != first {
            let place = Field::new(&Value::Null, list.path.index(0).child("ip"));
            errors.add(place.invalid_as(first, "must be equal to `podIP`"));
        }
    } else {
        errors.add(list.invalid("podIP and podIPs must either both be set or both be unset"));
    }
}

fn validate_host_ips(status: &Field<'_>, errors: &mut Errors) {
    let list = status.at("hostIPs");
    if list.is_zero() {
        return;
    }
    let first = list.value[0]["ip"].as_str().unwrap_or_default();
    if status.at("hostIP").text() != first {
        let place = Field::new(&Value::Null, list.path.index(0).child("ip"));
        errors.add(place.invalid_as(first, "must be equal to `hostIP`"));
    }
    validate_ip_list(&list, errors);
}

fn validate_ip_list(list: &Field<'_>, errors: &mut Errors) {
    for item in list.items() {
        errors.extend(names::validate_ip_legacy(&item.path, item.at("ip").text(), true));
    }
    if list.len() > 1 && !(list.len() == 2 && is_dual_stack(list.items().map(|i| i.at("ip").text().to_string()))) {
        errors.add(list.invalid("may specify no more than one IP for each IP family"));
    }
}

/// At least one address of each family.
pub(crate) fn is_dual_stack(ips: impl Iterator<Item = String>) -> bool {
    let parsed: Vec<IpAddr> = ips.filter_map(|ip| names::parse_ip_sloppy(&ip)).collect();
    parsed.iter().any(IpAddr::is_ipv4) && parsed.iter().any(IpAddr::is_ipv6)
}

/// A binding names a node.
pub fn validate_binding(binding: &Value) -> Vec<FieldError> {
    let target = Field::new(&binding["target"], FieldPath::new("target"));
    Errors::of(|errors| {
        let (kind, name) = (target.at("kind"), target.at("name"));
        if !matches!(kind.text(), "" | "Node") {
            errors.add(kind.unsupported(&["Node", "<empty>"]));
        }
        if errors.require(&name) && matches!(kind.text(), "" | "Node") {
            errors.dns_subdomain(&name);
        }
    })
}
