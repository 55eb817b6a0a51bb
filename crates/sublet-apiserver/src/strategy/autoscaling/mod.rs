//! Horizontal pod autoscalers, both versions.

mod rules;

use super::edit::{child, ensure, fill, fill_zero, is_zero};
use super::status::{keep_spec, zero_counters};
use super::{Strategy, keep_status};
use serde_json::{Value, json};

pub(super) const AUTOSCALER: Strategy = Strategy {
    default: default_autoscaler,
    prepare_create: |object| {
        object["status"] = json!({});
        default_autoscaler_status(object);
    },
    prepare_update: keep_status,
    prepare_status_update: keep_spec,
    validate: rules::validate,
    validate_status_update: rules::validate_status,
    generation: true,
    ..Strategy::PLAIN
};

fn default_autoscaler(autoscaler: &mut Value) {
    let old_version = autoscaler["apiVersion"] == "autoscaling/v1";
    let spec = ensure(autoscaler, "spec");
    fill(spec, "minReplicas", 1);
    if old_version {
        let other_metrics = autoscaler["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"].is_string();
        if !other_metrics {
            fill(&mut autoscaler["spec"], "targetCPUUtilizationPercentage", 80);
        }
    } else {
        fill_zero(
            spec,
            "metrics",
            json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]),
        );
        if let Some(behavior) = child(spec, "behavior") {
            default_rules(ensure(behavior, "scaleUp"), Some(0), &[("Pods", 4), ("Percent", 100)]);
            default_rules(ensure(behavior, "scaleDown"), None, &[("Percent", 100)]);
        }
    }
    default_autoscaler_status(autoscaler);
}

fn default_rules(rules: &mut Value, window: Option<i64>, policies: &[(&str, i64)]) {
    if let Some(window) = window {
        fill(rules, "stabilizationWindowSeconds", window);
    }
    fill(rules, "selectPolicy", "Max");
    let policies: Vec<Value> = policies.iter().map(|(t, v)| json!({"type": t, "value": v, "periodSeconds": 15})).collect();
    fill(rules, "policies", policies);
}

fn default_autoscaler_status(autoscaler: &mut Value) {
    let old_version = autoscaler["apiVersion"] == "autoscaling/v1";
    zero_counters(autoscaler, &["desiredReplicas"]);
    if old_version {
        zero_counters(autoscaler, &["currentReplicas"]);
    } else if is_zero(&autoscaler["status"]["currentMetrics"]) {
        autoscaler["status"]["currentMetrics"] = Value::Null;
    }
}
