//! `metrics.k8s.io/v1beta1`: what pods and nodes use, for `kubectl top`.
//!
//! The figures come from elsewhere ([`crate::hooks::UsageSource`]); which pods and nodes there are, and their names
//! and labels, is this server's own knowledge. An APIService of the same group version, that is somebody's own metrics
//! server, has precedence.

use super::Server;
use crate::http::negotiate::Accepted;
use crate::http::respond::{self, HttpResponse};
use crate::http::{Query, RequestInfo};
use crate::reader::Reader;
use crate::registry::External;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::selector::{FieldSelector, Selector};
use sublet_machinery::{ApiError, ObjectExt};

const GROUP: &str = "metrics.k8s.io";
const VERSION: &str = "v1beta1";
/// Those of metrics-server's APIService.
const PRIORITIES: (i64, i64) = (100, 100);

impl Server {
    /// What discovery shows while there are figures.
    pub(super) async fn usage_served(&self) -> Option<External> {
        if !self.usage_source()?.is_there().await {
            return None;
        }
        let resource = |name: &str, kind: &str, scope: &str| {
            json!({
                "resource": name, "responseKind": {"group": GROUP, "version": VERSION, "kind": kind}, "scope": scope,
                "singularResource": "", "verbs": ["get", "list"],
            })
        };
        Some(External {
            group: GROUP.into(),
            version: VERSION.into(),
            group_priority: PRIORITIES.0,
            version_priority: PRIORITIES.1,
            resources: vec![resource("nodes", "NodeMetrics", "Cluster"), resource("pods", "PodMetrics", "Namespaced")],
            current: true,
            own: true,
        })
    }

    /// Whether discovery no longer says what is true.
    pub(super) async fn usage_came_or_went(&self) -> bool {
        self.usage_served().await.is_some() != self.registry().snapshot().external.iter().any(|e| e.own)
    }

    /// Whether a request is about usage, and is answered here.
    pub(super) fn serves_usage(&self, info: &RequestInfo) -> bool {
        let asked = info.is_resource && info.group == GROUP && info.version == VERSION;
        asked && self.registry().snapshot().external.iter().any(|e| e.own && e.group == GROUP && e.version == VERSION)
    }

    pub(super) async fn usage(
        &self,
        method: &Method,
        info: &RequestInfo,
        query: &Query,
        accepted: Accepted,
    ) -> Result<HttpResponse, ApiError> {
        let source = self.usage_source().ok_or_else(ApiError::no_such_path)?;
        let of_pods = match info.resource.as_str() {
            "pods" => true,
            "nodes" if info.namespace.is_empty() => false,
            _ => return Err(ApiError::no_such_path()),
        };
        if !info.subresource.is_empty() || (of_pods && info.namespace.is_empty() && !info.name.is_empty()) {
            return Err(ApiError::no_such_path());
        }
        if method != Method::GET || info.verb == "watch" {
            return Err(ApiError::method_not_allowed());
        }
        let objects = self.used_objects(info, query, of_pods)?;
        let figures = if of_pods { source.of_pods(&objects).await? } else { source.of_nodes(&objects).await? };
        let kind = if of_pods { "PodMetrics" } else { "NodeMetrics" };
        let now = self.now();
        let mut items: Vec<Value> =
            objects.iter().zip(figures).filter_map(|(object, figures)| Some(metrics(kind, object, figures?, &now))).collect();
        if info.name.is_empty() {
            let list = json!({"kind": format!("{kind}List"), "apiVersion": format!("{GROUP}/{VERSION}"), "metadata": {}, "items": items});
            return Ok(respond::value(StatusCode::OK, accepted, &list));
        }
        let name = if of_pods { format!("{}/{}", info.namespace, info.name) } else { info.name.clone() };
        let found = items.pop().ok_or_else(|| ApiError::not_found(GROUP, &kind.to_lowercase(), &name))?;
        Ok(respond::value(StatusCode::OK, accepted, &found))
    }

    /// The objects that are asked about.
    fn used_objects(&self, info: &RequestInfo, query: &Query, of_pods: bool) -> Result<Vec<Arc<Value>>, ApiError> {
        let bad = |e: &dyn std::fmt::Display| ApiError::bad_request(e.to_string());
        let labels = Selector::parse(query.get("labelSelector")).map_err(|e| bad(&e))?;
        let fields = FieldSelector::parse(query.get("fieldSelector")).map_err(|e| bad(&e))?;
        if let Some(term) = fields.terms().iter().find(|t| !matches!(t.field.as_str(), "metadata.name" | "metadata.namespace")) {
            return Err(ApiError::bad_request(format!("field label not supported: {}", term.field)));
        }
        let bucket = if of_pods { "pods" } else { "nodes" };
        let mut objects = match info.name.as_str() {
            "" => self.list(bucket, (!info.namespace.is_empty()).then_some(&info.namespace)),
            name => self.get(bucket, &info.namespace, name).into_iter().collect(),
        };
        objects.retain(|object| {
            let named = fields.terms().iter().all(|term| {
                let actual = if term.field == "metadata.name" { object.name() } else { object.namespace() };
                (actual == term.value) != term.negated
            });
            let runs = !of_pods || object.str_at("/status/phase") == Some("Running");
            named && runs && labels.matches_with(|key| object.label(key))
        });
        Ok(objects)
    }
}

/// One answer: figures under the name and the labels of their object.
fn metrics(kind: &str, object: &Value, figures: Value, now: &str) -> Value {
    let mut metrics = json!({
        "kind": kind, "apiVersion": format!("{GROUP}/{VERSION}"),
        "metadata": {"name": object.name(), "creationTimestamp": now},
        "timestamp": figures["timestamp"], "window": figures["window"],
    });
    if !object.namespace().is_empty() {
        metrics["metadata"]["namespace"] = json!(object.namespace());
    }
    if let Some(labels) = object.labels().filter(|l| !l.is_empty()) {
        metrics["metadata"]["labels"] = json!(labels);
    }
    for key in ["containers", "usage"] {
        if let Some(value) = figures.get(key) {
            metrics[key] = value.clone();
        }
    }
    metrics
}
