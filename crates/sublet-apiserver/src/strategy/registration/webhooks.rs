//! Webhook configurations.

use super::super::Strategy;
use super::super::edit::{child, ensure, fill, items};
use super::super::field::{Errors, Field, Seen};
use super::rules::{default_match, validate_conditions, validate_rule};
use crate::crd::validate::{validate_service, validate_url};
use serde_json::Value;
use sublet_machinery::{FieldError, names};

pub(crate) const VALIDATING_WEBHOOKS: Strategy = Strategy {
    default: |object| items(object, "webhooks").for_each(default_webhook),
    validate,
    generation: true,
    unconditional_update: false,
    ..Strategy::PLAIN
};

pub(crate) const MUTATING_WEBHOOKS: Strategy = Strategy {
    default: |object| {
        for webhook in items(object, "webhooks") {
            default_webhook(webhook);
            fill(webhook, "reinvocationPolicy", "Never");
        }
    },
    ..VALIDATING_WEBHOOKS
};

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];

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

fn validate(configuration: &Value) -> Vec<FieldError> {
    let mut seen = Seen::default();
    Errors::of(|errors| {
        for hook in Field::root(configuration).at("webhooks").items() {
            validate_hook(&hook, errors);
            validate_versions(&hook.at("admissionReviewVersions"), errors);
            let name = hook.at("name");
            if !name.is_zero() && seen.again(name.text()) {
                errors.add(name.duplicate());
            }
        }
    })
}

fn validate_hook(hook: &Field<'_>, errors: &mut Errors) {
    let (name, effects, timeout) = (hook.at("name"), hook.at("sideEffects"), hook.at("timeoutSeconds"));
    errors.extend(names::fully_qualified_name(&name.path, name.text()));
    hook.at("rules").items().for_each(|rule| validate_rule(&rule, errors));
    errors.one_of_if_set(&hook.at("failurePolicy"), &["Fail", "Ignore"]);
    errors.one_of_if_set(&hook.at("matchPolicy"), &["Equivalent", "Exact"]);
    if effects.is_set() {
        errors.one_of(&effects, &SIDE_EFFECTS);
    } else {
        errors.add(effects.required(&format!("must specify one of {}", SIDE_EFFECTS.join(", "))));
    }
    if timeout.is_set() && !(1..=30).contains(&timeout.int()) {
        errors.add(timeout.invalid("the timeout value must be between 1 and 30 seconds"));
    }
    for selector in [hook.at("namespaceSelector"), hook.at("objectSelector")] {
        errors.label_selector(&selector);
    }
    errors.one_of_if_set(&hook.at("reinvocationPolicy"), &["IfNeeded", "Never"]);
    let client = hook.at("clientConfig");
    let (url, service) = (client.at("url"), client.at("service"));
    match (url.is_set(), service.is_set()) {
        (true, false) => errors.extend(validate_url(url.text(), &url.path)),
        (false, true) => {
            // Upstream hands the two over in the wrong order, so that errors name the other one.
            let mut swapped = service.value.clone();
            swapped["name"] = service.at("namespace").value.clone();
            swapped["namespace"] = service.at("name").value.clone();
            errors.extend(validate_service(&swapped, &service.path));
        }
        _ => errors.add(client.required("exactly one of url or service is required")),
    }
    validate_conditions(&hook.at("matchConditions"), false, errors);
}

fn validate_versions(versions: &Field<'_>, errors: &mut Errors) {
    if versions.is_zero() {
        return errors.add(versions.required(&format!("must specify one of {}", REVIEW_VERSIONS.join(", "))));
    }
    let mut seen = Seen::default();
    for version in versions.items() {
        if seen.again(version.text()) {
            errors.add(version.invalid("duplicate version"));
        } else {
            errors.words(&version, names::dns_1035_label);
        }
    }
    if !versions.items().any(|version| REVIEW_VERSIONS.contains(&version.text())) {
        errors.add(versions.invalid(format!("must include at least one of {}", REVIEW_VERSIONS.join(", "))));
    }
}
