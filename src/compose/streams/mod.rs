//! Streams to a tenant's pods: from the tenant's API server to the host's API, with its rights.
//!
//! The tenant's API server has decided by then whether there is a connection, and to which pod of the tenant. Here the
//! pod gets its name on the host, which is the only name that the host is ever asked for: nodes and Services of the host
//! are no targets. After an upgrade bytes pass as they are, so WebSocket and SPDY are the affair of both ends.

mod copies;
mod host_api;
mod links;
mod relay;

pub use copies::{Copies, Copy};
pub use host_api::HostApi;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, COOKIE, HOST, UPGRADE};
use http::{HeaderMap, HeaderName, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use links::{Links, Rewrite};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use relay::Relays;
use std::sync::Arc;
use sublet_apiserver::hooks::{ConnectTarget, Connector, Proxied};
use sublet_apiserver::http::body::{BoxError, RequestBody};
use sublet_apiserver::http::{Body, HttpResponse, RequestInfo, is_upgrade};
use sublet_machinery::ApiError;
use tokio::sync::OwnedSemaphorePermit;

/// How much of a refusal is read; they are a few sentences.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// Compressed pages are unpacked in pieces of this size, so that little becomes much only step by step.
const PIECE_BYTES: usize = 4 << 10;
/// What a path may hold as it is, after Go's `URL.EscapedPath`.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');
/// The port in a name comes from the client, and must stay one segment.
const PORT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-');

/// Forwards to the host's API under the name that the pod has there.
pub struct HostStreams {
    host: HostApi,
    copies: Copies,
    relays: Arc<Relays>,
}

impl HostStreams {
    pub fn new(host: HostApi, copies: Copies) -> Self {
        Self { host, copies, relays: Arc::new(Relays::default()) }
    }

    /// Ends all streams and waits for their end.
    pub async fn stop(&self) {
        self.relays.stop().await;
    }

    async fn send(&self, path: &str, proxied: bool, request: Request<RequestBody>) -> Result<Sent, ApiError> {
        let permit = self.relays.permit()?;
        let (mut parts, body) = request.into_parts();
        let upgrades = is_upgrade(&parts.headers);
        let client_side = parts.extensions.remove::<hyper::upgrade::OnUpgrade>();
        let mut builder = Request::builder().method(parts.method).uri(path);
        if let Some(headers) = builder.headers_mut() {
            *headers = forwarded_headers(&parts.headers, upgrades, proxied);
        }
        let outgoing = builder.body(body).map_err(|e| ApiError::bad_request(e.to_string()))?;
        let response = self.host.send(outgoing).await.map_err(|error| {
            tracing::warn!(%error, "the host did not answer a stream request");
            ApiError::unavailable("the host cluster did not answer; try again")
        })?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Sent::Answer(response, permit));
        }
        let Some(client_side) = client_side else {
            return Err(ApiError::bad_request("this connection cannot be upgraded; use HTTP/1.1"));
        };
        Ok(Sent::Upgraded(self.relays.start(client_side, response, permit)))
    }
}

/// What became of a request to the host.
enum Sent {
    Upgraded(HttpResponse),
    Answer(Response<Incoming>, OwnedSemaphorePermit),
}

#[async_trait]
impl Connector for HostStreams {
    async fn connect(&self, target: ConnectTarget<'_>, request: Request<RequestBody>) -> Result<HttpResponse, ApiError> {
        let info = target.info;
        if info.resource == "nodes" {
            let why = format!("{} of nodes is not offered to virtual clusters: other tenants' pods run on them too", info.subresource);
            return Err(ApiError::forbidden("", "nodes", &info.name, why));
        }
        let copy = self.copies.find(&target.object).await?;
        match &target.proxied {
            Some(proxied) => {
                let links = links_of(&copy, proxied, info);
                let query = request.uri().query().map(|q| format!("?{q}")).unwrap_or_default();
                let path = format!("{}{}{query}", links.host, utf8_percent_encode(&proxied.path, PATH));
                match self.send(&path, true, request).await? {
                    Sent::Upgraded(response) => Ok(response),
                    Sent::Answer(response, permit) => proxied_answer(response, permit, &copy, &links).await,
                }
            }
            None => {
                let mut path = format!("/api/v1/namespaces/{}/pods/{}/{}", copy.namespace, copy.name, info.subresource);
                // As it was read here: what admission did not see is not passed on.
                let query = target.query.encoded();
                if !query.is_empty() {
                    path = format!("{path}?{query}");
                }
                match self.send(&path, false, request).await? {
                    Sent::Upgraded(response) => Ok(response),
                    Sent::Answer(response, permit) => answer_or_refusal(response, permit, &copy).await,
                }
            }
        }
    }
}

fn links_of(copy: &Copy, proxied: &Proxied, info: &RequestInfo) -> Links {
    let port = utf8_percent_encode(&proxied.port, PORT).to_string();
    let id = match (proxied.scheme.as_str(), port.as_str()) {
        ("", "") => copy.name.clone(),
        ("", port) => format!("{}:{port}", copy.name),
        (scheme, port) => format!("{scheme}:{}:{port}", copy.name),
    };
    let tenant = format!("/api/v1/namespaces/{}/{}/{}/proxy", info.namespace, info.resource, info.name);
    Links { host: format!("/api/v1/namespaces/{}/pods/{id}/proxy", copy.namespace), tenant: utf8_percent_encode(&tenant, PATH).to_string() }
}

