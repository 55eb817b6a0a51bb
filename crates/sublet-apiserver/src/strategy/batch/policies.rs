//! Pod failure policies and success policies of jobs, and sets of indexes.

use super::super::field::{Errors, Field, Seen};
use sublet_machinery::{FieldError, FieldErrorKind};

const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const CONDITIONS_MAX: usize = 20;
const INDEXES_BYTES_MAX: usize = 64 * 1024;
const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];

/// As upstream's errors that show no value.
pub(super) fn invalid_unshown(field: &Field<'_>, detail: &str) -> FieldError {
    FieldError::new(FieldErrorKind::Invalid, &field.path, None, detail)
}

fn at_most(list: &Field<'_>, most: usize, errors: &mut Errors) {
    if list.len() > most {
        errors.add(FieldError::too_many(&list.path, list.len(), most));
    }
}

/// `valid values: ["a" "b"]`, as Go prints a list.
fn valid_values(values: &[&str]) -> String {
    let quoted: Vec<String> = values.iter().map(|v| format!("{v:?}")).collect();
    format!("valid values: [{}]", quoted.join(" "))
}

fn one_of(field: &Field<'_>, values: &[&str], errors: &mut Errors) {
    if field.is_zero() {
        errors.add(field.required(&valid_values(values)));
    } else {
        errors.one_of(field, values);
    }
}

pub(super) fn validate_failure(spec: &Field<'_>, errors: &mut Errors) {
    let rules = spec.at("podFailurePolicy").at("rules");
    at_most(&rules, RULES_MAX, errors);
    for rule in rules.items() {
        let action = rule.at("action");
        if action.text() == "FailIndex" && !spec.at("backoffLimitPerIndex").is_set() {
            errors.add(action.invalid("requires the backoffLimitPerIndex to be set"));
        } else {
            one_of(&action, &ACTIONS, errors);
        }
        let (codes, conditions) = (rule.at("onExitCodes"), rule.at("onPodConditions"));
        if codes.is_set() {
            validate_exit_codes(spec, &codes, errors);
        }
        at_most(&conditions, CONDITIONS_MAX, errors);
        for pattern in conditions.items() {
            errors.qualified_name(&pattern.at("type"));
            one_of(&pattern.at("status"), &["False", "True", "Unknown"], errors);
        }
        match (codes.is_set(), !conditions.is_zero()) {
            (true, true) => {
                errors.add(invalid_unshown(&rule, "specifying both OnExitCodes and OnPodConditions is not supported"));
            }
            (false, false) => {
                errors.add(invalid_unshown(&rule, "specifying one of OnExitCodes and OnPodConditions is required"));
            }
            _ => {}
        }
    }
}

fn validate_exit_codes(spec: &Field<'_>, codes: &Field<'_>, errors: &mut Errors) {
    let (operator, container, values) = (codes.at("operator"), codes.at("containerName"), codes.at("values"));
    one_of(&operator, &["In", "NotIn"], errors);
    let pod = spec.at("template").at("spec");
    let known = ["containers", "initContainers"].iter().any(|list| pod.at(list).list().iter().any(|c| c["name"] == *container.value));
    if container.is_set() && !known {
        errors.add(container.invalid("must be one of the container or initContainer names in the pod template"));
    }
    if values.is_zero() {
        errors.add(values.invalid("at least one value is required"));
    }
    at_most(&values, EXIT_CODES_MAX, errors);
    let mut seen = Seen::default();
    for value in values.items() {
        if operator.text() == "In" && value.int() == 0 {
            errors.add(value.invalid("must not be 0 for the In operator"));
        }
        if seen.again(value.int().to_string()) {
            errors.add(value.duplicate());
        }
    }
    if !values.list().is_sorted_by_key(|v| v.as_i64()) {
        errors.add(values.invalid("must be ordered"));
    }
}

pub(super) fn validate_success(spec: &Field<'_>, errors: &mut Errors) {
    let rules = spec.at("successPolicy").at("rules");
    let completions = spec.at("completions").int();
    if rules.is_zero() {
        errors.add(rules.required("at least one rules must be specified when the successPolicy is specified"));
    }
    at_most(&rules, RULES_MAX, errors);
    for rule in rules.items() {
        let (count, indexes) = (rule.at("succeededCount"), rule.at("succeededIndexes"));
        if !count.is_set() && !indexes.is_set() {
            errors.add(rule.required("at least one of succeededCount or succeededIndexes must be specified"));
        }
        let mut total = 0;
        if indexes.is_set() {
            if indexes.len() > INDEXES_BYTES_MAX {
                errors.add(indexes.too_long(INDEXES_BYTES_MAX));
            }
            match count_indexes(indexes.text(), completions) {
                Ok(found) => total = found,
                Err(why) => errors.add(indexes.invalid(format!("error parsing succeededIndexes: {why}"))),
            }
        }
        if !count.is_set() {
            continue;
        }
        errors.non_negative(&count);
        if count.int() > completions {
            let detail = format!("must be less than or equal to {completions} (the number of specified completions)");
            errors.add(count.invalid(detail));
        }
        if indexes.is_set() && count.int() > total {
            let of = "(the number of indexes in the specified succeededIndexes field)";
            errors.add(count.invalid(format!("must be less than or equal to {total} {of}")));
        }
    }
}

/// How many indexes a set like `1,3-5,7` holds.
pub(super) fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let mut total = 0;
    let mut last: Option<i64> = None;
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (first, end) = read_interval(part, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

fn read_interval(part: &str, completions: i64) -> Result<(i64, i64), String> {
    let read = |text: &str| -> Result<i64, String> {
        let index: i64 = text.parse().map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if index < completions { Ok(index) } else { Err(format!("too large index: {text:?}")) }
    };
    match part.split('-').collect::<Vec<_>>().as_slice() {
        [one] => read(one).map(|index| (index, index)),
        [first, end] => {
            let (first, end) = (read(first)?, read(end)?);
            if first < end { Ok((first, end)) } else { Err(format!("non-increasing order, previous: {first}, current: {end}")) }
        }
        _ => Err(format!(
            "the fragment {part:?} violates the requirement that an index interval can have at most two parts separated by '-'"
        )),
    }
}

/// An index in both sets.
pub(super) fn overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let read = |text: &str| -> Vec<(i64, i64)> { text.split(',').filter_map(|part| read_interval(part, completions).ok()).collect() };
    let (completed, failed) = (read(completed), read(failed));
    completed.iter().find_map(|(a, b)| failed.iter().find(|(x, y)| a <= y && x <= b).map(|(x, _)| *a.max(x)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_counted() {
        for (text, expected) in [
            ("", Ok(0)),
            ("1,3-5,7", Ok(5)),
            ("5,3", Err("non-increasing order, previous: 5, current: 3")),
            ("10", Err("too large index: \"10\"")),
            ("a", Err("cannot convert string to integer for index: \"a\"")),
            ("3-3", Err("non-increasing order, previous: 3, current: 3")),
        ] {
            assert_eq!(count_indexes(text, 10), expected.map_err(String::from), "{text}");
        }
        assert_eq!(overlap("1,3-5", "4-6", 10), Some(4));
        assert_eq!(overlap("1,3", "4-6", 10), None);
    }
}
