//! Deployments.

use super::super::edit::{ensure, fill, fill_zero};
use super::super::field::{Errors, Field};
use super::super::pod::defaults::default_template;
use super::super::pod::warnings;
use super::super::status::{empty_status, keep_spec};
use super::super::{Strategy, keep_status};
use super::rules;
use serde_json::{Value, json};
use sublet_machinery::FieldError;

pub(crate) const DEPLOYMENT: Strategy = Strategy {
    default,
    prepare_create: empty_status,
    prepare_update: keep_status,
    prepare_status_update,
    validate,
    validate_update: |new, old| {
        Errors::of(|errors| errors.immutable(&Field::root(new).at("spec").at("selector"), &old["spec"]["selector"]))
    },
    validate_status_update,
    warnings,
    warnings_update: Some(|new, old| warnings::of_changed(new, old, &["spec", "template"])),
    generation: true,
    // Annotations are copied to replica sets, so their changes are work for the controller too.
    changes_generation: |new, old| super::super::spec_changed(new, old) || new["metadata"]["annotations"] != old["metadata"]["annotations"],
    ..Strategy::PLAIN
};

fn default(deployment: &mut Value) {
    let spec = ensure(deployment, "spec");
    fill(spec, "replicas", 1);
    let strategy = ensure(spec, "strategy");
    fill_zero(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        let rolling = ensure(strategy, "rollingUpdate");
        fill(rolling, "maxUnavailable", "25%");
        fill(rolling, "maxSurge", "25%");
    }
    fill(spec, "revisionHistoryLimit", 10);
    fill(spec, "progressDeadlineSeconds", 600);
    fill(spec, "selector", Value::Null);
    default_template(ensure(spec, "template"));
    fill(deployment, "status", json!({}));
}

fn prepare_status_update(new: &mut Value, old: &Value) {
    keep_spec(new, old);
    super::super::edit::copy_or_remove(&mut new["metadata"], &old["metadata"], "labels");
}

fn validate(deployment: &Value) -> Vec<FieldError> {
    let spec = Field::root(deployment).at("spec");
    Errors::of(|errors| {
        errors.non_negative(&spec.at("replicas"));
        rules::validate_selector(&spec, "deployment", errors);
        match rules::read_selector(&spec.at("selector")) {
            Some(selector) => rules::validate_lasting_template(&spec.at("template"), &selector, "ReplicaSet", errors),
            None => errors.add(spec.at("selector").invalid("invalid label selector")),
        }
        validate_strategy(&spec.at("strategy"), errors);
        rules::validate_counts(&spec, &["minReadySeconds", "revisionHistoryLimit"], errors);
        let deadline = spec.at("progressDeadlineSeconds");
        if deadline.is_set() {
            errors.non_negative(&deadline);
            if deadline.int() <= spec.at("minReadySeconds").int() {
                errors.add(deadline.invalid("must be greater than minReadySeconds"));
            }
        }
    })
}

fn validate_strategy(strategy: &Field<'_>, errors: &mut Errors) {
    let rolling = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "Recreate" if rolling.is_set() => {
            errors.add(rolling.forbidden("may not be specified when strategy `type` is 'Recreate'"));
        }
        "Recreate" => {}
        "RollingUpdate" => validate_rolling_update(&rolling, errors),
        _ => errors.add(strategy.unsupported(&["Recreate", "RollingUpdate"])),
    }
}

fn validate_rolling_update(rolling: &Field<'_>, errors: &mut Errors) {
    let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
    rules::validate_int_or_percent(&unavailable, errors);
    rules::validate_int_or_percent(&surge, errors);
    if rules::int_or_percent(&unavailable) == 0 && rules::int_or_percent(&surge) == 0 {
        errors.add(unavailable.invalid("may not be 0 when `maxSurge` is 0"));
    }
    rules::validate_at_most_whole(&unavailable, errors);
}

fn validate_status_update(new: &Value, old: &Value) -> Vec<FieldError> {
    const WHOLE: &str = "cannot be greater than status.replicas";
    let status = Field::root(new).at("status");
    Errors::of(|errors| {
        let counts = [
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ];
        rules::validate_counts(&status, &counts, errors);
        rules::validate_parts(&status, &["updatedReplicas", "readyReplicas", "availableReplicas"], "replicas", WHOLE, errors);
        rules::validate_parts(&status, &["availableReplicas"], "readyReplicas", "cannot be greater than readyReplicas", errors);
        rules::validate_collisions(&status, &old["status"], errors);
    })
}

fn warnings(deployment: &Value) -> Vec<String> {
    let mut all = warnings::name_warning(deployment, "Pod names and hostnames");
    all.extend(warnings::of_template(&Field::root(deployment).at("spec").at("template")));
    all
}