/// What the host refuses is told in the tenant's names; an answer passes as it is.
async fn answer_or_refusal(response: Response<Incoming>, permit: OwnedSemaphorePermit, copy: &Copy) -> Result<HttpResponse, ApiError> {
    if !is_refusal(response.status()) {
        return Ok(answer(response, permit, None));
    }
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, REFUSAL_BYTES_MAX).collect().await.map(|b| b.to_bytes()).unwrap_or_default();
    if let Some(error) = copy.told_status(&body) {
        return Err(error);
    }
    // A kubelet refuses in plain text.
    let mut plain = Response::new(Body::full(copy.told(&String::from_utf8_lossy(&body))));
    *plain.status_mut() = parts.status;
    if let Some(kind) = parts.headers.get(CONTENT_TYPE) {
        plain.headers_mut().insert(CONTENT_TYPE, kind.clone());
    }
    Ok(plain)
}

/// The answer of a program; or of the host, which says no in the same way.
async fn proxied_answer(
    response: Response<Incoming>,
    permit: OwnedSemaphorePermit,
    copy: &Copy,
    links: &Links,
) -> Result<HttpResponse, ApiError> {
    let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|v| v.as_bytes().starts_with(b"application/json"));
    let is_short = response.body().size_hint().exact().is_some_and(|n| n <= REFUSAL_BYTES_MAX as u64);
    if is_refusal(response.status()) && is_json && is_short {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(|e| ApiError::unavailable(format!("error trying to reach service: {e}")))?.to_bytes();
        if let Some(error) = copy.told_status(&body) {
            return Err(error);
        }
        let mut answer = Response::new(Body::full(body));
        *answer.status_mut() = parts.status;
        *answer.headers_mut() = answered_headers(&parts.headers);
        return Ok(answer);
    }
    let (mut parts, body) = response.into_parts();
    let rewrite = links.of_headers(&mut parts.headers);
    Ok(answer(Response::from_parts(parts, body), permit, rewrite))
}

fn is_refusal(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

/// The host's answer as this server's.
fn answer(response: Response<Incoming>, permit: OwnedSemaphorePermit, rewrite: Option<Rewrite>) -> HttpResponse {
    let (parts, body) = response.into_parts();
    let length = body.size_hint().exact();
    let stream = body.into_data_stream().map(|chunk| chunk.map_err(BoxError::from));
    let body = match rewrite {
        Some(rewrite) => Body::stream(rewritten(stream, rewrite, permit)),
        None if length == Some(0) => Body::empty(),
        None => Body::stream(stream.inspect(move |_| {
            // Counted until the last of it was read.
            let _ = &permit;
        })),
    };
    let mut answer = Response::new(body);
    *answer.status_mut() = parts.status;
    *answer.headers_mut() = answered_headers(&parts.headers);
    answer
}

fn rewritten(
    stream: impl futures::Stream<Item = Result<Bytes, BoxError>> + Send + 'static,
    rewrite: Rewrite,
    permit: OwnedSemaphorePermit,
) -> impl futures::Stream<Item = Result<Bytes, BoxError>> + Send + 'static {
    let pieces = stream.flat_map(|chunk| {
        futures::stream::iter(match chunk {
            Ok(chunk) => chunk.chunks(PIECE_BYTES).map(|piece| Ok(chunk.slice_ref(piece))).collect(),
            Err(error) => vec![Err(error)],
        })
    });
    let state = (Box::pin(pieces), Some(rewrite), permit);
    futures::stream::unfold(state, |(mut pieces, rewrite, permit)| async move {
        let mut rewrite = rewrite?;
        match pieces.next().await {
            Some(Ok(piece)) => Some((rewrite.push(&piece).map_err(BoxError::from), (pieces, Some(rewrite), permit))),
            Some(Err(error)) => Some((Err(error), (pieces, None, permit))),
            None => Some((rewrite.end().map_err(BoxError::from), (pieces, None, permit))),
        }
    })
}

/// Headers that the host may see: nothing of the tenant's credentials or connection, and nothing by which its API
/// would take us for somebody else.
fn forwarded_headers(headers: &HeaderMap, upgrades: bool, proxied: bool) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for (name, value) in headers {
        let text = name.as_str();
        let hop = name == CONNECTION || name == UPGRADE;
        let identity = name == AUTHORIZATION || text.starts_with("impersonate-") || text.starts_with("x-remote-");
        // Cookies are between a program and its user.
        let private = identity || name == HOST || (name == COOKIE && !proxied);
        if private || (hop && !upgrades) || is_hop_by_hop(name) {
            continue;
        }
        kept.append(name.clone(), value.clone());
    }
    if !kept.contains_key(ACCEPT) && !proxied {
        kept.insert(ACCEPT, http::HeaderValue::from_static("*/*"));
    }
    kept
}

fn answered_headers(headers: &HeaderMap) -> HeaderMap {
    headers.iter().filter(|(n, _)| !is_hop_by_hop(n) && *n != CONNECTION).map(|(n, v)| (n.clone(), v.clone())).collect()
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(name.as_str(), "keep-alive" | "proxy-authenticate" | "proxy-authorization" | "te" | "trailer" | "transfer-encoding")
}

#[cfg(test)]
mod tests;
