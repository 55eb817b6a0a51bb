//! One step of a simulated pod: from what is seen now to the status that is true now.
//!
//! Everything follows from the pod with its status, so a restart loses nothing that anybody saw.

use super::admission;
use super::behaviour;
use super::conditions;
use super::container::{Container, Role, State, rfc3339, seconds};
use super::resize::{self, Room};
use super::shell::Run;
use crate::config::Timings;
use crate::events::Notice;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::IpAddr;
use sublet_machinery::ObjectExt;

/// What a step looks at.
pub(crate) struct Observed<'a> {
    pub(crate) pod: &'a Value,
    pub(crate) node_address: IpAddr,
    /// The pod's own address; `None` while the node has none left.
    pub(crate) address: Option<IpAddr>,
    /// Why its volumes cannot be mounted yet.
    pub(crate) volume_trouble: Option<String>,
    /// Why the environment of a container cannot be made.
    pub(crate) config_trouble: &'a dyn Fn(&Value) -> Option<String>,
    /// A file in a volume of the container.
    pub(crate) read: &'a dyn Fn(&Value, &str) -> Option<String>,
    /// Why the node turns away a pod that no scheduler sent: reason and message.
    pub(crate) admit: &'a dyn Fn() -> Option<(&'static str, String)>,
    pub(crate) room: &'a dyn Fn() -> Room,
    pub(crate) timings: &'a Timings,
    pub(crate) now: i64,
}

/// What is remembered of a pod between steps. Losing it costs a repeated event at most.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(super) runs: HashMap<(String, i64), (Run, String)>,
    pub(super) pull_failed: HashMap<String, i64>,
    pub(super) kill_told: bool,
    pub(crate) mount_failures: u32,
}

/// What is to be done.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) status: Value,
    pub(crate) events: Vec<Notice>,
    /// Files made: container name, path and content.
    pub(crate) files: Vec<(String, String, String)>,
    /// Step again at this second.
    pub(crate) wake_at: Option<i64>,
    /// All processes have ended: the API object may go.
    pub(crate) gone: bool,
}

pub(super) const CONFIG_RETRY_SECONDS: i64 = 10;
/// Start, end, restart, end, back-off, and one more.
const TURNS_MAX: usize = 6;
const MOUNT_RETRY_SECONDS_MAX: i64 = 122;
/// SIGTERM without a handler.
pub(super) const KILLED: i64 = 143;

pub(crate) fn step(observed: &Observed<'_>, memory: &mut Memory) -> Plan {
    let pod = observed.pod;
    let waiting = if pod.array_at("/spec/initContainers").is_empty() { "ContainerCreating" } else { "PodInitializing" };
    let mut containers = Vec::new();
    for (field, statuses, role) in [
        ("/spec/initContainers", "/status/initContainerStatuses", Role::Init),
        ("/spec/containers", "/status/containerStatuses", Role::App),
        ("/spec/ephemeralContainers", "/status/ephemeralContainerStatuses", Role::Ephemeral),
    ] {
        for spec in pod.array_at(field) {
            let role = if role == Role::Init && spec["restartPolicy"] == "Always" { Role::Sidecar } else { role };
            containers.push(Container::read(spec, role, pod.array_at(statuses), waiting));
        }
    }
    let mut step = Step { observed, memory, containers, plan: Plan::default(), failure: None, sandbox: false };
    step.run();
    step.finish()
}

/// Phases after which nothing runs any more.
pub(crate) fn is_terminal(pod: &Value) -> bool {
    matches!(pod.str_at("/status/phase"), Some("Succeeded" | "Failed"))
}

pub(super) struct Step<'a, 'm> {
    pub(super) observed: &'a Observed<'a>,
    pub(super) memory: &'m mut Memory,
    pub(super) containers: Vec<Container<'a>>,
    pub(super) plan: Plan,
    /// Why the pod as a whole has failed: reason and message.
    pub(super) failure: Option<(&'static str, String)>,
    /// Whether the pod's network and volumes stand.
    pub(super) sandbox: bool,
}

impl Step<'_, '_> {
    fn run(&mut self) {
        let observed = self.observed;
        let pod = observed.pod;
        if pod.is_deleting() {
            return self.terminate();
        }
        if is_terminal(pod) {
            return;
        }
        let Some(started) = pod.pointer("/status/startTime").and_then(seconds) else {
            return self.admit();
        };
        if let Some(deadline) = pod.i64_at("/spec/activeDeadlineSeconds") {
            if observed.now >= started + deadline {
                return self.expire();
            }
            self.wake_at(started + deadline);
        }
        let delay = behaviour::seconds(pod, "", "start-delay-seconds").unwrap_or(observed.timings.pod_start);
        if observed.now < started + delay {
            return self.wake_at(started + delay);
        }
        let running = self.containers.iter().any(|c| !c.id.is_empty());
        if let Some(trouble) = observed.volume_trouble.as_ref().filter(|_| !running) {
            self.memory.mount_failures += 1;
            let delay = (1_i64 << self.memory.mount_failures.min(7)).min(MOUNT_RETRY_SECONDS_MAX);
            self.plan.events.push(Notice::warning("FailedMount", trouble.clone()));
            return self.wake_at(observed.now + delay);
        }
        if observed.address.is_none() {
            let message = "Failed to create pod sandbox: no addresses left in the node's pod range".to_string();
            self.plan.events.push(Notice::warning("FailedCreatePodSandBox", message));
            return self.wake_at(observed.now + CONFIG_RETRY_SECONDS);
        }
        self.sandbox = true;
        if self.advance_init() {
            for index in 0..self.containers.len() {
                if matches!(self.containers[index].role, Role::App | Role::Ephemeral) {
                    self.advance(index);
                }
            }
            self.stop_sidecars();
        }
    }

