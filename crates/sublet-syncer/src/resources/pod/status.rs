//! A pod's status on its way up, and the readiness gates on their way down.

use super::rejection::rejection;
use crate::resources::{KindId, Translation, Upward};
use crate::translate::{to_tenant_text, with_tenant_uid};
use serde_json::{Value, json};
use std::collections::HashSet;
use sublet_api::condition::SYNCED;
use sublet_machinery::ObjectExt;

/// Parts of the host's status that mean nothing in the tenant.
const HOST_ONLY: [&str; 3] = ["resourceClaimStatuses", "extendedResourceClaimStatus", "nodeAllocatableResourceClaimStatuses"];

const CONTAINER_LISTS: [&str; 3] = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];

/// Condition types that schedulers and kubelets alone set: what the host does not say is over.
const OF_THE_HOST: [&str; 8] = [
    "PodScheduled",
    "Initialized",
    "PodReadyToStartContainers",
    "ContainersReady",
    "Ready",
    "PodResizePending",
    "PodResizeInProgress",
    "AllContainersRestarting",
];

/// Condition types that tenant controllers set, or we do for the tenant. The host's copy of them, if
/// it has one, came from the tenant.
fn is_tenants(tenant: &Value, condition_type: &str) -> bool {
    condition_type == SYNCED || tenant.array_at("/spec/readinessGates").iter().any(|g| g["conditionType"] == condition_type)
}

/// The wanted status of the tenant pod.
pub(super) fn up(tenant: &Value, host: &Value, translation: &Translation<'_>) -> Upward {
    let mut status = host["status"].clone();
    // A phase that ends a pod is never taken back.
    if !status.is_object() || is_terminal(tenant) && !is_terminal(host) {
        return Upward::default();
    }
    for field in HOST_ONLY {
        status.remove_at(&format!("/{field}"));
    }
    for list in CONTAINER_LISTS {
        keep_own_containers(&mut status, list, tenant);
    }
    let lookup = |name: &str| translation.view.tenant_key(KindId::Pod, name);
    let host_namespace = translation.names.host_namespace(tenant.namespace());
    let told = |text: &str| with_tenant_uid(to_tenant_text(text, host_namespace, lookup), host, tenant);
    translate_message(&mut status, "", told);
    for list in CONTAINER_LISTS {
        for container in status[list].as_array_mut().into_iter().flatten() {
            // What a container wrote when it ended is its own text.
            translate_message(container, "/state/waiting", told);
        }
    }
    status["conditions"] = Value::Array(conditions(tenant, host, told));
    translate_generation(&mut status, tenant, host);
    if let Some((reason, message)) = rejection(tenant, host) {
        status["phase"] = json!("Failed");
        status["reason"] = json!(reason);
        status["message"] = json!(message);
        status["observedGeneration"] = json!(tenant.generation());
    }
    Upward { status: Some(status), main: None }
}

fn translate_message(object: &mut Value, at: &str, told: impl Fn(&str) -> String) {
    let Some(part) = object.pointer_mut(at) else { return };
    if let Some(message) = part.get("message").and_then(Value::as_str) {
        part["message"] = json!(told(message));
    }
}

/// Containers that the host injected are the host's business.
fn keep_own_containers(status: &mut Value, list: &str, tenant: &Value) {
    let Some(statuses) = status.get_mut(list).and_then(Value::as_array_mut) else { return };
    let spec_list = match list {
        "initContainerStatuses" => "initContainers",
        "containerStatuses" => "containers",
        _ => "ephemeralContainers",
    };
    let own: HashSet<&str> = tenant["spec"].array_at(&format!("/{spec_list}")).iter().filter_map(|c| c["name"].as_str()).collect();
    statuses.retain(|s| s["name"].as_str().is_some_and(|n| own.contains(n)));
    if statuses.is_empty() {
        // An empty list is one that is not there, and would be written again and again.
        status.remove_at(&format!("/{list}"));
    }
}

/// The host's conditions, but for those that are the tenant's to set: those stay as the tenant has
/// them. What only the tenant has is kept.
fn conditions(tenant: &Value, host: &Value, told: impl Fn(&str) -> String) -> Vec<Value> {
    let mut all: Vec<Value> = host
        .array_at("/status/conditions")
        .iter()
        .filter(|c| !is_tenants(tenant, c["type"].as_str().unwrap_or_default()))
        .cloned()
        .collect();
    for condition in &mut all {
        if let Some(message) = condition["message"].as_str() {
            condition["message"] = json!(told(message));
        }
    }
    for condition in tenant.array_at("/status/conditions") {
        let is_over = OF_THE_HOST.iter().any(|of_host| condition["type"] == *of_host);
        if condition["type"] != SYNCED && !is_over && !all.iter().any(|c| c["type"] == condition["type"]) {
            all.push(condition.clone());
        }
    }
    all
}

/// Generations count each side's own changes. When the host has seen its newest, it has seen ours.
fn translate_generation(status: &mut Value, tenant: &Value, host: &Value) {
    let current = host.i64_at("/status/observedGeneration") == Some(host.generation());
    let seen = if current { json!(tenant.generation()) } else { tenant["status"]["observedGeneration"].clone() };
    let translate = |value: &mut Value, known: &Value| {
        if value["observedGeneration"].is_i64() {
            let at_current = value["observedGeneration"].as_i64() == Some(host.generation());
            value["observedGeneration"] = if at_current { json!(tenant.generation()) } else { known.clone() };
            if value["observedGeneration"].is_null() {
                value.remove_at("/observedGeneration");
            }
        }
    };
    if status["observedGeneration"].is_i64() && tenant.generation() > 0 {
        translate(status, &seen);
    } else {
        status.remove_at("/observedGeneration");
    }
    let known = tenant.array_at("/status/conditions").to_vec();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        let before = known.iter().find(|c| c["type"] == condition["type"]).map_or(Value::Null, |c| c["observedGeneration"].clone());
        translate(condition, &before);
    }
}

