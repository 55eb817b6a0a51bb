//! A client for any API server that speaks in JSON objects, on top of `kube::Client`.

use crate::resources::SELF_SUBJECT_ACCESS_REVIEWS;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use serde_json::{Value, json};
use sublet_machinery::{ApiError, Gvr, ObjectExt, Reason};
use sublet_share::Share;

/// The longest line of a watch that is read: more than the largest object a server stores.
const WATCH_LINE_BYTES_MAX: usize = 32 << 20;
/// The longest answer that is read: a page of the largest objects. A server that belongs to somebody else may send
/// without end.
const ANSWER_BYTES_MAX: usize = 1 << 30;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server answered with a `Status`.
    #[error("{0}")]
    Api(#[from] ApiError),
    /// No answer: connection, TLS, time-out.
    #[error("request failed: {0}")]
    Transport(String),
    /// An answer that is no Kubernetes object.
    #[error("unreadable answer: {0}")]
    Decode(String),
}

impl ClientError {
    pub fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Api(error) => Some(error),
            _ => None,
        }
    }

    pub fn is(&self, reason: Reason) -> bool {
        self.api().is_some_and(|e| e.reason == reason)
    }

    pub fn is_not_found(&self) -> bool {
        self.api().is_some_and(|e| e.code == 404)
    }

    pub fn is_conflict(&self) -> bool {
        self.is(Reason::Conflict)
    }

    pub fn is_already_exists(&self) -> bool {
        self.is(Reason::AlreadyExists)
    }
}

/// A list with the revision at which it is true.
#[derive(Clone, Debug, Default)]
pub struct List {
    pub items: Vec<Value>,
    pub resource_version: String,
    pub continue_token: String,
}

#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    pub label_selector: String,
    pub field_selector: String,
    pub limit: Option<u32>,
    pub continue_token: String,
    pub resource_version: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent {
    Added(Value),
    Modified(Value),
    Deleted(Value),
    /// Only the revision moved on.
    Bookmark(Value),
    Error(ApiError),
}

/// The body of a patch, by its media type.
#[derive(Clone, Debug)]
pub enum Patch {
    Json(Value),
    Merge(Value),
    Strategic(Value),
    Apply(Value),
}

#[derive(Clone, Debug, Default)]
pub struct PatchOptions {
    pub field_manager: String,
    pub force: bool,
    pub dry_run: bool,
    pub field_validation: String,
}

#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    pub grace_period_seconds: Option<i64>,
    pub propagation_policy: Option<&'static str>,
    pub precondition_uid: Option<String>,
    pub precondition_resource_version: Option<String>,
}

impl DeleteOptions {
    pub fn background() -> Self {
        Self { propagation_policy: Some("Background"), ..Self::default() }
    }

    /// At once, without grace.
    pub fn now() -> Self {
        Self { grace_period_seconds: Some(0), ..Self::default() }
    }

    #[must_use]
    pub fn uid(mut self, uid: &str) -> Self {
        self.precondition_uid = Some(uid.to_string());
        self
    }

    fn body(&self) -> Value {
        let mut body = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        if let Some(seconds) = self.grace_period_seconds {
            body["gracePeriodSeconds"] = json!(seconds);
        }
        if let Some(policy) = self.propagation_policy {
            body["propagationPolicy"] = json!(policy);
        }
        if let Some(uid) = &self.precondition_uid {
            body["preconditions"]["uid"] = json!(uid);
        }
        if let Some(rv) = &self.precondition_resource_version {
            body["preconditions"]["resourceVersion"] = json!(rv);
        }
        body
    }
}

/// Any API server, as JSON. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    inner: kube::Client,
    /// Sent as `fieldManager` with writes that name none themselves.
    field_manager: std::sync::Arc<str>,
    /// In whose turns tasks run that work with this client.
    share: Option<Share>,
}

impl Client {
    pub fn new(inner: kube::Client, field_manager: &str) -> Self {
        Self { inner, field_manager: field_manager.into(), share: None }
    }

