//! Binding a pod to a node.

use super::{check_body_name, success};
use crate::http::HttpResponse;
use crate::rest::{ResourceRequest, decode, options};
use crate::server::Server;
use crate::strategy::validate_binding;
use serde_json::{Value, json};
use sublet_machinery::{ApiError, ObjectExt};

impl Server {
    pub(crate) async fn bind(&self, request: &ResourceRequest<'_>, pod: &str) -> Result<HttpResponse, ApiError> {
        let dry_run = options::dry_run(request.query, "CreateOptions")?;
        let binding = decode::body_of_kind(request, "core", "Binding")?;
        check_body_name(request, &binding)?;
        let binding = self.admit_body(request, binding, dry_run).await?;
        let errors = validate_binding(&binding);
        if !errors.is_empty() {
            return Err(ApiError::invalid("", "Binding", pod, &errors));
        }
        let node = binding.str_at("/target/name").unwrap_or_default().to_string();
        let now = self.now();
        self.modify_live(request, dry_run, |live| assign(live, &binding, &node, &now)).await?;
        Ok(success(request))
    }
}

fn assign(live: &Value, binding: &Value, node: &str, now: &str) -> Result<Value, ApiError> {
    let refuse = |why: String| Err(ApiError::conflict("", "pods/binding", live.name(), why));
    if !binding.uid().is_empty() && binding.uid() != live.uid() {
        return refuse(format!("Precondition failed: UID in precondition: {}, UID in object meta: {}", binding.uid(), live.uid()));
    }
    if live.is_deleting() {
        return refuse(format!("pod {} is being deleted, cannot be assigned to a host", live.name()));
    }
    match live.str_at("/spec/nodeName").unwrap_or_default() {
        "" => {}
        taken => return refuse(format!("pod {} is already assigned to node {taken:?}", live.name())),
    }
    if !live.array_at("/spec/schedulingGates").is_empty() {
        return refuse(format!("pod {} has non-empty .spec.schedulingGates", live.name()));
    }
    let mut pod = live.clone();
    pod["spec"]["nodeName"] = json!(node);
    for (key, value) in binding.annotations().into_iter().flatten() {
        pod.set_annotation(key, value.as_str().unwrap_or_default());
    }
    for (key, value) in binding.labels().into_iter().flatten() {
        pod.set_label(key, value.as_str().unwrap_or_default());
    }
    let condition = json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
    });
    let mut conditions = live.array_at("/status/conditions").to_vec();
    match conditions.iter_mut().find(|c| c["type"] == "PodScheduled") {
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
    pod.set_at("/status/conditions", Value::Array(conditions));
    Ok(pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_assigned_once() {
        let pod = json!({"metadata": {"name": "a"}, "spec": {}});
        let bound = assign(&pod, &json!({}), "n1", "t").unwrap();
        assert_eq!((bound["spec"]["nodeName"].as_str(), bound["status"]["conditions"][0]["status"].as_str()), (Some("n1"), Some("True")));
        assert_eq!(assign(&bound, &json!({}), "n2", "t").unwrap_err().code, 409);
    }
}
