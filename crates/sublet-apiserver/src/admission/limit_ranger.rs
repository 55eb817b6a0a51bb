//! Limit ranges: defaults for containers, and bounds for containers, pods and claims.

use super::{Attributes, Operation, Plugin};
use crate::reader::Writer;
use crate::strategy::edit::{ensure, is_zero, items};
use crate::strategy::pod::defaults::default_requests;
use crate::strategy::quantities::{ResourceList, container_sum, read_list};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::{ApiError, ObjectExt, Quantity};

pub(super) struct LimitRanger;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

#[async_trait]
impl Plugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        let deleting = attributes.old.as_ref().is_some_and(|old| old.is_deleting());
        let wanted = match (attributes.operation, attributes.subresource) {
            (Operation::Update, "resize") => attributes.is("pods"),
            (Operation::Create, "") => attributes.is("pods") || attributes.is("persistentvolumeclaims"),
            (Operation::Update, "") => attributes.is("persistentvolumeclaims"),
            _ => false,
        };
        wanted && !deleting
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>, store: &Arc<dyn Writer>) -> Result<(), ApiError> {
        if !attributes.is("pods") {
            return Ok(());
        }
        let ranges = store.list("limitranges", Some(attributes.namespace));
        if let Some(pod) = attributes.object.as_mut() {
            ranges.iter().for_each(|range| set_defaults(pod, range));
        }
        Ok(())
    }

    async fn validate(&self, attributes: &mut Attributes<'_>, store: &Arc<dyn Writer>) -> Result<(), ApiError> {
        let Some(object) = &attributes.object else { return Ok(()) };
        for range in store.list("limitranges", Some(attributes.namespace)) {
            let mut errors: Vec<String> = Vec::new();
            for limit in range.array_at("/spec/limits") {
                let found = if attributes.is("pods") { pod_errors(object, limit) } else { claim_errors(object, limit) };
                errors.extend(found);
            }
            errors.dedup();
            match errors.as_slice() {
                [] => {}
                [one] => return Err(attributes.forbidden(one)),
                many => return Err(attributes.forbidden(format_args!("[{}]", many.join(", ")))),
            }
        }
        Ok(())
    }
}

fn set_defaults(pod: &mut Value, range: &Value) {
    let (mut requests, mut limits) = (serde_json::Map::new(), serde_json::Map::new());
    for limit in range.array_at("/spec/limits").iter().filter(|l| l["type"] == "Container") {
        requests.extend(limit["defaultRequest"].as_object().cloned().unwrap_or_default());
        limits.extend(limit["default"].as_object().cloned().unwrap_or_default());
    }
    let mut notes = Vec::new();
    let spec = ensure(pod, "spec");
    for (list, word) in [("containers", "container"), ("initContainers", "init container")] {
        for container in items(spec, list) {
            // A container's own limits stand for requests before any default does.
            default_requests(container);
            let name = container["name"].as_str().unwrap_or_default().to_string();
            let resources = ensure(container, "resources");
            let set_limits = fill_list(resources, "limits", &limits);
            let set_requests = fill_list(resources, "requests", &requests);
            for (part, set) in [("request", set_requests), ("limit", set_limits)] {
                if !set.is_empty() {
                    notes.push(format!("{} {part} for {word} {name}", set.join(", ")));
                }
            }
        }
    }
    if !notes.is_empty() {
        pod.metadata_mut();
        pod.set_annotation(ANNOTATION, &format!("LimitRanger plugin set: {}", notes.join("; ")));
    }
}

/// Fills what is missing and returns the names of it.
fn fill_list(resources: &mut Value, part: &str, defaults: &serde_json::Map<String, Value>) -> Vec<String> {
    let missing: Vec<_> = defaults.iter().filter(|(name, _)| is_zero(&resources[part][name.as_str()])).collect();
    for (name, quantity) in &missing {
        ensure(resources, part)[name.as_str()] = json!(quantity);
    }
    missing.into_iter().map(|(name, _)| name.clone()).collect()
}

fn claim_errors(claim: &Value, limit: &Value) -> Vec<String> {
    if limit["type"] != "PersistentVolumeClaim" {
        return Vec::new();
    }
    let requests = read_list(&claim["spec"]["resources"]["requests"]);
    let check = Check { kind: "PersistentVolumeClaim", requests: &requests, limits: &ResourceList::new() };
    let minimum = read_list(&limit["min"]).into_iter().filter_map(|(name, bound)| check.minimum(&name, &bound)).collect::<Vec<_>>();
    let maximum = read_list(&limit["max"]).into_iter().filter_map(|(name, bound)| check.maximum_request(&name, &bound));
    minimum.into_iter().chain(maximum).collect()
}

fn pod_errors(pod: &Value, limit: &Value) -> Vec<String> {
    match limit["type"].as_str() {
        Some("Container") => ["/spec/containers", "/spec/initContainers"]
            .iter()
            .flat_map(|list| pod.array_at(list))
            .flat_map(|container| {
                let requests = read_list(&container["resources"]["requests"]);
                let limits = read_list(&container["resources"]["limits"]);
                Check { kind: "Container", requests: &requests, limits: &limits }.all(limit)
            })
            .collect(),
        Some("Pod") => {
            let (requests, limits) = (whole(pod, "requests"), whole(pod, "limits"));
            Check { kind: "Pod", requests: &requests, limits: &limits }.all(limit)
        }
        _ => Vec::new(),
    }
}

