//! What a simulated container does: by annotations of its pod, its image and its command.
//!
//! Annotations, each also for one container as `KEY.CONTAINER`:
//! - `sim.sublet.dev/image-pull: fail`
//! - `sim.sublet.dev/run-seconds: "5"`, `sim.sublet.dev/exit-code: "3"`
//! - `sim.sublet.dev/crash-loop: "true"`
//! - `sim.sublet.dev/ready-delay-seconds: "2"`, `sim.sublet.dev/never-ready: "true"`
//! - `sim.sublet.dev/start-delay-seconds: "2"`, `sim.sublet.dev/stop-seconds: "5"`

use super::shell::{self, Run, World};
use serde_json::Value;
use std::collections::BTreeMap;
use sublet_machinery::ObjectExt;

/// The prefix of every annotation that the simulation reads.
pub const ANNOTATION_PREFIX: &str = "sim.sublet.dev/";

/// The annotation of the pod for this container, or for all of them.
pub(crate) fn setting<'p>(pod: &'p Value, container: &str, key: &str) -> Option<&'p str> {
    let annotations = pod.annotations()?;
    annotations
        .get(&format!("{ANNOTATION_PREFIX}{key}.{container}"))
        .or_else(|| annotations.get(&format!("{ANNOTATION_PREFIX}{key}")))
        .and_then(Value::as_str)
}

pub(crate) fn seconds(pod: &Value, container: &str, key: &str) -> Option<i64> {
    setting(pod, container, key)?.parse().ok().filter(|s| *s >= 0)
}

/// Why the image cannot be pulled, if so.
pub(crate) fn pull_error(pod: &Value, container: &Value) -> Option<String> {
    let image = container["image"].as_str().unwrap_or_default();
    let bad = setting(pod, container_name(container), "image-pull") == Some("fail")
        || image.ends_with(":nonexistent")
        || image.ends_with(":404")
        || image.ends_with("non-existent")
        || image.contains(".invalid/");
    bad.then(|| format!("failed to pull and unpack image \"{image}\": failed to resolve reference \"{image}\": {image}: not found"))
}

/// What the process of a container does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) run: Run,
    /// Path and content.
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) output: String,
}

impl Outcome {
    fn just(run: Run) -> Self {
        Self { run, files: BTreeMap::new(), output: String::new() }
    }

    /// The termination message, from the container's file or from its last lines.
    pub(crate) fn message(&self, container: &Value) -> String {
        let path = container["terminationMessagePath"].as_str().unwrap_or("/dev/termination-log");
        if let Some(text) = self.files.get(path).filter(|t| !t.is_empty()) {
            return tail(text, MESSAGE_BYTES_MAX).to_string();
        }
        let failed = matches!(self.run, Run::Ends { code, .. } if code != 0);
        let from_log = container["terminationMessagePolicy"] == "FallbackToLogsOnError" && failed;
        if from_log { tail(&self.output, LOG_MESSAGE_BYTES_MAX).to_string() } else { String::new() }
    }
}

/// As the kubelet limits termination messages from files and from logs.
const MESSAGE_BYTES_MAX: usize = 4096;
const LOG_MESSAGE_BYTES_MAX: usize = 2048;

