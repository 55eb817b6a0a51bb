//! Endpoints.

use super::super::Strategy;
use super::super::edit::{fill_zero, items};
use super::super::field::{Errors, Field};
use super::service_rules::validate_endpoint_ip;
use serde_json::Value;
use sublet_machinery::FieldError;

pub(crate) const ENDPOINTS: Strategy = Strategy { default: default_endpoints, validate, create_on_update: true, ..Strategy::PLAIN };

fn default_endpoints(endpoints: &mut Value) {
    for subset in items(endpoints, "subsets") {
        for port in items(subset, "ports") {
            fill_zero(port, "protocol", "TCP");
        }
    }
}

fn validate(endpoints: &Value) -> Vec<FieldError> {
    let subsets = Field::root(endpoints).at("subsets");
    Errors::of(|errors| {
        for subset in subsets.items() {
            if subset.at("addresses").is_zero() && subset.at("notReadyAddresses").is_zero() {
                errors.add(subset.required("must specify `addresses` or `notReadyAddresses`"));
            }
            for list in ["addresses", "notReadyAddresses"] {
                subset.at(list).items().for_each(|address| validate_address(&address, errors));
            }
            let several = subset.at("ports").len() > 1;
            subset.at("ports").items().for_each(|port| validate_port(&port, several, errors));
        }
    })
}

fn validate_address(address: &Field<'_>, errors: &mut Errors) {
    errors.ip(&address.at("ip"));
    if !address.at("hostname").is_zero() {
        errors.dns_label(&address.at("hostname"));
    }
    if address.at("nodeName").is_set() {
        errors.dns_subdomain(&address.at("nodeName"));
    }
    validate_endpoint_ip(&address.at("ip"), errors);
}

fn validate_port(port: &Field<'_>, named: bool, errors: &mut Errors) {
    let name = port.at("name");
    if named && name.is_zero() {
        errors.add(name.required(""));
    } else if !name.is_zero() {
        errors.dns_label(&name);
    }
    errors.port_number(&port.at("port"));
    errors.required_one_of(&port.at("protocol"), &["SCTP", "TCP", "UDP"]);
    if port.at("appProtocol").is_set() {
        errors.qualified_name(&port.at("appProtocol"));
    }
}
