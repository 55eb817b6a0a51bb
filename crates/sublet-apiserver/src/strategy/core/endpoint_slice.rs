//! Endpoint slices.

use super::super::edit::{fill, is_zero, items, remove};
use super::super::field::{Errors, Field, Seen};
use super::super::{Strategy, spec_changed};
use super::service_rules::validate_endpoint_ip;
use serde_json::{Value, json};
use sublet_machinery::{FieldError, ObjectExt, names};

pub(crate) const ENDPOINT_SLICE: Strategy = Strategy {
    default,
    prepare_create: |slice| drop_topology(slice, &Value::Null),
    prepare_update: drop_topology,
    validate,
    validate_create: |slice| Errors::of(|errors| validate_endpoints(&Field::root(slice), errors)),
    validate_update: |new, old| {
        let slice = Field::root(new);
        Errors::of(|errors| {
            // Wrong endpoints that were there before do not keep the rest from changing.
            if new["endpoints"] != old["endpoints"] {
                validate_endpoints(&slice, errors);
            }
            errors.immutable_unshown(&slice.at("addressType"), &old["addressType"]);
        })
    },
    warnings,
    warnings_update: Some(|new, _| ip_warnings(new)),
    generation: true,
    changes_generation: |new, old| spec_changed(new, old) || new["metadata"]["labels"] != old["metadata"]["labels"],
    ..Strategy::PLAIN
};

const ENDPOINTS_MAX: usize = 1000;
const ADDRESSES_MAX: usize = 100;
const PORTS_MAX: usize = 20_000;
const HINTS_MAX: usize = 8;

fn default(slice: &mut Value) {
    for list in ["endpoints", "ports"] {
        if slice.get(list).is_none() {
            slice[list] = Value::Null;
        }
    }
    for endpoint in items(slice, "endpoints") {
        fill(endpoint, "conditions", json!({}));
    }
    for port in items(slice, "ports") {
        fill(port, "name", "");
        fill(port, "protocol", "TCP");
    }
}

/// Version 1 has fields of their own for what topology said.
fn drop_topology(new: &mut Value, old: &Value) {
    const HOST: &str = "kubernetes.io/hostname";
    if new["endpoints"] == old["endpoints"] {
        return;
    }
    let known: Vec<&Value> =
        old["endpoints"].as_array().into_iter().flatten().map(|e| &e["deprecatedTopology"][HOST]).filter(|name| !is_zero(name)).collect();
    for endpoint in items(new, "endpoints") {
        let Some(topology) = remove(endpoint, "deprecatedTopology") else { continue };
        let name = &topology[HOST];
        if known.contains(&name) && names::is_dns_subdomain(name.as_str().unwrap_or_default()) {
            fill(endpoint, "nodeName", name.clone());
        }
    }
}

fn warnings(slice: &Value) -> Vec<String> {
    let mut all = Vec::new();
    if slice["addressType"] == "FQDN" {
        all.push("spec.addressType: FQDN endpoints are deprecated".into());
    }
    all.extend(ip_warnings(slice));
    all
}

fn ip_warnings(slice: &Value) -> Vec<String> {
    const MANAGERS: [&str; 2] = ["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"];
    let mut all = Vec::new();
    if slice.label("endpointslice.kubernetes.io/managed-by").is_none_or(|manager| !MANAGERS.contains(&manager)) {
        let addresses = Field::root(slice).at("endpoints").items().flat_map(|endpoint| endpoint.at("addresses").items());
        addresses.for_each(|address| all.extend(names::ip_warnings(&address.path, address.text())));
    }
    all
}

/// Whether a list is too long; an error when it is.
fn is_too_long(list: &Field<'_>, items_max: usize, errors: &mut Errors) -> bool {
    let wrong = list.len() > items_max;
    if wrong {
        errors.add(FieldError::too_many(&list.path, list.len(), items_max));
    }
    wrong
}

fn validate(slice: &Value) -> Vec<FieldError> {
    let slice = Field::root(slice);
    let ports = slice.at("ports");
    Errors::of(|errors| {
        errors.required_one_of(&slice.at("addressType"), &["FQDN", "IPv4", "IPv6"]);
        if is_too_long(&ports, PORTS_MAX, errors) {
            return;
        }
        let mut seen = Seen::default();
        for port in ports.items() {
            let name = port.at("name");
            if !name.is_zero() {
                errors.dns_label(&name);
            }
            if seen.again(name.text()) {
                errors.add(name.duplicate());
            }
            if port.at("protocol").is_set() {
                errors.one_of(&port.at("protocol"), &["SCTP", "TCP", "UDP"]);
            } else {
                errors.add(port.at("protocol").required(""));
            }
            if port.at("appProtocol").is_set() {
                errors.qualified_name(&port.at("appProtocol"));
            }
        }
    })
}

fn validate_endpoints(slice: &Field<'_>, errors: &mut Errors) {
    let kind = slice.at("addressType");
    if is_too_long(&slice.at("endpoints"), ENDPOINTS_MAX, errors) {
        return;
    }
    for endpoint in slice.at("endpoints").items() {
        let addresses = endpoint.at("addresses");
        errors.require(&addresses);
        is_too_long(&addresses, ADDRESSES_MAX, errors);
        for address in addresses.items() {
            validate_address(&address, &addresses, kind.text(), errors);
        }
        if endpoint.at("nodeName").is_set() {
            errors.dns_subdomain(&endpoint.at("nodeName"));
        }
        if endpoint.at("hostname").is_set() {
            errors.dns_label(&endpoint.at("hostname"));
        }
        validate_hints(&endpoint.at("hints"), errors);
    }
}

fn validate_address(address: &Field<'_>, addresses: &Field<'_>, kind: &str, errors: &mut Errors) {
    let wrong = match kind {
        "IPv4" => names::validate_ip_legacy(&address.path, address.text(), true),
        "IPv6" => names::validate_ip(&address.path, address.text()),
        "FQDN" => return errors.extend(names::fully_qualified_domain_name(&address.path, address.text())),
        _ => return,
    };
    if !wrong.is_empty() {
        return errors.extend(wrong);
    }
    let is_ipv6 = names::parse_ip_sloppy(address.text()).is_some_and(|ip| ip.is_ipv6());
    if is_ipv6 != (kind == "IPv6") {
        errors.add(addresses.invalid_as(address.text(), format!("must be an {kind} address")));
    }
    validate_endpoint_ip(address, errors);
}

fn validate_hints(hints: &Field<'_>, errors: &mut Errors) {
    let rules: [(&str, fn(&str) -> Vec<String>); 2] = [("forZones", names::label_value), ("forNodes", names::dns_subdomain)];
    for (list, rule) in rules {
        if is_too_long(&hints.at(list), HINTS_MAX, errors) {
            return;
        }
        let mut seen = Seen::default();
        for hint in hints.at(list).items() {
            let name = hint.at("name");
            if seen.again(name.text()) {
                errors.add(FieldError::duplicate(&name.path, name.text()));
            }
            errors.words(&name, rule);
        }
    }
}
