//! The pods of a job.

use super::facts::{FINALIZER, Facts, INDEX, INDEX_FAILURES, INDEX_IGNORED, index_failures, index_ignored, limits_indexes};
use super::policy::{self, Failure};
use crate::kit::template;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// The longest name from which names of pods are generated.
const GENERATED_PREFIX_MAX: usize = 58;

pub(super) fn plain(job: &Value) -> Value {
    let mut pod = template::pod(job, &super::JOB, &job["spec"]["template"]);
    let mut finalizers: Vec<String> = pod.finalizers().into_iter().map(str::to_string).collect();
    if !finalizers.iter().any(|f| f == FINALIZER) {
        finalizers.push(FINALIZER.into());
    }
    pod["metadata"]["finalizers"] = json!(finalizers);
    pod
}

/// The pod of one index; it knows of the failures of the pod that it replaces.
pub(super) fn indexed(facts: &Facts, index: i64) -> Value {
    let job = facts.job;
    let mut pod = plain(job);
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            add_index_variable(container);
        }
    }
    let number = index.to_string();
    pod.set_annotation(INDEX, &number);
    pod.set_label(INDEX, &number);
    pod["spec"]["hostname"] = json!(format!("{}-{index}", job.name()));
    let suffix = format!("-{index}-");
    let room = GENERATED_PREFIX_MAX.saturating_sub(suffix.len());
    pod["metadata"]["generateName"] = json!(format!("{}{suffix}", job.name().get(..room).unwrap_or(job.name())));
    if limits_indexes(job) {
        let (failures, ignored) = match facts.to_replace.get(&index) {
            Some(failed) if policy::failure(job, failed) == Failure::Ignore => (index_failures(failed), index_ignored(failed) + 1),
            Some(failed) => (index_failures(failed) + 1, index_ignored(failed)),
            None => (0, 0),
        };
        pod.set_annotation(INDEX_FAILURES, &failures.to_string());
        if ignored > 0 {
            pod.set_annotation(INDEX_IGNORED, &ignored.to_string());
        }
    }
    pod
}

fn add_index_variable(container: &mut Value) {
    let variable = json!({"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": format!("metadata.labels['{INDEX}']")}}});
    if container.array_at("/env").iter().any(|v| v["name"] == INDEX_VARIABLE) {
        return;
    }
    match container.get_mut("env").and_then(Value::as_array_mut) {
        Some(env) => env.push(variable),
        None => container["env"] = json!([variable]),
    }
}
