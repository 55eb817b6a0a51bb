//! Paths inside volumes.

use super::super::super::field::{Errors, Field};

pub(super) fn no_backsteps(field: &Field<'_>, errors: &mut Errors) {
    if field.text().split('/').any(|part| part == "..") {
        errors.add(field.invalid_as(field.text(), "must not contain '..'"));
    }
}

/// A relative path that stays below where it starts.
pub(super) fn descending(field: &Field<'_>, errors: &mut Errors) {
    if field.text().starts_with('/') {
        errors.add(field.invalid("must be a relative path"));
    }
    no_backsteps(field, errors);
}

/// A descending path outside the names that the kubelet keeps for itself.
pub(super) fn not_reserved(field: &Field<'_>, errors: &mut Errors) {
    descending(field, errors);
    if field.text().starts_with("..") && !field.text().starts_with("../") {
        errors.add(field.invalid("must not start with '..'"));
    }
}

pub(super) fn file_mode(field: &Field<'_>, errors: &mut Errors) {
    if field.is_set() && !(0..=0o777).contains(&field.int()) {
        errors.add(field.invalid("must be a number between 0 and 0777 (octal), both inclusive"));
    }
}
