//! Conditions of the common shape, `metav1.Condition`.

use super::field::{Errors, Field, Seen};
use regex::Regex;
use std::sync::LazyLock;

const REASON_BYTES_MAX: usize = 1024;
const MESSAGE_BYTES_MAX: usize = 32 * 1024;
const REASON_FORMAT: &str = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?";

static REASON: LazyLock<Regex> = LazyLock::new(|| Regex::new(&format!("^{REASON_FORMAT}$")).expect("a valid pattern"));

pub(crate) fn validate_conditions(conditions: &Field<'_>, errors: &mut Errors) {
    let mut seen = Seen::default();
    for condition in conditions.items() {
        let kind = condition.at("type");
        if seen.again(kind.text()) {
            errors.add(sublet_machinery::FieldError::duplicate(&condition.path, kind.value.clone()));
        }
        if kind.is_zero() {
            errors.add(kind.required("is required"));
        } else {
            errors.qualified_name(&kind);
        }
        errors.required_one_of(&condition.at("status"), &["False", "True", "Unknown"]);
        if condition.at("observedGeneration").int() < 0 {
            errors.add(condition.at("observedGeneration").invalid("must be greater than or equal to zero"));
        }
        errors.require(&condition.at("lastTransitionTime"));
        validate_texts(&condition, errors);
    }
}

fn validate_texts(condition: &Field<'_>, errors: &mut Errors) {
    let (reason, message) = (condition.at("reason"), condition.at("message"));
    if errors.require(&reason) {
        if !REASON.is_match(reason.text()) {
            errors.add(reason.invalid(format!(
                "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric \
                 characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or \
                 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '{REASON_FORMAT}')"
            )));
        }
        if reason.len() > REASON_BYTES_MAX {
            errors.add(reason.too_long(REASON_BYTES_MAX));
        }
    }
    if message.len() > MESSAGE_BYTES_MAX {
        errors.add(message.too_long(MESSAGE_BYTES_MAX));
    }
}
