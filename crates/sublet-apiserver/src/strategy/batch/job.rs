//! Jobs: defaults, and the selector that ties pods to them.

use super::super::edit::{ensure, fill, fill_zero, is_zero, items};
use super::super::pod::defaults::default_template;
use super::super::status::{empty_status, keep_spec};
use super::super::{Strategy, keep_status};
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

pub(crate) const JOB: Strategy = Strategy {
    default,
    prepare_create,
    prepare_update: keep_status,
    prepare_status_update: keep_spec,
    fields,
    generation: true,
    ..Strategy::PLAIN
};

const JOB_NAME: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const CONTROLLER_UID: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

fn default(job: &mut Value) {
    let spec = ensure(job, "spec");
    default_job_spec(spec);
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        fill(spec, "completions", 1);
    }
    fill(spec, "parallelism", 1);
    let per_index = !spec["backoffLimitPerIndex"].is_null();
    fill(spec, "backoffLimit", if per_index { i32::MAX } else { 6 });
    fill(spec, "completionMode", "NonIndexed");
    fill(spec, "suspend", false);
    let replacement = if spec["podFailurePolicy"].is_null() { "TerminatingOrFailed" } else { "Failed" };
    fill(spec, "podReplacementPolicy", replacement);
    fill(spec, "manualSelector", false);
    default_labels(job);
    fill(job, "status", json!({}));
}

/// A job without labels has those of its pods.
fn default_labels(job: &mut Value) {
    let labels = job["spec"]["template"]["metadata"]["labels"].clone();
    if !is_zero(&labels) {
        fill_zero(ensure(job, "metadata"), "labels", labels);
    }
}

/// What holds for the template of a cron job too.
pub(super) fn default_job_spec(spec: &mut Value) {
    default_template(ensure(spec, "template"));
    if let Some(policy) = super::super::edit::child(spec, "podFailurePolicy") {
        for rule in items(policy, "rules") {
            for pattern in items(rule, "onPodConditions") {
                fill_zero(pattern, "status", "True");
            }
        }
    }
}

fn prepare_create(job: &mut Value) {
    empty_status(job);
    if job["spec"]["manualSelector"] != true {
        let shared = job["metadata"]["labels"] == job["spec"]["template"]["metadata"]["labels"];
        generate_selector(job);
        // Labels that were defaulted from the pods are one map with theirs upstream, and grow with it.
        if shared {
            job["metadata"]["labels"] = job["spec"]["template"]["metadata"]["labels"].clone();
        }
    }
}

/// Labels the pods with name and UID of the job and selects them by the UID, so that no two jobs share pods.
fn generate_selector(job: &mut Value) {
    let (name, uid) = (job.name().to_string(), job.uid().to_string());
    let spec = ensure(job, "spec");
    let labels = ensure(ensure(ensure(spec, "template"), "metadata"), "labels");
    for (keys, value) in [(JOB_NAME, &name), (CONTROLLER_UID, &uid)] {
        for key in keys {
            fill(labels, key, value.as_str());
        }
    }
    fill(ensure(ensure(spec, "selector"), "matchLabels"), CONTROLLER_UID[1], uid);
}

fn fields(job: &Value) -> Vec<(&'static str, String)> {
    vec![("status.successful", job["status"]["succeeded"].as_i64().unwrap_or_default().to_string())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_selected_by_the_uid_of_the_job() {
        let mut job =
            json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {"metadata": {"labels": {"a": "b", "job-name": "x"}}}}});
        prepare_create(&mut job);
        assert_eq!(job["spec"]["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}));
        assert_eq!(
            job["spec"]["template"]["metadata"]["labels"],
            json!({"a": "b", "job-name": "x", "batch.kubernetes.io/job-name": "j", "controller-uid": "u", "batch.kubernetes.io/controller-uid": "u"})
        );
    }

    #[test]
    fn a_job_that_states_completions_alone_runs_one_pod_at_a_time() {
        let mut job = json!({"spec": {"completions": 3, "backoffLimitPerIndex": 1}});
        default(&mut job);
        assert_eq!((&job["spec"]["parallelism"], &job["spec"]["backoffLimit"]), (&json!(1), &json!(i32::MAX)));
    }
}
