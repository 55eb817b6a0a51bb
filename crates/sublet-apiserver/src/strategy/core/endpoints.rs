//! Endpoints, and the endpoint slices that took their place.

use super::super::Strategy;
use super::super::edit::{fill, fill_zero, is_zero, items};
use serde_json::{Value, json};

pub(crate) const ENDPOINTS: Strategy = Strategy { default: default_endpoints, warnings, create_on_update: true, ..Strategy::PLAIN };

pub(crate) const ENDPOINT_SLICE: Strategy = Strategy { default: default_slice, generation: true, ..Strategy::PLAIN };

fn default_endpoints(endpoints: &mut Value) {
    for subset in items(endpoints, "subsets") {
        for port in items(subset, "ports") {
            fill_zero(port, "protocol", "TCP");
        }
    }
}

fn warnings(_: &Value) -> Vec<String> {
    vec!["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".into()]
}

fn default_slice(slice: &mut Value) {
    for list in ["endpoints", "ports"] {
        if is_zero(&slice[list]) {
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
