//! The columns of pods: readiness, the reason shown as status, restarts.

use crate::registry::Column;
use crate::table::age;
use crate::table::columns::{self, NONE, condition, count, name, string, text, text_or, wide};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::ops::ControlFlow;
use sublet_machinery::ObjectExt;

pub(super) fn columns() -> Vec<Column> {
    vec![
        name(),
        string("Ready", "Containers that are ready, of all.", |o, _| {
            let summary = Summary::of(o);
            format!("{}/{}", summary.ready, summary.total).into()
        }),
        string("Status", "What the containers of the pod are doing, in one word.", |o, _| Summary::of(o).reason.into()),
        string("Restarts", "How often containers were restarted, and when last.", |o, p| Summary::of(o).restarts_text(p.now).into()),
        columns::age(),
        wide(string("IP", "The address of the pod.", |o, _| text_or(o, "/status/podIPs/0/ip", NONE).into())),
        wide(string("Node", "The node that runs the pod.", |o, _| text_or(o, "/spec/nodeName", NONE).into())),
        wide(string("Nominated Node", "The node on which room is being made for the pod.", |o, _| {
            text_or(o, "/status/nominatedNodeName", NONE).into()
        })),
        wide(string("Readiness Gates", "Readiness gates that are met, of all.", |o, _| readiness_gates(o).into())),
    ]
}

/// The row condition of a pod that has ended.
pub(in crate::table) fn completed(pod: &Value) -> Option<Value> {
    let (reason, message) = match pod.str_at("/status/phase")? {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({ "type": "Completed", "status": "True", "reason": reason, "message": message }))
}

#[derive(Debug, Default)]
struct Summary {
    reason: String,
    ready: usize,
    total: usize,
    restarts: Restarts,
}

/// Restarts so far and the latest time at which a container ended before one.
#[derive(Debug, Default, Clone, Copy)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count += status["restartCount"].as_i64().unwrap_or_default();
        let ended = status.str_at("/lastState/terminated/finishedAt").and_then(|t| t.parse().ok());
        self.last = self.last.max(ended);
    }
}

impl Summary {
    fn of(pod: &Value) -> Self {
        let conditions = pod.array_at("/status/conditions");
        let mut summary = Self { total: pod.array_at("/spec/containers").len(), ..Self::default() };
        summary.reason = text_or(pod, "/status/reason", text(pod, "/status/phase")).to_string();
        if conditions.iter().any(|c| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated") {
            summary.reason = "SchedulingGated".into();
        }
        let (initializing, sidecar_restarts) = summary.init_containers(pod);
        if !initializing || condition(conditions, "Initialized") == Some("True") {
            summary.restarts = sidecar_restarts;
            summary.containers(pod, condition(conditions, "Ready") == Some("True"));
        }
        let ended = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
        if pod.is_deleting() && text(pod, "/status/reason") == "NodeLost" {
            summary.reason = "Unknown".into();
        } else if pod.is_deleting() && !ended {
            summary.reason = "Terminating".into();
        }
        summary
    }

    /// Whether initialization is still going on or has failed, and the restarts of sidecars alone.
    fn init_containers(&mut self, pod: &Value) -> (bool, Restarts) {
        let specs = pod.array_at("/spec/initContainers");
        let is_sidecar = |name: &Value| specs.iter().any(|c| c["name"] == *name && c["restartPolicy"] == "Always");
        self.total += specs.iter().filter(|c| c["restartPolicy"] == "Always").count();
        let mut sidecars = Restarts::default();
        for (index, status) in pod.array_at("/status/initContainerStatuses").iter().enumerate() {
            let sidecar = is_sidecar(&status["name"]);
            self.restarts.add(status);
            if sidecar {
                sidecars.add(status);
            }
            if let ControlFlow::Break(reason) = init_reason(status, sidecar, index, specs.len()) {
                self.reason = reason;
                return (true, sidecars);
            }
            if sidecar && status["started"] == true && status["ready"] == true && status.pointer("/state/terminated").is_none() {
                self.ready += 1;
            }
        }
        (false, sidecars)
    }

