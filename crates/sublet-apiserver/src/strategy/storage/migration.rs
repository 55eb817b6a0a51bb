//! Migrations of stored objects to another version.

use super::super::conditions::validate_conditions;
use super::super::field::{Errors, Field, IMMUTABLE};
use super::super::status::empty_status;
use super::super::{Strategy, keep_all_but_status, keep_status};
use serde_json::Value;
use sublet_machinery::{FieldError, names};

pub(crate) const MIGRATION: Strategy = Strategy {
    prepare_create: empty_status,
    prepare_update: keep_status,
    prepare_status_update: keep_all_but_status,
    validate,
    validate_update: |new, old| Errors::of(|errors| errors.immutable(&Field::root(new).at("spec"), &old["spec"])),
    validate_status_update,
    unconditional_update: false,
    ..Strategy::PLAIN
};

fn validate(migration: &Value) -> Vec<FieldError> {
    let about = Field::root(migration).at("spec").at("resource");
    let (resource, group) = (about.at("resource"), about.at("group"));
    Errors::of(|errors| {
        let wrong = names::dns_1035_label(resource.text());
        if resource.is_zero() {
            errors.add(resource.required("resource is required to be set"));
        } else if !wrong.is_empty() {
            errors.add(resource.invalid(wrong.join(",")));
        }
        let wrong = names::dns_subdomain(group.text());
        if !group.is_zero() && !wrong.is_empty() {
            errors.add(group.invalid(wrong.join(",")));
        }
    })
}

fn is_true(migration: &Value, kind: &str) -> bool {
    let conditions = migration["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == kind && condition["status"] == "True")
}

fn validate_status_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let status = Field::root(new).at("status");
    let (conditions, version) = (status.at("conditions"), status.at("resourceVersion"));
    let before = old["status"]["resourceVersion"].as_str().unwrap_or_default();
    Errors::of(|errors| {
        validate_conditions(&conditions, errors);
        if !before.is_empty() && before != version.text() {
            errors.add(version.invalid_as(version.text(), IMMUTABLE));
        }
        if is_true(new, "Succeeded") && is_true(new, "Failed") {
            errors.add(conditions.invalid("Both success and failed conditions cannot be true at the same time"));
        }
        for (kind, word) in [("Succeeded", "Success"), ("Failed", "Failed")] {
            if is_true(old, kind) && !is_true(new, kind) {
                errors.add(conditions.invalid(format!("{word} condition cannot be set to false once it is true")));
            }
        }
    })
}