    /// The same client for tasks of a tenant, which run in its turns.
    #[must_use]
    pub fn with_share(self, share: Share) -> Self {
        Self { share: Some(share), ..self }
    }

    /// Runs a task in the turns of the tenant that this client works for.
    pub async fn in_turns<F: Future>(self, task: F) -> F::Output {
        match &self.share {
            Some(share) => share.run(task).await,
            None => task.await,
        }
    }

    /// The same server under another field manager.
    #[must_use]
    pub fn with_field_manager(&self, field_manager: &str) -> Self {
        Self { inner: self.inner.clone(), field_manager: field_manager.into(), share: self.share.clone() }
    }

    /// For calls that this client has no method for, upgrades among them.
    pub fn kube(&self) -> &kube::Client {
        &self.inner
    }

    pub async fn get(&self, gvr: &Gvr, namespace: &str, name: &str) -> Result<Value, ClientError> {
        self.call(Method::GET, &object_path(gvr, namespace, name, ""), &[], None, None).await
    }

    /// `None` when there is no such object.
    pub async fn get_opt(&self, gvr: &Gvr, namespace: &str, name: &str) -> Result<Option<Value>, ClientError> {
        match self.get(gvr, namespace, name).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// An empty namespace lists all namespaces. Items get the kind and version that lists leave out.
    pub async fn list(&self, gvr: &Gvr, namespace: &str, options: &ListOptions) -> Result<List, ClientError> {
        let mut query = vec![
            ("labelSelector", options.label_selector.clone()),
            ("fieldSelector", options.field_selector.clone()),
            ("continue", options.continue_token.clone()),
            ("resourceVersion", options.resource_version.clone()),
        ];
        if let Some(limit) = options.limit {
            query.push(("limit", limit.to_string()));
        }
        let mut list = self.call(Method::GET, &collection_path(gvr, namespace), &query, None, None).await?;
        let kind = list.kind().strip_suffix("List").unwrap_or_default().to_string();
        let api_version = list.api_version().to_string();
        let mut items = match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        };
        for item in &mut items {
            if item["kind"].is_null() && item.is_object() {
                item["kind"] = json!(kind);
                item["apiVersion"] = json!(api_version);
            }
        }
        Ok(List {
            items,
            resource_version: list.str_at("/metadata/resourceVersion").unwrap_or_default().into(),
            continue_token: list.str_at("/metadata/continue").unwrap_or_default().into(),
        })
    }

    pub async fn create(&self, gvr: &Gvr, object: &Value) -> Result<Value, ClientError> {
        let query = [("fieldManager", self.field_manager.to_string())];
        self.call(Method::POST, &collection_path(gvr, object.namespace()), &query, Some("application/json"), Some(object)).await
    }

    /// As [`Self::create`], with `dryRun=All`: everything but the commit.
    pub async fn create_dry_run(&self, gvr: &Gvr, object: &Value) -> Result<Value, ClientError> {
        let query = [("fieldManager", self.field_manager.to_string()), ("dryRun", "All".into())];
        self.call(Method::POST, &collection_path(gvr, object.namespace()), &query, Some("application/json"), Some(object)).await
    }

    /// Replaces the object; its resourceVersion, if it has one, must be the current one.
    pub async fn update(&self, gvr: &Gvr, object: &Value) -> Result<Value, ClientError> {
        self.update_subresource(gvr, object, "").await
    }

    pub async fn update_status(&self, gvr: &Gvr, object: &Value) -> Result<Value, ClientError> {
        self.update_subresource(gvr, object, "status").await
    }

    pub async fn update_subresource(&self, gvr: &Gvr, object: &Value, subresource: &str) -> Result<Value, ClientError> {
        let path = object_path(gvr, object.namespace(), object.name(), subresource);
        let query = [("fieldManager", self.field_manager.to_string())];
        self.call(Method::PUT, &path, &query, Some("application/json"), Some(object)).await
    }

