//! One container of a pod: its state as the kubelet reports it, read from and written to a container status.

use super::behaviour::container_name;
use serde_json::{Map, Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};
use sublet_machinery::ObjectExt;

/// The part that a container plays in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Init,
    /// An init container with `restartPolicy: Always`.
    Sidecar,
    App,
    Ephemeral,
}

/// How a run of a container ended. Times are seconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) code: i64,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) started: Option<i64>,
    pub(crate) finished: Option<i64>,
    pub(crate) id: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Waiting { reason: String, message: String },
    Running { started: i64 },
    Exited(Exit),
}

#[derive(Clone, Debug)]
pub(crate) struct Container<'p> {
    pub(crate) spec: &'p Value,
    pub(crate) role: Role,
    pub(crate) state: State,
    pub(crate) last: Option<Exit>,
    pub(crate) restarts: i64,
    /// The image that runs, which an update of the spec may have left behind.
    pub(crate) image: String,
    pub(crate) id: String,
    pub(crate) started: bool,
    pub(crate) ready: bool,
    /// The resources in force.
    pub(crate) resources: Value,
}

impl<'p> Container<'p> {
    /// From the status of that name, or new.
    pub(crate) fn read(spec: &'p Value, role: Role, statuses: &[Value], waiting_reason: &str) -> Self {
        let name = container_name(spec);
        let mut container = Self {
            spec,
            role,
            state: State::Waiting { reason: waiting_reason.into(), message: String::new() },
            last: None,
            restarts: 0,
            image: spec["image"].as_str().unwrap_or_default().into(),
            id: String::new(),
            started: false,
            ready: false,
            resources: spec.get("resources").cloned().unwrap_or_else(|| json!({})),
        };
        if let Some(status) = statuses.iter().find(|s| s["name"] == name) {
            container.state = read_state(&status["state"], waiting_reason);
            container.last = status.pointer("/lastState/terminated").map(read_exit);
            container.restarts = status["restartCount"].as_i64().unwrap_or(0);
            container.id = status["containerID"].as_str().unwrap_or_default().into();
            container.image = status["image"].as_str().unwrap_or_default().into();
            container.started = status["started"] == true;
            container.ready = status["ready"] == true;
            if let Some(resources) = status.get("resources").filter(|r| r.is_object()) {
                container.resources = resources.clone();
            }
        }
        container
    }

