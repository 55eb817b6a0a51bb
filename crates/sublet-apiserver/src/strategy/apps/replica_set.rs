//! Replica sets and replication controllers.

use super::super::edit::{ensure, fill, fill_zero};
use super::super::pod::defaults::default_template;
use super::super::status::{keep_spec, zero_counters};
use super::super::{Strategy, keep_status};
use serde_json::{Value, json};

pub(crate) const REPLICA_SET: Strategy = Strategy {
    default,
    prepare_create: |object| object["status"] = json!({"replicas": 0}),
    prepare_update: keep_status,
    prepare_status_update: keep_spec,
    fields,
    generation: true,
    ..Strategy::PLAIN
};

pub(crate) const REPLICATION_CONTROLLER: Strategy = Strategy { default: default_controller, ..REPLICA_SET };

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
