//! Deployments.

use super::super::edit::{ensure, fill, fill_zero};
use super::super::pod::defaults::default_template;
use super::super::status::{empty_status, keep_spec};
use super::super::{Strategy, keep_status};
use serde_json::{Value, json};

pub(crate) const DEPLOYMENT: Strategy = Strategy {
    default,
    prepare_create: empty_status,
    prepare_update: keep_status,
    prepare_status_update,
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
