//! Daemon sets.

use super::super::edit::{ensure, fill, fill_zero};
use super::super::pod::defaults::default_template;
use super::super::status::{keep_spec, zero_counters};
use super::super::{Strategy, keep_status};
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

pub(crate) const DAEMON_SET: Strategy =
    Strategy { default, prepare_create, prepare_update, prepare_status_update: keep_spec, generation: true, ..Strategy::PLAIN };

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

fn template_generation(set: &Value) -> i64 {
    set.annotation(TEMPLATE_GENERATION).and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn set_template_generation(set: &mut Value, generation: i64) {
    set.metadata_mut();
    set.set_annotation(TEMPLATE_GENERATION, &generation.to_string());
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
