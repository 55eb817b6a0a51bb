//! Whether the servers behind APIServices can be reached, and what they serve.

use super::{API_SERVICES, target};
use crate::outgoing::{CallError, Place};
use crate::reader::{Reader, Writer};
use crate::registry::External;
use crate::server::Server;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use http::Request;
use http_body_util::{BodyExt, Full, Limited};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::ObjectExt;
use tokio::time::{Instant, timeout_at};

/// Servers are asked this often, and when something about them changes.
const INTERVAL: Duration = Duration::from_secs(30);
/// Changes that come together are looked at together.
const SETTLE: Duration = Duration::from_millis(100);
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);
const DISCOVERY_BYTES_MAX: usize = 8 << 20;
/// Servers asked at once.
const ASKED_MAX: usize = 8;

/// What is known about one server.
struct Finding {
    available: bool,
    reason: &'static str,
    message: String,
    resources: Option<Vec<Value>>,
}

impl Finding {
    fn missing(reason: &'static str, message: String) -> Self {
        Self { available: false, reason, message, resources: None }
    }
}

impl Server {
    /// Keeps conditions of APIServices and the discovery of their groups up to date until the server stops.
    pub(crate) async fn watch_api_services(self) {
        let mut changes = [API_SERVICES, "services", "endpointslices.discovery.k8s.io"].map(|bucket| self.store().changes(bucket));
        loop {
            let remote = self.check_api_services().await;
            let [services, endpoints @ ..] = &mut changes;
            let [first, second] = endpoints;
            loop {
                tokio::select! {
                    _ = services.changed() => break,
                    _ = first.changed(), if remote => break,
                    _ = second.changed(), if remote => break,
                    () = self.usage_changed().notified() => break,
                    () = tokio::time::sleep(INTERVAL), if remote || self.usage_source().is_some() => {
                        // Many idle servers look for figures of usage alone, which must cost next to nothing.
                        if remote || self.usage_came_or_went().await {
                            break;
                        }
                    }
                    () = self.stop_token().cancelled() => return,
                }
            }
            tokio::time::sleep(SETTLE).await;
            changes.iter_mut().for_each(tokio::sync::watch::Receiver::mark_unchanged);
        }
    }

    /// Looks at all APIServices once; tells whether some are served elsewhere.
    async fn check_api_services(&self) -> bool {
        let all = self.list(API_SERVICES, None);
        for api in all.iter().filter(|api| !api["spec"]["service"].is_object() && api.condition("Available").is_none()) {
            let finding =
                Finding { available: true, reason: "Local", message: "Local APIServices are always available".into(), resources: None };
            self.note(api, &finding).await;
        }
        let usage = self.usage_served().await;
        let remote: Vec<Arc<Value>> = all.into_iter().filter(|api| api["spec"]["service"].is_object()).collect();
        let known = self.registry().snapshot();
        let is_remote = !remote.is_empty();
        if remote.is_empty() && known.external.is_empty() && usage.is_none() {
            return false;
        }
        let asked = remote.into_iter().map(|api| async move {
            let finding = self.look_at(&api).await;
            (api, finding)
        });
        let findings: Vec<_> = stream::iter(asked).buffered(ASKED_MAX).collect().await;
        let mut external = Vec::new();
        for (api, finding) in findings {
            self.note(&api, &finding).await;
            let text = |pointer: &str| api.str_at(pointer).unwrap_or_default().to_string();
            let (group, version) = (text("/spec/group"), text("/spec/version"));
            let before = known.external.iter().find(|e| e.group == group && e.version == version);
            // What was served before is still shown while the server is away, and marked.
            let current = finding.resources.is_some();
            let resources = finding.resources.or_else(|| before.map(|e| e.resources.clone())).unwrap_or_default();
            external.push(External {
                group_priority: api.i64_at("/spec/groupPriorityMinimum").unwrap_or_default(),
                version_priority: api.i64_at("/spec/versionPriority").unwrap_or_default(),
                group,
                version,
                resources,
                current,
                own: false,
            });
        }
        // Somebody's own metrics server has precedence.
        external.extend(usage.filter(|usage| !external.iter().any(|e| e.group == usage.group && e.version == usage.version)));
        if external != known.external {
            self.registry().set_external(external);
        }
        is_remote
    }

