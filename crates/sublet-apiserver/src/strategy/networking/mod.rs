//! Ingresses, network policies and the tables of service addresses.

use super::edit::{child, ensure, fill, fill_zero, is_zero, items};
use super::status::keep_spec;
use super::{Strategy, keep_all_but_status, keep_status};
use serde_json::{Value, json};

pub(super) const INGRESS: Strategy = Strategy {
    default: |object| {
        ensure(object, "spec");
        ensure(ensure(object, "status"), "loadBalancer");
    },
    prepare_create: |object| object["status"] = json!({"loadBalancer": {}}),
    prepare_update: keep_status,
    prepare_status_update: keep_spec,
    generation: true,
    ..Strategy::PLAIN
};

pub(super) const INGRESS_CLASS: Strategy = Strategy {
    default: |object| {
        if let Some(parameters) = child(ensure(object, "spec"), "parameters") {
            fill(parameters, "scope", "Cluster");
        }
    },
    generation: true,
    ..Strategy::PLAIN
};

pub(super) const NETWORK_POLICY: Strategy = Strategy { default: default_network_policy, generation: true, ..Strategy::PLAIN };

pub(super) const IP_ADDRESS: Strategy = Strategy::PLAIN;

pub(super) const SERVICE_CIDR: Strategy = Strategy {
    prepare_create: super::status::empty_status,
    prepare_update: keep_status,
    prepare_status_update: keep_all_but_status,
    ..Strategy::PLAIN
};

fn default_network_policy(policy: &mut Value) {
    let spec = ensure(policy, "spec");
    for direction in ["ingress", "egress"] {
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
