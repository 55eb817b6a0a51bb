//! Rules for autoscalers, on the shape of version 2.

use super::super::field::{Errors, Field, NEGATIVE};
use super::super::pod::validate::resources::container_name;
use serde_json::{Value, json};
use sublet_machinery::{FieldError, names};

const WINDOW_SECONDS_MAX: i64 = 3600;
const PERIOD_SECONDS_MAX: i64 = 1800;

/// The sources of a metric, in the order in which upstream looks for them.
const SOURCES: [(&str, &str); 5] = [
    ("object", "Object"),
    ("external", "External"),
    ("pods", "Pods"),
    ("resource", "Resource"),
    ("containerResource", "ContainerResource"),
];
const SOURCE_TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];

pub(super) fn validate(autoscaler: &Value) -> Vec<FieldError> {
    let spec = Field::root(autoscaler).at("spec");
    let of_version_1 = metrics_of_version_1(spec.value);
    let metrics = match &of_version_1 {
        Some(metrics) => Field::new(metrics, spec.path.child("metrics")),
        None => spec.at("metrics"),
    };
    let (least, most) = (spec.at("minReplicas"), spec.at("maxReplicas"));
    Errors::of(|errors| {
        if least.is_set() && least.int() < 0 {
            errors.add(least.invalid("must be greater than or equal to 0"));
        }
        if most.int() == 0 {
            errors.add(most.required(""));
        } else if most.int() < 0 {
            errors.add(most.invalid("must be greater than or equal to 1"));
        }
        if least.is_set() && most.int() < least.int() {
            errors.add(most.invalid_as(most.int(), "must be greater than or equal to `minReplicas`"));
        }
        // The only kind of the core group that can be scaled.
        let of_core = spec.at("scaleTargetRef").at("kind").text() == "ReplicationController";
        validate_reference(&spec.at("scaleTargetRef"), of_core, errors);
        for metric in metrics.items() {
            validate_metric(&metric, errors);
        }
        let from_outside = metrics.items().any(|m| matches!(m.at("type").text(), "Object" | "External"));
        if least.is_set() && least.int() == 0 && !from_outside {
            errors.add(metrics.forbidden("must specify at least one Object or External metric to support scaling to zero replicas"));
        }
        for direction in ["scaleUp", "scaleDown"] {
            let rules = spec.at("behavior").at(direction);
            if rules.is_set() {
                validate_rules(&rules, errors);
            }
        }
    })
}

fn metrics_of_version_1(spec: &Value) -> Option<Value> {
    let percentage = spec.get("targetCPUUtilizationPercentage")?;
    Some(json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percentage}}}]))
}

fn validate_reference(reference: &Field<'_>, any_group: bool, errors: &mut Errors) {
    for part in [reference.at("kind"), reference.at("name")] {
        if errors.require(&part) {
            errors.words(&part, names::path_segment);
        }
    }
    let version = reference.at("apiVersion");
    let text = version.text();
    if text.matches('/').count() > 1 {
        errors.add(version.invalid(format!("unexpected GroupVersion string: {text}")));
    } else if !any_group && text.split_once('/').is_none_or(|(group, _)| group.is_empty()) {
        errors.add(version.invalid_as(text, "apiVersion must specify API group"));
    }
}

fn validate_rules(rules: &Field<'_>, errors: &mut Errors) {
    let window = rules.at("stabilizationWindowSeconds");
    if window.int() < 0 {
        errors.add(window.invalid("must be greater than or equal to zero"));
    }
    if window.int() > WINDOW_SECONDS_MAX {
        errors.add(window.invalid(format!("must be less than or equal to {WINDOW_SECONDS_MAX}")));
    }
    errors.one_of_if_set(&rules.at("selectPolicy"), &["Disabled", "Max", "Min"]);
    let policies = rules.at("policies");
    if policies.is_zero() {
        errors.add(policies.required("must specify at least one Policy"));
    }
    for policy in policies.items() {
        errors.one_of(&policy.at("type"), &["Percent", "Pods"]);
        errors.positive(&policy.at("value"));
        errors.positive(&policy.at("periodSeconds"));
        if policy.at("periodSeconds").int() > PERIOD_SECONDS_MAX {
            errors.add(policy.at("periodSeconds").invalid(format!("must be less than or equal to {PERIOD_SECONDS_MAX}")));
        }
    }
    let tolerance = rules.at("tolerance");
    if tolerance.quantity().sign() < 0 {
        errors.add(tolerance.invalid_as(tolerance.quantity().to_string(), NEGATIVE));
    }
}

