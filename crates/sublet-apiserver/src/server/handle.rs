//! The way of a request: who asks, may they, what do they want, how is the answer written.

use super::Server;
use super::connect::is_connection;
use super::counted::InFlight;
use super::health;
use super::identity::{Trail, is_own};
use super::system::system_user;
use super::websocket;
use crate::admission::UserInfo;
use crate::auth::authn::Remark;
use crate::auth::authz::AuthzAttributes;
use crate::http::body::BoxError;
use crate::http::negotiate::{self, Accepted, Encoding};
use crate::http::respond::{self, HttpResponse};
use crate::http::{Query, RequestInfo};
use crate::registry::{Resource, Snapshot};
use crate::rest::ResourceRequest;
use crate::rest::delete::DeleteOptions;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use serde_json::json;
use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use sublet_machinery::selector::FieldSelector;
use sublet_machinery::{ApiError, ObjectExt as _, Reason};
use sublet_share::Spent;

/// Marks a request from within the process; the identity needs no proof.
#[derive(Clone)]
pub struct InProcess(pub Arc<UserInfo>);

/// What the client certificate of the connection says.
#[derive(Clone)]
pub enum Peer {
    /// It is good until then, and names a user.
    User {
        user: Arc<UserInfo>,
        until: Timestamp,
    },
    Refused,
}

