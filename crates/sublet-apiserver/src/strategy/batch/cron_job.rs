//! Cron jobs.

use super::super::edit::{ensure, fill, fill_zero};
use super::super::field::{Errors, Field};
use super::super::pod::warnings;
use super::super::status::{empty_status, keep_spec};
use super::super::{Strategy, keep_status};
use super::job::{default_job_spec, spec_warnings};
use super::rules::validate_spec;
use super::schedule::{validate_schedule, validate_time_zone};
use serde_json::{Value, json};
use sublet_machinery::{FieldError, ObjectExt};

pub(crate) const CRON_JOB: Strategy = Strategy {
    default,
    prepare_create: empty_status,
    prepare_update: keep_status,
    prepare_status_update: keep_spec,
    validate,
    validate_create,
    validate_update,
    warnings,
    warnings_update: Some(warnings_of_update),
    generation: true,
    ..Strategy::PLAIN
};

fn default(cron: &mut Value) {
    let spec = ensure(cron, "spec");
    fill_zero(spec, "concurrencyPolicy", "Allow");
    fill(spec, "suspend", false);
    fill(spec, "successfulJobsHistoryLimit", 3);
    fill(spec, "failedJobsHistoryLimit", 1);
    let template = ensure(spec, "jobTemplate");
    fill(template, "metadata", json!({}));
    default_job_spec(ensure(template, "spec"));
    fill(cron, "status", json!({}));
}

/// Eleven bytes of a job's name are the server's.
const NAME_BYTES_MAX: usize = 52;

fn validate(cron: &Value) -> Vec<FieldError> {
    let spec = Field::root(cron).at("spec");
    Errors::of(|errors| {
        if errors.require(&spec.at("schedule")) {
            validate_schedule(&spec.at("schedule"), errors);
        }
        errors.non_negative(&spec.at("startingDeadlineSeconds"));
        errors.required_one_of(&spec.at("concurrencyPolicy"), &["Allow", "Forbid", "Replace"]);
        let job = spec.at("jobTemplate").at("spec");
        validate_spec(&job, errors);
        if job.at("selector").is_set() {
            errors.add(job.at("selector").invalid("`selector` will be auto-generated"));
        }
        if job.at("manualSelector").flag() {
            errors.add(job.at("manualSelector").unsupported(&["nil", "false"]));
        }
        for key in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
            errors.non_negative(&spec.at(key));
        }
    })
}

fn validate_create(cron: &Value) -> Vec<FieldError> {
    let root = Field::root(cron);
    let spec = root.at("spec");
    Errors::of(|errors| {
        if spec.at("schedule").text().contains("TZ") {
            errors.add(spec.at("schedule").invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead"));
        }
        validate_time_zone(&spec.at("timeZone"), errors);
        if cron.name().len() > NAME_BYTES_MAX {
            errors.add(root.at("metadata").at("name").invalid(format!("must be no more than {NAME_BYTES_MAX} characters")));
        }
    })
}

/// Schedules with a zone inside stay as long as they had one.
fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let spec = Field::root(new).at("spec");
    let schedule = spec.at("schedule");
    Errors::of(|errors| {
        let before = old["spec"]["schedule"].as_str().unwrap_or_default().contains("TZ");
        match (schedule.text().contains("TZ"), before) {
            (true, true) if spec.at("timeZone").is_set() => {
                errors.add(schedule.invalid("cannot use both timeZone field and TZ or CRON_TZ in schedule"));
            }
            (true, false) => errors.add(schedule.invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead")),
            _ => {}
        }
        if *spec.at("timeZone").value != old["spec"]["timeZone"] {
            validate_time_zone(&spec.at("timeZone"), errors);
        }
    })
}

fn warnings_of_update(new: &Value, old: &Value) -> Vec<String> {
    let spec = Field::root(new).at("spec");
    let mut all = Vec::new();
    if new["metadata"]["generation"] != old["metadata"]["generation"] {
        all.extend(spec_warnings(&spec.at("jobTemplate").at("spec")));
    }
    if spec.at("schedule").text().contains("TZ") {
        let more = "see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details";
        all.push(format!("cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, {more}"));
    }
    all
}

fn warnings(cron: &Value) -> Vec<String> {
    let mut all = warnings::name_warning(cron, "Pod names and hostnames");
    all.extend(spec_warnings(&Field::root(cron).at("spec").at("jobTemplate").at("spec")));
    all
}