    /// The first sight of a pod: the status says Pending, unless the node turns it away.
    fn admit(&mut self) {
        let scheduled = self.observed.pod.array_at("/status/conditions").iter().any(|c| c["type"] == "PodScheduled");
        let refused = admission::refuse_sysctls(self.observed.pod);
        match refused.or_else(|| if scheduled { None } else { (self.observed.admit)() }) {
            Some((reason, message)) => {
                self.plan.events.push(Notice::warning(reason, message.clone()));
                self.failure = Some((reason, message));
            }
            None => self.wake_at(self.observed.now),
        }
    }

    /// Moves the init containers on; true when the app containers may run.
    fn advance_init(&mut self) -> bool {
        let app_started = self.containers.iter().any(|c| c.role == Role::App && !c.id.is_empty());
        for index in 0..self.containers.len() {
            match self.containers[index].role {
                Role::Init if !app_started => {
                    let done = |c: &Container<'_>| matches!(&c.state, State::Exited(e) if e.code == 0);
                    if !done(&self.containers[index]) {
                        self.advance(index);
                    }
                    if !done(&self.containers[index]) {
                        return false;
                    }
                }
                Role::Sidecar => {
                    self.advance(index);
                    if !app_started && !self.containers[index].started {
                        return false;
                    }
                }
                _ => {}
            }
        }
        true
    }

    /// Lets time pass for one container until it has nothing to do now.
    fn advance(&mut self, index: usize) {
        let (pod, now) = (self.observed.pod, self.observed.now);
        // An end, its restart and the next end may all be due; the back-off bounds the turns.
        for _ in 0..TURNS_MAX {
            match self.containers[index].state.clone() {
                State::Running { started } => {
                    if self.definition_changed(index) || resize::advance(&mut self.containers[index], self.observed, &mut self.plan) {
                        self.restart_changed(index);
                        continue;
                    }
                    if let Some(at) = self.liveness_failure(index, started)
                        && now >= at
                    {
                        self.kill_unhealthy(index);
                        continue;
                    }
                    let (run, message) = self.behaviour(index);
                    match run {
                        Run::Ends { after, code } if now >= started + after => {
                            self.containers[index].stop_with(code, started + after, message);
                            if self.containers[index].role == Role::Init && code == 0 {
                                return;
                            }
                        }
                        run => {
                            if let Run::Ends { after, .. } = run {
                                self.wake_at(started + after);
                            }
                            return self.probe(index, started);
                        }
                    }
                }
                State::Exited(exit) => {
                    if !self.containers[index].restarts_after(pod, exit.code) {
                        return;
                    }
                    let due = self.restart_due(index, &exit);
                    if now < due {
                        self.back_off(index, due, &exit);
                        return self.wake_at(due);
                    }
                    if !self.start(index) {
                        return;
                    }
                }
                State::Waiting { reason, .. } => {
                    if reason == "CrashLoopBackOff"
                        && let Some(exit) = self.containers[index].last.clone()
                    {
                        let due = self.restart_due(index, &exit);
                        if now < due {
                            return self.wake_at(due);
                        }
                    }
                    if !self.start(index) {
                        return;
                    }
                }
            }
        }
    }

    fn definition_changed(&self, index: usize) -> bool {
        let container = &self.containers[index];
        matches!(container.role, Role::App | Role::Sidecar) && container.image != container.spec_image()
    }

    /// How this run of the container goes and what it leaves as a message, decided once per run.
    fn behaviour(&mut self, index: usize) -> (Run, String) {
        let container = &self.containers[index];
        let key = (container.name().to_string(), container.restarts);
        if let Some(known) = self.memory.runs.get(&key) {
            return known.clone();
        }
        let read = |path: &str| (self.observed.read)(container.spec, path);
        let outcome = behaviour::run(self.observed.pod, container.spec, container.role == Role::Init, &read);
        let decided = (outcome.run, outcome.message(container.spec));
        self.plan.files.extend(outcome.files.into_iter().map(|(path, text)| (key.0.clone(), path, text)));
        self.memory.runs.retain(|(name, _), _| *name != key.0);
        self.memory.runs.insert(key, decided.clone());
        decided
    }

