//! The rules of a job's spec, which the template of a cron job shares.

use super::super::apps::rules::validate_counts;
use super::super::field::{Errors, Field};
use super::super::pod::validate::validate_template;
use super::policies;
use sublet_machinery::names;

const INDEXED_PARALLELISM_MAX: i64 = 100_000;
const FAILED_INDEXES_MAX: i64 = 100_000;
const MANY_COMPLETIONS: i64 = 100_000;
const MANY_PARALLELISM_MAX: i64 = 10_000;
const MANY_FAILED_INDEXES_MAX: i64 = 10_000;
const MANAGED_BY_BYTES_MAX: usize = 63;

pub(super) fn validate_spec(spec: &Field<'_>, errors: &mut Errors) {
    let counts = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    validate_counts(spec, &counts, errors);
    if spec.at("maxFailedIndexes").is_set() && !spec.at("backoffLimitPerIndex").is_set() {
        errors.add(spec.at("backoffLimitPerIndex").required("when maxFailedIndexes is specified"));
    }
    let manager = spec.at("managedBy");
    if manager.is_set() {
        errors.extend(names::domain_prefixed_path(&manager.path, manager.text()));
        if manager.len() > MANAGED_BY_BYTES_MAX {
            errors.add(manager.too_long(MANAGED_BY_BYTES_MAX));
        }
    }
    validate_completion_mode(spec, errors);
    if spec.at("podFailurePolicy").is_set() {
        policies::validate_failure(spec, errors);
    }
    if spec.at("successPolicy").is_set() {
        if is_indexed(spec) {
            policies::validate_success(spec, errors);
        } else {
            errors.add(spec.at("successPolicy").invalid("requires indexed completion mode"));
        }
    }
    let replacement = spec.at("podReplacementPolicy");
    if spec.at("podFailurePolicy").is_set() {
        errors.one_of_if_set(&replacement, &["Failed"]);
    } else {
        errors.one_of_if_set(&replacement, &["Failed", "TerminatingOrFailed"]);
    }
    validate_template(&spec.at("template"), errors);
    validate_restart_policy(spec, errors);
}

pub(super) fn is_indexed(spec: &Field<'_>) -> bool {
    spec.at("completionMode").text() == "Indexed"
}

fn validate_completion_mode(spec: &Field<'_>, errors: &mut Errors) {
    errors.one_of_if_set(&spec.at("completionMode"), &["NonIndexed", "Indexed"]);
    let (per_index, failed) = (spec.at("backoffLimitPerIndex"), spec.at("maxFailedIndexes"));
    if is_indexed(spec) {
        return validate_indexed(spec, errors);
    }
    if matches!(spec.at("completionMode").text(), "" | "NonIndexed") {
        for field in [per_index, failed] {
            if field.is_set() {
                errors.add(field.invalid("requires indexed completion mode"));
            }
        }
    }
}

fn validate_indexed(spec: &Field<'_>, errors: &mut Errors) {
    let (completions, parallelism, failed) = (spec.at("completions"), spec.at("parallelism"), spec.at("maxFailedIndexes"));
    let mut at_most = |field: &Field<'_>, most: i64, tail: &str| {
        if field.int() > most {
            errors.add(field.invalid(format!("must be less than or equal to {most}{tail}")));
        }
    };
    at_most(&parallelism, INDEXED_PARALLELISM_MAX, " when completion mode is Indexed");
    at_most(&failed, FAILED_INDEXES_MAX, "");
    if completions.int() > MANY_COMPLETIONS && spec.at("backoffLimitPerIndex").is_set() {
        let tail = format!(" when completions are above {MANY_COMPLETIONS} and used with backoff limit per index");
        at_most(&parallelism, MANY_PARALLELISM_MAX, &tail);
        at_most(&failed, MANY_FAILED_INDEXES_MAX, &tail);
        if !failed.is_set() {
            errors.add(failed.required(&format!("must be specified when completions is above {MANY_COMPLETIONS}")));
        }
    }
    if !completions.is_set() {
        errors.add(completions.required("when completion mode is Indexed"));
    } else if failed.is_set() && failed.int() > completions.int() {
        errors.add(failed.invalid("must be less than or equal to completions"));
    }
}

fn validate_restart_policy(spec: &Field<'_>, errors: &mut Errors) {
    let policy = spec.at("template").at("spec").at("restartPolicy");
    match policy.text() {
        "Always" | "" => errors.add(policy.required("valid values: \"OnFailure\", \"Never\"")),
        "OnFailure" if spec.at("podFailurePolicy").is_set() => {
            errors.add(policy.invalid("only \"Never\" is supported when podFailurePolicy is specified"));
        }
        "OnFailure" | "Never" => {}
        _ => errors.add(policy.unsupported(&["OnFailure", "Never"])),
    }
}
