//! Pods hold to the security level that their namespace asks for in its labels; other objects with pod
//! templates are warned about.

mod checks;
mod containers;
mod level;
mod pod;
mod words;

use super::{Attributes, Operation, Plugin};
use crate::reader::Writer;
use async_trait::async_trait;
use checks::{Pod, details, evaluate, reasons};
use level::{Level, LevelVersion};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use sublet_machinery::{ApiError, ObjectExt};

pub use level::Level as PodSecurityLevel;

/// Enforces the labels of namespaces, and never less than `least`.
pub(super) struct PodSecurity {
    pub least: Level,
}

/// Where the template of a pod is in other kinds.
const TEMPLATES: [(&str, &str); 8] = [
    ("replicationcontrollers", "/spec/template"),
    ("podtemplates", "/template"),
    ("replicasets.apps", "/spec/template"),
    ("deployments.apps", "/spec/template"),
    ("statefulsets.apps", "/spec/template"),
    ("daemonsets.apps", "/spec/template"),
    ("jobs.batch", "/spec/template"),
    ("cronjobs.batch", "/spec/jobTemplate/spec/template"),
];

const ANNOTATIONS: &str = "pod-security.kubernetes.io/";

const PODS_CHECKED_MAX: usize = 3000;

#[async_trait]
impl Plugin for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        let written = matches!(attributes.operation, Operation::Create | Operation::Update);
        let of_pod = matches!(attributes.subresource, "" | "ephemeralcontainers" | "resize");
        let is_known = attributes.is_main("namespaces") || template_of(attributes).is_some() || (attributes.is("pods") && of_pod);
        written && is_known
    }

    async fn validate(&self, attributes: &mut Attributes<'_>, store: &Arc<dyn Writer>) -> Result<(), ApiError> {
        if attributes.is("namespaces") {
            return validate_namespace(attributes, store);
        }
        let namespace = store.get("namespaces", "", attributes.namespace);
        let Some(object) = attributes.object.clone() else { return Ok(()) };
        if let Some(path) = template_of(attributes) {
            if let (Some(namespace), Some(template)) = (namespace, object.pointer(path).filter(|template| template.is_object())) {
                let (policy, _) = level::read(&namespace);
                let policy = policy.at_least(self.least);
                note(attributes, policy.audit, pod_of(template));
                warn(attributes, policy.warn, pod_of(template));
            }
            return Ok(());
        }
        let Some(namespace) = namespace else {
            return Err(ApiError::internal(format!("failed to lookup namespace {:?}", attributes.namespace)));
        };
        let (policy, errors) = level::read(&namespace);
        let policy = policy.at_least(self.least);
        let anything = errors.is_empty() && policy.is_anything_allowed();
        if !anything && attributes.old.as_ref().is_some_and(|old| !changes_images(&object, old)) {
            return Ok(());
        }
        attributes.annotations.insert(format!("{ANNOTATIONS}enforce-policy"), policy.enforce.to_string());
        if anything {
            return Ok(());
        }
        if !errors.is_empty() {
            let why: Vec<String> = errors.iter().map(ToString::to_string).collect();
            attributes.annotations.insert(format!("{ANNOTATIONS}error"), format!("Failed to parse policy: {}", why.join(", ")));
        }
        let found = evaluate(policy.enforce, pod_of(&object));
        note(attributes, policy.audit, pod_of(&object));
        if !found.is_empty() {
            return Err(attributes.forbidden(format_args!("violates PodSecurity \"{}\": {}", policy.enforce, details(&found))));
        }
        warn(attributes, policy.warn, pod_of(&object));
        Ok(())
    }
}

fn template_of(attributes: &Attributes<'_>) -> Option<&'static str> {
    TEMPLATES.iter().find(|(resource, _)| attributes.is_main(resource)).map(|(_, path)| *path)
}

fn pod_of(object: &Value) -> Pod<'_> {
    Pod { metadata: &object["metadata"], spec: &object["spec"] }
}

/// For whoever audits.
fn note(attributes: &mut Attributes<'_>, at: LevelVersion, pod: Pod<'_>) {
    let found = evaluate(at, pod);
    if !found.is_empty() {
        let text = format!("would violate PodSecurity \"{at}\": {}", details(&found));
        attributes.annotations.insert(format!("{ANNOTATIONS}audit-violations"), text);
    }
}