    async fn look_at(&self, api: &Value) -> Finding {
        let path = format!("/apis/{}/{}", api.str_at("/spec/group").unwrap_or_default(), api.str_at("/spec/version").unwrap_or_default());
        let target = match target(api, &path) {
            Ok(target) => target,
            Err(why) => return Finding::missing("FailedDiscoveryCheck", why),
        };
        if let Some(missing) = self.what_is_missing(&target.place) {
            return missing;
        }
        let deadline = Instant::now() + DISCOVERY_TIMEOUT;
        let url = format!("https://{}{path}", target.authority());
        match timeout_at(deadline, self.discover(&target, deadline)).await {
            Ok(Ok(list)) => {
                Finding { available: true, reason: "Passed", message: "all checks passed".into(), resources: Some(aggregated(&list)) }
            }
            Ok(Err(why)) => Finding::missing("FailedDiscoveryCheck", format!("failing or missing response from {url}: {why}")),
            Err(_) => {
                let why = format!("Get {url:?}: context deadline exceeded");
                Finding::missing("FailedDiscoveryCheck", format!("failing or missing response from {url}: {why}"))
            }
        }
    }

    /// A Service that is not there, or has nobody behind it.
    fn what_is_missing(&self, place: &Place) -> Option<Finding> {
        let Place::Service { namespace, name, port } = place else { return None };
        let Some(service) = self.get("services", namespace, name) else {
            return Some(Finding::missing("ServiceNotFound", format!("service/{name} in {namespace:?} is not present")));
        };
        if service.str_at("/spec/type").unwrap_or("ClusterIP") != "ClusterIP" {
            return None;
        }
        let Some(found) = service.array_at("/spec/ports").iter().find(|p| p["port"].as_u64() == Some((*port).into())) else {
            let why = format!("service/{name} in {namespace:?} is not listening on port {port}");
            return Some(Finding::missing("ServicePortError", why));
        };
        let port_name = found["name"].as_str().unwrap_or_default();
        let slices = self.list("endpointslices.discovery.k8s.io", Some(namespace));
        let mut slices = slices.iter().filter(|s| s.str_at("/metadata/labels/kubernetes.io~1service-name") == Some(name)).peekable();
        if slices.peek().is_none() {
            let why = format!("cannot find endpointslices for service/{name} in {namespace:?}");
            return Some(Finding::missing("EndpointsNotFound", why));
        }
        let has_port = |slice: &Value| slice.array_at("/ports").iter().any(|p| p["name"].as_str().unwrap_or_default() == port_name);
        let ready = |slice: &Value| slice.array_at("/endpoints").iter().any(|e| e["conditions"]["ready"] != false);
        if slices.any(|slice| has_port(slice) && ready(slice)) {
            return None;
        }
        let why = format!("endpoints for service/{name} in {namespace:?} have no addresses with port name {port_name:?}");
        Some(Finding::missing("MissingEndpoints", why))
    }

