//! Pod phase and conditions, as the kubelet derives them from the containers.

use super::container::{Container, Role, State, rfc3339};
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

/// The phase that follows from the containers (as in getPhase of kubelet_pods.go, 1.37).
pub(crate) fn phase(pod: &Value, containers: &[Container<'_>], ending: bool) -> &'static str {
    let of = |role: Role| containers.iter().filter(move |c| c.role == role);
    let restartable = |c: &Container<'_>, code: i64| !ending && c.restarts_after(pod, code);
    let failed_init = of(Role::Init).any(|c| c.exit().is_some_and(|e| e.code != 0 && !restartable(c, e.code)));
    if failed_init {
        return "Failed";
    }
    let any_app_started = of(Role::App).any(|c| !c.id.is_empty());
    let init_pending = of(Role::Init).any(|c| c.exit().is_none_or(|e| e.code != 0))
        || of(Role::Sidecar).any(|c| matches!(c.state, State::Waiting { .. }) && c.last.is_none());
    if init_pending && !any_app_started && !ending {
        return "Pending";
    }
    let apps: Vec<&Container<'_>> = of(Role::App).collect();
    if apps.iter().any(|c| matches!(c.state, State::Waiting { .. }) && c.last.is_none()) {
        return if ending { "Failed" } else { "Pending" };
    }
    if apps.iter().any(|c| c.exit().is_none_or(|e| restartable(c, e.code))) {
        return "Running";
    }
    if apps.iter().all(|c| c.exit().is_some_and(|e| e.code == 0)) { "Succeeded" } else { "Failed" }
}

/// The conditions that the kubelet owns, in the order in which it writes them.
pub(crate) fn conditions(pod: &Value, containers: &[Container<'_>], phase: &str, sandbox: bool, now: i64) -> Vec<Value> {
    let ready_to_start = if sandbox {
        condition("PodReadyToStartContainers", true, "", String::new())
    } else {
        condition("PodReadyToStartContainers", false, "", String::new())
    };
    let containers_ready = containers_ready(containers, phase);
    let mut all = vec![
        ready_to_start,
        initialized(pod, containers, phase),
        ready(pod, &containers_ready),
        containers_ready,
        condition("PodScheduled", true, "", String::new()),
    ];
    for new in &mut all {
        let old = pod.array_at("/status/conditions").iter().find(|c| c["type"] == new["type"]);
        let kept = old.filter(|o| o["status"] == new["status"]).map(|o| o["lastTransitionTime"].clone());
        new["lastTransitionTime"] = kept.filter(Value::is_string).unwrap_or_else(|| json!(rfc3339(now)));
        new["lastProbeTime"] = Value::Null;
        if pod.generation() > 0 {
            new["observedGeneration"] = json!(pod.generation());
        }
    }
    all
}

fn condition(kind: &str, status: bool, reason: &str, message: String) -> Value {
    let mut condition = json!({"type": kind, "status": if status { "True" } else { "False" }});
    if !reason.is_empty() {
        condition["reason"] = json!(reason);
    }
    if !message.is_empty() {
        condition["message"] = json!(message);
    }
    condition
}

fn initialized(pod: &Value, containers: &[Container<'_>], phase: &str) -> Value {
    if phase == "Succeeded" {
        return condition("Initialized", true, "PodCompleted", String::new());
    }
    let app_started = containers.iter().any(|c| c.role == Role::App && !c.id.is_empty());
    let incomplete: Vec<&str> = containers
        .iter()
        .filter(|c| match c.role {
            Role::Init => !c.ready,
            Role::Sidecar => !c.started,
            _ => false,
        })
        .map(Container::name)
        .collect();
    let was = pod.is_condition_true("Initialized");
    if app_started || incomplete.is_empty() || (was && !pod.array_at("/spec/initContainers").is_empty()) {
        return condition("Initialized", true, "", String::new());
    }
    condition("Initialized", false, "ContainersNotInitialized", format!("containers with incomplete status: [{}]", incomplete.join(" ")))
}

fn containers_ready(containers: &[Container<'_>], phase: &str) -> Value {
    match phase {
        "Succeeded" => return condition("ContainersReady", false, "PodCompleted", String::new()),
        "Failed" => return condition("ContainersReady", false, "PodFailed", String::new()),
        _ => {}
    }
    let unready: Vec<&str> =
        containers.iter().filter(|c| matches!(c.role, Role::App | Role::Sidecar) && !c.ready).map(Container::name).collect();
    if unready.is_empty() {
        return condition("ContainersReady", true, "", String::new());
    }
    condition("ContainersReady", false, "ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" ")))
}

fn ready(pod: &Value, containers_ready: &Value) -> Value {
    if containers_ready["status"] != "True" {
        let mut ready = containers_ready.clone();
        ready["type"] = json!("Ready");
        return ready;
    }
    let mut unready = Vec::new();
    for gate in pod.array_at("/spec/readinessGates").iter().filter_map(|g| g["conditionType"].as_str()) {
        match pod.condition(gate) {
            None => unready.push(format!("corresponding condition of pod readiness gate \"{gate}\" does not exist.")),
            Some(c) if c["status"] != "True" => {
                let status = c["status"].as_str().unwrap_or_default();
                unready.push(format!("the status of pod readiness gate \"{gate}\" is not \"True\", but {status}"));
            }
            Some(_) => {}
        }
    }
    if unready.is_empty() {
        return condition("Ready", true, "", String::new());
    }
    condition("Ready", false, "ReadinessGatesNotReady", unready.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(phase_of: &[(&str, &str)]) -> Vec<Value> {
        phase_of
            .iter()
            .map(|(name, state)| {
                let state = match *state {
                    "running" => json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}}),
                    "waiting" => json!({"waiting": {"reason": "ContainerCreating"}}),
                    code => json!({"terminated": {"exitCode": code.parse::<i64>().unwrap()}}),
                };
                let id = if state.get("waiting").is_some() { "" } else { "containerd://x" };
                json!({"name": name, "state": state, "containerID": id})
            })
            .collect()
    }

    fn check(policy: &str, init: &[(&str, &str)], apps: &[(&str, &str)], expected: &str) {
        let pod = json!({"spec": {"restartPolicy": policy}});
        let specs: Vec<Value> = init.iter().chain(apps).map(|(name, _)| json!({"name": name})).collect();
        let statuses = status(&[init, apps].concat());
        let containers: Vec<Container<'_>> = specs
            .iter()
            .enumerate()
            .map(|(i, spec)| Container::read(spec, if i < init.len() { Role::Init } else { Role::App }, &statuses, ""))
            .collect();
        assert_eq!(phase(&pod, &containers, false), expected, "{policy} {init:?} {apps:?}");
    }

    #[test]
    fn the_phase_follows_from_the_containers() {
        check("Always", &[], &[("a", "running"), ("b", "running")], "Running");
        check("Always", &[], &[("a", "running"), ("b", "waiting")], "Pending");
        check("Always", &[], &[("a", "0")], "Running");
        check("Never", &[], &[("a", "0"), ("b", "running")], "Running");
        check("Never", &[], &[("a", "0"), ("b", "0")], "Succeeded");
        check("Never", &[], &[("a", "0"), ("b", "1")], "Failed");
        check("OnFailure", &[], &[("a", "0"), ("b", "1")], "Running");
        check("Always", &[("i", "running")], &[("a", "waiting")], "Pending");
        check("Always", &[("i", "1")], &[("a", "waiting")], "Pending");
        check("Never", &[("i", "1")], &[("a", "waiting")], "Failed");
        check("Always", &[("i", "0")], &[("a", "running")], "Running");
    }

    #[test]
    fn readiness_gates_hold_the_pod_back() {
        let spec = json!({"name": "c"});
        let mut container = Container::read(&spec, Role::App, &[], "");
        container.start("u", 1);
        container.ready = true;
        let mut pod = json!({"metadata": {"generation": 2}, "spec": {"readinessGates": [{"conditionType": "x/a"}]}, "status": {}});
        let ready = |pod: &Value| conditions(pod, std::slice::from_ref(&container), "Running", true, 5)[2].clone();
        assert_eq!(ready(&pod)["message"], "corresponding condition of pod readiness gate \"x/a\" does not exist.");
        pod["status"]["conditions"] = json!([{"type": "x/a", "status": "False"}]);
        assert_eq!(ready(&pod)["message"], "the status of pod readiness gate \"x/a\" is not \"True\", but False");
        pod["status"]["conditions"] = json!([{"type": "x/a", "status": "True"}]);
        assert_eq!((&ready(&pod)["status"], &ready(&pod)["observedGeneration"]), (&json!("True"), &json!(2)));
    }
}
