//! Node selectors, of affinities and of persistent volumes.

use super::super::super::field::{Errors, Field};
use sublet_machinery::names;

pub(crate) fn validate(selector: &Field<'_>, errors: &mut Errors) {
    let terms = selector.at("nodeSelectorTerms");
    if terms.is_zero() {
        return errors.add(terms.required("must have at least one node selector term"));
    }
    terms.items().for_each(|term| validate_term(&term, true, errors));
}

pub(crate) fn validate_term(term: &Field<'_>, check_values: bool, errors: &mut Errors) {
    for requirement in term.at("matchExpressions").items() {
        validate_requirement(&requirement, check_values, errors);
    }
    for requirement in term.at("matchFields").items() {
        validate_field_requirement(&requirement, errors);
    }
}

fn validate_requirement(requirement: &Field<'_>, check_values: bool, errors: &mut Errors) {
    let (operator, values) = (requirement.at("operator"), requirement.at("values"));
    match operator.text() {
        "In" | "NotIn" if values.is_zero() => {
            errors.add(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if !values.is_zero() => {
            errors.add(values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
        }
        "Gt" | "Lt" if values.len() != 1 => {
            errors.add(values.required("must be specified single value when `operator` is 'Lt' or 'Gt'"));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.add(operator.invalid_as(other, "not a valid selector operator")),
    }
    errors.words(&requirement.at("key"), names::qualified_name);
    if check_values {
        values.items().for_each(|value| errors.words(&value, names::label_value));
    }
}

fn validate_field_requirement(requirement: &Field<'_>, errors: &mut Errors) {
    let (key, operator, values) = (requirement.at("key"), requirement.at("operator"), requirement.at("values"));
    match operator.text() {
        "In" | "NotIn" if values.len() != 1 => {
            errors.add(values.required("must be only one value when `operator` is 'In' or 'NotIn' for node field selector"));
        }
        "In" | "NotIn" => {}
        other => errors.add(operator.invalid_as(other, "not a valid selector operator")),
    }
    if key.text() == "metadata.name" {
        values.items().for_each(|value| errors.dns_subdomain(&value));
    } else {
        errors.add(key.invalid_as(key.text(), "not a valid field selector key"));
    }
}