    /// POST to a subresource: `binding`, `eviction`, `token`.
    pub async fn create_subresource(
        &self,
        gvr: &Gvr,
        namespace: &str,
        name: &str,
        subresource: &str,
        body: &Value,
    ) -> Result<Value, ClientError> {
        let query = [("fieldManager", self.field_manager.to_string())];
        self.call(Method::POST, &object_path(gvr, namespace, name, subresource), &query, Some("application/json"), Some(body)).await
    }

    pub async fn patch(
        &self,
        gvr: &Gvr,
        namespace: &str,
        name: &str,
        subresource: &str,
        patch: &Patch,
        options: &PatchOptions,
    ) -> Result<Value, ClientError> {
        let (media_type, body) = match patch {
            Patch::Json(body) => ("application/json-patch+json", body),
            Patch::Merge(body) => ("application/merge-patch+json", body),
            Patch::Strategic(body) => ("application/strategic-merge-patch+json", body),
            Patch::Apply(body) => ("application/apply-patch+yaml", body),
        };
        let manager = if options.field_manager.is_empty() { self.field_manager.to_string() } else { options.field_manager.clone() };
        let mut query = vec![("fieldManager", manager), ("fieldValidation", options.field_validation.clone())];
        if options.force {
            query.push(("force", "true".into()));
        }
        if options.dry_run {
            query.push(("dryRun", "All".into()));
        }
        self.call(Method::PATCH, &object_path(gvr, namespace, name, subresource), &query, Some(media_type), Some(body)).await
    }

    /// Server-side apply with force, as an owner of its fields does it.
    pub async fn apply(&self, gvr: &Gvr, object: &Value) -> Result<Value, ClientError> {
        let options = PatchOptions { force: true, ..PatchOptions::default() };
        self.patch(gvr, object.namespace(), object.name(), "", &Patch::Apply(object.clone()), &options).await
    }

    pub async fn merge_patch(&self, gvr: &Gvr, namespace: &str, name: &str, patch: Value) -> Result<Value, ClientError> {
        self.patch(gvr, namespace, name, "", &Patch::Merge(patch), &PatchOptions::default()).await
    }

    pub async fn patch_status(&self, gvr: &Gvr, namespace: &str, name: &str, patch: Value) -> Result<Value, ClientError> {
        self.patch(gvr, namespace, name, "status", &Patch::Merge(patch), &PatchOptions::default()).await
    }

    pub async fn delete(&self, gvr: &Gvr, namespace: &str, name: &str, options: &DeleteOptions) -> Result<Value, ClientError> {
        let path = object_path(gvr, namespace, name, "");
        self.call(Method::DELETE, &path, &[], Some("application/json"), Some(&options.body())).await
    }