impl Server {
    pub async fn handle<B>(&self, request: Request<B>) -> HttpResponse
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let gzip = negotiate::accepts_gzip(request.headers());
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query());
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
        let mut accepted = negotiate::accept(&parts.headers, matches!(info.verb, "list" | "watch"));
        let pretty = negotiate::is_pretty(query.has("pretty").then(|| query.bool("pretty")), &parts.headers);
        if let Ok(accepted) = &mut accepted {
            accepted.pretty |= pretty;
        }
        let fallback = accepted.clone().unwrap_or_default();
        let started = tokio::time::Instant::now();
        let long_running = is_long_running(&info);
        let counted = !is_own(&parts);
        let _in_flight = (counted && !long_running).then(|| InFlight::new(self, !matches!(info.verb, "get" | "list" | "head")));
        let mut trail = self.trail(&parts);
        let mut response = match self.answer(&parts, body, &query, &info, accepted, &mut trail).await {
            Ok(response) => response,
            Err(error) => respond::error(&error, Accepted { form: Default::default(), ..fallback }),
        };
        trail.end(&mut response, long_running).await;
        if gzip {
            response = respond::compress(response);
        }
        let status = response.status().as_u16();
        tracing::debug!(server = %self.name(), verb = info.verb, path = %info.path, status, duration_ms = started.elapsed().as_millis() as u64, "request");
        // The own loops of thousands of idle tenants would fill memory with what they ask for.
        if counted { self.count(&info, &query, &parts.headers, response, started.elapsed()) } else { response }
    }

    async fn answer<B>(
        &self,
        parts: &Parts,
        body: B,
        query: &Query,
        info: &RequestInfo,
        accepted: Result<Accepted, ApiError>,
        trail: &mut Trail,
    ) -> Result<HttpResponse, ApiError>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if self.stop_token().is_cancelled() {
            return Err(ApiError::unavailable("the server is shutting down"));
        }
        let connects = is_connection(info);
        let user = self.identify(parts, query, info, trail).await?;
        let Ok(_seat) = self.seat(parts, &user, info, trail).await else { return Ok(too_many_requests()) };
        self.authorize_request(&user, &by_selected_name(info, query), trail)?;
        if let Some(api) = self.api_service_for(&info.path) {
            let (body, _spent) = self.take_body(body).await?;
            return Ok(self.pass_on(&api, parts, &user, body).await);
        }
        if !info.is_resource {
            let (body, _spent) = self.take_body(body).await?;
            return self.plain(parts, query, info, &user, accepted, &body).await;
        }
        if self.serves_usage(info) {
            return self.usage(&parts.method, info, query, negotiate::accept_custom(&parts.headers)?).await;
        }
        let registry = self.registry().snapshot();
        let Some(resource) = registry.find(&info.group, &info.version, &info.resource).cloned() else {
            return no_such_page(&registry, &info.group);
        };
        // What goes to a pod is passed on as it comes.
        let (stream, (body, _spent)) =
            if connects { (Some(body), (Bytes::new(), Spent::nothing())) } else { (None, self.take_body(body).await?) };
        let pretty = accepted.as_ref().is_ok_and(|accepted| accepted.pretty);
        let mut accepted = match accepted {
            accepted if connects => accepted.unwrap_or_default(),
            _ if resource.custom.is_some() => negotiate::accept_custom(&parts.headers)?,
            accepted => accepted?,
        };
        accepted.pretty |= pretty;
        let request = ResourceRequest {
            info,
            query,
            headers: &parts.headers,
            user: &user,
            accepted,
            resource,
            registry,
            body,
            warnings: Mutex::default(),
            audit: trail.record(),
        };
        let mut response = match stream {
            Some(stream) => self.connect(&request, parts, stream.map_err(Into::into).boxed_unsync()).await,
            None if info.verb == "watch" => self.dispatch(&request, parts).await.and_then(|answer| websocket::over(parts, answer)),
            None if self.is_heavy(&request) => self.share().heavy(self.dispatch(&request, parts)).await,
            None => self.dispatch(&request, parts).await,
        };
        let warnings = std::mem::take(&mut *request.warnings.lock().expect("no holder of this lock panics"));
        let deprecated = match &request.resource.custom {
            Some(custom) => custom.deprecation_warning.clone(),
            None => crate::strategy::deprecation(&info.group, &info.version, &info.resource),
        };
        if !warnings.is_empty()
            && let Err(error) = &response
        {
            // Whoever is refused is warned as well.
            response = Ok(respond::error(error, Accepted { form: Default::default(), ..request.accepted }));
        }
        if let Ok(response) = &mut response {
            respond::add_warnings(response, &warnings);
            respond::add_warnings(response, deprecated.as_slice());
        }
        if deprecated.is_some() && request.resource.custom.is_none() {
            self.metrics().deprecated(&info.group, &info.version, &info.resource, &info.subresource);
            if let Some(record) = request.audit {
                record.annotate("k8s.io/deprecated", "true");
            }
        }
        response
    }

    /// An update that creates needs the right to create.
    pub(crate) fn authorize_create(&self, request: &ResourceRequest<'_>) -> Result<(), ApiError> {
        self.authorize(request.user, &RequestInfo { verb: "create", ..request.info.clone() })
    }

    async fn dispatch(&self, request: &ResourceRequest<'_>, parts: &Parts) -> Result<HttpResponse, ApiError> {
        let (info, resource) = (request.info, &request.resource);
        if info.subresource.is_empty() || resource.subresource(&info.subresource).is_some() {
            check_segment(&info.name)?;
        }
        if resource.namespaced && info.namespace.is_empty() && info.path.contains("/namespaces//") {
            return Err(ApiError::bad_request("Namespace parameter required."));
        }
        if resource.namespaced && info.namespace.is_empty() && !matches!(info.verb, "list" | "watch") {
            // All namespaces at once can be read and nothing else.
            return Err(if info.name.is_empty() { ApiError::method_not_allowed() } else { ApiError::no_such_path() });
        }
        if !resource.namespaced && !info.namespace.is_empty() && (resource.plural != "namespaces" || info.name.is_empty()) {
            return Err(ApiError::no_such_path());
        }
        if parts.method == Method::HEAD {
            return Err(ApiError::method_not_allowed());
        }
        if !info.subresource.is_empty() {
            return self.subresource(request).await;
        }
        if matches!(resource.group.as_str(), "authentication.k8s.io" | "authorization.k8s.io") && info.verb == "create" {
            let accepted = Accepted { pretty: request.accepted.pretty, ..negotiate::accept_answer(request.headers)? };
            let body = self.asked(request)?;
            if resource.kind == "TokenReview" {
                self.prepare_token(body.str_at("/spec/token").unwrap_or_default()).await;
            }
            let reviewed = self.security().reviews.review(&resource.kind, request.namespace(), body, request.user, self.clock_now())?;
            if let Some(Remark { annotation: (key, value), warning }) = reviewed.remark {
                request.audit.iter().for_each(|record| record.annotate(key, &value));
                warning.into_iter().for_each(|text| request.warn(text));
            }
            return Ok(respond::value(StatusCode::CREATED, accepted, &reviewed.answer));
        }
        if resource.plural == "bindings" && resource.group.is_empty() && info.verb == "create" {
            return self.bind_by_body(request).await;
        }
        let misses_name = info.name.is_empty() && matches!(info.verb, "update" | "patch");
        if !resource.has_verb(info.verb) || misses_name || (info.verb == "create" && !info.name.is_empty()) {
            return Err(ApiError::method_not_allowed());
        }
        match info.verb {
            "get" => self.handle_get(request).await,
            "list" => self.handle_list(request).await,
            "watch" => self.handle_watch(request, parts.extensions.get::<InProcess>().is_some()).await,
            "create" => self.handle_create(request).await,
            "update" => self.handle_update(request).await,
            "patch" => self.handle_patch(request).await,
            "delete" => self.handle_delete(request).await,
            "deletecollection" => self.handle_delete_collection(request).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    /// The older form of binding, in which only the body names the pod.
    async fn bind_by_body(&self, request: &ResourceRequest<'_>) -> Result<HttpResponse, ApiError> {
        let name = crate::rest::decode::parse_body(request)?["metadata"]["name"].as_str().unwrap_or_default().to_string();
        let pods = request.registry.find("", "v1", "pods").cloned().ok_or_else(ApiError::no_such_path)?;
        let info = RequestInfo { resource: "pods".into(), subresource: "binding".into(), name, ..request.info.clone() };
        let of_pod = ResourceRequest {
            info: &info,
            query: request.query,
            headers: request.headers,
            user: request.user,
            accepted: request.accepted,
            resource: pods,
            registry: request.registry.clone(),
            body: request.body.clone(),
            warnings: Mutex::default(),
            audit: request.audit,
        };
        self.bind(&of_pod, &info.name).await
    }

    /// A delete by the server itself, with all the rules of deletion but no admission by users.
    pub(crate) async fn delete_as_system(
        &self,
        row: &Arc<Resource>,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let user = system_user();
        let (query, headers) = (Query::default(), HeaderMap::new());
        let info = RequestInfo {
            is_resource: true,
            verb: "delete",
            group: row.group.clone(),
            version: row.version.clone(),
            namespace: namespace.to_string(),
            resource: row.plural.clone(),
            name: name.to_string(),
            ..RequestInfo::default()
        };
        let request = ResourceRequest {
            info: &info,
            query: &query,
            headers: &headers,
            user: &user,
            accepted: Accepted::default(),
            resource: row.clone(),
            registry: self.registry().snapshot(),
            body: Bytes::new(),
            warnings: Mutex::default(),
            audit: None,
        };
        match self.delete_object_in(&request, namespace, name, options).await {
            Err(error) if error.is(Reason::NotFound) => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Everything that is not a resource: health, version, documents.
    async fn plain(
        &self,
        parts: &Parts,
        query: &Query,
        info: &RequestInfo,
        _user: &UserInfo,
        accepted: Result<Accepted, ApiError>,
        _body: &Bytes,
    ) -> Result<HttpResponse, ApiError> {
        let path = info.path.trim_end_matches('/');
        if let Some(answer) = health::answer(path, query) {
            return Ok(answer);
        }
        let document = async { self.document(path, query, &parts.headers, accepted.clone().unwrap_or_default()) };
        // Those that tell of all kinds take long to make, and longer where there are many definitions.
        let of_all = path == "/apis" || path.starts_with("/openapi/");
        let document = if of_all { self.share().heavy(document).await } else { document.await };
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            return if document.is_some() { Err(ApiError::method_not_allowed()) } else { self.no_such_plain_path(path) };
        }
        match path {
            "/metrics" => return Ok(respond::text(StatusCode::OK, self.metrics().render(self))),
            "/version" => {
                // Typed clients ask for protobuf everywhere; this document is JSON, whatever they say.
                let accepted = accepted.ok().filter(|a| a.encoding == Encoding::Json).unwrap_or_default();
                return Ok(respond::value(StatusCode::OK, accepted, &version()));
            }
            "/.well-known/openid-configuration" => {
                return Ok(respond::value(StatusCode::OK, Accepted::default(), &self.security().tokens.openid_configuration()));
            }
            "/openid/v1/jwks" => {
                let keys = self.security().tokens.jwks().to_string();
                return Ok(respond::bytes(StatusCode::OK, "application/jwk-set+json", keys.into()));
            }
            _ => {}
        }
        document.unwrap_or_else(|| self.no_such_plain_path(path))
    }

    fn no_such_plain_path(&self, path: &str) -> Result<HttpResponse, ApiError> {
        match path.strip_prefix("/apis/").and_then(|rest| rest.split('/').next()) {
            Some(group) => no_such_page(&self.registry().snapshot(), group),
            None if path.starts_with("/api/") => Err(ApiError::no_such_path()),
            None => Ok(respond::no_such_page()),
        }
    }
}

/// A client of the API waits as long as told, and tries again.
fn too_many_requests() -> HttpResponse {
    let mut response = respond::text(StatusCode::TOO_MANY_REQUESTS, "Too many requests, please try again later.\n");
    response.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    response
}

/// Watches and connections last as long as both sides want.
pub(super) fn is_long_running(info: &RequestInfo) -> bool {
    info.verb == "watch" || is_connection(info)
}

/// A name must be good for a path.
pub(super) fn check_segment(name: &str) -> Result<(), ApiError> {
    let why = match name {
        "." => "may not be '.'",
        ".." => "may not be '..'",
        name if name.contains('%') => "may not contain '%'",
        _ => return Ok(()),
    };
    Err(ApiError::bad_request(format!("Name parameter invalid: {name:?}: {why}")))
}

pub(super) fn attributes<'a>(user: &'a UserInfo, info: &'a RequestInfo) -> AuthzAttributes<'a> {
    AuthzAttributes {
        user,
        verb: info.verb,
        group: &info.group,
        resource: &info.resource,
        subresource: &info.subresource,
        namespace: &info.namespace,
        name: info.authorized_name(),
        path: (!info.is_resource).then_some(&info.path),
    }
}

/// Built-in groups answer for what they do not have; beyond them upstream has a plain page.
fn no_such_page(registry: &Snapshot, group: &str) -> Result<HttpResponse, ApiError> {
    let builtin = group.is_empty() || registry.in_group(group).any(|r| r.custom.is_none());
    if builtin { Err(ApiError::no_such_path()) } else { Ok(respond::no_such_page()) }
}

/// A list or watch of one name by field selector is about that name: RBAC may allow it by `resourceNames`.
fn by_selected_name<'a>(info: &'a RequestInfo, query: &Query) -> Cow<'a, RequestInfo> {
    let of_collection = matches!(info.verb, "list" | "watch" | "deletecollection") && info.name.is_empty();
    if !of_collection || query.get("fieldSelector").is_empty() {
        return Cow::Borrowed(info);
    }
    match FieldSelector::parse(query.get("fieldSelector")).ok().and_then(|s| s.requires_exact_match("metadata.name").map(str::to_string)) {
        Some(name) => Cow::Owned(RequestInfo { name, ..info.clone() }),
        None => Cow::Borrowed(info),
    }
}

fn version() -> serde_json::Value {
    json!({
        "major": "1", "minor": "37", "emulationMajor": "1", "emulationMinor": "37", "minCompatibilityMajor": "1", "minCompatibilityMinor": "36",
        "gitVersion": concat!("v1.37.2+sublet.", env!("CARGO_PKG_VERSION")), "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none", "compiler": "rustc", "platform": "linux/amd64",
    })
}
