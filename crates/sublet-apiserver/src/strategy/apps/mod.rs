//! Workload controllers: `apps`, and replication controllers of the core group.

pub(super) mod daemon_set;
pub(super) mod deployment;
pub(super) mod replica_set;
pub(crate) mod rules;
pub(super) mod stateful_set;

use super::Strategy;
use super::field::{Errors, Field};
use serde_json::Value;
use sublet_machinery::FieldError;

pub(super) const CONTROLLER_REVISION: Strategy = Strategy {
    validate: |revision| Errors::of(|errors| errors.non_negative(&Field::root(revision).at("revision"))),
    validate_create: validate_revision_data,
    validate_update: |new, old| Errors::of(|errors| errors.immutable(&Field::root(new).at("data"), &old["data"])),
    ..Strategy::PLAIN
};

fn validate_revision_data(revision: &Value) -> Vec<FieldError> {
    let data = Field::root(revision).at("data");
    Errors::of(|errors| match data.value {
        Value::Null => errors.add(data.required("data is mandatory")),
        Value::Object(_) => {}
        _ => errors.add(data.required("data must be a valid JSON object")),
    })
}
