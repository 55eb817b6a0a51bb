//! What a simulated container prints and answers: the text behind `kubectl logs` and `kubectl exec`.

use super::behaviour::{self, container_name};
use super::shell::{self, Run, World};
use serde_json::Value;
use std::collections::BTreeMap;
use sublet_machinery::{ApiError, ObjectExt};

/// What of a container's log is asked for.
#[derive(Clone, Debug, Default)]
pub struct LogRequest {
    /// Empty: the only container, or the one that an annotation names.
    pub container: String,
    pub tail_lines: Option<usize>,
    pub limit_bytes: Option<usize>,
    pub timestamps: bool,
    /// The log of the run before the present one.
    pub previous: bool,
}

/// How a command in a container ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Executed {
    pub stdout: String,
    pub stderr: String,
    pub code: i64,
}

const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
/// As shells say it of a command that is not there.
const NOT_FOUND: i64 = 127;

/// The log of a container, as far as its command tells what it prints.
pub fn simulated_log(pod: &Value, request: &LogRequest) -> Result<String, ApiError> {
    let container = stream_container(pod, &request.container)?;
    let name = container_name(container);
    let lists = ["/status/containerStatuses", "/status/initContainerStatuses", "/status/ephemeralContainerStatuses"];
    let status = lists.iter().flat_map(|l| pod.array_at(l)).find(|s| s["name"] == name).unwrap_or(&Value::Null);
    if request.previous && status.pointer("/lastState/terminated").is_none() {
        let message = format!("previous terminated container \"{name}\" in pod \"{}\" not found", pod.name());
        return Err(ApiError::bad_request(message));
    }
    let run = status.pointer("/state/running").or_else(|| status.pointer("/state/terminated"));
    let run = run.or_else(|| status.pointer("/lastState/terminated"));
    let Some(run) = run else {
        let reason = status.str_at("/state/waiting/reason").unwrap_or("ContainerCreating");
        let what = if reason.contains("Image") { "trying and failing to pull image".to_string() } else { reason.to_string() };
        return Err(ApiError::bad_request(format!("container \"{name}\" in pod \"{}\" is waiting to start: {what}", pod.name())));
    };
    let outcome = behaviour::run(pod, container, false, &|_| None);
    let mut text = outcome.output;
    if text.is_empty() && outcome.run == Run::Forever {
        text = format!("simulated container: {} runs no process here\n", container["image"].as_str().unwrap_or_default());
    }
    if request.timestamps {
        let at = run["startedAt"].as_str().unwrap_or_default();
        text = text.lines().map(|line| format!("{at} {line}\n")).collect();
    }
    if let Some(lines) = request.tail_lines {
        let all: Vec<&str> = text.split_inclusive('\n').collect();
        text = all[all.len().saturating_sub(lines)..].concat();
    }
    if let Some(limit) = request.limit_bytes
        && limit < text.len()
    {
        let end = (0..=limit).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    Ok(text)
}

/// The container that a stream is about, with upstream's words when there is none.
pub fn stream_container<'p>(pod: &'p Value, wanted: &str) -> Result<&'p Value, ApiError> {
    let lists = ["/spec/containers", "/spec/initContainers", "/spec/ephemeralContainers"];
    let find = |name: &str| lists.iter().flat_map(|l| pod.array_at(l)).find(|c| container_name(c) == name);
    let mut wanted = wanted;
    if wanted.is_empty() {
        let containers = pod.array_at("/spec/containers");
        let named = pod.annotation(DEFAULT_CONTAINER).filter(|n| find(n).is_some());
        wanted = match (containers, named) {
            ([only], _) => container_name(only),
            (_, Some(named)) => named,
            _ => {
                let names: Vec<&str> = containers.iter().map(container_name).collect();
                let message = format!("a container name must be specified for pod {}, choose one of: [{}]", pod.name(), names.join(" "));
                return Err(ApiError::bad_request(message));
            }
        };
    }
    find(wanted).ok_or_else(|| ApiError::bad_request(format!("container {wanted} is not valid for pod {}", pod.name())))
}

/// A shell in a simulated container: files and variables live as long as it does.
pub struct SimulatedShell {
    env: BTreeMap<String, String>,
    files: BTreeMap<String, String>,
    sysctls: BTreeMap<String, String>,
}

impl SimulatedShell {
    pub fn new(pod: &Value, container: &Value) -> Self {
        let files = behaviour::run(pod, container, false, &|_| None).files;
        Self { env: behaviour::environment(pod, container), files, sysctls: behaviour::sysctls(pod) }
    }