    pub(crate) fn name(&self) -> &'p str {
        container_name(self.spec)
    }

    pub(crate) fn spec_image(&self) -> &'p str {
        self.spec["image"].as_str().unwrap_or_default()
    }

    /// The path used by events: `spec.containers{name}`.
    pub(crate) fn field_path(&self) -> String {
        let list = match self.role {
            Role::Init | Role::Sidecar => "initContainers",
            Role::App => "containers",
            Role::Ephemeral => "ephemeralContainers",
        };
        format!("spec.{list}{{{}}}", self.name())
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// The exit that counts: of this run, or of the last one while the next waits.
    pub(crate) fn exit(&self) -> Option<&Exit> {
        match &self.state {
            State::Exited(exit) => Some(exit),
            State::Waiting { .. } => self.last.as_ref(),
            State::Running { .. } => None,
        }
    }

    pub(crate) fn wait(&mut self, reason: &str, message: String) {
        if let State::Exited(exit) = &self.state {
            self.last = Some(exit.clone());
        }
        self.state = State::Waiting { reason: reason.into(), message };
        (self.started, self.ready) = (false, false);
    }

    pub(crate) fn start(&mut self, uid: &str, now: i64) {
        if let State::Exited(exit) = &self.state {
            self.last = Some(exit.clone());
        }
        if self.last.is_some() {
            self.restarts += 1;
        }
        self.image = self.spec_image().into();
        self.id = format!("containerd://{}", hex64(&(uid, self.name(), self.restarts)));
        self.resources = self.spec.get("resources").cloned().unwrap_or_else(|| json!({}));
        self.state = State::Running { started: now };
        (self.started, self.ready) = (false, false);
    }

    pub(crate) fn stop(&mut self, code: i64, at: i64) {
        self.stop_with(code, at, String::new());
    }

    pub(crate) fn stop_with(&mut self, code: i64, at: i64, message: String) {
        let State::Running { started } = self.state else { return };
        let reason = if code == 0 { "Completed" } else { "Error" };
        self.state =
            State::Exited(Exit { code, reason: reason.into(), message, started: Some(started), finished: Some(at), id: self.id.clone() });
        self.started = false;
        // An init container that did its work is ready, for ever.
        self.ready = self.role == Role::Init && code == 0;
    }

    /// Whether the container runs again after it ended with this code.
    pub(crate) fn restarts_after(&self, pod: &Value, code: i64) -> bool {
        for rule in self.spec.array_at("/restartPolicyRules") {
            let inside = rule.array_at("/exitCodes/values").iter().any(|v| v.as_i64() == Some(code));
            if inside == (rule.str_at("/exitCodes/operator") == Some("In")) {
                return true;
            }
        }
        let own = self.spec["restartPolicy"].as_str();
        match (self.role, own.unwrap_or_else(|| pod.str_at("/spec/restartPolicy").unwrap_or("Always"))) {
            (Role::Ephemeral, _) | (_, "Never") => false,
            (Role::Init, "Always") | (_, "OnFailure") => code != 0,
            _ => true,
        }
    }

    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "name": self.name(), "image": self.image, "imageID": "", "restartCount": self.restarts, "ready": self.ready,
            "started": self.started, "state": write_state(&self.state), "lastState": {},
        });
        if let Some(last) = &self.last {
            status["lastState"] = json!({"terminated": write_exit(last)});
        }
        if !self.id.is_empty() {
            status["containerID"] = json!(self.id);
            status["imageID"] = json!(format!("{}@sha256:{}", repository(&self.image), hex64(&self.image)));
        }
        if self.is_running() {
            status["resources"] = self.resources.clone();
            if let Some(requests) = self.resources.get("requests").filter(|r| r.as_object().is_some_and(|m| !m.is_empty())) {
                status["allocatedResources"] = requests.clone();
            }
        }
        let mounts: Vec<Value> = self.spec.array_at("/volumeMounts").iter().map(mount_status).collect();
        if !mounts.is_empty() && !self.id.is_empty() {
            status["volumeMounts"] = Value::Array(mounts);
        }
        status
    }
}

fn mount_status(mount: &Value) -> Value {
    let mut status = json!({"name": mount["name"], "mountPath": mount["mountPath"]});
    if mount["readOnly"] == true {
        status["readOnly"] = json!(true);
        status["recursiveReadOnly"] = json!("Disabled");
    }
    status
}

fn repository(image: &str) -> String {
    let name = image.split('@').next().unwrap_or_default();
    let name = name.rfind(':').filter(|at| !name[*at..].contains('/')).map_or(name, |at| &name[..at]);
    let first = name.split('/').next().unwrap_or_default();
    if name.contains('/') && (first.contains('.') || first.contains(':') || first == "localhost") {
        name.to_string()
    } else if name.contains('/') {
        format!("docker.io/{name}")
    } else {
        format!("docker.io/library/{name}")
    }
}

/// 64 hex digits that stand for the thing: the same ones each time.
fn hex64(thing: &impl Hash) -> String {
    (0_u8..4)
        .map(|part| {
            let mut hasher = DefaultHasher::new();
            part.hash(&mut hasher);
            thing.hash(&mut hasher);
            format!("{:016x}", hasher.finish())
        })
        .collect()
}

fn read_state(state: &Value, waiting_reason: &str) -> State {
    if let Some(running) = state.get("running") {
        return State::Running { started: seconds(&running["startedAt"]).unwrap_or(0) };
    }
    if let Some(terminated) = state.get("terminated") {
        return State::Exited(read_exit(terminated));
    }
    State::Waiting {
        reason: state.str_at("/waiting/reason").unwrap_or(waiting_reason).into(),
        message: state.str_at("/waiting/message").unwrap_or_default().into(),
    }
}

