//! What a failed pod means for its job, and when enough has succeeded.

use super::indexes::Indexes;
use crate::kit::count_at;
use serde_json::Value;
use sublet_machinery::ObjectExt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// No rule matched, or one that says so: it counts towards the limits.
    Count,
    Ignore,
    FailIndex,
    /// With the message for the user.
    FailJob(String),
}

/// The first rule of `spec.podFailurePolicy` that matches the pod decides.
pub(super) fn failure(job: &Value, pod: &Value) -> Failure {
    for (at, rule) in job.array_at("/spec/podFailurePolicy/rules").iter().enumerate() {
        let action = rule["action"].as_str().unwrap_or_default();
        let message = if rule["onExitCodes"].is_object() {
            matching_container(pod, &rule["onExitCodes"]).map(|(name, code)| {
                format!(
                    "Container {name} for pod {}/{} failed with exit code {code} matching {action} rule at index {at}",
                    pod.namespace(),
                    pod.name()
                )
            })
        } else {
            matching_condition(pod, rule.array_at("/onPodConditions"))
                .map(|kind| format!("Pod {}/{} has condition {kind} matching {action} rule at index {at}", pod.namespace(), pod.name()))
        };
        if let Some(message) = message {
            match action {
                "Ignore" => return Failure::Ignore,
                "FailIndex" => return Failure::FailIndex,
                "Count" => return Failure::Count,
                "FailJob" => return Failure::FailJob(message),
                _ => {}
            }
        }
    }
    Failure::Count
}

fn matching_container<'a>(pod: &'a Value, requirement: &Value) -> Option<(&'a str, i64)> {
    let values = requirement.array_at("/values");
    let statuses = pod.array_at("/status/containerStatuses").iter().chain(pod.array_at("/status/initContainerStatuses"));
    statuses.filter(|s| requirement["containerName"].as_str().is_none_or(|name| s["name"] == name)).find_map(|status| {
        let code = status.i64_at("/state/terminated/exitCode").filter(|code| *code != 0)?;
        let listed = values.iter().any(|v| v.as_i64() == Some(code));
        let matches = match requirement["operator"].as_str() {
            Some("In") => listed,
            Some("NotIn") => !listed,
            _ => false,
        };
        matches.then(|| (status["name"].as_str().unwrap_or_default(), code))
    })
}

fn matching_condition<'a>(pod: &'a Value, patterns: &[Value]) -> Option<&'a str> {
    let matches = |condition: &&Value| patterns.iter().any(|p| p["type"] == condition["type"] && p["status"] == condition["status"]);
    pod.array_at("/status/conditions").iter().find(matches).and_then(|c| c["type"].as_str())
}

/// The message of the first rule of `spec.successPolicy` that is fulfilled.
pub(super) fn success(job: &Value, succeeded: &Indexes) -> Option<String> {
    let completions = count_at(job, "/spec/completions");
    let fulfilled = |rule: &Value| {
        let count = rule["succeededCount"].as_i64();
        match rule["succeededIndexes"].as_str() {
            Some(text) => {
                let required = Indexes::parse(text, completions);
                let met = required.common(succeeded);
                required.len() > 0 && (met == required.len() || count.is_some_and(|count| met >= count))
            }
            None => count.is_some_and(|count| succeeded.len() >= count),
        }
    };
    let at = job.array_at("/spec/successPolicy/rules").iter().position(fulfilled)?;
    Some(format!("Matched rules at index {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(code: i64) -> Value {
        json!({
            "metadata": {"name": "p", "namespace": "n"},
            "status": {"containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": code}}}], "conditions": [{"type": "DisruptionTarget", "status": "True"}]},
        })
    }

    #[test]
    fn the_first_matching_rule_decides() {
        let on_codes = |action: &str, operator: &str, values: Value| json!({"action": action, "onExitCodes": {"operator": operator, "values": values}});
        let on_condition = json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]});
        let check = |rules: Value, code, expected| {
            assert_eq!(failure(&json!({"spec": {"podFailurePolicy": {"rules": rules}}}), &pod(code)), expected)
        };
        check(json!([]), 1, Failure::Count);
        check(
            json!([on_codes("FailJob", "In", json!([42]))]),
            42,
            Failure::FailJob("Container main for pod n/p failed with exit code 42 matching FailJob rule at index 0".into()),
        );
        check(json!([on_codes("FailJob", "In", json!([42])), on_condition]), 1, Failure::Ignore);
        check(json!([on_codes("FailIndex", "NotIn", json!([42]))]), 1, Failure::FailIndex);
        check(json!([on_codes("Count", "NotIn", json!([42])), on_condition]), 1, Failure::Count);
        check(json!([on_codes("FailIndex", "NotIn", json!([42]))]), 0, Failure::Count);
    }

    #[test]
    fn success_needs_indexes_or_a_number_of_them() {
        let check = |rule: Value, succeeded: &str, expected: bool| {
            let job = json!({"spec": {"completions": 10, "successPolicy": {"rules": [rule]}}});
            assert_eq!(success(&job, &Indexes::parse(succeeded, 10)).is_some(), expected, "{job} {succeeded}");
        };
        check(json!({"succeededIndexes": "0,2"}), "0-2", true);
        check(json!({"succeededIndexes": "0,3"}), "0-2", false);
        check(json!({"succeededIndexes": "0-5", "succeededCount": 2}), "1,4", true);
        check(json!({"succeededCount": 3}), "1,4", false);
        check(json!({"succeededCount": 2}), "1,4", true);
    }
}
