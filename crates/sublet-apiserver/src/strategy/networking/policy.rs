//! Network policies.

use super::super::Strategy;
use super::super::edit::{ensure, fill, fill_zero, is_zero, items};
use super::super::field::{Errors, Field};
use serde_json::{Value, json};
use std::net::IpAddr;
use sublet_machinery::{FieldError, names};

pub(crate) const NETWORK_POLICY: Strategy = Strategy { default, validate, warnings, generation: true, ..Strategy::PLAIN };

const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

fn default(policy: &mut Value) {
    let spec = ensure(policy, "spec");
    for (direction, _) in DIRECTIONS {
        for rule in items(spec, direction) {
            for port in items(rule, "ports") {
                fill(port, "protocol", "TCP");
            }
        }
    }
    fill(spec, "podSelector", json!({}));
    let types = if is_zero(&spec["egress"]) { json!(["Ingress"]) } else { json!(["Ingress", "Egress"]) };
    fill_zero(spec, "policyTypes", types);
}

fn validate(policy: &Value) -> Vec<FieldError> {
    let spec = Field::root(policy).at("spec");
    Errors::of(|errors| {
        errors.label_selector(&spec.at("podSelector"));
        for (direction, peers) in DIRECTIONS {
            for rule in spec.at(direction).items() {
                rule.at("ports").items().for_each(|port| validate_port(&port, errors));
                rule.at(peers).items().for_each(|peer| validate_peer(&peer, errors));
            }
        }
        let types = spec.at("policyTypes");
        if types.len() > DIRECTIONS.len() {
            return errors.add(types.invalid("may not specify more than two policyTypes"));
        }
        for kind in types.items() {
            errors.one_of(&kind, &["Ingress", "Egress"]);
        }
    })
}

fn validate_port(rule: &Field<'_>, errors: &mut Errors) {
    let (port, end) = (rule.at("port"), rule.at("endPort"));
    errors.one_of_if_set(&rule.at("protocol"), &["TCP", "UDP", "SCTP"]);
    if port.is_set() {
        errors.port(&port);
    }
    if !end.is_set() {
        return;
    }
    match port.value {
        Value::Null => errors.add(end.invalid("may not be specified when `port` is not specified")),
        Value::String(_) => errors.add(end.invalid("may not be specified when `port` is non-numeric")),
        _ => {
            if end.int() < port.int() {
                errors.add(end.invalid("must be greater than or equal to `port`"));
            }
            errors.port_number(&end);
        }
    }
}

fn validate_peer(peer: &Field<'_>, errors: &mut Errors) {
    let (pods, namespaces, block) = (peer.at("podSelector"), peer.at("namespaceSelector"), peer.at("ipBlock"));
    for selector in [&pods, &namespaces].into_iter().filter(|s| s.is_set()) {
        errors.label_selector(selector);
    }
    if block.is_set() {
        validate_block(&block, errors);
    }
    let selects = pods.is_set() || namespaces.is_set();
    if !selects && !block.is_set() {
        errors.add(peer.required("must specify a peer"));
    } else if selects && block.is_set() {
        errors.add(peer.forbidden("may not specify both ipBlock and another peer"));
    }
}

fn validate_block(block: &Field<'_>, errors: &mut Errors) {
    let cidr = block.at("cidr");
    if !errors.require(&cidr) {
        return;
    }
    errors.cidr(&cidr);
    let Some(outer) = names::parse_cidr_sloppy(cidr.text()) else { return };
    for except in block.at("except").items() {
        errors.cidr(&except);
        if let Some(inner) = names::parse_cidr_sloppy(except.text())
            && !(contains(outer, inner.0) && outer.1 < inner.1)
        {
            errors.add(except.invalid("must be a strict subset of `cidr`"));
        }
    }
}

fn contains((network, bits): (IpAddr, u8), ip: IpAddr) -> bool {
    fn same(a: u128, b: u128, width: u32, bits: u8) -> bool {
        let rest = width - u32::from(bits);
        rest >= u128::BITS || (a >> rest) == (b >> rest)
    }
    match (network, ip) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32, bits),
        (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128, bits),
        _ => false,
    }
}

fn warnings(policy: &Value) -> Vec<String> {
    let spec = Field::root(policy).at("spec");
    let mut all = Vec::new();
    for (direction, peers) in DIRECTIONS {
        for peer in spec.at(direction).items().flat_map(|rule| rule.at(peers).items()) {
            let block = peer.at("ipBlock");
            for cidr in [block.at("cidr")].into_iter().filter(Field::is_set).chain(block.at("except").items()) {
                all.extend(names::cidr_warnings(&cidr.path, cidr.text()));
            }
        }
    }
    all
}