fn warn(attributes: &mut Attributes<'_>, at: LevelVersion, pod: Pod<'_>) {
    let found = evaluate(at, pod);
    if !found.is_empty() {
        attributes.warnings.push(format!("would violate PodSecurity \"{at}\": {}", details(&found)));
    }
}

/// Nothing else of a pod that matters here can change.
fn changes_images(new: &Value, old: &Value) -> bool {
    let list = |pod: &Value, key: &str| pod["spec"][key].as_array().cloned().unwrap_or_default();
    for key in ["containers", "initContainers"] {
        let (new, old) = (list(new, key), list(old, key));
        if new.len() != old.len() || new.iter().zip(&old).any(|(new, old)| new["image"] != old["image"]) {
            return true;
        }
    }
    let before = list(old, "ephemeralContainers");
    list(new, "ephemeralContainers").iter().any(|container| {
        let known = before.iter().find(|old| old["name"] == container["name"]);
        known.is_none_or(|old| old["image"] != container["image"])
    })
}

/// Labels make sense, and pods that are there already are told of.
fn validate_namespace(attributes: &mut Attributes<'_>, store: &Arc<dyn Writer>) -> Result<(), ApiError> {
    let Some(namespace) = attributes.object.as_ref() else { return Ok(()) };
    let (policy, errors) = level::read(namespace);
    let (old_policy, old_errors) = match attributes.old.as_deref() {
        Some(old) => {
            let (policy, errors) = level::read(old);
            (Some(policy), errors)
        }
        None => (None, Vec::new()),
    };
    if !errors.is_empty() && errors != old_errors {
        return Err(ApiError::invalid("", "Namespace", namespace.name(), &errors));
    }
    let Some(old) = old_policy else { return Ok(()) };
    let (new, old) = (policy.enforce, old.enforce);
    let looser = new.version == old.version && new.level <= old.level;
    if new == old || new.level == Level::Privileged || looser {
        return Ok(());
    }
    let name = namespace.name().to_string();
    attributes.warnings.extend(warnings_of_pods(&name, new, store.list("pods", Some(&name))));
    Ok(())
}

/// One line for each way in which pods do not fit, with the pods counted.
fn warnings_of_pods(namespace: &str, at: LevelVersion, pods: Vec<Arc<Value>>) -> Vec<String> {
    let total = pods.len();
    let pods: Vec<Arc<Value>> = one_of_each_owner_first(pods).into_iter().take(PODS_CHECKED_MAX).collect();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in &pods {
        let findings = evaluate(at, pod_of(pod));
        if !findings.is_empty() {
            found.entry(reasons(&findings)).or_default().push(pod.name().to_string());
        }
    }
    let mut all = Vec::new();
    if pods.len() < total {
        let checked = pods.len();
        all.push(format!("new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"));
    }
    if !found.is_empty() {
        all.push(format!("existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{at}\""));
    }
    let mut lines: Vec<String> = found
        .into_iter()
        .map(|(reason, names)| {
            let first = names.iter().min().map(String::as_str).unwrap_or_default();
            match names.len() {
                1 => format!("{first}: {reason}"),
                2 => format!("{first} (and 1 other pod): {reason}"),
                many => format!("{first} (and {} other pods): {reason}", many - 1),
            }
        })
        .collect();
    lines.sort();
    all.extend(lines);
    all
}