fn read_exit(terminated: &Value) -> Exit {
    let text = |key: &str| terminated[key].as_str().unwrap_or_default().to_string();
    Exit {
        code: terminated["exitCode"].as_i64().unwrap_or(0),
        reason: text("reason"),
        message: text("message"),
        started: seconds(&terminated["startedAt"]),
        finished: seconds(&terminated["finishedAt"]),
        id: text("containerID"),
    }
}

fn write_state(state: &State) -> Value {
    match state {
        State::Waiting { reason, message } if message.is_empty() => json!({"waiting": {"reason": reason}}),
        State::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
        State::Running { started } => json!({"running": {"startedAt": rfc3339(*started)}}),
        State::Exited(exit) => json!({"terminated": write_exit(exit)}),
    }
}

fn write_exit(exit: &Exit) -> Value {
    let mut map = Map::new();
    map.insert("exitCode".into(), json!(exit.code));
    for (key, text) in [("reason", &exit.reason), ("message", &exit.message), ("containerID", &exit.id)] {
        if !text.is_empty() {
            map.insert(key.into(), json!(text));
        }
    }
    for (key, at) in [("startedAt", exit.started), ("finishedAt", exit.finished)] {
        map.insert(key.into(), at.map_or(Value::Null, |at| json!(rfc3339(at))));
    }
    Value::Object(map)
}

/// Seconds since the epoch of a `metav1.Time`.
pub(crate) fn seconds(time: &Value) -> Option<i64> {
    time.as_str()?.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}

pub(crate) fn rfc3339(seconds: i64) -> String {
    sublet_runtime::clock::format_seconds(jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_reads_back_as_the_same_container() {
        let spec = json!({"name": "c", "image": "busybox:1", "resources": {"requests": {"cpu": "1"}}, "volumeMounts": [
            {"name": "v", "mountPath": "/v", "readOnly": true}]});
        let mut container = Container::read(&spec, Role::App, &[], "ContainerCreating");
        assert_eq!(container.status()["state"], json!({"waiting": {"reason": "ContainerCreating"}}));
        container.start("uid", 100);
        container.stop(3, 105);
        container.start("uid", 115);
        let status = container.status();
        assert_eq!(status["restartCount"], 1);
        assert_eq!(status["lastState"]["terminated"]["exitCode"], 3);
        assert_eq!(status["lastState"]["terminated"]["reason"], "Error");
        assert_eq!(status["allocatedResources"], json!({"cpu": "1"}));
        assert!(status["imageID"].as_str().unwrap().starts_with("docker.io/library/busybox@sha256:"));
        let read = Container::read(&spec, Role::App, std::slice::from_ref(&status), "");
        assert_eq!(read.status(), status);
    }

    #[test]
    fn restart_policies_of_pod_container_and_rules() {
        let check = |role, spec: Value, policy: &str, code, expected| {
            let pod = json!({"spec": {"restartPolicy": policy}});
            assert_eq!(Container::read(&spec, role, &[], "").restarts_after(&pod, code), expected, "{spec} {policy} {code}");
        };
        let plain = json!({"name": "c"});
        check(Role::App, plain.clone(), "Always", 0, true);
        check(Role::App, plain.clone(), "OnFailure", 0, false);
        check(Role::App, plain.clone(), "OnFailure", 1, true);
        check(Role::App, plain.clone(), "Never", 1, false);
        check(Role::Init, plain.clone(), "Always", 0, false);
        check(Role::Init, plain.clone(), "Never", 1, false);
        check(Role::Ephemeral, plain, "Always", 1, false);
        check(Role::Sidecar, json!({"name": "c", "restartPolicy": "Always"}), "Never", 0, true);
        let rules = json!({"name": "c", "restartPolicy": "Never", "restartPolicyRules": [
            {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]});
        check(Role::App, rules.clone(), "Never", 42, true);
        check(Role::App, rules, "Never", 1, false);
    }

    #[test]
    fn repositories_are_written_in_full() {
        for (image, full) in [
            ("nginx", "docker.io/library/nginx"),
            ("a/b:1", "docker.io/a/b"),
            ("localhost:5000/x:1", "localhost:5000/x"),
            ("registry.k8s.io/pause@sha256:1", "registry.k8s.io/pause"),
        ] {
            assert_eq!(repository(image), full);
        }
    }
}