    /// The `APIResourceList` of a group version.
    async fn discover(&self, target: &crate::outgoing::Target, deadline: Instant) -> Result<Value, CallError> {
        let request = || {
            let mut request = Request::get(&target.path)
                .header(http::header::HOST, target.authority())
                .header(http::header::ACCEPT, "application/json")
                .header("x-remote-user", "system:kube-aggregator")
                .header("x-remote-group", "system:masters");
            request = request.header(http::header::USER_AGENT, "kube-aggregator");
            request.body(Full::new(Bytes::new())).map_err(|e| CallError::Transport(e.to_string()))
        };
        let identity = self.front_proxy();
        let (response, connected) = self.outgoing().send(self, target, identity.as_ref(), deadline, request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), DISCOVERY_BYTES_MAX).collect().await;
        let body = body.map_err(|e| CallError::Transport(e.to_string()))?.to_bytes();
        self.outgoing().give_back(connected).await;
        if !status.is_success() {
            return Err(CallError::Transport(format!(
                "bad status from https://{}{}: {}",
                target.authority(),
                target.path,
                status.as_u16()
            )));
        }
        serde_json::from_slice(&body).map_err(|e| CallError::Transport(e.to_string()))
    }

    /// Writes the condition when it changed.
    async fn note(&self, api: &Value, finding: &Finding) {
        let status = if finding.available { "True" } else { "False" };
        let before = api.condition("Available");
        let same = |c: &Value| c["status"] == status && c["reason"] == finding.reason && c["message"] == json!(finding.message);
        if before.is_some_and(same) {
            return;
        }
        let since = before.filter(|c| c["status"] == status).map_or_else(|| json!(self.now()), |c| c["lastTransitionTime"].clone());
        let mut updated = api.clone();
        let mut conditions: Vec<Value> = api.array_at("/status/conditions").iter().filter(|c| c["type"] != "Available").cloned().collect();
        conditions.push(json!({
            "type": "Available", "status": status, "lastTransitionTime": since, "reason": finding.reason, "message": finding.message,
        }));
        updated.set_at("/status/conditions", Value::Array(conditions));
        if let Err(error) = Writer::update(self, API_SERVICES, updated).await {
            // Somebody else wrote it: the change leads back here.
            tracing::debug!(server = self.name(), api = api.name(), %error, "the condition of an APIService was not written");
        }
    }
}

/// The resources of a list in the form of aggregated discovery.
fn aggregated(list: &Value) -> Vec<Value> {
    let (group, version) = list["groupVersion"].as_str().unwrap_or_default().split_once('/').unwrap_or_default();
    let all = list.array_at("/resources");
    let kind_of = |resource: &Value| {
        let text = |key: &str, default: &str| resource[key].as_str().filter(|t| !t.is_empty()).unwrap_or(default).to_string();
        json!({"group": text("group", group), "version": text("version", version), "kind": text("kind", "")})
    };
    let name_of = |resource: &Value| resource["name"].as_str().unwrap_or_default().to_string();
    let main = all.iter().filter(|resource| !name_of(resource).contains('/'));
    main.map(|resource| {
        let name = name_of(resource);
        let mut value = Map::new();
        value.insert("resource".into(), json!(name));
        value.insert("responseKind".into(), kind_of(resource));
        value.insert("scope".into(), json!(if resource["namespaced"] == true { "Namespaced" } else { "Cluster" }));
        value.insert("singularResource".into(), json!(resource["singularName"].as_str().unwrap_or_default()));
        value.insert("verbs".into(), resource["verbs"].clone());
        for key in ["shortNames", "categories"] {
            if resource[key].is_array() {
                value.insert(key.into(), resource[key].clone());
            }
        }
        let prefix = format!("{name}/");
        let subresources = all.iter().filter_map(|r| {
            let sub = r["name"].as_str()?.strip_prefix(&prefix)?;
            Some(json!({"subresource": sub, "responseKind": kind_of(r), "verbs": r["verbs"]}))
        });
        let subresources: Vec<Value> = subresources.collect();
        if !subresources.is_empty() {
            value.insert("subresources".into(), Value::Array(subresources));
        }
        Value::Object(value)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_resources_become_aggregated_discovery() {
        let list = json!({"groupVersion": "metrics.k8s.io/v1beta1", "resources": [
            {"name": "nodes", "singularName": "", "namespaced": false, "kind": "NodeMetrics", "verbs": ["get", "list"]},
            {"name": "nodes/x", "kind": "X", "group": "other", "version": "v2", "verbs": ["get"]},
        ]});
        assert_eq!(
            json!(aggregated(&list)),
            json!([{
                "resource": "nodes", "responseKind": {"group": "metrics.k8s.io", "version": "v1beta1", "kind": "NodeMetrics"}, "scope": "Cluster",
                "singularResource": "", "verbs": ["get", "list"],
                "subresources": [{"subresource": "x", "responseKind": {"group": "other", "version": "v2", "kind": "X"}, "verbs": ["get"]}],
            }])
        );
    }
}
