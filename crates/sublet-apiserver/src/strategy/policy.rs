//! Admission webhooks and policies, flow control, and dynamic resources.

use super::edit::{child, ensure, fill, fill_zero, items};
use super::status::{empty_status, keep_spec};
use super::{Strategy, keep_all_but_status, keep_status};
use serde_json::{Value, json};

pub(super) const VALIDATING_WEBHOOKS: Strategy = Strategy {
    default: |object| items(object, "webhooks").for_each(default_webhook),
    generation: true,
    unconditional_update: false,
    ..Strategy::PLAIN
};

pub(super) const MUTATING_WEBHOOKS: Strategy = Strategy {
    default: |object| {
        for webhook in items(object, "webhooks") {
            default_webhook(webhook);
            fill(webhook, "reinvocationPolicy", "Never");
        }
    },
    ..VALIDATING_WEBHOOKS
};

/// Validating and mutating admission policies.
pub(super) const ADMISSION_POLICY: Strategy = Strategy {
    default: |object| {
        let spec = ensure(object, "spec");
        fill(spec, "failurePolicy", "Fail");
        if let Some(constraints) = child(spec, "matchConstraints") {
            default_match(constraints);
        }
        if object["kind"] == "ValidatingAdmissionPolicy" {
            fill(object, "status", json!({}));
        }
    },
    prepare_create: |object| {
        if object["kind"] == "ValidatingAdmissionPolicy" {
            empty_status(object);
        }
    },
    prepare_update: keep_status,
    generation: true,
    unconditional_update: false,
    ..Strategy::PLAIN
};

pub(super) const ADMISSION_POLICY_BINDING: Strategy = Strategy {
    default: |object| {
        if let Some(resources) = child(ensure(object, "spec"), "matchResources") {
            default_match(resources);
        }
    },
    generation: true,
    unconditional_update: false,
    ..Strategy::PLAIN
};

pub(super) const FLOW_SCHEMA: Strategy = Strategy {
    default: |object| {
        fill_zero(ensure(object, "spec"), "matchingPrecedence", 1000);
        fill(object, "status", json!({}));
    },
    prepare_create: empty_status,
    prepare_update: keep_status,
    prepare_status_update: keep_all_but_status,
    generation: true,
    ..Strategy::PLAIN
};

pub(super) const PRIORITY_LEVEL: Strategy = Strategy { default: default_priority_level, ..FLOW_SCHEMA };

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

/// What `apiextensions.k8s.io` and `apiregistration.k8s.io` need of the common rules; their own rooms do the rest.
pub(super) const API_SERVICE: Strategy = Strategy {
    default: |object| {
        let spec = ensure(object, "spec");
        if let Some(service) = child(spec, "service") {
            fill(service, "port", 443);
        }
        fill(object, "status", json!({}));
    },
    prepare_create: empty_status,
    prepare_update: keep_status,
    prepare_status_update: keep_spec,
    unconditional_update: false,
    ..Strategy::PLAIN
};

fn default_webhook(webhook: &mut Value) {
    fill(webhook, "failurePolicy", "Fail");
    fill(webhook, "timeoutSeconds", 10);
    default_match(webhook);
    for rule in items(webhook, "rules") {
        fill(rule, "scope", "*");
    }
    if let Some(service) = child(ensure(webhook, "clientConfig"), "service") {
        fill(service, "port", 443);
    }
}

fn default_match(object: &mut Value) {
    fill(object, "matchPolicy", "Equivalent");
    fill(object, "namespaceSelector", json!({}));
    fill(object, "objectSelector", json!({}));
    for rules in ["resourceRules", "excludeResourceRules"] {
        for rule in items(object, rules) {
            fill(rule, "scope", "*");
        }
    }
}

fn default_priority_level(level: &mut Value) {
    let spec = ensure(level, "spec");
    for (key, shares) in [("exempt", 0), ("limited", 30)] {
        if let Some(part) = child(spec, key) {
            fill(part, "nominalConcurrencyShares", shares);
            fill(part, "lendablePercent", 0);
        }
    }
    if let Some(limited) = child(spec, "limited") {
        let response = ensure(limited, "limitResponse");
        if let Some(queuing) = child(response, "queuing") {
            for (key, value) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
                fill_zero(queuing, key, value);
            }
        }
    }
    fill(level, "status", json!({}));
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
