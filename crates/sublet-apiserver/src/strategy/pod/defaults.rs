//! Defaults of pods and pod templates (as in core/v1/defaults.go, 1.37).

use super::super::edit::{child, ensure, fill, fill_zero, is_zero, items, remove};
use super::super::quantities::round_up_list;
use super::volumes::default_volume;
use serde_json::{Value, json};

/// A pod template: `{metadata, spec}`.
pub(crate) fn default_template(template: &mut Value) {
    ensure(template, "metadata");
    default_spec(ensure(template, "spec"));
}

/// A pod: what holds for every pod spec, and what upstream gives to pods only so that templates do not change.
pub(crate) fn default_pod(pod: &mut Value) {
    let spec = ensure(pod, "spec");
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|s| s < 0) {
        spec["terminationGracePeriodSeconds"] = json!(1);
    }
    for list in ["containers", "initContainers"] {
        items(spec, list).for_each(default_requests);
    }
    fill(spec, "enableServiceLinks", true);
    if spec["hostNetwork"] == true {
        for list in ["containers", "initContainers"] {
            items(spec, list).for_each(default_host_ports);
        }
    }
    default_spec(spec);
    default_status(ensure(pod, "status"));
}

/// Requests that are not stated are as large as the limits.
pub(crate) fn default_requests(container: &mut Value) {
    let Some(limits) = container["resources"]["limits"].as_object().cloned() else { return };
    let requests = ensure(ensure(container, "resources"), "requests");
    for (name, limit) in limits {
        fill(requests, &name, limit);
    }
    if is_zero(requests)
        && let Some(resources) = container["resources"].as_object_mut()
    {
        resources.remove("requests");
    }
}

fn default_host_ports(container: &mut Value) {
    for port in items(container, "ports") {
        let number = port["containerPort"].clone();
        fill_zero(port, "hostPort", number);
    }
}

pub(crate) fn default_spec(spec: &mut Value) {
    default_service_account(spec);
    fill_zero(spec, "dnsPolicy", "ClusterFirst");
    fill_zero(spec, "restartPolicy", "Always");
    fill(spec, "securityContext", json!({}));
    fill(spec, "terminationGracePeriodSeconds", 30);
    fill_zero(spec, "schedulerName", "default-scheduler");
    items(spec, "volumes").for_each(default_volume);
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        items(spec, list).for_each(default_container);
    }
    round_up_list(spec, "overhead");
    if let Some(resources) = child(spec, "resources") {
        default_resources(resources);
    }
}

/// `serviceAccount` is the old name of `serviceAccountName`; both are kept alike.
fn default_service_account(spec: &mut Value) {
    let old = spec["serviceAccount"].clone();
    if !is_zero(&old) {
        fill_zero(spec, "serviceAccountName", old);
    }
    let name = spec["serviceAccountName"].clone();
    if let Some(map) = spec.as_object_mut() {
        if is_zero(&name) {
            map.remove("serviceAccount");
            map.remove("serviceAccountName");
        } else {
            map.insert("serviceAccount".into(), name);
        }
    }
}

fn default_container(container: &mut Value) {
    let policy = pull_policy(container["image"].as_str().unwrap_or_default());
    fill_zero(container, "imagePullPolicy", policy);
    fill_zero(container, "terminationMessagePath", "/dev/termination-log");
    fill_zero(container, "terminationMessagePolicy", "File");
    for port in items(container, "ports") {
        fill_zero(port, "protocol", "TCP");
        if port["hostPort"] == 0 {
            remove(port, "hostPort");
        }
    }
    for variable in items(container, "env") {
        let Some(source) = child(variable, "valueFrom") else { continue };
        default_field_ref(source);
        default_resource_ref(source);
        if let Some(file) = child(source, "fileKeyRef") {
            fill(file, "optional", false);
        }
    }
    default_resources(ensure(container, "resources"));
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = child(container, probe) {
            default_probe(probe);
        }
    }
    if let Some(lifecycle) = child(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(get) = child(lifecycle, hook).and_then(|h| child(h, "httpGet")) {
                default_http_get(get);
            }
        }
    }
}

/// `:latest` and no tag at all are pulled always, unless a digest pins the image.
pub(crate) fn pull_policy(image: &str) -> &'static str {
    if image_tag(image).is_none_or(|tag| tag != "latest") { "IfNotPresent" } else { "Always" }
}

