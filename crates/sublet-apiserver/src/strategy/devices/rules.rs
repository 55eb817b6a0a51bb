//! What the kinds of dynamic resources have in common.

use super::super::field::{Errors, Field, Seen};
use super::super::pod::validate::{validate_driver_name, validate_driver_name_in_any_case};
use serde_json::Value;
use sublet_machinery::{FieldError, names};

const POOL_BYTES_MAX: usize = 253;
const PARAMETERS_BYTES_MAX: usize = 10 * 1024;
const EXPRESSION_BYTES_MAX: usize = 10 * 1024;
const SELECTORS_MAX: usize = 32;
const IDENTIFIER_BYTES_MAX: usize = 32;
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

/// Whether a list is too long; an error when it is.
pub(super) fn is_too_long(list: &Field<'_>, items_max: usize, errors: &mut Errors) -> bool {
    let wrong = list.len() > items_max;
    if wrong {
        errors.add(FieldError::too_many(&list.path, list.len(), items_max));
    }
    wrong
}

/// Every item by a rule, each with a key of its own. Too many are told instead.
pub(super) fn validate_set(
    list: &Field<'_>,
    items_max: usize,
    key: &str,
    errors: &mut Errors,
    mut check: impl FnMut(&Field<'_>, &mut Errors),
) {
    if is_too_long(list, items_max, errors) {
        return;
    }
    list.items().for_each(|item| check(&item, errors));
    let mut seen = Seen::default();
    for item in list.items() {
        if seen.again(if key.is_empty() { item.text() } else { item.at(key).text() }) {
            errors.add(item.duplicate());
        }
    }
}

pub(super) fn validate_driver(name: &Field<'_>, errors: &mut Errors) {
    validate_driver_name(name, errors);
}

pub(super) fn validate_pool(name: &Field<'_>, errors: &mut Errors) {
    if !errors.require(name) {
        return;
    }
    if name.len() > POOL_BYTES_MAX {
        errors.add(name.too_long(POOL_BYTES_MAX));
    }
    for part in name.text().split('/') {
        errors.extend(names::dns_subdomain(part).into_iter().map(|m| name.invalid_as(part, m)));
    }
}

pub(super) fn validate_taint(taint: &Field<'_>, errors: &mut Errors) {
    let (key, value, effect) = (taint.at("key"), taint.at("value"), taint.at("effect"));
    errors.qualified_name(&key);
    if !value.is_zero() {
        errors.words(&value, names::label_value);
    }
    errors.required_one_of(&effect, &EFFECTS);
}

pub(super) fn validate_toleration(toleration: &Field<'_>, errors: &mut Errors) {
    let (key, operator, value, effect) = (toleration.at("key"), toleration.at("operator"), toleration.at("value"), toleration.at("effect"));
    if !key.is_zero() {
        errors.qualified_name(&key);
    }
    match operator.text() {
        "Exists" if !value.is_zero() => errors.add(value.invalid("must be empty for operator `Exists`")),
        "Exists" => {}
        "Equal" => errors.words(&value, names::label_value),
        _ => errors.required_one_of(&operator, &["Equal", "Exists"]),
    }
    if !effect.is_zero() {
        errors.one_of(&effect, &EFFECTS);
    }
}

pub(super) fn validate_selectors(selectors: &Field<'_>, errors: &mut Errors) {
    if is_too_long(selectors, SELECTORS_MAX, errors) {
        return;
    }
    for selector in selectors.items() {
        let (cel, expression) = (selector.at("cel"), selector.at("cel").at("expression"));
        if !cel.is_set() {
            errors.add(cel.required(""));
        } else if expression.len() > EXPRESSION_BYTES_MAX {
            errors.add(expression.too_long(EXPRESSION_BYTES_MAX));
        }
    }
}

/// What is handed to a driver: an object that only it understands.
pub(super) fn validate_configuration(config: &Field<'_>, errors: &mut Errors) {
    let opaque = config.at("opaque");
    if !opaque.is_set() {
        return errors.add(opaque.required(""));
    }
    validate_driver_name_in_any_case(&opaque.at("driver"), errors);
    validate_object(&opaque.at("parameters"), PARAMETERS_BYTES_MAX, errors);
}

pub(super) fn validate_object(object: &Field<'_>, bytes_max: usize, errors: &mut Errors) {
    match object.value {
        Value::Null => errors.add(object.required("")),
        value if value.to_string().len() > bytes_max => errors.add(object.too_long(bytes_max)),
        Value::Object(_) => {}
        _ => errors.add(object.invalid_as("<value omitted>", "must be a valid JSON object")),
    }
}

/// A name in C style, with a domain in front or without.
pub(super) fn validate_name(name: &str, at: &Field<'_>, errors: &mut Errors) {
    let Some((domain, id)) = name.split_once('/') else { return validate_identifier(name, at, errors) };
    if id.contains('/') {
        return;
    }
    let shown = Value::from(domain);
    if domain.is_empty() {
        errors.add(at.invalid_as("", "the domain must not be empty"));
    } else {
        validate_driver(&Field::new(&shown, at.path.clone()), errors);
    }
    if id.is_empty() {
        errors.add(at.invalid_as("", "the name must not be empty"));
    } else {
        validate_identifier(id, at, errors);
    }
}

fn validate_identifier(id: &str, at: &Field<'_>, errors: &mut Errors) {
    if id.len() > IDENTIFIER_BYTES_MAX {
        errors.add(at.too_long(IDENTIFIER_BYTES_MAX));
    }
    errors.extend(names::c_identifier(id).into_iter().map(|m| at.invalid_as(id, m)));
}

/// As [`validate_name`] with a domain in any case. This rule is a generated one upstream, with words of its own.
pub(super) fn validate_full_name(name: &Field<'_>, errors: &mut Errors) {
    let Some((domain, id)) = name.text().split_once('/') else {
        validate_identifier(name.text(), name, errors);
        return errors.add(name.invalid("a fully qualified name must be a domain and a name separated by a slash"));
    };
    if id.contains('/') {
        return;
    }
    if domain.is_empty() {
        errors.add(name.invalid_as("", "prefix must not be empty"));
    } else {
        errors.extend(names::dns_subdomain(domain).into_iter().map(|m| name.invalid_as(domain, format!("prefix: {m}"))));
    }
    if id.is_empty() {
        errors.add(name.invalid_as("", "name must not be empty"));
    } else {
        validate_identifier(id, name, errors);
    }
}

/// The pool of an allocated device: the rule of pools, generated.
pub(super) fn validate_pool_of_result(name: &Field<'_>, errors: &mut Errors) {
    if !errors.require(name) {
        return;
    }
    if name.len() > POOL_BYTES_MAX {
        errors.add(name.too_long(POOL_BYTES_MAX));
    }
    for (index, part) in name.text().split('/').enumerate() {
        if part.is_empty() {
            errors.add(name.invalid(format!("segment {index}: must not be empty")));
            continue;
        }
        errors.extend(names::dns_subdomain(part).into_iter().map(|m| name.invalid_as(part, format!("segment {index}: {m}"))));
    }
}

pub(super) fn validate_binding(object: &Field<'_>, errors: &mut Errors) {
    const CONDITIONS_MAX: usize = 4;
    let (conditions, failures) = (object.at("bindingConditions"), object.at("bindingFailureConditions"));
    for list in [&conditions, &failures] {
        validate_set(list, CONDITIONS_MAX, "", errors, |name, errors| errors.qualified_name(name));
    }
    for failure in failures.items().filter(|failure| conditions.items().any(|c| c.text() == failure.text())) {
        errors.add(failure.invalid("bindingFailureConditions must not overlap with bindingConditions"));
    }
    if conditions.is_zero() && !failures.is_zero() {
        errors.add(conditions.invalid("bindingConditions are required to use bindingFailureConditions"));
    }
    if failures.is_zero() && !conditions.is_zero() {
        errors.add(failures.invalid("bindingFailureConditions are required to use bindingConditions"));
    }
}
