//! Stateful sets.

use super::super::core::volume::default_claim;
use super::super::edit::{ensure, fill, fill_zero, items};
use super::super::pod::defaults::default_template;
use super::super::status::{keep_spec, zero_counters};
use super::super::{Strategy, keep_status};
use serde_json::{Value, json};

pub(crate) const STATEFUL_SET: Strategy = Strategy {
    default,
    prepare_create: |object| object["status"] = json!({"availableReplicas": 0, "replicas": 0}),
    prepare_update: keep_status,
    prepare_status_update: keep_spec,
    generation: true,
    ..Strategy::PLAIN
};

fn default(set: &mut Value) {
    let spec = ensure(set, "spec");
    fill_zero(spec, "podManagementPolicy", "OrderedReady");
    default_update_strategy(ensure(spec, "updateStrategy"));
    let retention = ensure(spec, "persistentVolumeClaimRetentionPolicy");
    fill_zero(retention, "whenDeleted", "Retain");
    fill_zero(retention, "whenScaled", "Retain");
    fill(spec, "replicas", 1);
    fill(spec, "revisionHistoryLimit", 10);
    fill(spec, "serviceName", "");
    default_template(ensure(spec, "template"));
    for claim in items(spec, "volumeClaimTemplates") {
        ensure(claim, "metadata");
        fill_zero(claim, "apiVersion", "v1");
        fill_zero(claim, "kind", "PersistentVolumeClaim");
        default_claim(claim);
    }
    zero_counters(set, &["availableReplicas", "replicas"]);
}

fn default_update_strategy(strategy: &mut Value) {
    if super::super::edit::is_zero(&strategy["type"]) {
        fill_zero(strategy, "type", "RollingUpdate");
        ensure(strategy, "rollingUpdate");
    }
    if strategy["type"] == "RollingUpdate" && strategy["rollingUpdate"].is_object() {
        let rolling = ensure(strategy, "rollingUpdate");
        fill(rolling, "partition", 0);
        fill(rolling, "maxUnavailable", 1);
    }
}