    fn containers(&mut self, pod: &Value, pod_is_ready: bool) {
        let (mut has_running, mut error) = (false, String::new());
        // The first container has the last word.
        for status in pod.array_at("/status/containerStatuses").iter().rev() {
            self.restarts.add(status);
            let waiting = text(status, "/state/waiting/reason");
            if !waiting.is_empty() {
                self.reason = waiting.to_string();
            } else if let Some(terminated) = status.pointer("/state/terminated") {
                self.reason = terminated_reason(terminated);
                if terminated["exitCode"] != 0 {
                    error.clone_from(&self.reason);
                }
            } else if status["ready"] == true && status.pointer("/state/running").is_some() {
                has_running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            if has_running && pod_is_ready {
                self.reason = "Running".into();
            } else if !error.is_empty() {
                self.reason = error;
            } else if has_running {
                self.reason = "NotReady".into();
            }
        }
    }

    fn restarts_text(&self, now: Timestamp) -> String {
        match self.restarts {
            Restarts { count, last: Some(last) } if count != 0 => format!("{count} ({} ago)", age::since(Some(&last.to_string()), now)),
            Restarts { count, .. } => count.to_string(),
        }
    }
}

/// `Break` with the reason when this init container holds up the pod.
fn init_reason(status: &Value, sidecar: bool, index: usize, all: usize) -> ControlFlow<String> {
    let waiting = text(status, "/state/waiting/reason");
    match status.pointer("/state/terminated") {
        Some(terminated) if terminated["exitCode"].as_i64().unwrap_or_default() == 0 => ControlFlow::Continue(()),
        _ if sidecar && status["started"] == true => ControlFlow::Continue(()),
        Some(terminated) => ControlFlow::Break(format!("Init:{}", terminated_reason(terminated))),
        None if !waiting.is_empty() && waiting != "PodInitializing" => ControlFlow::Break(format!("Init:{waiting}")),
        None => ControlFlow::Break(format!("Init:{index}/{all}")),
    }
}

fn terminated_reason(terminated: &Value) -> String {
    match (text(terminated, "/reason"), count(terminated, "/signal").as_i64()) {
        ("", Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        ("", _) => format!("ExitCode:{}", count(terminated, "/exitCode")),
        (reason, _) => reason.to_string(),
    }
}

fn readiness_gates(pod: &Value) -> String {
    let gates = pod.array_at("/spec/readinessGates");
    if gates.is_empty() {
        return NONE.into();
    }
    let conditions = pod.array_at("/status/conditions");
    let met = gates.iter().filter(|g| condition(conditions, text(g, "/conditionType")) == Some("True")).count();
    format!("{met}/{}", gates.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T01:00:00Z";

    fn check(pod: &Value, ready: &str, status: &str, restarts: &str) {
        let summary = Summary::of(pod);
        assert_eq!(format!("{}/{}", summary.ready, summary.total), ready, "{pod}");
        assert_eq!(summary.reason, status, "{pod}");
        assert_eq!(summary.restarts_text(NOW.parse().expect("time")), restarts, "{pod}");
    }

    fn pod(containers: usize, status: Value) -> Value {
        let containers: Vec<Value> = (0..containers).map(|i| json!({"name": format!("c{i}")})).collect();
        json!({"metadata": {"name": "p"}, "spec": {"containers": containers}, "status": status})
    }

    #[test]
    fn the_phase_is_the_status_until_containers_say_more() {
        check(&pod(2, json!({"phase": "Pending"})), "0/2", "Pending", "0");
        check(&pod(1, json!({"phase": "Failed", "reason": "Evicted"})), "0/1", "Evicted", "0");
        let gated = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]});
        check(&pod(1, gated), "0/1", "SchedulingGated", "0");
    }

    #[test]
    fn containers_give_the_reason() {
        let running = json!({"ready": true, "restartCount": 1, "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:55:00Z"}}});
        let waiting = json!({"ready": false, "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}});
        check(&pod(2, json!({"phase": "Running", "containerStatuses": [running, waiting]})), "1/2", "CrashLoopBackOff", "3 (5m ago)");
        let killed = json!({"restartCount": 0, "state": {"terminated": {"exitCode": 137, "signal": 9}}});
        check(&pod(1, json!({"phase": "Failed", "containerStatuses": [killed]})), "0/1", "Signal:9", "0");
        let failed = json!({"restartCount": 0, "state": {"terminated": {"exitCode": 3}}});
        check(&pod(1, json!({"phase": "Failed", "containerStatuses": [failed]})), "0/1", "ExitCode:3", "0");
    }

    #[test]
    fn a_completed_container_beside_a_running_one() {
        let done = json!({"restartCount": 0, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
        let runs = json!({"restartCount": 0, "ready": true, "state": {"running": {}}});
        let status = |conditions: Value| json!({"phase": "Running", "conditions": conditions, "containerStatuses": [done, runs]});
        check(&pod(2, status(json!([{"type": "Ready", "status": "True"}]))), "1/2", "Running", "0");
        check(&pod(2, status(json!([]))), "1/2", "NotReady", "0");
    }

    #[test]
    fn init_containers_come_first() {
        let mut waiting = pod(
            1,
            json!({"phase": "Pending", "initContainerStatuses": [
                {"name": "i0", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}},
                {"name": "i1", "restartCount": 3, "state": {"waiting": {"reason": "PodInitializing"}}},
            ]}),
        );
        waiting["spec"]["initContainers"] = json!([{"name": "i0"}, {"name": "i1"}]);
        check(&waiting, "0/1", "Init:1/2", "3");
        waiting["status"]["initContainerStatuses"][1]["state"] = json!({"terminated": {"exitCode": 2}});
        check(&waiting, "0/1", "Init:ExitCode:2", "3");
        waiting["status"]["initContainerStatuses"][1]["state"] = json!({"terminated": {"exitCode": 2, "reason": "Error"}});
        check(&waiting, "0/1", "Init:Error", "3");
    }

    #[test]
    fn sidecars_count_as_containers() {
        let mut sidecar = pod(
            1,
            json!({"phase": "Running",
                "initContainerStatuses": [{"name": "s", "restartCount": 2, "started": true, "ready": true, "state": {"running": {}}}],
                "containerStatuses": [{"restartCount": 0, "ready": true, "state": {"running": {}}}],
            }),
        );
        sidecar["spec"]["initContainers"] = json!([{"name": "s", "restartPolicy": "Always"}]);
        check(&sidecar, "2/2", "Running", "2");
    }

    #[test]
    fn deletion_shows() {
        let mut leaving = pod(1, json!({"phase": "Running"}));
        leaving["metadata"]["deletionTimestamp"] = json!(NOW);
        check(&leaving, "0/1", "Terminating", "0");
        leaving["status"]["reason"] = json!("NodeLost");
        check(&leaving, "0/1", "Unknown", "0");
        leaving["status"] = json!({"phase": "Succeeded"});
        check(&leaving, "0/1", "Succeeded", "0");
        assert!(completed(&leaving).is_some());
    }

    #[test]
    fn gates_are_counted() {
        let mut gated = pod(1, json!({"conditions": [{"type": "a", "status": "True"}, {"type": "b", "status": "False"}]}));
        gated["spec"]["readinessGates"] = json!([{"conditionType": "a"}, {"conditionType": "b"}, {"conditionType": "c"}]);
        assert_eq!(readiness_gates(&gated), "1/3");
    }
}