/// The tag of an image reference: `latest` when neither tag nor digest is given, `None` for a digest
/// without tag or a reference that cannot be parsed.
fn image_tag(image: &str) -> Option<&str> {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let (path, tag) = match name.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (name, None),
    };
    let repository = path.rsplit_once('/').map_or(path, |(_, last)| last);
    // The name in full, with the registry that is meant when none is named, has a bound.
    let prefix = if path.contains('/') { 0 } else { "docker.io/library/".len() };
    let valid = !path.is_empty()
        && prefix + path.len() <= 255
        && !path.contains("//")
        && !path.starts_with('/')
        && !path.contains(char::is_whitespace)
        && repository.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
        && repository.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        && tag.is_none_or(|t| !t.is_empty() && t.len() <= 128 && t.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)));
    match (valid, tag, digest) {
        (false, ..) => None,
        (true, Some(tag), _) => Some(tag),
        (true, None, None) => Some("latest"),
        (true, None, Some(_)) => None,
    }
}

pub(crate) fn default_field_ref(source: &mut Value) {
    if let Some(field) = child(source, "fieldRef") {
        fill_zero(field, "apiVersion", "v1");
    }
}

pub(crate) fn default_resource_ref(source: &mut Value) {
    if let Some(field) = child(source, "resourceFieldRef") {
        fill(field, "divisor", "0");
    }
}

pub(crate) fn default_resources(resources: &mut Value) {
    round_up_list(resources, "limits");
    round_up_list(resources, "requests");
}

fn default_probe(probe: &mut Value) {
    for (key, value) in [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)] {
        fill_zero(probe, key, value);
    }
    if let Some(get) = child(probe, "httpGet") {
        default_http_get(get);
    }
    if let Some(grpc) = child(probe, "grpc") {
        fill(grpc, "service", "");
    }
}

fn default_http_get(get: &mut Value) {
    fill_zero(get, "path", "/");
    fill_zero(get, "scheme", "HTTP");
}

/// `podIP` and `podIPs` say the same; the single one wins, as old kubelets know only that.
fn default_status(status: &mut Value) {
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        for container in items(status, list) {
            for state in ["state", "lastState"] {
                let state = ensure(container, state);
                for (kind, times) in [("running", &["startedAt"][..]), ("terminated", &["startedAt", "finishedAt"])] {
                    if let Some(kind) = child(state, kind) {
                        times.iter().for_each(|time| fill(kind, time, Value::Null));
                    }
                }
            }
        }
    }
    let first = status["podIPs"][0]["ip"].as_str().unwrap_or_default().to_string();
    let single = status["podIP"].as_str().unwrap_or_default().to_string();
    match (single.is_empty(), first.is_empty()) {
        (false, _) if single != first => status["podIPs"] = json!([{"ip": single}]),
        (true, false) => status["podIP"] = json!(first),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pull_policy_follows_the_tag() {
        for (image, policy) in [
            ("busybox", "Always"),
            ("busybox:latest", "Always"),
            ("busybox:1.36", "IfNotPresent"),
            ("example.org:5000/a/busybox", "Always"),
            ("example.org:5000/a/busybox:v1", "IfNotPresent"),
            ("busybox@sha256:0123", "IfNotPresent"),
            ("busybox:latest@sha256:0123", "Always"),
            ("Not An Image", "IfNotPresent"),
            ("", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }

    #[test]
    fn limits_become_requests_of_pods_only() {
        let spec =
            json!({"containers": [{"name": "a", "image": "i:1", "resources": {"limits": {"cpu": "1"}, "requests": {"memory": "1Gi"}}}]});
        let mut pod = json!({"spec": spec});
        default_pod(&mut pod);
        assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"], json!({"cpu": "1", "memory": "1Gi"}));
        let mut template = json!({"spec": spec});
        default_template(&mut template);
        assert_eq!(template["spec"]["containers"][0]["resources"]["requests"], json!({"memory": "1Gi"}));
    }

    #[test]
    fn the_single_pod_ip_wins() {
        let mut pod = json!({"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.2"}]}});
        default_pod(&mut pod);
        assert_eq!(pod["status"]["podIPs"], json!([{"ip": "10.0.0.1"}]));
    }

    #[test]
    fn defaulting_twice_changes_nothing() {
        let mut pod = json!({"spec": {"hostNetwork": true, "serviceAccount": "x", "containers": [{"name": "a", "image": "b",
            "ports": [{"containerPort": 80}], "livenessProbe": {"httpGet": {"port": 80}},
            "resources": {"limits": {"cpu": "0.0001"}}}], "volumes": [{"name": "v"}]}});
        default_pod(&mut pod);
        let once = pod.clone();
        default_pod(&mut pod);
        assert_eq!(pod, once);
        assert_eq!(pod["spec"]["containers"][0]["ports"][0]["hostPort"], 80);
        assert_eq!(pod["spec"]["serviceAccountName"], "x");
        assert_eq!(pod["spec"]["volumes"][0]["emptyDir"], json!({}));
    }
}
