//! The scopes that narrow a quota to some objects.

use serde_json::Value;
use sublet_machinery::ObjectExt;

/// Whether the object falls under all scopes of the quota.
pub(super) fn contain(group_resource: &str, quota: &Value, object: &Value) -> bool {
    let plain = quota.array_at("/spec/scopes").iter().all(|scope| contains(group_resource, object, scope, "Exists", &[]));
    let selected =
        |s: &Value| contains(group_resource, object, &s["scopeName"], s["operator"].as_str().unwrap_or_default(), s.array_at("/values"));
    plain && quota.array_at("/spec/scopeSelector/matchExpressions").iter().all(selected)
}

fn contains(group_resource: &str, object: &Value, scope: &Value, operator: &str, values: &[Value]) -> bool {
    match (group_resource, scope.as_str().unwrap_or_default()) {
        ("pods", "Terminating") => is_bounded(object),
        ("pods", "NotTerminating") => !is_bounded(object),
        ("pods", "BestEffort") => is_best_effort(object),
        ("pods", "NotBestEffort") => !is_best_effort(object),
        ("pods", "PriorityClass") => {
            let name = object.str_at("/spec/priorityClassName").filter(|n| !n.is_empty());
            selects(operator, values, name.as_slice())
        }
        ("pods", "CrossNamespacePodAffinity") => crosses_namespaces(object),
        ("persistentvolumeclaims", "VolumeAttributesClass") => {
            let pointers = [
                "/spec/volumeAttributesClassName",
                "/status/currentVolumeAttributesClassName",
                "/status/modifyVolumeStatus/targetVolumeAttributesClassName",
            ];
            let names: Vec<&str> = pointers.iter().filter_map(|p| object.str_at(p)).filter(|n| !n.is_empty()).collect();
            selects(operator, values, &names)
        }
        _ => false,
    }
}

/// A selector over one key that has any of `names` as its value.
fn selects(operator: &str, values: &[Value], names: &[&str]) -> bool {
    let listed = |name: &&str| values.iter().any(|v| v == name);
    match operator {
        "In" => names.iter().any(listed),
        "NotIn" => names.is_empty() || names.iter().any(|n| !listed(n)),
        "Exists" => !names.is_empty(),
        "DoesNotExist" => names.is_empty(),
        _ => false,
    }
}

/// The pod ends after a time that it states.
fn is_bounded(pod: &Value) -> bool {
    pod.i64_at("/spec/activeDeadlineSeconds").is_some_and(|seconds| seconds >= 0)
}

/// As the server computed it when the pod was made.
fn is_best_effort(pod: &Value) -> bool {
    pod.str_at("/status/qosClass") == Some("BestEffort")
}

fn crosses_namespaces(pod: &Value) -> bool {
    let crosses = |term: &Value| !term.array_at("/namespaces").is_empty() || term.get("namespaceSelector").is_some_and(|s| !s.is_null());
    ["podAffinity", "podAntiAffinity"].iter().any(|side| {
        let side = &pod["spec"]["affinity"][*side];
        side.array_at("/requiredDuringSchedulingIgnoredDuringExecution").iter().any(crosses)
            || side.array_at("/preferredDuringSchedulingIgnoredDuringExecution").iter().any(|p| crosses(&p["podAffinityTerm"]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn scopes_must_all_hold() {
        let pod = json!({"spec": {"activeDeadlineSeconds": 5, "priorityClassName": "high"}, "status": {"qosClass": "BestEffort"}});
        let check = |spec: Value, expected| assert_eq!(contain("pods", &json!({"spec": spec}), &pod), expected, "{spec}");
        check(json!({}), true);
        check(json!({"scopes": ["Terminating", "BestEffort"]}), true);
        check(json!({"scopes": ["Terminating", "NotBestEffort"]}), false);
        let priority = |operator: &str, values: Value| json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": values}]}});
        check(priority("In", json!(["high"])), true);
        check(priority("NotIn", json!(["high"])), false);
        check(priority("Exists", json!([])), true);
        assert!(!contain("services", &json!({"spec": {"scopes": ["BestEffort"]}}), &json!({})));
    }
}
