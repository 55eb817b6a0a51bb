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
use std::collections::{BTreeMap, BTreeSet};
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

/// How the process of the container goes, and the files that it makes.
pub(crate) fn run(pod: &Value, container: &Value, init: bool, exists: &dyn Fn(&str) -> bool) -> (Run, BTreeSet<String>) {
    let name = container_name(container);
    let none = BTreeSet::new();
    let code = setting(pod, name, "exit-code").and_then(|c| c.parse().ok());
    if setting(pod, name, "crash-loop") == Some("true") {
        return (Run::Ends { after: seconds(pod, name, "run-seconds").unwrap_or(0), code: code.unwrap_or(1) }, none);
    }
    if let Some(after) = seconds(pod, name, "run-seconds") {
        return (Run::Ends { after, code: code.unwrap_or(0) }, none);
    }
    if let Some(code) = code {
        return (Run::Ends { after: 0, code }, none);
    }
    let env = environment(pod, container);
    let words: Vec<String> = container
        .array_at("/command")
        .iter()
        .chain(container.array_at("/args"))
        .filter_map(Value::as_str)
        .map(|word| substitute(word, &env))
        .collect();
    let mut world = World { env, exists, created: BTreeSet::new() };
    let has_command = !container.array_at("/command").is_empty();
    let run = match words.first().map(|w| w.rsplit('/').next().unwrap_or_default()) {
        // A shell image without a terminal reads the end of its input and leaves.
        None if is_shell_image(container) => Run::Ends { after: 0, code: 0 },
        None => Run::Forever,
        Some("sh" | "bash" | "ash" | "dash") => match shell::shell_script(&words) {
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
    match run {
        Run::Forever if init => (Run::Ends { after: 0, code: 0 }, world.created),
        run => (run, world.created),
    }
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

fn environment(pod: &Value, container: &Value) -> BTreeMap<String, String> {
    let mut env = BTreeMap::from([("HOSTNAME".to_string(), pod.name().to_string())]);
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
        assert_eq!(run(&pod, &container, false, &|_| false).0, expected, "{container}");
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
    fn bad_images_are_known_by_their_tag() {
        let pod = json!({"metadata": {}});
        for (image, bad) in [("a:nonexistent", true), ("webserver:404", true), ("x/non-existent", true), ("nginx:1", false)] {
            assert_eq!(pull_error(&pod, &json!({"name": "c", "image": image})).is_some(), bad, "{image}");
        }
    }
}