    /// When the liveness probe has failed often enough, if it is known to fail.
    fn liveness_failure(&mut self, index: usize, started: i64) -> Option<i64> {
        let container = &self.containers[index];
        if container.role == Role::Init || !behaviour::probe_fails(self.observed.pod, container.spec, "livenessProbe") {
            return None;
        }
        let number = |field: &str, default: i64| container.spec.i64_at(&format!("/livenessProbe/{field}")).unwrap_or(default);
        let at = started + number("initialDelaySeconds", 0) + number("periodSeconds", 10) * number("failureThreshold", 3);
        self.wake_at(at);
        Some(at)
    }

    fn kill_unhealthy(&mut self, index: usize) {
        let now = self.observed.now;
        let container = &mut self.containers[index];
        let message = format!("Container {} failed liveness probe, will be restarted", container.name());
        self.plan.events.push(Notice::warning("Unhealthy", "Liveness probe failed: ".into()).at(container.field_path()));
        self.plan.events.push(Notice::normal("Killing", message).at(container.field_path()));
        container.stop(KILLED, now);
    }

    /// Started and ready, some time after the start if the pod says so.
    fn probe(&mut self, index: usize, started: i64) {
        let (pod, now) = (self.observed.pod, self.observed.now);
        let container = &mut self.containers[index];
        let spec = container.spec;
        let delay = |probe: &str| spec.i64_at(&format!("/{probe}/initialDelaySeconds")).unwrap_or(0);
        let started_at = started + delay("startupProbe");
        let ready_delay = behaviour::seconds(pod, container.name(), "ready-delay-seconds").unwrap_or_else(|| delay("readinessProbe"));
        let ready_at = started_at.max(started + ready_delay);
        let never =
            behaviour::setting(pod, container.name(), "never-ready") == Some("true") || behaviour::probe_fails(pod, spec, "readinessProbe");
        container.started = now >= started_at;
        container.ready = match container.role {
            Role::Init | Role::Ephemeral => false,
            Role::App | Role::Sidecar => now >= ready_at && !never,
        };
        for at in [started_at, ready_at] {
            if at > now {
                self.wake_at(at);
            }
        }
    }

    pub(super) fn wake_at(&mut self, at: i64) {
        self.plan.wake_at = Some(self.plan.wake_at.map_or(at, |other| other.min(at)));
    }

    /// The status that says all this.
    fn finish(mut self) -> Plan {
        let pod = self.observed.pod;
        let mut status = pod.get("status").cloned().unwrap_or_else(|| json!({}));
        if !is_terminal(pod) {
            let ending = self.plan.gone || self.failure.is_some();
            let phase = if self.failure.is_some() { "Failed" } else { conditions::phase(pod, &self.containers, ending) };
            self.write(&mut status, phase);
        }
        if pod.generation() > 0 {
            status["observedGeneration"] = json!(pod.generation());
        }
        self.plan.status = status;
        self.plan
    }

    fn write(&self, status: &mut Value, phase: &str) {
        let (pod, observed) = (self.observed.pod, self.observed);
        let over = matches!(phase, "Succeeded" | "Failed");
        let host = observed.node_address.to_string();
        status["phase"] = json!(phase);
        status["hostIP"] = json!(host);
        status["hostIPs"] = json!([{"ip": host}]);
        if status.get("startTime").is_none() {
            status["startTime"] = json!(rfc3339(observed.now));
        }
        if let Some(address) = observed.address.filter(|_| self.sandbox) {
            status["podIP"] = json!(address.to_string());
            status["podIPs"] = json!([{"ip": address.to_string()}]);
        }
        if let Some((reason, message)) = &self.failure {
            status["reason"] = json!(reason);
            status["message"] = json!(message);
        }
        let owned = conditions::conditions(pod, &self.containers, phase, self.sandbox && !over, observed.now);
        let foreign = pod.array_at("/status/conditions").iter().filter(|c| !owned.iter().any(|o| o["type"] == c["type"])).cloned();
        let mut all: Vec<Value> = owned.clone();
        all.extend(foreign);
        resize::conditions(&self.containers, observed, &mut all);
        status["conditions"] = Value::Array(all);
        for (field, roles) in [
            ("initContainerStatuses", &[Role::Init, Role::Sidecar][..]),
            ("containerStatuses", &[Role::App]),
            ("ephemeralContainerStatuses", &[Role::Ephemeral]),
        ] {
            let list: Vec<Value> = self.containers.iter().filter(|c| roles.contains(&c.role)).map(Container::status).collect();
            if !list.is_empty() {
                status[field] = Value::Array(list);
            }
        }
    }
}

#[cfg(test)]
#[path = "step_tests.rs"]
mod tests;
