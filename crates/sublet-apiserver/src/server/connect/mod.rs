//! Connections to pods, services and nodes: `log`, `exec`, `attach`, `portforward`, `proxy`.
//!
//! Everything that decides whether there is a connection, and to which pod, happens here, with the objects of this
//! server alone: a service is resolved to one of the server's own pods before anybody else is asked.

mod proxied;
mod target;

use super::handle::{attributes, check_segment};
use super::{Server, websocket};
use crate::admission::{Attributes, Operation};
use crate::hooks::ConnectTarget;
use crate::http::body::RequestBody;
use crate::http::websocket::key;
use crate::http::{Body, HttpResponse, RequestInfo};
use crate::rest::ResourceRequest;
use http::header::{CONNECTION, LOCATION, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use sublet_machinery::{ApiError, ObjectExt};

/// Subresources that connect to a pod, service or node.
const CONNECT: [&str; 5] = ["exec", "attach", "portforward", "proxy", "log"];

/// Whether the path asks for a connection.
pub(super) fn is_connection(info: &RequestInfo) -> bool {
    info.is_resource && info.group.is_empty() && CONNECT.contains(&info.subresource.as_str())
}

fn allows(subresource: &str, method: &Method) -> bool {
    match subresource {
        "proxy" => matches!(method.as_str(), "GET" | "POST" | "PUT" | "PATCH" | "DELETE" | "HEAD" | "OPTIONS"),
        "log" => method == Method::GET,
        // Browsers begin WebSockets with GET alone.
        _ => matches!(method.as_str(), "GET" | "POST"),
    }
}

impl Server {
    /// Admission, then whoever can reach the pod.
    pub(super) async fn connect(&self, request: &ResourceRequest<'_>, parts: &Parts, body: RequestBody) -> Result<HttpResponse, ApiError> {
        let info = request.info;
        let is_path = request.resource.subresource(&info.subresource).is_some()
            && request.resource.namespaced != info.namespace.is_empty()
            && (info.rest.is_empty() || info.subresource == "proxy");
        if !is_path {
            return Err(ApiError::no_such_path());
        }
        if !allows(&info.subresource, &parts.method) {
            return Err(ApiError::method_not_allowed());
        }
        let target = match info.subresource.as_str() {
            "log" => {
                let pod = self.connected_object(request, &info.name)?;
                target::container(&pod, request.query.get("container"))?;
                if pod.str_at("/spec/nodeName").unwrap_or_default().is_empty() {
                    // Nothing was written yet by a pod that is nowhere.
                    let mut response = http::Response::new(Body::empty());
                    *response.status_mut() = StatusCode::NO_CONTENT;
                    return Ok(response);
                }
                ConnectTarget { info, query: request.query, user: request.user, object: pod, proxied: None }
            }
            subresource => {
                self.admit_connection(request).await?;
                let target = if subresource == "proxy" { self.proxy_target(request)? } else { self.stream_target(request)? };
                match (&target.proxied, is_upgrade(&parts.headers)) {
                    (None, false) => return Err(ApiError::bad_request("Upgrade request required")),
                    (Some(proxied), false) if proxied.path.is_empty() && is_read(&parts.method) => return Ok(with_slash(parts)),
                    _ => target,
                }
            }
        };
        let connector = self.connector().ok_or_else(|| {
            ApiError::unavailable(format!("{} of {} needs a node; this API server has none", info.subresource, request.resource.plural))
        })?;
        let mut forwarded = Request::builder().method(parts.method.clone()).uri(parts.uri.clone()).version(parts.version);
        // A log is a plain answer wherever it comes from, and becomes messages here.
        let is_log = info.subresource == "log";
        if let Some(headers) = forwarded.headers_mut() {
            *headers =
                if is_log && key(&parts.headers).is_some() { websocket::plain_headers(&parts.headers) } else { parts.headers.clone() };
        }
        let mut forwarded = forwarded.body(body).map_err(|e| ApiError::bad_request(format!("the request cannot be forwarded: {e}")))?;
        *forwarded.extensions_mut() = parts.extensions.clone();
        let answer = connector.connect(target, forwarded).await?;
        if is_log { websocket::over(parts, answer) } else { Ok(answer) }
    }

    async fn admit_connection(&self, request: &ResourceRequest<'_>) -> Result<(), ApiError> {
        if !request.query.get("dryRun").is_empty() {
            return Err(ApiError::bad_request("dryRun is not supported"));
        }
        let mut attributes = Attributes {
            subresource: &request.info.subresource,
            namespace: request.namespace(),
            name: &request.info.name,
            query: Some(request.query),
            connect_path: (request.info.subresource == "proxy").then(|| proxied::option_path(request.info)),
            ..Attributes::new(request.user, Operation::Connect, &request.resource)
        };
        self.admit(request, &mut attributes).await
    }

    /// The pod that a command or a port belongs to.
    fn stream_target<'r>(&self, request: &'r ResourceRequest<'_>) -> Result<ConnectTarget<'r>, ApiError> {
        let info = request.info;
        if info.verb != "create" {
            // WebSockets begin with GET, and who may only read must not run commands by them.
            let create = RequestInfo { verb: "create", ..info.clone() };
            self.authorization().check(&attributes(request.user, &create))?;
        }
        let pod = self.connected_object(request, &info.name)?;
        if info.subresource != "portforward" {
            target::container(&pod, request.query.get("container"))?;
        }
        if pod.str_at("/spec/nodeName").unwrap_or_default().is_empty() {
            return Err(ApiError::bad_request(format!("pod {} does not have a host assigned", info.name)));
        }
        Ok(ConnectTarget { info, query: request.query, user: request.user, object: pod, proxied: None })
    }

    /// The object that the path names.
    fn connected_object(&self, request: &ResourceRequest<'_>, name: &str) -> Result<std::sync::Arc<serde_json::Value>, ApiError> {
        check_segment(name)?;
        let bucket = request.resource.group_resource();
        crate::reader::Reader::get(self, &bucket, request.namespace(), name).ok_or_else(|| request.not_found(name))
    }
}

/// Whether the client wants another protocol on its connection.
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    let asks = |value: &HeaderValue| value.to_str().is_ok_and(|v| v.to_ascii_lowercase().contains("upgrade"));
    headers.contains_key(UPGRADE) && headers.get_all(CONNECTION).iter().any(asks)
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Relative links of the page behind a proxy need a slash at the end of its path.
fn with_slash(parts: &Parts) -> HttpResponse {
    let query = parts.uri.query().map(|q| format!("?{q}")).unwrap_or_default();
    let mut response = http::Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(location) = HeaderValue::from_str(&format!("{}/{query}", parts.uri.path())) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}
