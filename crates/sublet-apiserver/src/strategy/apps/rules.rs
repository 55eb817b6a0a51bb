//! Rules that several workloads share.

use super::super::field::{Errors, Field};
use super::super::pod::validate::validate_template;
use serde_json::{Map, Value};
use sublet_machinery::names;
use sublet_machinery::selector::Selector;

/// The selector is there, valid and not empty.
pub(crate) fn validate_selector(spec: &Field<'_>, kind: &str, errors: &mut Errors) {
    let selector = spec.at("selector");
    if !selector.is_set() {
        return errors.add(selector.required(""));
    }
    errors.label_selector(&selector);
    if is_empty(&selector) {
        errors.add(selector.invalid(format!("empty selector is invalid for {kind}")));
    }
}

pub(crate) fn is_empty(selector: &Field<'_>) -> bool {
    selector.at("matchLabels").is_zero() && selector.at("matchExpressions").is_zero()
}

/// A template whose pods the selector finds, and which run until they are told to stop.
/// `kind` is the one named in the message about deadlines.
pub(crate) fn validate_lasting_template(template: &Field<'_>, selector: &Selector, kind: &str, errors: &mut Errors) {
    validate_match(template, selector, errors);
    validate_template(template, errors);
    validate_lasting(template, kind, errors);
}

/// The pods of the template are among those selected; an empty selector says nothing.
pub(crate) fn validate_match(template: &Field<'_>, selector: &Selector, errors: &mut Errors) {
    let labels = template.at("metadata").at("labels");
    let nothing = Map::new();
    if !selector.is_empty() && !selector.matches(labels.value.as_object().unwrap_or(&nothing)) {
        errors.add(labels.invalid("`selector` does not match template `labels`"));
    }
}

pub(crate) fn validate_lasting(template: &Field<'_>, kind: &str, errors: &mut Errors) {
    let spec = template.at("spec");
    if spec.at("restartPolicy").text() != "Always" {
        errors.add(spec.at("restartPolicy").unsupported(&["Always"]));
    }
    if spec.at("activeDeadlineSeconds").is_set() {
        errors.add(spec.at("activeDeadlineSeconds").forbidden(format!("activeDeadlineSeconds in {kind} is not Supported")));
    }
}

/// Numbers that are not negative, where set.
pub(crate) fn validate_counts(object: &Field<'_>, keys: &[&str], errors: &mut Errors) {
    keys.iter().for_each(|key| errors.non_negative(&object.at(key)));
}

/// Parts are not larger than the whole.
pub(crate) fn validate_parts(status: &Field<'_>, parts: &[&str], whole: &str, detail: &str, errors: &mut Errors) {
    for part in parts {
        let field = status.at(part);
        if field.int() > status.at(whole).int() {
            errors.add(field.invalid_as(field.int(), detail));
        }
    }
}

/// Collisions are counted, never forgotten.
pub(crate) fn validate_collisions(status: &Field<'_>, old: &Value, errors: &mut Errors) {
    let count = status.at("collisionCount");
    let before = old["collisionCount"].as_i64();
    let forgotten = if count.is_set() { before.is_some_and(|b| count.int() < b) } else { before.is_some() };
    if forgotten {
        errors.add(count.invalid_as(count.int(), "cannot be decremented"));
    }
}

/// A count or a percentage: what it comes to is checked by the caller.
pub(crate) fn validate_int_or_percent(field: &Field<'_>, errors: &mut Errors) {
    match field.value {
        Value::String(text) => errors.extend(names::percent(text).into_iter().map(|m| field.invalid(m))),
        _ => errors.non_negative(field),
    }
}

/// The number in front of the percent sign.
pub(crate) fn percent(field: &Field<'_>) -> Option<i64> {
    let text = field.value.as_str().filter(|text| names::percent(text).is_empty())?;
    text.trim_end_matches('%').parse().ok()
}

pub(crate) fn int_or_percent(field: &Field<'_>) -> i64 {
    percent(field).unwrap_or_else(|| field.value.as_str().map_or(field.int(), |text| text.parse().unwrap_or(0)))
}

pub(crate) fn validate_at_most_whole(field: &Field<'_>, errors: &mut Errors) {
    if percent(field).is_some_and(|p| p > 100) {
        errors.add(field.invalid("must not be greater than 100%"));
    }
}

/// The selector as code, or `None` when it is not valid.
pub(crate) fn read_selector(selector: &Field<'_>) -> Option<Selector> {
    Selector::from_object(selector.value).ok()
}
