//! Requests that this server sends to others: webhooks, converters, API servers of other groups.
//!
//! A call names where it goes ([`Target`]): a URL, or a Service of this server's own, which is resolved by its
//! endpoints. Connections are HTTP/1.1 over TLS as upstream's are, so that calls spread over endpoints; idle ones
//! are kept and used again. Errors are worded as Go's client words them, because users search for those words.

mod connect;
mod pool;
mod resolve;
mod tls;

pub use tls::client_tls;
pub(crate) use tls::{Identity, Trust};

use crate::reader::Reader;
use bytes::Bytes;
use connect::Connected;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use pool::Pool;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use sublet_machinery::ObjectExt;
use tokio::time::{Instant, timeout_at};

/// The largest answer of a webhook or converter; upstream's client has the same bound on what it decodes.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// The most of a failed answer that is shown.
const SHOWN_BYTES_MAX: usize = 2048;

/// Where a call goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// `host` and `port` of a URL.
    Url {
        host: String,
        port: u16,
    },
    Service {
        namespace: String,
        name: String,
        port: u16,
    },
}

/// Whom to call, and whom to believe.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub place: Place,
    /// The path, beginning with a slash.
    pub path: String,
    pub trust: Trust,
}

/// A call that got no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// Nobody answered.
    #[error("{0}")]
    Transport(String),
    /// Somebody answered, and not with success.
    #[error("{message}")]
    Status { code: u16, message: String },
}

/// The connections of one server to others.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pool: Pool,
    tls: tls::Configs,
    /// Addresses of this machine are not for tenants to call.
    refuses_local: AtomicBool,
}

impl Target {
    /// From a `clientConfig` of a webhook or of a definition's conversion.
    pub(crate) fn of_client_config(config: &Value) -> Result<Self, String> {
        let ca = config.str_at("/caBundle").unwrap_or_default();
        let trust = Trust::of_bundle(ca)?;
        if let Some(service) = config.get("service").filter(|s| s.is_object()) {
            let text = |key: &str| service[key].as_str().unwrap_or_default().to_string();
            let port = service["port"].as_u64().and_then(|p| u16::try_from(p).ok()).filter(|p| *p > 0).unwrap_or(443);
            let path = text("path");
            let path = if path.starts_with('/') { path } else { format!("/{path}") };
            return Ok(Self { place: Place::Service { namespace: text("namespace"), name: text("name"), port }, path, trust });
        }
        let url = config.str_at("/url").unwrap_or_default();
        if url.is_empty() {
            return Err("webhook configuration must have either service or URL".into());
        }
        let uri: Uri = url.parse().map_err(|e| format!("Unparsable URL: {e}"))?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_string();
        let path = uri.path();
        let path = if path.is_empty() { "/".to_string() } else { path.to_string() };
        Ok(Self { place: Place::Url { host, port: uri.port_u16().unwrap_or(443) }, path, trust })
    }

    /// The name that the certificate must carry.
    fn server_name(&self) -> String {
        match &self.place {
            Place::Url { host, .. } => host.clone(),
            Place::Service { namespace, name, .. } => format!("{name}.{namespace}.svc"),
        }
    }

    /// What stands in the Host header and in error texts.
    pub(crate) fn authority(&self) -> String {
        match &self.place {
            Place::Url { host, port: 443 } => host.clone(),
            Place::Url { host, port } => resolve::join(host, *port),
            Place::Service { port, .. } => format!("{}:{port}", self.server_name()),
        }
    }
}

impl Outgoing {
    /// From now on nobody calls what listens on this machine alone.
    pub(crate) fn refuse_local(&self) {
        self.refuses_local.store(true, Ordering::Relaxed);
    }

    /// Posts JSON and reads the JSON answer, within `timeout`.
    pub(crate) async fn call(&self, reader: &dyn Reader, target: &Target, body: Bytes, timeout: Duration) -> Result<Bytes, CallError> {
        let path = format!("{}?timeout={}s", target.path, timeout.as_secs().max(1));
        self.exchange(reader, target, Method::POST, &path, body, timeout).await
    }

    /// Reads a JSON document, within `timeout`.
    pub(crate) async fn get(&self, reader: &dyn Reader, target: &Target, timeout: Duration) -> Result<Bytes, CallError> {
        self.exchange(reader, target, Method::GET, &target.path, Bytes::new(), timeout).await
    }

    async fn exchange(
        &self,
        reader: &dyn Reader,
        target: &Target,
        method: Method,
        path: &str,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, CallError> {
        let deadline = Instant::now() + timeout;
        let url = format!("https://{}{path}", target.authority());
        let failed = |why: String| CallError::Transport(format!("{} {url:?}: {why}", go_method(&method)));
        let request = || {
            let request = Request::builder()
                .method(method.clone())
                .uri(path)
                .header(http::header::HOST, target.authority())
                .header(http::header::CONTENT_TYPE, "application/json")
                .header(http::header::ACCEPT, "application/json, */*")
                .header(http::header::USER_AGENT, USER_AGENT);
            request.body(Full::new(body.clone())).map_err(|e| failed(e.to_string()))
        };
        let late = |_| failed("context deadline exceeded".into());
        let exchange = async {
            let (response, connected) = self.send(reader, target, None, deadline, request).await?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|e| failed(format!("the answer could not be read: {e}")))?.to_bytes();
            self.pool.give_back(connected).await;
            Ok((head.status, body))
        };
        let (status, body) = timeout_at(deadline, exchange).await.map_err(late)??;
        if status.is_success() { Ok(body) } else { Err(refused(status, &body)) }
    }

