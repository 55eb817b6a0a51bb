//! Leases.

use super::Strategy;
use super::edit::{ensure, remove};
use super::field::{Errors, Field};
use serde_json::Value;
use sublet_machinery::FieldError;

pub(super) const LEASE: Strategy = Strategy {
    default: |lease| {
        ensure(lease, "spec");
    },
    prepare_create: |lease| drop_coordination(lease, &Value::Null),
    prepare_update: drop_coordination,
    validate,
    create_on_update: true,
    unconditional_update: false,
    ..Strategy::PLAIN
};

/// Coordinated leader election is behind a gate that is off.
fn drop_coordination(new: &mut Value, old: &Value) {
    for key in ["strategy", "preferredHolder"] {
        if old["spec"][key].is_null() {
            remove(ensure(new, "spec"), key);
        }
    }
}

fn validate(lease: &Value) -> Vec<FieldError> {
    let spec = Field::root(lease).at("spec");
    let (duration, transitions) = (spec.at("leaseDurationSeconds"), spec.at("leaseTransitions"));
    Errors::of(|errors| {
        if duration.is_set() && duration.int() <= 0 {
            errors.add(duration.invalid("must be greater than 0"));
        }
        if transitions.int() < 0 {
            errors.add(transitions.invalid("must be greater than or equal to 0"));
        }
        if !spec.at("preferredHolder").is_zero() && spec.at("strategy").is_zero() {
            errors.add(spec.at("preferredHolder").forbidden("may only be specified if `strategy` is defined"));
        }
    })
}
