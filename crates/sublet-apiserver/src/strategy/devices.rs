//! Dynamic resources.

use super::edit::{child, ensure, fill, fill_zero, items};
use super::status::empty_status;
use super::{Strategy, keep_status};
use serde_json::{Value, json};

pub(super) const DEVICE_CLASS: Strategy = Strategy { generation: true, ..Strategy::PLAIN };

pub(super) const RESOURCE_SLICE: Strategy = Strategy { fields: slice_fields, generation: true, ..Strategy::PLAIN };

pub(super) const RESOURCE_CLAIM: Strategy = Strategy {
    default: |object| {
        default_claim_devices(ensure(object, "spec"));
        fill(object, "status", json!({}));
    },
    prepare_create: empty_status,
    prepare_update: keep_status,
    ..Strategy::PLAIN
};

pub(super) const RESOURCE_CLAIM_TEMPLATE: Strategy = Strategy {
    default: |object| {
        let spec = ensure(object, "spec");
        fill(spec, "metadata", json!({}));
        default_claim_devices(ensure(spec, "spec"));
    },
    ..Strategy::PLAIN
};

pub(super) const DEVICE_TAINT_RULE: Strategy =
    Strategy { prepare_create: empty_status, prepare_update: keep_status, generation: true, ..Strategy::PLAIN };

fn default_claim_devices(spec: &mut Value) {
    let exact = |request: &mut Value| {
        fill_zero(request, "allocationMode", "ExactCount");
        if request["allocationMode"] == "ExactCount" {
            fill_zero(request, "count", 1);
        }
    };
    for request in items(ensure(spec, "devices"), "requests") {
        if let Some(request) = child(request, "exactly") {
            exact(request);
        }
        items(request, "firstAvailable").for_each(exact);
    }
}

fn slice_fields(slice: &Value) -> Vec<(&'static str, String)> {
    let text = |key: &str| slice["spec"][key].as_str().unwrap_or_default().to_string();
    vec![("spec.nodeName", text("nodeName")), ("spec.driver", text("driver"))]
}
