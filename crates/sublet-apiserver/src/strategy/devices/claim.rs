//! What is asked for: claims, templates of claims, and classes.

use super::super::field::{Errors, Field};
use super::super::pod::validate::validate_template_metadata;
use super::rules::{is_too_long, validate_configuration, validate_full_name, validate_selectors, validate_set, validate_toleration};
use serde_json::Value;
use std::collections::BTreeMap;
use sublet_machinery::{FieldError, names};

pub(super) const REQUESTS_MAX: usize = 32;
const ALTERNATIVES_MAX: usize = 8;
const NAME_OF_REQUEST: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

/// Names of requests, each with the names of its alternatives.
pub(super) type RequestNames<'a> = BTreeMap<&'a str, Vec<&'a str>>;

pub(super) fn request_names<'a>(spec: &Field<'a>) -> RequestNames<'a> {
    let requests = spec.at("devices").at("requests");
    let alternatives = |request: &Field<'a>| request.at("firstAvailable").items().map(|r| r.at("name").text()).collect();
    requests.items().map(|request| (request.at("name").text(), alternatives(&request))).collect()
}

pub(super) fn validate_class(class: &Value) -> Vec<FieldError> {
    let spec = Field::root(class).at("spec");
    let extended = spec.at("extendedResourceName");
    Errors::of(|errors| {
        validate_selectors(&spec.at("selectors"), errors);
        if !is_too_long(&spec.at("config"), REQUESTS_MAX, errors) {
            spec.at("config").items().for_each(|config| validate_configuration(&config, errors));
        }
        if extended.is_set() {
            validate_extended(&extended, errors);
        }
    })
}

fn validate_extended(name: &Field<'_>, errors: &mut Errors) {
    if !name.text().contains('/') {
        errors.add(name.invalid("a name must be a domain-prefixed path, such as 'example.com/my-prop'"));
    } else if name.text().contains("kubernetes.io/") {
        errors.add(name.invalid("must not have \"kubernetes.io/\" domain"));
    }
    if name.text().starts_with("requests.") {
        errors.add(name.invalid("must not have \"requests.\" prefix"));
    }
    let for_quota = format!("requests.{}", name.text());
    errors.extend(names::qualified_name(&for_quota).into_iter().map(|m| name.invalid(m)));
}

pub(super) fn validate_template(template: &Value) -> Vec<FieldError> {
    let spec = Field::root(template).at("spec");
    Errors::of(|errors| {
        validate_template_metadata(&spec.at("metadata"), errors);
        validate_spec(&spec.at("spec"), errors);
    })
}

pub(super) fn validate_spec(spec: &Field<'_>, errors: &mut Errors) {
    let devices = spec.at("devices");
    let known = request_names(spec);
    validate_set(&devices.at("requests"), REQUESTS_MAX, "name", errors, validate_request);
    if !is_too_long(&devices.at("constraints"), REQUESTS_MAX, errors) {
        for constraint in devices.at("constraints").items() {
            validate_references(&constraint.at("requests"), &known, errors);
            validate_constraint(&constraint, errors);
        }
    }
    if !is_too_long(&devices.at("config"), REQUESTS_MAX, errors) {
        for config in devices.at("config").items() {
            validate_references(&config.at("requests"), &known, errors);
            validate_configuration(&config, errors);
        }
    }
}

fn validate_constraint(constraint: &Field<'_>, errors: &mut Errors) {
    let (same, distinct) = (constraint.at("matchAttribute"), constraint.at("distinctAttribute"));
    if same.is_set() {
        validate_full_name(&same, errors);
    } else if distinct.is_set() {
        validate_full_name(&distinct, errors);
    } else {
        let detail = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
        errors.add(constraint.required(detail));
    }
}

fn validate_request(request: &Field<'_>, errors: &mut Errors) {
    let (exactly, alternatives) = (request.at("exactly"), request.at("firstAvailable"));
    errors.dns_label(&request.at("name"));
    match (exactly.is_set(), !alternatives.is_zero()) {
        (false, false) => errors.add(request.required("exactly one of `exactly` or `firstAvailable` is required")),
        (true, true) => {
            let detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.add(request.invalid_as(Value::Null, detail));
        }
        (true, false) => validate_exact(&exactly, errors),
        (false, true) => validate_set(&alternatives, ALTERNATIVES_MAX, "name", errors, |alternative, errors| {
            errors.dns_label(&alternative.at("name"));
            validate_exact(alternative, errors);
        }),
    }
}

fn validate_exact(request: &Field<'_>, errors: &mut Errors) {
    let (class, mode, count) = (request.at("deviceClassName"), request.at("allocationMode"), request.at("count"));
    if errors.require(&class) {
        errors.dns_subdomain(&class);
    }
    validate_selectors(&request.at("selectors"), errors);
    match mode.text() {
        "All" if count.int() != 0 => errors.add(count.invalid("must not be specified when allocationMode is 'All'")),
        "All" => {}
        "ExactCount" => errors.positive(&count),
        _ => errors.add(mode.unsupported(&["All", "ExactCount"])),
    }
    request.at("tolerations").items().for_each(|toleration| validate_toleration(&toleration, errors));
}

pub(super) fn validate_references(list: &Field<'_>, known: &RequestNames<'_>, errors: &mut Errors) {
    validate_set(list, REQUESTS_MAX, "", errors, |name, errors| validate_reference(name, known, errors));
}

pub(super) fn validate_reference(name: &Field<'_>, known: &RequestNames<'_>, errors: &mut Errors) {
    let parts: Vec<&str> = name.text().split('/').collect();
    if parts.len() > 2 {
        return errors.add(name.invalid(NAME_OF_REQUEST));
    }
    for part in &parts {
        errors.extend(names::dns_label(part).into_iter().map(|m| name.invalid_as(*part, m)));
    }
    let found = match parts.as_slice() {
        [request] => known.contains_key(request),
        [request, alternative] => known.get(request).is_some_and(|all| all.contains(alternative)),
        _ => false,
    };
    if !found {
        errors.add(name.invalid(NAME_OF_REQUEST));
    }
}