/// The conditions that the host's kubelet waits for and only the tenant can set, where the host's copy
/// is behind. An apply configuration of the status, or `None`.
pub fn gate_conditions(tenant: &Value, host: &Value) -> Option<Value> {
    let gates: Vec<&str> = tenant.array_at("/spec/readinessGates").iter().filter_map(|g| g["conditionType"].as_str()).collect();
    let find = |pod: &Value, gate: &str| pod.condition(gate).cloned();
    let wanted: Vec<Value> = gates.iter().filter_map(|gate| find(tenant, gate)).map(|c| bare(&c)).collect();
    let present: Vec<Value> = gates.iter().filter_map(|gate| find(host, gate)).map(|c| bare(&c)).collect();
    (wanted != present).then(|| json!({"conditions": wanted}))
}

fn bare(condition: &Value) -> Value {
    let mut kept = json!({});
    for field in ["type", "status", "reason", "message", "lastTransitionTime", "lastProbeTime"] {
        if !condition[field].is_null() {
            kept[field] = condition[field].clone();
        }
    }
    kept
}

/// What becomes of the status of a pod whose copy is gone while finalizers still hold it: as a kubelet
/// says it of containers that are nowhere. A merge patch; `None` when it says so already.
pub fn gone(tenant: &Value) -> Option<Value> {
    if is_terminal(tenant) || tenant.array_at("/metadata/finalizers").is_empty() {
        return None;
    }
    let mut status = json!({"phase": "Failed"});
    for list in CONTAINER_LISTS {
        let Some(mut statuses) = tenant["status"].get(list).cloned() else { continue };
        for container in statuses.as_array_mut().into_iter().flatten() {
            container["ready"] = json!(false);
            container["started"] = json!(false);
            if container["state"]["terminated"].is_null() {
                container["state"] = json!({"terminated": {
                    "exitCode": 137, "reason": "ContainerStatusUnknown", "containerID": container["containerID"],
                    "message": "The container could not be located when the pod was terminated",
                }});
            }
        }
        status[list] = statuses;
    }
    let mut conditions = tenant["status"]["conditions"].clone();
    for condition in conditions.as_array_mut().into_iter().flatten() {
        if matches!(condition["type"].as_str(), Some("Ready" | "ContainersReady")) && condition["status"] == "True" {
            condition["status"] = json!("False");
            condition["reason"] = json!("PodFailed");
            condition["lastTransitionTime"] = tenant["metadata"]["deletionTimestamp"].clone();
        }
    }
    if conditions.is_array() {
        status["conditions"] = conditions;
    }
    Some(status)
}

/// Whether the pod has ever been on a node, as far as the tenant knows: then a vanished copy is the
/// pod's end. Before that, the copy is made again.
pub fn has_run(tenant: &Value) -> bool {
    let scheduled = |c: &Value| c["type"] == "PodScheduled" && c["status"] == "True";
    tenant["status"]["hostIP"].is_string()
        || tenant["status"]["startTime"].is_string()
        || tenant.array_at("/status/conditions").iter().any(scheduled)
}

pub fn is_terminal(pod: &Value) -> bool {
    matches!(pod.str_at("/status/phase"), Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_goes_down_and_everything_else_up() {
        let tenant = json!({
            "spec": {"readinessGates": [{"conditionType": "x/ready"}]},
            "status": {"conditions": [{"type": "x/ready", "status": "True"}, {"type": "Custom", "status": "True"}]},
        });
        let host = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "message": "m"}, {"type": "x/ready", "status": "False"}]}});
        let up: Vec<String> =
            conditions(&tenant, &host, str::to_uppercase).iter().map(|c| format!("{}{}", c["type"], c["status"])).collect();
        assert_eq!(up, ["\"Ready\"\"False\"", "\"x/ready\"\"True\"", "\"Custom\"\"True\""]);
        let down = gate_conditions(&tenant, &host).unwrap();
        assert_eq!(down, json!({"conditions": [{"type": "x/ready", "status": "True"}]}));
        let settled = json!({"status": {"conditions": [{"type": "x/ready", "status": "True"}]}});
        assert_eq!(gate_conditions(&tenant, &settled), None);
    }

    /// A resize seemed to be in progress for ever.
    #[test]
    fn what_the_host_no_longer_says_is_over() {
        let tenant = json!({"status": {"conditions": [{"type": "PodResizeInProgress", "status": "True"}, {"type": "DisruptionTarget"}]}});
        let host = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let types: Vec<Value> = conditions(&tenant, &host, str::to_string).iter().map(|c| c["type"].clone()).collect();
        assert_eq!(types, ["Ready", "DisruptionTarget"]);
    }

    #[test]
    fn generations_are_each_sides_own() {
        let tenant = json!({"metadata": {"generation": 7}, "status": {"observedGeneration": 6}});
        let host = |seen: i64| json!({"metadata": {"generation": 2}, "status": {"observedGeneration": seen}});
        let check = |host: &Value, expected: i64| {
            let mut status = host["status"].clone();
            translate_generation(&mut status, &tenant, host);
            assert_eq!(status["observedGeneration"], expected);
        };
        check(&host(2), 7);
        check(&host(1), 6);
    }
}
