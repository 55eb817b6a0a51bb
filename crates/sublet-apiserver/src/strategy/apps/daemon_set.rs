//! Daemon sets.

use super::super::edit::{ensure, fill, fill_zero};
use super::super::field::{Errors, Field};
use super::super::pod::defaults::default_template;
use super::super::pod::validate::validate_template;
use super::super::pod::warnings;
use super::super::status::{keep_spec, zero_counters};
use super::super::{Strategy, keep_status};
use super::rules;
use crate::http::query::no_number;
use serde_json::{Value, json};
use sublet_machinery::{FieldError, ObjectExt};

pub(crate) const DAEMON_SET: Strategy = Strategy {
    default,
    readable,
    prepare_create,
    prepare_update,
    prepare_status_update: keep_spec,
    validate,
    validate_update: |new, old| {
        Errors::of(|errors| errors.immutable(&Field::root(new).at("spec").at("selector"), &old["spec"]["selector"]))
    },
    validate_status_update,
    warnings: |set| warnings::of_template(&Field::root(set).at("spec").at("template")),
    warnings_update: Some(|new, old| warnings::of_changed(new, old, &["spec", "template"])),
    generation: true,
    ..Strategy::PLAIN
};

const COUNTERS: [&str; 4] = ["currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"];

/// Where upstream keeps the generation of the template, which `apps/v1` no longer shows as a field.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn default(set: &mut Value) {
    let spec = ensure(set, "spec");
    let strategy = ensure(spec, "updateStrategy");
    fill_zero(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        let rolling = ensure(strategy, "rollingUpdate");
        fill(rolling, "maxUnavailable", 1);
        fill(rolling, "maxSurge", 0);
    }
    fill(spec, "revisionHistoryLimit", 10);
    default_template(ensure(spec, "template"));
    zero_counters(set, &COUNTERS);
    if set.annotation(TEMPLATE_GENERATION).is_none() {
        set_template_generation(set, 0);
    }
}

fn prepare_create(set: &mut Value) {
    set["status"] = json!({});
    zero_counters(set, &COUNTERS);
    set_template_generation(set, template_generation(set).max(1));
}

fn prepare_update(new: &mut Value, old: &Value) {
    keep_status(new, old);
    let generation = template_generation(old) + i64::from(new["spec"]["template"] != old["spec"]["template"]);
    set_template_generation(new, generation);
}

/// To upstream the generation of the template is a number.
fn readable(set: &Value) -> Result<(), String> {
    let Some(text) = set.annotation(TEMPLATE_GENERATION) else { return Ok(()) };
    text.parse::<i64>().map(drop).map_err(|error| no_number("ParseInt", text, &error))
}

fn template_generation(set: &Value) -> i64 {
    set.annotation(TEMPLATE_GENERATION).and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn set_template_generation(set: &mut Value, generation: i64) {
    set.metadata_mut();
    set.set_annotation(TEMPLATE_GENERATION, &generation.to_string());
}

fn validate(set: &Value) -> Vec<FieldError> {
    let spec = Field::root(set).at("spec");
    let (selector, template) = (spec.at("selector"), spec.at("template"));
    Errors::of(|errors| {
        errors.label_selector(&selector);
        if let Some(selected) = rules::read_selector(&selector) {
            let nothing = serde_json::Map::new();
            let labels = template.at("metadata").at("labels");
            if !selected.matches(labels.value.as_object().unwrap_or(&nothing)) {
                errors.add(labels.invalid("`selector` does not match template `labels`"));
            }
        }
        if selector.is_set() && rules::is_empty(&selector) {
            errors.add(selector.invalid("empty selector is invalid for daemonset"));
        }
        validate_template(&template, errors);
        rules::validate_lasting(&template, "DaemonSet", errors);
        rules::validate_counts(&spec, &["minReadySeconds"], errors);
        validate_update_strategy(&spec.at("updateStrategy"), errors);
        rules::validate_counts(&spec, &["revisionHistoryLimit"], errors);
    })
}

fn validate_update_strategy(strategy: &Field<'_>, errors: &mut Errors) {
    let rolling = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "OnDelete" => {}
        "RollingUpdate" if !rolling.is_set() => errors.add(rolling.required("")),
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            for field in [&unavailable, &surge] {
                rules::validate_int_or_percent(field, errors);
            }
            for field in [&unavailable, &surge] {
                rules::validate_at_most_whole(field, errors);
            }
            match (rules::int_or_percent(&unavailable) != 0, rules::int_or_percent(&surge) != 0) {
                (true, true) => errors.add(surge.invalid("may not be set when maxUnavailable is non-zero")),
                (false, false) => errors.add(unavailable.required("cannot be 0 when maxSurge is 0")),
                _ => {}
            }
        }
        _ => errors.add(strategy.unsupported(&["RollingUpdate", "OnDelete"])),
    }
}

fn validate_status_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let status = Field::root(new).at("status");
    Errors::of(|errors| {
        let counts = [
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ];
        rules::validate_counts(&status, &counts, errors);
        rules::validate_collisions(&status, &old["status"], errors);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_generation_counts_changes_of_the_template() {
        let mut old = json!({"spec": {"template": {"a": 1}}});
        prepare_create(&mut old);
        assert_eq!(old.annotation(TEMPLATE_GENERATION), Some("1"));
        let mut new = json!({"spec": {"template": {"a": 2}}});
        prepare_update(&mut new, &old);
        assert_eq!(new.annotation(TEMPLATE_GENERATION), Some("2"));
    }
}
