//! Endpoints, and the endpoint slices that took their place.

use super::super::Strategy;
use super::super::edit::{fill, fill_zero, items};
use serde_json::{Value, json};

pub(crate) const ENDPOINTS: Strategy = Strategy { default: default_endpoints, create_on_update: true, ..Strategy::PLAIN };

pub(crate) const ENDPOINT_SLICE: Strategy = Strategy { default: default_slice, generation: true, ..Strategy::PLAIN };

fn default_endpoints(endpoints: &mut Value) {
    for subset in items(endpoints, "subsets") {
        for port in items(subset, "ports") {
            fill_zero(port, "protocol", "TCP");
        }
    }
}

fn default_slice(slice: &mut Value) {
    for endpoint in items(slice, "endpoints") {
        fill(endpoint, "conditions", json!({}));
    }
    for port in items(slice, "ports") {
        fill(port, "name", "");
        fill(port, "protocol", "TCP");
    }
}
