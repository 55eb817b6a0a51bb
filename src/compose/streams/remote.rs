//! Where streams lead to: requests pass as they come, bodies are not collected, connections are handed over after an
//! upgrade.

use super::links::Rewrite;
use super::relay::Relays;
use super::rewritten;
use anyhow::{Context as _, Result};
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture};
use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, COOKIE, HOST, UPGRADE};
use http::{HeaderMap, HeaderName, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt as _;
use std::sync::Arc;
use sublet_apiserver::http::body::{BoxError, RequestBody};
use sublet_apiserver::http::{Body, HttpResponse, is_upgrade};
use sublet_machinery::ApiError;
use tokio::sync::OwnedSemaphorePermit;
use tower::util::BoxCloneSyncService;
use tower::{BoxError as TowerError, ServiceBuilder, ServiceExt as _};

/// A client for one side of streams. Cheap to clone.
#[derive(Clone)]
pub struct Remote(BoxCloneSyncService<Request<RequestBody>, Response<Incoming>, BoxError>);

/// What became of a request.
pub(super) enum Sent {
    Upgraded(HttpResponse),
    Answer(Response<Incoming>, OwnedSemaphorePermit),
}

/// Why there was no answer.
pub(super) enum Failed {
    Refused(ApiError),
    Unreached(BoxError),
}

impl Remote {
    /// The host's API, with the credentials of a kubeconfig or of the pod's service account.
    pub fn of_host(config: &kube::Config) -> Result<Self> {
        let connector = config.rustls_https_connector().context("cannot make a client for streams")?;
        let client: Client<_, RequestBody> = Client::builder(TokioExecutor::new()).build(connector);
        let stack = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer().context("cannot make a client for streams")?)
            .map_err(TowerError::from)
            .service(client);
        Ok(Self(BoxCloneSyncService::new(stack.map_err(Into::into))))
    }

    /// Whoever a request names; TLS as `config` has it.
    pub(super) fn of_anybody(config: Arc<rustls::ClientConfig>) -> Self {
        let connector = HttpsConnectorBuilder::new().with_tls_config((*config).clone()).https_or_http().enable_http1().build();
        let client: Client<_, RequestBody> = Client::builder(TokioExecutor::new()).build(connector);
        Self(BoxCloneSyncService::new(client.map_err(Into::into)))
    }

    fn send(&self, request: Request<RequestBody>) -> BoxFuture<'static, Result<Response<Incoming>, BoxError>> {
        self.0.clone().oneshot(request).boxed()
    }

    /// Sends the request on to `uri`. What a program behind `proxy` may see is more than what an API may.
    pub(super) async fn forward(&self, relays: &Relays, uri: &str, proxied: bool, request: Request<RequestBody>) -> Result<Sent, Failed> {
        let permit = relays.permit().map_err(Failed::Refused)?;
        let (mut parts, body) = request.into_parts();
        let upgrades = is_upgrade(&parts.headers);
        let client_side = parts.extensions.remove::<hyper::upgrade::OnUpgrade>();
        let mut builder = Request::builder().method(parts.method).uri(uri);
        if let Some(headers) = builder.headers_mut() {
            *headers = forwarded_headers(&parts.headers, upgrades, proxied);
        }
        let outgoing = builder.body(body).map_err(|e| Failed::Refused(ApiError::bad_request(e.to_string())))?;
        let response = self.send(outgoing).await.map_err(Failed::Unreached)?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Sent::Answer(response, permit));
        }
        let Some(client_side) = client_side else {
            return Err(Failed::Refused(ApiError::bad_request("this connection cannot be upgraded; use HTTP/1.1")));
        };
        Ok(Sent::Upgraded(relays.start(client_side, response, permit)))
    }
}

/// The other side's answer as this server's.
pub(super) fn answer(response: Response<Incoming>, permit: OwnedSemaphorePermit, rewrite: Option<Rewrite>) -> HttpResponse {
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

/// Headers that the host may see: nothing of the tenant's credentials or connection, and nothing by which its API
/// would take us for somebody else.
pub(super) fn forwarded_headers(headers: &HeaderMap, upgrades: bool, proxied: bool) -> HeaderMap {
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

pub(super) fn answered_headers(headers: &HeaderMap) -> HeaderMap {
    headers.iter().filter(|(n, _)| !is_hop_by_hop(n) && *n != CONNECTION).map(|(n, v)| (n.clone(), v.clone())).collect()
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(name.as_str(), "keep-alive" | "proxy-authenticate" | "proxy-authorization" | "te" | "trailer" | "transfer-encoding")
}