fn tail(text: &str, bytes_max: usize) -> &str {
    let start = text.len().saturating_sub(bytes_max);
    let start = (start..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    &text[start..]
}

/// How the process of the container goes. `read` finds files that are there already.
pub(crate) fn run(pod: &Value, container: &Value, init: bool, read: &dyn Fn(&str) -> Option<String>) -> Outcome {
    let name = container_name(container);
    let code = setting(pod, name, "exit-code").and_then(|c| c.parse().ok());
    if setting(pod, name, "crash-loop") == Some("true") {
        return Outcome::just(Run::Ends { after: seconds(pod, name, "run-seconds").unwrap_or(0), code: code.unwrap_or(1) });
    }
    if let Some(after) = seconds(pod, name, "run-seconds") {
        return Outcome::just(Run::Ends { after, code: code.unwrap_or(0) });
    }
    if let Some(code) = code {
        return Outcome::just(Run::Ends { after: 0, code });
    }
    let env = environment(pod, container);
    let words: Vec<String> = container
        .array_at("/command")
        .iter()
        .chain(container.array_at("/args"))
        .filter_map(Value::as_str)
        .map(|word| substitute(word, &env))
        .collect();
    let mut world = World::new(env, read);
    world.sysctls = sysctls(pod);
    let has_command = !container.array_at("/command").is_empty();
    let run = match words.first().map(|w| w.rsplit('/').next().unwrap_or_default()) {
        // A shell image without a terminal reads the end of its input and leaves.
        None if is_shell_image(container) => Run::Ends { after: 0, code: 0 },
        None => Run::Forever,
        Some("sh" | "bash" | "ash" | "dash") => match shell::script_of(&words) {
            Some(script) => shell::run_script(&script, &mut world),
            None => Run::Ends { after: 0, code: 0 },
        },
        Some(_) if has_command || is_shell_image(container) => {
            // Some write the whole line as one word: `command: ["exit 0"]`.
            let words = if words.len() == 1 { words[0].split_whitespace().map(str::to_string).collect() } else { words.clone() };
            shell::run_words(&words, &mut world)
        }
        Some(_) => Run::Forever,
    };
    // An init container that never ended would hide every pod behind a guess.
    let run = if run == Run::Forever && init { Run::Ends { after: 0, code: 0 } } else { run };
    Outcome { run, files: world.written, output: world.output }
}

/// The verdict of an exec probe, when its command is one that the guess can judge.
pub(crate) fn probe_fails(pod: &Value, container: &Value, probe: &str) -> bool {
    let words: Vec<String> =
        container.array_at(&format!("/{probe}/exec/command")).iter().filter_map(Value::as_str).map(str::to_string).collect();
    if words.is_empty() {
        return false;
    }
    let mut world = World::new(environment(pod, container), &|_| None);
    matches!(shell::run_words(&words, &mut world), Run::Ends { code, .. } if code != 0)
}

fn is_shell_image(container: &Value) -> bool {
    let image = container["image"].as_str().unwrap_or_default();
    let base = image.rsplit('/').next().unwrap_or_default().split([':', '@']).next().unwrap_or_default();
    ["busybox", "alpine", "hello-world", "debian", "ubuntu"].contains(&base)
}

pub(crate) fn container_name(container: &Value) -> &str {
    container["name"].as_str().unwrap_or_default()
}

/// Replaces `$(NAME)` in a word of a command, as the kubelet does.
fn substitute(word: &str, env: &BTreeMap<String, String>) -> String {
    if !word.contains("$(") {
        return word.to_string();
    }
    env.iter().fold(word.to_string(), |word, (name, value)| word.replace(&format!("$({name})"), value))
}

/// The kernel settings that the pod asks for.
pub(crate) fn sysctls(pod: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    pod.array_at("/spec/securityContext/sysctls").iter().map(|s| (text(&s["name"]).replace('/', "."), text(&s["value"]))).collect()
}

/// The host name of a pod: its own name, unless its spec says otherwise.
fn host_name(pod: &Value) -> String {
    const BYTES_MAX: usize = 63;
    let told = ["/spec/hostnameOverride", "/spec/hostname"].into_iter().find_map(|p| pod.str_at(p).filter(|name| !name.is_empty()));
    let own = || pod.name().get(..BYTES_MAX).unwrap_or(pod.name()).trim_end_matches(['-', '.']);
    told.unwrap_or_else(own).to_string()
}

pub(crate) fn environment(pod: &Value, container: &Value) -> BTreeMap<String, String> {
    let mut env = BTreeMap::from([("HOSTNAME".to_string(), host_name(pod))]);
    for variable in container.array_at("/env") {
        let Some(name) = variable["name"].as_str() else { continue };
        if let Some(value) = variable["value"].as_str() {
            let value = substitute(value, &env);
            env.insert(name.to_string(), value);
        } else if let Some(path) = variable.str_at("/valueFrom/fieldRef/fieldPath") {
            env.insert(name.to_string(), field(pod, path));
        }
    }
    env
}

fn field(pod: &Value, path: &str) -> String {
    let in_map = |prefix: &str| path.strip_prefix(prefix)?.strip_prefix("['")?.strip_suffix("']");
    if let Some(key) = in_map("metadata.annotations") {
        return pod.annotation(key).unwrap_or_default().to_string();
    }
    if let Some(key) = in_map("metadata.labels") {
        return pod.label(key).unwrap_or_default().to_string();
    }
    pod.str_at(&format!("/{}", path.replace('.', "/"))).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(container: Value, expected: Run) {
        let pod = json!({"metadata": {"name": "p", "annotations": {
            "batch.kubernetes.io/job-completion-index": "1", "sim.sublet.dev/exit-code.broken": "3", "sim.sublet.dev/run-seconds.slow": "9",
            "sim.sublet.dev/crash-loop.loop": "true"}}});
        assert_eq!(run(&pod, &container, false, &|_| None).run, expected, "{container}");
    }

    #[test]
    fn commands_images_and_annotations_decide() {
        let ends = |after, code| Run::Ends { after, code };
        check(json!({"name": "c", "image": "nginx"}), Run::Forever);
        check(json!({"name": "c", "image": "registry.k8s.io/e2e-test-images/busybox:1.37.0-2"}), ends(0, 0));
        check(json!({"name": "c", "image": "x", "command": ["exit 0"]}), ends(0, 0));
        check(json!({"name": "c", "image": "x", "command": ["/bin/sh", "-c", "exit 3"]}), ends(0, 3));
        check(json!({"name": "c", "image": "x", "command": ["/bin/sh", "-c"], "args": ["sleep 2; exit 1"]}), ends(2, 1));
        check(json!({"name": "c", "image": "x", "command": ["sleep", "20"]}), ends(20, 0));
        check(json!({"name": "c", "image": "agnhost", "args": ["netexec"]}), Run::Forever);
        check(json!({"name": "c", "image": "python", "command": ["python", "-m", "http.server"]}), Run::Forever);
        check(json!({"name": "c", "image": "perl:5.34", "command": ["perl", "-wle", "print 1"]}), ends(0, 0));
        check(json!({"name": "broken", "image": "nginx"}), ends(0, 3));
        check(json!({"name": "slow", "image": "nginx"}), ends(9, 0));
        check(json!({"name": "loop", "image": "nginx"}), ends(0, 1));
        check(
            json!({"name": "c", "image": "busybox", "command": ["sh", "-c", "exit $INDEX"], "env": [{"name": "INDEX",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}}]}),
            ends(0, 1),
        );
    }

    #[test]
    fn termination_messages_come_from_file_or_log() {
        let check = |script: &str, policy: &str, expected: &str| {
            let container = json!({"name": "c", "image": "busybox", "command": ["sh", "-c", script], "terminationMessagePolicy": policy});
            assert_eq!(run(&json!({}), &container, false, &|_| None).message(&container), expected, "{script}");
        };
        check("/bin/echo -n DONE > /dev/termination-log", "File", "DONE");
        check("/bin/echo -n DONE; /bin/false", "FallbackToLogsOnError", "DONE");
        check("/bin/echo -n DONE; /bin/true", "FallbackToLogsOnError", "");
        check("/bin/echo -n OK > /dev/termination-log; /bin/echo DONE; /bin/true", "FallbackToLogsOnError", "OK");
        check("/bin/echo -n DONE; /bin/false", "File", "");
    }

    #[test]
    fn bad_images_are_known_by_their_tag() {
        let pod = json!({"metadata": {}});
        for (image, bad) in [("a:nonexistent", true), ("webserver:404", true), ("x/non-existent", true), ("nginx:1", false)] {
            assert_eq!(pull_error(&pod, &json!({"name": "c", "image": image})).is_some(), bad, "{image}");
        }
    }
}
