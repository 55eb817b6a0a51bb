//! Replica sets and replication controllers.

use super::super::edit::{ensure, fill, fill_zero};
use super::super::field::{Errors, Field};
use super::super::pod::defaults::default_template;
use super::super::pod::warnings;
use super::super::status::{keep_spec, zero_counters};
use super::super::{Strategy, keep_status};
use super::rules;
use serde_json::{Value, json};
use sublet_machinery::FieldError;
use sublet_machinery::selector::Selector;

pub(crate) const REPLICA_SET: Strategy = Strategy {
    default,
    prepare_create: |object| object["status"] = json!({"replicas": 0}),
    prepare_update: keep_status,
    prepare_status_update: keep_spec,
    validate,
    validate_update: |new, old| {
        Errors::of(|errors| errors.immutable(&Field::root(new).at("spec").at("selector"), &old["spec"]["selector"]))
    },
    validate_status_update,
    warnings,
    warnings_update: Some(|new, old| warnings::of_changed(new, old, &["spec", "template"])),
    fields,
    generation: true,
    ..Strategy::PLAIN
};

pub(crate) const REPLICATION_CONTROLLER: Strategy =
    Strategy { default: default_controller, validate: validate_controller, validate_update: |_, _| Vec::new(), ..REPLICA_SET };

fn default(set: &mut Value) {
    let spec = ensure(set, "spec");
    fill(spec, "replicas", 1);
    default_template(ensure(spec, "template"));
    zero_counters(set, &["replicas"]);
}

/// Selector and labels of an old controller follow the labels of its pods.
fn default_controller(controller: &mut Value) {
    let spec = ensure(controller, "spec");
    fill(spec, "replicas", 1);
    if spec["template"].is_object() {
        default_template(&mut spec["template"]);
    }
    let labels = spec["template"]["metadata"]["labels"].clone();
    if labels.as_object().is_some_and(|l| !l.is_empty()) {
        fill_zero(spec, "selector", labels.clone());
        fill_zero(ensure(controller, "metadata"), "labels", labels);
    }
    zero_counters(controller, &["replicas"]);
}

fn fields(set: &Value) -> Vec<(&'static str, String)> {
    vec![("status.replicas", set["status"]["replicas"].as_i64().unwrap_or_default().to_string())]
}

fn validate(set: &Value) -> Vec<FieldError> {
    let spec = Field::root(set).at("spec");
    Errors::of(|errors| {
        rules::validate_counts(&spec, &["replicas", "minReadySeconds"], errors);
        // Upstream says "deployment" here as well.
        rules::validate_selector(&spec, "deployment", errors);
        match rules::read_selector(&spec.at("selector")) {
            Some(selector) => rules::validate_lasting_template(&spec.at("template"), &selector, "ReplicaSet", errors),
            None => errors.add(spec.at("selector").invalid("invalid label selector")),
        }
    })
}

fn validate_controller(controller: &Value) -> Vec<FieldError> {
    let spec = Field::root(controller).at("spec");
    Errors::of(|errors| {
        let (selector, template) = (spec.at("selector"), spec.at("template"));
        if selector.is_zero() {
            errors.add(selector.required(""));
        }
        if template.is_set() {
            let selected = selector.value.as_object().map(Selector::from_set).unwrap_or_else(Selector::everything);
            rules::validate_lasting_template(&template, &selected, "ReplicationController", errors);
        } else {
            errors.add(template.required(""));
        }
        rules::validate_counts(&spec, &["minReadySeconds", "replicas"], errors);
    })
}

fn validate_status_update(new: &Value, _: &Value) -> Vec<FieldError> {
    const WHOLE: &str = "cannot be greater than status.replicas";
    let status = Field::root(new).at("status");
    Errors::of(|errors| {
        let counts =
            ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration", "terminatingReplicas"];
        rules::validate_counts(&status, &counts, errors);
        rules::validate_parts(&status, &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"], "replicas", WHOLE, errors);
        rules::validate_parts(&status, &["availableReplicas"], "readyReplicas", "cannot be greater than readyReplicas", errors);
    })
}

fn warnings(set: &Value) -> Vec<String> {
    let mut all = warnings::name_warning(set, "Pod names and hostnames");
    all.extend(warnings::of_template(&Field::root(set).at("spec").at("template")));
    all
}
