//! Dynamic resources. Expressions are only looked at for their length: nothing here evaluates them.

mod allocation;
mod claim;
mod rules;
mod slice;

use super::conditions::validate_conditions;
use super::edit::{child, ensure, fill, fill_zero, items, now};
use super::field::{Errors, Field};
use super::status::empty_status;
use super::{Strategy, keep_all_but_status, keep_status};
use serde_json::{Value, json};
use sublet_machinery::FieldError;

pub(super) const DEVICE_CLASS: Strategy = Strategy { validate: claim::validate_class, generation: true, ..Strategy::PLAIN };

pub(super) const RESOURCE_SLICE: Strategy = Strategy {
    default: |slice| {
        for device in items(ensure(slice, "spec"), "devices") {
            items(device, "taints").for_each(default_taint);
        }
    },
    validate: slice::validate,
    validate_update: slice::validate_update,
    warnings: |slice| {
        let driver = slice["spec"]["driver"].as_str().unwrap_or_default();
        let upper = driver != driver.to_lowercase();
        upper
            .then(|| format!("spec.driver: driver names should be lowercase; {driver:?} contains uppercase characters"))
            .into_iter()
            .collect()
    },
    fields: slice_fields,
    generation: true,
    ..Strategy::PLAIN
};

pub(super) const RESOURCE_CLAIM: Strategy = Strategy {
    default: |object| {
        default_claim_devices(ensure(object, "spec"));
        fill(object, "status", json!({}));
    },
    prepare_create: empty_status,
    prepare_update: keep_status,
    prepare_status_update: keep_all_but_status,
    validate_create: |claim| Errors::of(|errors| claim::validate_spec(&Field::root(claim).at("spec"), errors)),
    validate_update: |new, old| Errors::of(|errors| errors.immutable_unshown(&Field::root(new).at("spec"), &old["spec"])),
    validate_status_update: allocation::validate_status,
    ..Strategy::PLAIN
};

pub(super) const RESOURCE_CLAIM_TEMPLATE: Strategy = Strategy {
    default: |object| {
        let spec = ensure(object, "spec");
        fill(spec, "metadata", json!({}));
        default_claim_devices(ensure(spec, "spec"));
    },
    validate_create: claim::validate_template,
    validate_update: |new, old| {
        let mut errors = claim::validate_template(new);
        errors.extend(Errors::of(|errors| errors.immutable(&Field::root(new).at("spec"), &old["spec"])));
        errors
    },
    ..Strategy::PLAIN
};

pub(super) const DEVICE_TAINT_RULE: Strategy = Strategy {
    default: |rule| default_taint(ensure(ensure(rule, "spec"), "taint")),
    prepare_create: empty_status,
    prepare_update: |new, old| {
        keep_status(new, old);
        let (taint, before) = (&mut new["spec"]["taint"], &old["spec"]["taint"]);
        if taint["effect"] != before["effect"] && taint["timeAdded"] == before["timeAdded"] {
            taint["timeAdded"] = json!(now());
        }
    },
    prepare_status_update: keep_all_but_status,
    validate: validate_taint_rule,
    validate_status_update: |new, _| {
        const CONDITIONS_MAX: usize = 8;
        let conditions = Field::root(new).at("status").at("conditions");
        Errors::of(|errors| {
            validate_conditions(&conditions, errors);
            rules::is_too_long(&conditions, CONDITIONS_MAX, errors);
        })
    },
    generation: true,
    ..Strategy::PLAIN
};

fn default_taint(taint: &mut Value) {
    if taint["timeAdded"].is_null() {
        taint["timeAdded"] = json!(now());
    }
}

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

fn validate_taint_rule(rule: &Value) -> Vec<FieldError> {
    let spec = Field::root(rule).at("spec");
    let selector = spec.at("deviceSelector");
    Errors::of(|errors| {
        if selector.at("driver").is_set() {
            rules::validate_driver(&selector.at("driver"), errors);
        }
        if selector.at("pool").is_set() {
            rules::validate_pool(&selector.at("pool"), errors);
        }
        if selector.at("device").is_set() {
            errors.dns_label(&selector.at("device"));
        }
        rules::validate_taint(&spec.at("taint"), errors);
    })
}
