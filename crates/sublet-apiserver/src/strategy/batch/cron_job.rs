//! Cron jobs.

use super::super::edit::{ensure, fill, fill_zero};
use super::super::status::{empty_status, keep_spec};
use super::super::{Strategy, keep_status};
use super::job::default_job_spec;
use serde_json::{Value, json};

pub(crate) const CRON_JOB: Strategy = Strategy {
    default,
    prepare_create: empty_status,
    prepare_update: keep_status,
    prepare_status_update: keep_spec,
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
