//! Pod disruption budgets.

use super::apps::rules::{validate_at_most_whole, validate_counts, validate_int_or_percent};
use super::conditions::validate_conditions;
use super::edit::ensure;
use super::field::{Errors, Field};
use super::status::{keep_spec, zero_counters};
use super::{Strategy, keep_status};
use serde_json::{Value, json};
use sublet_machinery::FieldError;

pub(super) const DISRUPTION_BUDGET: Strategy = Strategy {
    default: |object| {
        ensure(object, "spec");
        zero_counters(object, &COUNTERS);
    },
    prepare_create: |object| {
        object["status"] = json!({});
        zero_counters(object, &COUNTERS);
    },
    prepare_update: keep_status,
    prepare_status_update: keep_spec,
    validate,
    validate_status_update: |new, _| {
        let status = Field::root(new).at("status");
        Errors::of(|errors| {
            validate_conditions(&status.at("conditions"), errors);
            validate_counts(&status, &COUNTERS, errors);
        })
    },
    generation: true,
    unconditional_update: false,
    ..Strategy::PLAIN
};

const COUNTERS: [&str; 4] = ["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"];

fn validate(budget: &Value) -> Vec<FieldError> {
    let spec = Field::root(budget).at("spec");
    let bounds = [spec.at("minAvailable"), spec.at("maxUnavailable")];
    Errors::of(|errors| {
        if bounds.iter().all(Field::is_set) {
            errors.add(spec.invalid("minAvailable and maxUnavailable cannot be both set"));
        }
        for bound in bounds.iter().filter(|bound| bound.is_set()) {
            validate_int_or_percent(bound, errors);
            validate_at_most_whole(bound, errors);
        }
        errors.label_selector(&spec.at("selector"));
        errors.one_of_if_set(&spec.at("unhealthyPodEvictionPolicy"), &["AlwaysAllow", "IfHealthyBudget"]);
    })
}
