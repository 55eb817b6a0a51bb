//! What `apiregistration.k8s.io` needs of the common rules.

use super::edit::{child, ensure, fill, now};
use super::field::{Errors, Field};
use super::status::{empty_status, keep_spec};
use super::{NameRule, Strategy, keep_status};
use serde_json::{Value, json};
use sublet_machinery::{FieldError, names};

pub(super) const API_SERVICE: Strategy = Strategy {
    default: |object| {
        let spec = ensure(object, "spec");
        if let Some(service) = child(spec, "service") {
            fill(service, "port", 443);
        }
        fill(object, "status", json!({}));
    },
    prepare_create,
    prepare_update: keep_status,
    prepare_status_update: keep_spec,
    validate,
    validate_status_update: |new, _| {
        Errors::of(|errors| {
            for condition in Field::root(new).at("status").at("conditions").items() {
                errors.one_of(&condition.at("status"), &["True", "False", "Unknown"]);
            }
        })
    },
    unconditional_update: false,
    name_rule: NameRule::PathSegment,
    ..Strategy::PLAIN
};

/// What this server serves itself is there from the start.
fn prepare_create(api: &mut Value) {
    empty_status(api);
    if api["spec"]["service"].is_null() {
        api["status"]["conditions"] = json!([{
            "type": "Available", "status": "True", "lastTransitionTime": now(), "reason": "Local",
            "message": "Local APIServices are always available",
        }]);
    }
}

fn validate(api: &Value) -> Vec<FieldError> {
    let spec = Field::root(api).at("spec");
    let (group, version, service) = (spec.at("group"), spec.at("version"), spec.at("service"));
    let (bundle, insecure) = (spec.at("caBundle"), spec.at("insecureSkipTLSVerify"));
    Errors::of(|errors| {
        let expected = format!("{}.{}", version.text(), group.text());
        errors.own_name(api, |name| {
            let is_right = name == expected || !names::path_segment(name).is_empty();
            if is_right { Vec::new() } else { vec![format!("must be `spec.version+\".\"+spec.group`: {expected:?}")] }
        });
        if group.is_zero() && version.text() != "v1" {
            errors.add(group.required("only v1 may have an empty group and it better be legacy kube"));
        }
        if !group.is_zero() {
            errors.dns_subdomain(&group);
        }
        errors.words(&version, names::dns_1035_label);
        for (key, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
            let priority = spec.at(key);
            if !(1..=most).contains(&priority.int()) {
                errors.add(priority.invalid_as(priority.int(), format!("must be positive and less than {most}")));
            }
        }
        if !service.is_set() {
            if !bundle.is_zero() {
                errors.add(bundle.invalid_as(format!("{} bytes", bundle.len() / 4 * 3), "local APIServices may not have a caBundle"));
            }
            if insecure.flag() {
                errors.add(insecure.invalid("local APIServices may not have insecureSkipTLSVerify"));
            }
            return;
        }
        errors.require_all(&service, &["namespace", "name"]);
        let port = service.at("port");
        let wrong = names::port_number(port.int());
        if !wrong.is_empty() {
            errors.add(port.invalid(format!("port is not valid: {}", wrong.join(", "))));
        }
        if insecure.flag() && !bundle.is_zero() {
            errors.add(insecure.invalid("may not be true if caBundle is present"));
        }
    })
}