    /// As [`Self::delete`]; an object that is already gone is success.
    pub async fn delete_if_exists(&self, gvr: &Gvr, namespace: &str, name: &str, options: &DeleteOptions) -> Result<(), ClientError> {
        match self.delete(gvr, namespace, name, options).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub async fn delete_collection(
        &self,
        gvr: &Gvr,
        namespace: &str,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Value, ClientError> {
        let query = [("labelSelector", list.label_selector.clone()), ("fieldSelector", list.field_selector.clone())];
        self.call(Method::DELETE, &collection_path(gvr, namespace), &query, Some("application/json"), Some(&options.body())).await
    }

    /// Whether we may do this to a resource everywhere in the cluster.
    pub async fn may(&self, verb: &str, group: &str, resource: &str) -> Result<bool, ClientError> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": verb, "group": group, "resource": resource}},
        });
        Ok(self.create(&SELF_SUBJECT_ACCESS_REVIEWS, &review).await?["status"]["allowed"] == true)
    }

    /// Any GET that answers with JSON: discovery documents, `/version`.
    pub async fn get_raw(&self, path: &str) -> Result<Value, ClientError> {
        self.call(Method::GET, path, &[], None, None).await
    }

    /// The events after `resource_version`. The stream ends when the server ends the watch.
    pub async fn watch(
        &self,
        gvr: &Gvr,
        namespace: &str,
        resource_version: &str,
        options: &ListOptions,
    ) -> Result<BoxStream<'static, Result<WatchEvent, ClientError>>, ClientError> {
        self.watch_as(gvr, namespace, resource_version, options, "application/json").await
    }

    /// As [`Self::watch`] over all namespaces, with only the metadata of each object.
    pub async fn watch_metadata(
        &self,
        gvr: &Gvr,
        resource_version: &str,
    ) -> Result<BoxStream<'static, Result<WatchEvent, ClientError>>, ClientError> {
        let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        self.watch_as(gvr, "", resource_version, &ListOptions::default(), accept).await
    }

    async fn watch_as(
        &self,
        gvr: &Gvr,
        namespace: &str,
        resource_version: &str,
        options: &ListOptions,
        accept: &'static str,
    ) -> Result<BoxStream<'static, Result<WatchEvent, ClientError>>, ClientError> {
        let query = [
            ("watch", "true".to_string()),
            ("allowWatchBookmarks", "true".to_string()),
            ("resourceVersion", resource_version.to_string()),
            ("labelSelector", options.label_selector.clone()),
            ("fieldSelector", options.field_selector.clone()),
        ];
        let mut request = request(Method::GET, &collection_path(gvr, namespace), &query, None, None)?;
        request.headers_mut().insert(header::ACCEPT, header::HeaderValue::from_static(accept));
        let response = self.send(request).await?;
        let lines = Lines { body: response.into_body(), buffer: Vec::new(), scanned: 0 };
        Ok(futures::stream::unfold(Some(lines), |lines| async {
            let mut lines = lines?;
            match lines.next().await {
                Ok(Some(line)) => Some((decode_event(&line), Some(lines))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed())
    }

    /// Sends a request as it is and turns a failure status into an error.
    pub async fn send(&self, request: Request<Body>) -> Result<Response<Body>, ClientError> {
        let response = self.inner.send(request).await.map_err(|e| ClientError::Transport(chain(&e)))?;
        if response.status().is_client_error() || response.status().is_server_error() {
            let code = response.status();
            let body = collect(response.into_body()).await?;
            return Err(match serde_json::from_slice::<Value>(&body) {
                Ok(status) if status.kind() == "Status" => ApiError::from_status(&status).into(),
                _ => ApiError::new(code.as_u16(), Reason::Unknown, String::from_utf8_lossy(&body).trim().to_string()).into(),
            });
        }
        Ok(response)
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        media_type: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Value, ClientError> {
        let response = self.send(request(method, path, query, media_type, body)?).await?;
        let body = collect(response.into_body()).await?;
        serde_json::from_slice(&body).map_err(|e| ClientError::Decode(format!("{path}: {e}")))
    }
}

/// The path of a collection; an empty namespace means all of them.
pub fn collection_path(gvr: &Gvr, namespace: &str) -> String {
    let root = if gvr.group.is_empty() { format!("/api/{}", gvr.version) } else { format!("/apis/{}/{}", gvr.group, gvr.version) };
    if namespace.is_empty() { format!("{root}/{}", gvr.resource) } else { format!("{root}/namespaces/{namespace}/{}", gvr.resource) }
}

pub fn object_path(gvr: &Gvr, namespace: &str, name: &str, subresource: &str) -> String {
    let mut path = format!("{}/{name}", collection_path(gvr, namespace));
    if !subresource.is_empty() {
        path.push('/');
        path.push_str(subresource);
    }
    path
}

fn request(
    method: Method,
    path: &str,
    query: &[(&str, String)],
    media_type: Option<&str>,
    body: Option<&Value>,
) -> Result<Request<Body>, ClientError> {
    let mut uri = path.to_string();
    let mut separator = '?';
    for (key, value) in query.iter().filter(|(_, v)| !v.is_empty()) {
        uri.push(separator);
        uri.push_str(key);
        uri.push('=');
        encode_query(value, &mut uri);
        separator = '&';
    }
    let bytes = match body {
        Some(body) => serde_json::to_vec(body).map_err(|e| ClientError::Decode(e.to_string()))?,
        None => Vec::new(),
    };
    let mut request = Request::builder().method(method).uri(uri).header(header::ACCEPT, "application/json");
    if let Some(media_type) = media_type {
        request = request.header(header::CONTENT_TYPE, media_type);
    }
    request.body(Body::from(bytes)).map_err(|e| ClientError::Transport(e.to_string()))
}

fn encode_query(value: &str, out: &mut String) {
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => {
                out.push('%');
                out.push(char::from_digit(u32::from(byte >> 4), 16).expect("a nibble").to_ascii_uppercase());
                out.push(char::from_digit(u32::from(byte & 15), 16).expect("a nibble").to_ascii_uppercase());
            }
        }
    }
}

async fn collect(body: Body) -> Result<Bytes, ClientError> {
    collect_up_to(body, ANSWER_BYTES_MAX).await
}

async fn collect_up_to(body: Body, bytes_max: usize) -> Result<Bytes, ClientError> {
    let body = Limited::new(body, bytes_max).collect().await;
    Ok(body.map_err(|e| ClientError::Transport(format!("the answer could not be read: {e}")))?.to_bytes())
}

fn decode_event(line: &[u8]) -> Result<WatchEvent, ClientError> {
    let mut event: Value = serde_json::from_slice(line).map_err(|e| ClientError::Decode(e.to_string()))?;
    let object = event["object"].take();
    Ok(match event["type"].as_str().unwrap_or_default() {
        "ADDED" => WatchEvent::Added(object),
        "MODIFIED" => WatchEvent::Modified(object),
        "DELETED" => WatchEvent::Deleted(object),
        "BOOKMARK" => WatchEvent::Bookmark(object),
        "ERROR" => WatchEvent::Error(ApiError::from_status(&object)),
        other => return Err(ClientError::Decode(format!("unknown watch event {other:?}"))),
    })
}

/// Splits a body into lines.
struct Lines {
    body: Body,
    buffer: Vec<u8>,
    /// How much of the buffer is known to hold no line end.
    scanned: usize,
}

impl Lines {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, ClientError> {
        loop {
            if let Some(at) = self.buffer[self.scanned..].iter().position(|b| *b == b'\n') {
                let rest = self.buffer.split_off(self.scanned + at + 1);
                let line = std::mem::replace(&mut self.buffer, rest);
                self.scanned = 0;
                return Ok(Some(line));
            }
            self.scanned = self.buffer.len();
            if self.scanned > WATCH_LINE_BYTES_MAX {
                return Err(ClientError::Decode("a watch event is longer than any object may be".into()));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => return Err(ClientError::Transport(error.to_string())),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Ok(Some(std::mem::take(&mut self.buffer))),
            }
        }
    }
}

/// An error with its causes, on one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_group_and_scope() {
        let pods = Gvr::new("", "v1", "pods");
        let deployments = Gvr::new("apps", "v1", "deployments");
        assert_eq!(object_path(&pods, "a", "b", "status"), "/api/v1/namespaces/a/pods/b/status");
        assert_eq!(collection_path(&deployments, ""), "/apis/apps/v1/deployments");
    }

    #[tokio::test]
    async fn an_answer_without_end_is_not_read_to_its_end() {
        let body = || Body::from(vec![b' '; 1025]);
        assert_eq!(collect_up_to(body(), 1025).await.unwrap().len(), 1025);
        assert!(matches!(collect_up_to(body(), 1024).await, Err(ClientError::Transport(_))));
    }

    #[test]
    fn query_values_are_escaped() {
        let request = request(Method::GET, "/x", &[("labelSelector", "a in (b, c)".into()), ("limit", String::new())], None, None).unwrap();
        assert_eq!(request.uri().to_string(), "/x?labelSelector=a%20in%20%28b%2C%20c%29");
    }
}
