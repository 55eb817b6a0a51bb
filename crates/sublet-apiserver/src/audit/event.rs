//! One entry of the log, with the fields and their order as upstream writes them.

use super::policy::{Level, Stage, Verdict};
use crate::admission::UserInfo;
use crate::auth::reviews::user_json;
use crate::http::RequestInfo;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use sublet_machinery::ObjectExt;

/// Longer user agents are cut.
const USER_AGENT_BYTES_MAX: usize = 1024;
/// An event without bodies stays far below this; one that is longer loses them.
const EVENT_BYTES_MAX: usize = 10 << 20;
/// What extensions note about one request.
const ANNOTATIONS_MAX: usize = 256;

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    kind: &'static str,
    api_version: &'static str,
    level: &'static str,
    #[serde(rename = "auditID")]
    audit_id: String,
    stage: &'static str,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: &'static str,
    user: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    impersonated_user: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    authentication_metadata: Value,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    source_ips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: Option<ObjectRef>,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(super) response_status: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(super) request_object: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(super) response_object: Value,
    request_received_timestamp: String,
    stage_timestamp: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectRef {
    #[serde(skip_serializing_if = "String::is_empty")]
    resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    subresource: String,
}

/// What a request tells about itself before anybody looks at it.
pub(super) struct Origin<'a> {
    pub audit_id: &'a str,
    pub uri: String,
    pub source_ips: Vec<String>,
    pub user_agent: &'a str,
    pub received: Timestamp,
}

impl Event {
    pub(super) fn new(verdict: Verdict, origin: Origin<'_>, user: Option<&UserInfo>, info: &RequestInfo) -> Self {
        let object_ref = info.is_resource.then(|| ObjectRef {
            resource: info.resource.clone(),
            namespace: info.namespace.clone(),
            name: info.authorized_name().to_string(),
            api_group: info.group.clone(),
            api_version: info.version.clone(),
            subresource: info.subresource.clone(),
            ..ObjectRef::default()
        });
        Self {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: verdict.level.name(),
            audit_id: origin.audit_id.to_string(),
            stage: "",
            request_uri: origin.uri,
            verb: info.verb,
            user: user.map_or_else(|| json!({}), user_json),
            impersonated_user: Value::Null,
            authentication_metadata: Value::Null,
            source_ips: origin.source_ips,
            user_agent: cut(origin.user_agent),
            object_ref,
            response_status: Value::Null,
            request_object: Value::Null,
            response_object: Value::Null,
            request_received_timestamp: micro_time(origin.received),
            stage_timestamp: String::new(),
            annotations: BTreeMap::new(),
        }
    }

    pub(super) fn deletes(&self) -> bool {
        self.verb.starts_with("delete")
    }

    pub(super) fn impersonated(&mut self, user: &UserInfo, constraint: &str) {
        self.impersonated_user = user_json(user);
        if !constraint.is_empty() {
            self.authentication_metadata = json!({"impersonationConstraint": constraint});
        }
    }

    /// Whoever notes something first has it noted.
    pub(super) fn annotate(&mut self, key: &str, value: &str) {
        if self.annotations.len() < ANNOTATIONS_MAX {
            self.annotations.entry(key.to_string()).or_insert_with(|| value.to_string());
        }
    }

    /// The object of the request: what the path left open about it is told by the object itself.
    pub(super) fn requested(&mut self, verdict: Verdict, object: &Value, shown: impl FnOnce() -> Value) {
        if let Some(object_ref) = &mut self.object_ref {
            let known = [
                (&mut object_ref.namespace, object.namespace()),
                (&mut object_ref.name, object.name()),
                (&mut object_ref.uid, object.uid()),
                (&mut object_ref.resource_version, object.resource_version()),
            ];
            for (field, value) in known.into_iter().filter(|(field, _)| field.is_empty()) {
                *field = value.to_string();
            }
        }
        if verdict.level >= Level::Request {
            self.request_object = shown();
            if verdict.omit_managed_fields {
                drop_managed_fields(&mut self.request_object);
            }
        }
    }

    /// What was answered. A Status is told in every level, in its bounded fields.
    pub(super) fn responded(&mut self, verdict: Verdict, code: u16, object: Option<Value>) {
        let mut status = Map::from_iter([("metadata".to_string(), json!({})), ("code".to_string(), json!(code))]);
        if let Some(object) = object.as_ref().filter(|o| o.kind() == "Status" && o.api_version() == "v1") {
            for field in ["status", "message", "reason", "details"] {
                if !object[field].is_null() {
                    status.insert(field.into(), object[field].clone());
                }
            }
        }
        self.response_status = Value::Object(status);
        if verdict.level >= Level::RequestResponse {
            self.response_object = object.unwrap_or_default();
            if verdict.omit_managed_fields {
                drop_managed_fields(&mut self.response_object);
            }
        }
    }

    /// The line for a stage. The event itself stays as it is, so that a later stage tells it again.
    pub(super) fn line(&mut self, stage: Stage, now: Timestamp) -> Vec<u8> {
        self.stage = stage.name();
        self.stage_timestamp = micro_time(now);
        let mut line = serde_json::to_vec(self).expect("an event is always writable");
        if line.len() > EVENT_BYTES_MAX {
            let short = Self { request_object: Value::Null, response_object: Value::Null, ..self.clone() };
            let mut short = Self { annotations: short.annotations.clone(), ..short };
            short.annotate("audit.k8s.io/truncated", "true");
            line = serde_json::to_vec(&short).expect("an event is always writable");
        }
        line.push(b'\n');
        line
    }
}

/// Out of an object, the items of a list, and the objects of a table's rows.
fn drop_managed_fields(object: &mut Value) {
    let drop = |object: &mut Value| {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    };
    drop(object);
    object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten().for_each(drop);
    let rows = object.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten();
    rows.filter_map(|row| row.get_mut("object")).for_each(drop);
}

fn cut(agent: &str) -> String {
    match agent.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= USER_AGENT_BYTES_MAX).last() {
        Some(end) if end < agent.len() => format!("{}...TRUNCATED", &agent[..end]),
        _ => agent.to_string(),
    }
}

/// `metav1.MicroTime`
fn micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}
