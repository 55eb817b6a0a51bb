//! HorizontalPodAutoscaler in `autoscaling/v1`: one CPU target in fields, all else in annotations.

use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";

fn is_cpu_utilization(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu" && metric["resource"]["target"]["averageUtilization"].is_number()
}

fn is_cpu_status(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu" && metric["resource"]["current"]["averageUtilization"].is_number()
}

pub fn to_v1(hpa: &mut Value) {
    if let Some(Value::Array(metrics)) = hpa.remove_at("/spec/metrics") {
        let (cpu, others): (Vec<_>, Vec<_>) = metrics.into_iter().partition(is_cpu_utilization);
        if let Some(first) = cpu.first() {
            hpa["spec"]["targetCPUUtilizationPercentage"] = first["resource"]["target"]["averageUtilization"].clone();
        }
        store(hpa, METRICS, others);
    }
    if let Some(behavior) = hpa.remove_at("/spec/behavior") {
        hpa.set_annotation(BEHAVIOR, &behavior.to_string());
    }
    if let Some(Value::Array(metrics)) = hpa.remove_at("/status/currentMetrics") {
        let (cpu, others): (Vec<_>, Vec<_>) = metrics.into_iter().partition(is_cpu_status);
        if let Some(first) = cpu.first() {
            hpa["status"]["currentCPUUtilizationPercentage"] = first["resource"]["current"]["averageUtilization"].clone();
        }
        store(hpa, CURRENT, others);
    }
    if let Some(Value::Array(conditions)) = hpa.remove_at("/status/conditions") {
        store(hpa, CONDITIONS, conditions);
    }
    // Always there in this version.
    if let Some(status) = hpa["status"].as_object_mut() {
        status.entry("currentReplicas").or_insert(json!(0));
    }
}

pub fn to_v2(hpa: &mut Value) {
    let mut metrics = take(hpa, METRICS);
    if let Some(percent) = hpa.remove_at("/spec/targetCPUUtilizationPercentage").filter(Value::is_number) {
        let target = json!({"type": "Utilization", "averageUtilization": percent});
        metrics.insert(0, json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
    }
    if !metrics.is_empty() {
        hpa["spec"]["metrics"] = Value::Array(metrics);
    }
    if let Some(behavior) = take_text(hpa, BEHAVIOR).and_then(|t| serde_json::from_str(&t).ok()) {
        hpa["spec"]["behavior"] = behavior;
    }
    let mut current = take(hpa, CURRENT);
    if let Some(percent) = hpa.remove_at("/status/currentCPUUtilizationPercentage").filter(Value::is_number) {
        current.insert(0, json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": percent}}}));
    }
    if !current.is_empty() {
        hpa.set_at("/status/currentMetrics", Value::Array(current));
    }
    let conditions = take(hpa, CONDITIONS);
    if !conditions.is_empty() {
        hpa.set_at("/status/conditions", Value::Array(conditions));
    }
}

fn store(hpa: &mut Value, annotation: &str, values: Vec<Value>) {
    if !values.is_empty() {
        hpa.set_annotation(annotation, &Value::Array(values).to_string());
    }
}

fn take_text(hpa: &mut Value, annotation: &str) -> Option<String> {
    let annotations = hpa.pointer_mut("/metadata/annotations")?.as_object_mut()?;
    let text = annotations.remove(annotation)?.as_str()?.to_string();
    if annotations.is_empty() {
        hpa.remove_at("/metadata/annotations");
    }
    Some(text)
}

fn take(hpa: &mut Value, annotation: &str) -> Vec<Value> {
    take_text(hpa, annotation).and_then(|t| serde_json::from_str(&t).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_v1_cannot_say_survives_in_annotations() {
        let v2 = json!({
            "metadata": {"name": "a"},
            "spec": {
                "maxReplicas": 3,
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 5}},
                "metrics": [
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
                    {"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 60}}}
                ]
            },
            "status": {"conditions": [{"type": "AbleToScale"}], "currentReplicas": 0}
        });
        let mut hpa = v2.clone();
        to_v1(&mut hpa);
        assert_eq!(hpa["spec"], json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}));
        to_v2(&mut hpa);
        assert_eq!(hpa, v2);
    }
}