/// Pods of one controller are alike.
fn one_of_each_owner_first(pods: Vec<Arc<Value>>) -> Vec<Arc<Value>> {
    let mut seen = BTreeSet::new();
    let (mut first, rest): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| {
        let owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let controller = owners.into_iter().find(|owner| owner["controller"] == true).map(|owner| owner["uid"].to_string());
        controller.is_none_or(|uid| seen.insert(uid))
    });
    first.extend(rest);
    first
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Request, store};
    use super::*;
    use serde_json::json;

    const LABELS: PodSecurity = PodSecurity { least: Level::Privileged };

    fn namespace(labels: Value) -> Value {
        json!({"metadata": {"name": "a", "labels": labels}})
    }

    fn labelled(labels: Value) -> Arc<dyn Writer> {
        store(&[("namespaces", namespace(labels))])
    }

    fn plain_pod() -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    }

    #[tokio::test]
    async fn pods_are_refused_or_warned_of() {
        let strict = labelled(json!({"pod-security.kubernetes.io/enforce": "restricted"}));
        let refused = Request::create("pods", "a", plain_pod()).validate(&LABELS, &strict).await.expect_err("not restricted");
        assert!(
            refused.message.starts_with(
                "pods \"p\" is forbidden: violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false \
                 (container \"c\" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities"
            ),
            "{}",
            refused.message
        );
        let loose = labelled(json!({"pod-security.kubernetes.io/warn": "baseline", "pod-security.kubernetes.io/warn-version": "v1.20"}));
        let mut pod = plain_pod();
        assert!(Request::create("pods", "a", pod.clone()).validate(&LABELS, &loose).await.expect("fine").1.is_empty());
        pod["spec"]["hostPID"] = json!(true);
        let warned = Request::create("pods", "a", pod).validate(&LABELS, &loose).await.expect("allowed");
        assert_eq!(warned.1, ["would violate PodSecurity \"baseline:v1.20\": host namespaces (hostPID=true)"]);
    }

    #[tokio::test]
    async fn templates_are_warned_of_what_is_enforced() {
        let strict = labelled(json!({"pod-security.kubernetes.io/enforce": "baseline"}));
        let deployment = json!({"metadata": {"name": "d"}, "spec": {"template": {"spec": {"hostNetwork": true}}}});
        let warned = Request::create("deployments.apps", "a", deployment).validate(&LABELS, &strict).await.expect("allowed");
        assert_eq!(warned.1, ["would violate PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)"]);
    }

    #[tokio::test]
    async fn an_update_that_keeps_the_images_passes() {
        let strict = labelled(json!({"pod-security.kubernetes.io/enforce": "restricted"}));
        let (old, mut new) = (plain_pod(), plain_pod());
        new["metadata"]["labels"] = json!({"x": "y"});
        Request::update("pods", "a", new.clone(), old.clone()).validate(&LABELS, &strict).await.expect("not significant");
        new["spec"]["containers"][0]["image"] = json!("other");
        Request::update("pods", "a", new, old).validate(&LABELS, &strict).await.expect_err("a new image");
    }

    #[tokio::test]
    async fn namespaces_know_levels_and_hear_of_their_pods() {
        let wrong = namespace(json!({"pod-security.kubernetes.io/enforce": "foo"}));
        let refused = Request::create("namespaces", "", wrong).validate(&LABELS, &store(&[])).await.expect_err("no such level");
        assert_eq!(
            refused.message,
            "Namespace \"a\" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"foo\": \
             must be one of privileged, baseline, restricted"
        );
        let pods = |name: &str| json!({"metadata": {"name": name, "namespace": "a"}, "spec": {"hostIPC": true, "containers": []}});
        let store = store(&[("pods", pods("z")), ("pods", pods("b")), ("pods", pods("c"))]);
        let (old, new) = (namespace(json!({})), namespace(json!({"pod-security.kubernetes.io/enforce": "baseline"})));
        let warned = Request::update("namespaces", "", new, old).validate(&LABELS, &store).await.expect("allowed");
        assert_eq!(
            warned.1,
            [
                "existing pods in namespace \"a\" violate the new PodSecurity enforce level \"baseline:latest\"",
                "b (and 2 other pods): host namespaces",
            ]
        );
    }
    /// Of a peer's tenants, by default: privileged pods with host paths read the host's keys.
    #[tokio::test]
    async fn nobody_goes_below_the_least_level() {
        let baseline = PodSecurity { least: Level::Baseline };
        let loose = labelled(json!({"pod-security.kubernetes.io/enforce": "privileged"}));
        Request::create("pods", "a", plain_pod()).validate(&baseline, &loose).await.expect("baseline");
        let mut pod = plain_pod();
        pod["spec"]["volumes"] = json!([{"name": "root", "hostPath": {"path": "/"}}]);
        let refused = Request::create("pods", "a", pod.clone()).validate(&baseline, &loose).await.expect_err("a host path");
        assert_eq!(
            refused.message,
            "pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": hostPath volumes (volume \"root\")"
        );
        let deployment = json!({"metadata": {"name": "d"}, "spec": {"template": {"spec": pod["spec"]}}});
        let warned = Request::create("deployments.apps", "a", deployment).validate(&baseline, &loose).await.expect("allowed");
        assert_eq!(warned.1, ["would violate PodSecurity \"baseline:latest\": hostPath volumes (volume \"root\")"]);
        let strict = labelled(json!({"pod-security.kubernetes.io/enforce": "restricted"}));
        Request::create("pods", "a", plain_pod()).validate(&baseline, &strict).await.expect_err("the namespace asks for more");
    }
}