/// The containers together, or what the pod states itself for cpu and memory.
fn whole(pod: &Value, part: &str) -> ResourceList {
    let mut sum = container_sum(&pod["spec"], part);
    let own = read_list(&pod["spec"]["resources"][part]);
    sum.extend(own.into_iter().filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory")));
    sum
}

/// What somebody asks for, to be held against one item of a limit range.
struct Check<'a> {
    kind: &'static str,
    requests: &'a ResourceList,
    limits: &'a ResourceList,
}

impl Check<'_> {
    fn all(&self, limit: &Value) -> Vec<String> {
        let minimum = read_list(&limit["min"]).into_iter().filter_map(|(n, bound)| self.minimum(&n, &bound)).collect::<Vec<_>>();
        let maximum = read_list(&limit["max"]).into_iter().filter_map(|(n, bound)| self.maximum(&n, &bound));
        let ratio = read_list(&limit["maxLimitRequestRatio"]).into_iter().filter_map(|(n, bound)| self.ratio(&n, &bound));
        minimum.into_iter().chain(maximum).chain(ratio).collect()
    }

    fn minimum(&self, name: &str, bound: &Quantity) -> Option<String> {
        let head = format!("minimum {name} usage per {} is {bound}", self.kind);
        match (self.requests.get(name), self.limits.get(name)) {
            (None, _) => Some(format!("{head}.  No request is specified")),
            (Some(request), _) if request < bound => Some(format!("{head}, but request is {request}")),
            (_, Some(limit)) if limit < bound => Some(format!("{head}, but limit is {limit}")),
            _ => None,
        }
    }

    fn maximum_request(&self, name: &str, bound: &Quantity) -> Option<String> {
        let head = format!("maximum {name} usage per {} is {bound}", self.kind);
        match self.requests.get(name) {
            None => Some(format!("{head}.  No request is specified")),
            Some(request) if request > bound => Some(format!("{head}, but request is {request}")),
            _ => None,
        }
    }

    fn maximum(&self, name: &str, bound: &Quantity) -> Option<String> {
        let head = format!("maximum {name} usage per {} is {bound}", self.kind);
        match (self.requests.get(name), self.limits.get(name)) {
            (_, None) => Some(format!("{head}.  No limit is specified")),
            (_, Some(limit)) if limit > bound => Some(format!("{head}, but limit is {limit}")),
            (Some(request), _) if request > bound => Some(format!("{head}, but request is {request}")),
            _ => None,
        }
    }

    fn ratio(&self, name: &str, bound: &Quantity) -> Option<String> {
        let head = format!("{name} max limit to request ratio per {} is {bound}", self.kind);
        let amount = |list: &ResourceList| list.get(name).filter(|q| !q.is_zero()).map(Quantity::as_f64);
        let Some(request) = amount(self.requests) else { return Some(format!("{head}, but no request is specified or request is 0")) };
        let Some(limit) = amount(self.limits) else { return Some(format!("{head}, but no limit is specified or limit is 0")) };
        let ratio = limit / request;
        (ratio > bound.as_f64()).then(|| format!("{head}, but provided ratio is {ratio:.6}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Request, store};
    use super::*;

    fn range(limit: Value) -> Arc<dyn Writer> {
        store(&[("limitranges", json!({"metadata": {"name": "r", "namespace": "n"}, "spec": {"limits": [limit]}}))])
    }

    fn pod(resources: Value) -> Request {
        Request::create("pods", "n", json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}}))
    }

    #[tokio::test]
    async fn containers_get_defaults() {
        let store = range(json!({"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1", "memory": "1Gi"}}));
        let (object, _) = pod(json!({})).mutate(&LimitRanger, &store).await.expect("accepted");
        assert_eq!(
            object["spec"]["containers"][0]["resources"],
            json!({"limits": {"cpu": "2"}, "requests": {"cpu": "1", "memory": "1Gi"}})
        );
        assert_eq!(
            object.annotation(ANNOTATION),
            Some("LimitRanger plugin set: cpu, memory request for container c; cpu limit for container c")
        );
        let (object, _) = pod(json!({"limits": {"cpu": "3", "memory": "2Gi"}})).mutate(&LimitRanger, &store).await.expect("accepted");
        assert_eq!(object["spec"]["containers"][0]["resources"]["requests"], json!({"cpu": "3", "memory": "2Gi"}));
    }

    #[tokio::test]
    async fn bounds_are_held() {
        for (limit, resources, expected) in [
            (
                json!({"type": "Container", "max": {"cpu": "1"}}),
                json!({"limits": {"cpu": "2"}}),
                "maximum cpu usage per Container is 1, but limit is 2",
            ),
            (
                json!({"type": "Container", "min": {"cpu": "1"}}),
                json!({}),
                "minimum cpu usage per Container is 1.  No request is specified",
            ),
            (
                json!({"type": "Pod", "max": {"memory": "1Gi"}}),
                json!({"limits": {"memory": "2Gi"}}),
                "maximum memory usage per Pod is 1Gi, but limit is 2Gi",
            ),
            (
                json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}),
                json!({"limits": {"cpu": "3"}, "requests": {"cpu": "1"}}),
                "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
            ),
        ] {
            let error = pod(resources).validate(&LimitRanger, &range(limit)).await.expect_err(expected);
            assert_eq!(error.message, format!("pods \"p\" is forbidden: {expected}"));
        }
    }

    #[tokio::test]
    async fn claims_have_bounds_too() {
        let store = range(json!({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}));
        let claim = json!({"metadata": {"name": "c"}, "spec": {"resources": {"requests": {"storage": "2Gi"}}}});
        let error = Request::create("persistentvolumeclaims", "n", claim).validate(&LimitRanger, &store).await.expect_err("too large");
        assert_eq!(
            error.message,
            "persistentvolumeclaims \"c\" is forbidden: maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi"
        );
    }
}