fn validate_metric(metric: &Field<'_>, errors: &mut Errors) {
    let kind = metric.at("type");
    if kind.is_zero() {
        errors.add(kind.required("must specify a metric source type"));
    }
    errors.one_of(&kind, &SOURCE_TYPES);
    let present: Vec<&str> = SOURCES.iter().map(|(key, _)| *key).filter(|key| metric.at(key).is_set()).collect();
    if let Some(first) = present.first() {
        validate_source(first, &metric.at(first), errors);
    }
    let expected = SOURCES.iter().find(|(_, name)| *name == kind.text()).map(|(key, _)| *key);
    if let Some(key) = expected
        && !metric.at(key).is_set()
    {
        errors.add(metric.at(key).required("must populate information for the given metric source"));
    }
    if present.len() != 1 {
        for key in present.into_iter().filter(|key| Some(*key) != expected) {
            errors.add(metric.at(key).forbidden("must populate the given metric source only"));
        }
    }
}

fn validate_source(key: &str, source: &Field<'_>, errors: &mut Errors) {
    let target = source.at("target");
    let (value, average, utilization) = (target.at("value"), target.at("averageValue"), target.at("averageUtilization"));
    match key {
        "object" => {
            validate_reference(&source.at("describedObject"), true, errors);
            validate_identifier(&source.at("metric"), errors);
            if !value.is_set() && !average.is_set() {
                errors.add(average.required("must set either a target value or averageValue"));
            }
        }
        "external" => {
            validate_identifier(&source.at("metric"), errors);
            if !value.is_set() && !average.is_set() {
                errors.add(average.required("must set either a target value for metric or a per-pod target"));
            }
            if value.is_set() && average.is_set() {
                errors.add(value.forbidden("may not set both a target value for metric and a per-pod target"));
            }
        }
        "pods" => {
            validate_identifier(&source.at("metric"), errors);
            if !average.is_set() {
                errors.add(average.required("must specify a positive target averageValue"));
            }
        }
        _ => {
            validate_resource(source, key == "containerResource", errors);
            if !utilization.is_set() && !average.is_set() {
                errors.add(utilization.required("must set either a target raw value or a target utilization"));
            }
            if utilization.is_set() && average.is_set() {
                errors.add(average.forbidden("may not set both a target raw value and a target utilization"));
            }
        }
    }
    validate_target(&target, errors);
}

fn validate_resource(source: &Field<'_>, of_container: bool, errors: &mut Errors) {
    let (name, container) = (source.at("name"), source.at("container"));
    if name.is_zero() {
        errors.add(name.required("must specify a resource name"));
    } else if of_container {
        container_name(name.text(), &name, errors);
    }
    if !of_container {
        return;
    }
    if container.is_zero() {
        errors.add(container.required("must specify a container"));
    } else {
        errors.dns_label(&container);
    }
}

fn validate_identifier(metric: &Field<'_>, errors: &mut Errors) {
    let name = metric.at("name");
    if name.is_zero() {
        errors.add(name.required("must specify a metric name"));
    } else {
        errors.words(&name, names::path_segment);
    }
}

fn validate_target(target: &Field<'_>, errors: &mut Errors) {
    let kind = target.at("type");
    if kind.is_zero() {
        errors.add(kind.required("must specify a metric target type"));
    }
    if !matches!(kind.text(), "Utilization" | "Value" | "AverageValue") {
        errors.add(kind.invalid_as(kind.text(), "must be either Utilization, Value, or AverageValue"));
    }
    for amount in [target.at("value"), target.at("averageValue")] {
        if amount.is_set() && amount.quantity().sign() <= 0 {
            errors.add(amount.invalid("must be positive"));
        }
    }
    let utilization = target.at("averageUtilization");
    if utilization.is_set() && utilization.int() < 1 {
        errors.add(utilization.invalid("must be greater than 0"));
    }
}

pub(super) fn validate_status(new: &Value, _: &Value) -> Vec<FieldError> {
    let status = Field::root(new).at("status");
    Errors::of(|errors| {
        for condition in status.at("conditions").items() {
            errors.non_negative(&condition.at("observedGeneration"));
        }
        errors.non_negative(&status.at("currentReplicas"));
        errors.non_negative(&status.at("desiredReplicas"));
    })
}
