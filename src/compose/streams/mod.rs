//! Streams to a tenant's pods: from the tenant's API server to the host's API, with its rights.
//!
//! The tenant's API server has decided by then whether there is a connection, and to which pod of the tenant. Here the
//! pod gets its name on the host, which is the only name that the host is ever asked for: nodes and Services of the host
//! are no targets. After an upgrade bytes pass as they are, so WebSocket and SPDY are the affair of both ends.

mod copies;
mod kubelets;
mod links;
mod pages;
mod relay;
mod remote;

pub use copies::{Copies, Copy};
pub use kubelets::{KubeletClient, KubeletStreams};
pub use remote::Remote;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use links::{Links, Rewrite};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use relay::Relays;
use remote::{Failed, Sent, answer, answered_headers};
use std::sync::Arc;
use sublet_apiserver::hooks::{ConnectTarget, Connector, Proxied};
use sublet_apiserver::http::body::{BoxError, RequestBody};
use sublet_apiserver::http::{Body, HttpResponse, RequestInfo};
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
    remote: Remote,
    copies: Copies,
    relays: Arc<Relays>,
}

impl HostStreams {
    pub fn new(remote: Remote, copies: Copies) -> Self {
        Self { remote, copies, relays: Arc::new(Relays::default()) }
    }

    /// Ends all streams and waits for their end.
    pub async fn stop(&self) {
        self.relays.stop().await;
    }
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
                match self.remote.forward(&self.relays, &path, true, request).await.map_err(unreached)? {
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
                match self.remote.forward(&self.relays, &path, false, request).await.map_err(unreached)? {
                    Sent::Upgraded(response) => Ok(response),
                    Sent::Answer(response, permit) => answer_or_refusal(response, permit, &copy).await,
                }
            }
        }
    }
}

fn unreached(failed: Failed) -> ApiError {
    match failed {
        Failed::Refused(error) => error,
        Failed::Unreached(error) => {
            tracing::warn!(%error, "the host did not answer a stream request");
            ApiError::unavailable("the host cluster did not answer; try again")
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

#[cfg(test)]
mod tests;