    /// Sends a request on a kept or new connection; the caller reads the answer and gives the connection back.
    /// `identity` is the client certificate to show.
    pub(crate) async fn send(
        &self,
        reader: &dyn Reader,
        target: &Target,
        identity: Option<&Arc<Identity>>,
        deadline: Instant,
        request: impl Fn() -> Result<Request<Full<Bytes>>, CallError>,
    ) -> Result<(Response<Incoming>, Connected), CallError> {
        let url = format!("https://{}", target.authority());
        let failed = |request: &Request<Full<Bytes>>, why: &str| {
            CallError::Transport(format!("{} {:?}: {why}", go_method(request.method()), format!("{url}{}", request.uri())))
        };
        let mut first = request()?;
        let candidates = resolve::candidates(reader, &target.place).map_err(|why| failed(&first, &why))?;
        let key = |address: &str| pool::Key {
            address: address.to_string(),
            server_name: target.server_name(),
            trust: target.trust.clone(),
            identity: identity.map(|i| i.fingerprint),
        };
        // A kept connection may have been closed at its other end, which shows only when it is used.
        while let Some(mut kept) = self.pool.take(candidates.iter().map(|address| key(address))) {
            match kept.sender.try_send_request(first).await {
                Ok(response) => return Ok((response, kept)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => first = unsent,
                    None => return Err(failed(&request()?, &shown(error.error()))),
                },
            }
        }
        let mut last = format!("no endpoints available for service {:?}", target.authority());
        for (index, address) in candidates.iter().enumerate() {
            // A candidate that does not answer leaves time for the others.
            let left = deadline.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(candidates.len() - index).unwrap_or(1);
            let connecting = connect::connect(key(address), &self.tls, identity, self.refuses_local.load(Ordering::Relaxed));
            match tokio::time::timeout(share, connecting).await {
                Ok(Ok(mut connected)) => {
                    let response = connected.sender.send_request(first).await;
                    let response = response.map_err(|error| failed(&request().unwrap_or_default(), &shown(&error)))?;
                    return Ok((response, connected));
                }
                Ok(Err(why)) => last = why,
                Err(_) => last = format!("dial tcp {address}: i/o timeout: context deadline exceeded"),
            }
        }
        Err(failed(&first, &last))
    }

    pub(crate) async fn give_back(&self, connected: Connected) {
        self.pool.give_back(connected).await;
    }
}

pub(crate) const USER_AGENT: &str = concat!("kube-apiserver-admission/", env!("CARGO_PKG_VERSION"));

/// `Post`, as Go writes methods in errors.
fn go_method(method: &Method) -> String {
    let text = method.as_str();
    text[..1].to_string() + &text[1..].to_lowercase()
}

fn shown(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() { "EOF".into() } else { error.to_string() }
}

/// An answer without success: a Status tells itself, anything else is told as client-go tells it.
fn refused(status: StatusCode, body: &[u8]) -> CallError {
    let code = status.as_u16();
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    if let Some(message) = parsed.as_ref().filter(|v| v.kind() == "Status").and_then(|v| v.str_at("/message")).filter(|m| !m.is_empty()) {
        return CallError::Status { code, message: message.into() };
    }
    let text = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES_MAX)]).trim().to_string();
    let message = match code {
        400 => "the server rejected our request for an unknown reason".into(),
        401 => "the server has asked for the client to provide credentials".into(),
        403 if !text.is_empty() => text,
        403 => "unknown".into(),
        404 => "the server could not find the requested resource".into(),
        405 => "the server does not allow this method on the requested resource".into(),
        409 => "the server reported a conflict".into(),
        415 if !text.is_empty() => text,
        422 => "the server rejected our request due to an error in our request".into(),
        429 => "the server has received too many requests and has asked us to try again later".into(),
        503 => "the server is currently unable to handle the request".into(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the request".into(),
        500.. => format!("an error on the server ({text:?}) has prevented the request from succeeding"),
        _ => "the server responded with the status code ".to_string() + status.as_str() + " but did not return more information",
    };
    CallError::Status { code, message }
}

/// The headers of a request that concern one connection and not what is sent over it.
pub(crate) fn drop_hop_headers(headers: &mut HeaderMap) {
    for name in
        ["connection", "proxy-connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding"]
    {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn client_configs_name_their_target() {
        let at = |config: Value| Target::of_client_config(&config).map(|t| (t.authority(), t.path));
        let service = json!({"service": {"namespace": "ns", "name": "hook", "path": "/x"}});
        assert_eq!(at(service), Ok(("hook.ns.svc:443".into(), "/x".into())));
        assert_eq!(at(json!({"url": "https://127.0.0.1:8443/a/b"})), Ok(("127.0.0.1:8443".into(), "/a/b".into())));
        assert_eq!(at(json!({"url": "https://[::1]:8443"})), Ok(("[::1]:8443".into(), "/".into())));
        assert_eq!(at(json!({})), Err("webhook configuration must have either service or URL".into()));
    }

    #[test]
    fn answers_without_success_are_told_as_go_clients_tell_them() {
        let text = |code: u16, body: &str| refused(StatusCode::from_u16(code).unwrap(), body.as_bytes()).to_string();
        assert_eq!(text(500, "boom\n"), "an error on the server (\"boom\") has prevented the request from succeeding");
        assert_eq!(text(404, ""), "the server could not find the requested resource");
        assert_eq!(text(400, r#"{"kind":"Status","message":"no"}"#), "no");
    }
}
