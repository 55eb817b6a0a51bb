//! Jobs: defaults, and the selector that ties pods to them.

use super::super::apps::rules::read_selector;
use super::super::edit::{ensure, fill, fill_zero, is_zero, items};
use super::super::field::{Errors, Field, IMMUTABLE};
use super::super::pod::defaults::default_template;
use super::super::pod::warnings;
use super::super::status::{empty_status, keep_spec};
use super::super::{Strategy, keep_status};
use super::rules::{is_indexed, validate_spec};
use serde_json::{Value, json};
use sublet_machinery::{FieldError, ObjectExt, names};

pub(crate) const JOB: Strategy = Strategy {
    default,
    prepare_create,
    prepare_given: Some(share_labels),
    prepare_update: keep_status,
    prepare_status_update: keep_spec,
    validate,
    validate_create,
    validate_update,
    validate_status_update: super::status::validate_update,
    warnings: |job| {
        let mut all = warnings::name_warning(job, "Pod names and hostnames");
        all.extend(spec_warnings(&Field::root(job).at("spec")));
        all
    },
    warnings_update: Some(|new, old| {
        let changed = new["metadata"]["generation"] != old["metadata"]["generation"];
        if changed { spec_warnings(&Field::root(new).at("spec")) } else { Vec::new() }
    }),
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
        generate_selector(job);
    }
}

/// Labels that were defaulted from the pods are one map with theirs upstream, and grow with it.
fn share_labels(job: &mut Value, given: &Value) {
    if is_zero(&given["metadata"]["labels"]) && !is_zero(&job["metadata"]["labels"]) {
        job["metadata"]["labels"] = job["spec"]["template"]["metadata"]["labels"].clone();
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

fn validate(job: &Value) -> Vec<FieldError> {
    let root = Field::root(job);
    let spec = root.at("spec");
    Errors::of(|errors| {
        validate_spec(&spec, errors);
        let selector = spec.at("selector");
        if selector.is_set() {
            errors.label_selector(&selector);
        } else {
            errors.add(selector.required(""));
        }
        let labels = spec.at("template").at("metadata").at("labels");
        let nothing = serde_json::Map::new();
        if read_selector(&selector).is_some_and(|s| !s.matches(labels.value.as_object().unwrap_or(&nothing))) {
            errors.add(labels.invalid("`selector` does not match template `labels`"));
        }
        let completions = spec.at("completions").int();
        if is_indexed(&spec) && completions > 0 {
            let host = format!("{}-{}", job.name(), completions - 1);
            if !names::dns_label(&host).is_empty() {
                let detail = format!("will not able to create pod with invalid DNS label: {host}");
                errors.add(root.at("metadata").at("name").invalid(detail));
            }
        }
    })
}

/// The generated selector and labels are those of this job.
fn validate_create(job: &Value) -> Vec<FieldError> {
    let root = Field::root(job);
    let spec = root.at("spec");
    Errors::of(|errors| {
        if spec.at("manualSelector").flag() || !spec.at("selector").is_set() {
            return;
        }
        let labels = spec.at("template").at("metadata").at("labels");
        let mut expected = serde_json::Map::new();
        for (keys, value) in [(CONTROLLER_UID, job.uid()), (JOB_NAME, job.name())] {
            for key in keys {
                expected.insert(key.to_string(), json!(value));
                let label = Field::new(&labels.value[key], labels.path.key(key));
                if !label.is_set() {
                    errors.add(label.required(&format!("must be '{value}'")));
                } else if label.text() != value {
                    errors.add(label.invalid_as(labels.value.clone(), format!("must be '{value}'")));
                }
            }
        }
        if read_selector(&spec.at("selector")).is_some_and(|s| !s.matches(&expected)) {
            errors.add(spec.at("selector").invalid("`selector` not auto-generated"));
        }
    })
}

fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let spec = Field::root(new).at("spec");
    let before = &old["spec"];
    Errors::of(|errors| {
        let completions = spec.at("completions");
        if !is_indexed(&spec) {
            errors.immutable(&completions, &before["completions"]);
        } else if *completions.value != before["completions"] && completions.is_set() && completions.int() != spec.at("parallelism").int() {
            errors.add(completions.invalid("can only be modified in tandem with spec.parallelism"));
        }
        errors.immutable(&spec.at("selector"), &before["selector"]);
        validate_template_update(&spec, old, errors);
        for key in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
            let field = spec.at(key);
            // These are pointers: zero is something.
            if *field.value != before[key] {
                errors.add(field.invalid(IMMUTABLE));
            }
        }
    })
}

/// The template is fixed, except that a suspended job without pods may be scheduled and sized anew.
fn validate_template_update(spec: &Field<'_>, old: &Value, errors: &mut Errors) {
    let (template, mut before) = (spec.at("template"), old["spec"]["template"].clone());
    let suspended = old["spec"]["suspend"] == true;
    let conditions = old["status"]["conditions"].as_array().into_iter().flatten();
    let parked = conditions.into_iter().any(|c| c["type"] == "Suspended" && c["status"] == "True");
    let idle = old["status"]["startTime"].is_null() || parked;
    let open = suspended && idle && old["status"]["active"].as_i64().unwrap_or_default() == 0;
    if !open {
        return errors.immutable(&template, &before);
    }
    super::super::edit::copy_or_remove(&mut before, template.value, "metadata");
    let (new_spec, old_spec) = (template.at("spec").value, ensure(&mut before, "spec"));
    for key in ["nodeSelector", "tolerations", "schedulingGates"] {
        super::super::edit::copy_or_remove(old_spec, new_spec, key);
    }
    let mut affinity = old_spec["affinity"].clone();
    if !affinity.is_object() {
        affinity = json!({});
    }
    super::super::edit::copy_or_remove(&mut affinity, &new_spec["affinity"], "nodeAffinity");
    if is_zero(&affinity) && new_spec["affinity"].is_null() {
        super::super::edit::remove(old_spec, "affinity");
    } else {
        old_spec["affinity"] = affinity;
    }
    for list in ["containers", "initContainers"] {
        let new_list = new_spec[list].as_array().cloned().unwrap_or_default();
        if items(old_spec, list).len() == new_list.len() {
            for (container, wanted) in items(old_spec, list).zip(&new_list).filter(|(c, w)| c["name"] == w["name"]) {
                super::super::edit::copy_or_remove(container, wanted, "resources");
            }
        }
    }
    let pods = Field::new(template.at("spec").value, spec.path.child("template.spec"));
    errors.immutable(&pods, &before["spec"]);
}

/// Also for the template of a cron job.
pub(super) fn spec_warnings(spec: &Field<'_>) -> Vec<String> {
    let mut all = Vec::new();
    if is_indexed(spec) && spec.at("completions").int() > 100_000 && spec.at("parallelism").int() > 10_000 {
        all.push(format!(
            "{}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail",
            spec.path
        ));
    }
    all.extend(warnings::of_template(&spec.at("template")));
    all
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