    /// Runs one command; `input` is its standard input.
    pub fn exec(&mut self, words: &[String], input: &str) -> Executed {
        let files = self.files.clone();
        let read = |path: &str| files.get(path).cloned();
        let mut world = World::new(std::mem::take(&mut self.env), &read);
        world.input = input.to_string();
        world.errors = Some(String::new());
        world.sysctls = self.sysctls.clone();
        let run = shell::run_words(words, &mut world);
        self.env = std::mem::take(&mut world.env);
        let (output, written) = (std::mem::take(&mut world.output), std::mem::take(&mut world.written));
        let mut stderr = world.errors.take().unwrap_or_default();
        self.files.extend(written);
        match run {
            Run::Ends { code, .. } => Executed { stdout: output, stderr, code },
            Run::Forever => {
                let name = words.first().map(String::as_str).unwrap_or_default();
                stderr.push_str(&format!("simulated container: \"{name}\": executable file not found in $PATH\n"));
                Executed { stdout: output, stderr, code: NOT_FOUND }
            }
        }
    }

    /// Runs one line of an interactive shell.
    pub fn line(&mut self, line: &str) -> Executed {
        self.exec(&["sh".into(), "-c".into(), line.into()], "")
    }
}

/// Whether the command is a shell that waits for lines.
pub fn is_interactive(words: &[String]) -> bool {
    let first = words.first().map(|w| w.rsplit('/').next().unwrap_or_default());
    matches!(first, Some("sh" | "bash" | "ash" | "dash")) && shell::script_of(words).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod() -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"containers": [
                {"name": "a", "image": "busybox", "command": ["sh", "-c", "echo one; echo two; sleep 9"], "env": [{"name": "X", "value": "1"}]},
                {"name": "b", "image": "nginx"}, {"name": "c", "image": "nginx"}]},
            "status": {"containerStatuses": [
                {"name": "a", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}, {"name": "b", "state": {"running": {}}},
                {"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}}]}})
    }

    #[test]
    fn standard_error_is_apart_where_somebody_asked_for_it() {
        let mut shell = SimulatedShell::new(&pod(), &pod()["spec"]["containers"][0]);
        let ran = shell.line("echo out; echo err >&2; echo both 2>&1; exit 3");
        assert_eq!(ran, Executed { stdout: "out\nboth\n".into(), stderr: "err\n".into(), code: 3 });
    }

    #[test]
    fn logs_are_what_the_command_prints() {
        let log = |request: LogRequest| simulated_log(&pod(), &request).map_err(|e| e.message);
        let of = |container: &str| LogRequest { container: container.into(), ..LogRequest::default() };
        assert_eq!(log(of("a")).unwrap(), "one\ntwo\n");
        assert_eq!(log(LogRequest { tail_lines: Some(1), ..of("a") }).unwrap(), "two\n");
        assert_eq!(log(LogRequest { limit_bytes: Some(2), ..of("a") }).unwrap(), "on");
        assert_eq!(log(LogRequest { timestamps: true, tail_lines: Some(1), ..of("a") }).unwrap(), "2026-01-01T00:00:00Z two\n");
        assert_eq!(log(of("b")).unwrap(), "simulated container: nginx runs no process here\n");
        assert_eq!(log(of("c")).unwrap_err(), "container \"c\" in pod \"p\" is waiting to start: ContainerCreating");
        assert_eq!(log(of("x")).unwrap_err(), "container x is not valid for pod p");
        assert_eq!(log(of("")).unwrap_err(), "a container name must be specified for pod p, choose one of: [a b c]");
        assert_eq!(
            log(LogRequest { previous: true, ..of("a") }).unwrap_err(),
            "previous terminated container \"a\" in pod \"p\" not found"
        );
    }

    #[test]
    fn commands_are_answered_by_the_guess() {
        let pod = pod();
        let mut shell = SimulatedShell::new(&pod, stream_container(&pod, "a").unwrap());
        let words = |text: &str| text.split_whitespace().map(str::to_string).collect::<Vec<_>>();
        assert_eq!(shell.exec(&words("echo hi"), "").stdout, "hi\n");
        assert_eq!(shell.exec(&words("cat"), "input").stdout, "input");
        assert_eq!(shell.exec(&words("unknown"), "").code, 127);
        assert_eq!(shell.line("echo $X > /f; exit 3").code, 3);
        assert_eq!(shell.line("cat /f").stdout, "1\n");
        assert!(is_interactive(&words("/bin/bash")) && !is_interactive(&words("sh -c true")));
    }
}
