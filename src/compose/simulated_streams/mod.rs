//! Streams of pods on simulated nodes: answered here, for no container runs. Clients come over WebSocket or SPDY.

mod channels;
mod forward;
mod session;
mod spdy;
mod transport;

use anyhow::Context as _;
use async_trait::async_trait;
use bytes::Bytes;
use channels::{Channel, Channels, SpdyChannels};
use futures::{StreamExt, stream};
use http::header::{CONNECTION, CONTENT_TYPE, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use session::Session;
use spdy::Spdy;
use std::sync::Arc;
use std::time::Duration;
use sublet_apiserver::hooks::{ConnectTarget, Connector, Proxied};
use sublet_apiserver::http::body::RequestBody;
use sublet_apiserver::http::{Body, HttpResponse, Query, websocket};
use sublet_host::{LogRequest, SimulatedShell, simulated_page};
use sublet_machinery::{ApiError, ObjectExt};
use sublet_runtime::Client;
use sublet_runtime::resources::PODS;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use transport::{Socket, Transport};

/// The protocols of commands, best first, under the names that they have over both.
const COMMANDS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
const PORTS_SPDY: [&str; 1] = ["portforward.k8s.io"];
/// SPDY in a WebSocket.
const PORTS_WEBSOCKET: [&str; 1] = ["SPDY/3.1+portforward.k8s.io"];
const SPDY_VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// How long a client may take to open the streams that it asked for.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
const FOLLOW_POLL: Duration = Duration::from_secs(1);

/// Serves the streams of simulated pods.
pub struct SimulatedStreams {
    client: Client,
}

impl SimulatedStreams {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    fn log(&self, pod: &Value, query: &Query) -> Result<HttpResponse, ApiError> {
        let request = LogRequest {
            container: query.get("container").to_string(),
            tail_lines: query.number("tailLines")?,
            limit_bytes: query.number("limitBytes")?,
            timestamps: query.bool("timestamps"),
            previous: query.bool("previous"),
        };
        let text = Bytes::from(sublet_host::simulated_log(pod, &request)?);
        let body = if query.bool("follow") {
            let end = wait_for_end(self.client.clone(), pod.namespace().to_string(), pod.name().to_string(), pod.uid().to_string());
            let rest = stream::once(end).filter_map(|()| async { None });
            Body::stream(stream::once(async { Ok(text) }).chain(rest))
        } else {
            Body::full(text)
        };
        Ok(plain(StatusCode::OK, body))
    }

    fn exec(&self, pod: &Value, query: &Query, mut request: Request<RequestBody>, attach: bool) -> Result<HttpResponse, ApiError> {
        let container = sublet_host::stream_container(pod, query.get("container"))?;
        let words: Vec<String> = query.all("command").map(str::to_string).collect();
        if words.is_empty() && !attach {
            return Err(ApiError::bad_request("you must specify at least 1 command for the container"));
        }
        let log = LogRequest { container: container["name"].as_str().unwrap_or_default().into(), ..LogRequest::default() };
        let session = Session {
            shell: SimulatedShell::new(pod, container),
            words,
            wants_input: query.bool("stdin"),
            tty: query.bool("tty"),
            printed: if attach { Some(sublet_host::simulated_log(pod, &log)?) } else { None },
        };
        let wanted = wanted_channels(query);
        let Accepted { upgrade, protocol, response } = accept(&mut request, &COMMANDS, &COMMANDS)?;
        spawn(async move {
            let upgraded = upgrade.await?;
            let channels = match protocol {
                Protocol::WebSocket => Channels::WebSocket(Box::new(socket(upgraded).await)),
                Protocol::Spdy => {
                    let spdy = Spdy::new(Transport::Raw(Box::new(TokioIo::new(upgraded))))?;
                    let channels = tokio::time::timeout(OPEN_TIMEOUT, SpdyChannels::accept(spdy, &wanted)).await;
                    Channels::Spdy(Box::new(channels.context("the client opens no streams")??))
                }
            };
            session.run(channels).await
        });
        Ok(response)
    }

    fn port_forward(&self, pod: &Arc<Value>, mut request: Request<RequestBody>) -> Result<HttpResponse, ApiError> {
        let Accepted { upgrade, protocol, response } = accept(&mut request, &PORTS_WEBSOCKET, &PORTS_SPDY)?;
        let pod = pod.clone();
        spawn(async move {
            let upgraded = upgrade.await?;
            let transport = match protocol {
                Protocol::WebSocket => Transport::Tunnel(Box::new(socket(upgraded).await)),
                Protocol::Spdy => Transport::Raw(Box::new(TokioIo::new(upgraded))),
            };
            forward::serve(Spdy::new(transport)?, pod).await
        });
        Ok(response)
    }
}

#[async_trait]
impl Connector for SimulatedStreams {
    async fn connect(&self, target: ConnectTarget<'_>, request: Request<RequestBody>) -> Result<HttpResponse, ApiError> {
        match (target.info.subresource.as_str(), &target.proxied) {
            ("log", _) => self.log(&target.object, target.query),
            ("exec", _) => self.exec(&target.object, target.query, request, false),
            ("attach", _) => self.exec(&target.object, target.query, request, true),
            ("portforward", _) => self.port_forward(&target.object, request),
            ("proxy", Some(proxied)) if target.info.resource != "nodes" => page(&target.object, proxied),
            (subresource, _) => {
                let resource = &target.info.resource;
                Err(ApiError::unavailable(format!("{subresource} of {resource} needs a real node; the nodes of this host are simulated")))
            }
        }
    }
}

/// What is behind `proxy`.
fn page(pod: &Value, proxied: &Proxied) -> Result<HttpResponse, ApiError> {
    let port = if proxied.port.is_empty() { "80" } else { &proxied.port };
    let page = port.parse().ok().and_then(|port| simulated_page(pod, port, &proxied.path));
    let address = pod.str_at("/status/podIP").unwrap_or_default();
    let refused =
        || ApiError::unavailable(format!("error trying to reach service: dial tcp {address}:{port}: connect: connection refused"));
    Ok(plain(StatusCode::OK, Body::full(page.ok_or_else(refused)?)))
}

fn plain(status: StatusCode, body: Body) -> HttpResponse {
    let mut response = http::Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

/// Runs to its end beside the request.
fn spawn(stream: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
    tokio::spawn(async move {
        if let Err(error) = stream.await {
            tracing::debug!(error = format!("{error:#}"), "a simulated stream ended");
        }
    });
}

/// The streams that a client opens over SPDY, by what it asked for.
fn wanted_channels(query: &Query) -> Vec<Channel> {
    let tty = query.bool("tty");
    let asked = [
        (Channel::Error, true),
        (Channel::Stdin, query.bool("stdin")),
        (Channel::Stdout, query.bool("stdout")),
        (Channel::Stderr, query.bool("stderr") && !tty),
        (Channel::Resize, tty),
    ];
    asked.into_iter().filter(|(_, asked)| *asked).map(|(channel, _)| channel).collect()
}

/// Waits until nothing more can be printed: the pod is over or gone.
async fn wait_for_end(client: Client, namespace: String, name: String, uid: String) {
    loop {
        tokio::time::sleep(FOLLOW_POLL).await;
        let over = |pod: &Value| pod.uid() != uid || matches!(pod.str_at("/status/phase"), Some("Succeeded" | "Failed"));
        match client.get_opt(&PODS, &namespace, &name).await {
            Ok(Some(pod)) if !over(&pod) => {}
            _ => return,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    WebSocket,
    Spdy,
}

/// A connection that is about to speak another protocol.
struct Accepted {
    upgrade: OnUpgrade,
    protocol: Protocol,
    response: HttpResponse,
}

/// The server's half of the handshake, with the protocols that it speaks over either.
fn accept<B>(
    request: &mut Request<B>,
    spoken_over_websocket: &[&'static str],
    spoken_over_spdy: &[&'static str],
) -> Result<Accepted, ApiError> {
    let headers = request.headers();
    let upgrade = headers.get(UPGRADE).map(HeaderValue::as_bytes).unwrap_or_default();
    let (protocol, response) = match websocket::key(headers) {
        Some(key) => {
            let chosen = choose(headers, &SEC_WEBSOCKET_PROTOCOL, spoken_over_websocket)?;
            (Protocol::WebSocket, websocket::switched(key, Some(chosen))?)
        }
        None if upgrade.eq_ignore_ascii_case(b"SPDY/3.1") => {
            let chosen = choose(headers, &SPDY_VERSION, spoken_over_spdy)?;
            let mut response = http::Response::new(Body::empty());
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            for (name, value) in [(CONNECTION, "Upgrade"), (UPGRADE, "SPDY/3.1"), (SPDY_VERSION, chosen)] {
                response.headers_mut().insert(name, HeaderValue::from_static(value));
            }
            (Protocol::Spdy, response)
        }
        None => return Err(ApiError::bad_request("Upgrade request required")),
    };
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    let upgrade = upgrade.ok_or_else(|| ApiError::bad_request("this connection cannot be upgraded; use HTTP/1.1"))?;
    Ok(Accepted { upgrade, protocol, response })
}

fn choose(headers: &HeaderMap, name: &HeaderName, spoken: &[&'static str]) -> Result<&'static str, ApiError> {
    let offered: Vec<&str> =
        headers.get_all(name).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(',')).map(str::trim).collect();
    let chosen = spoken.iter().find(|p| offered.contains(*p)).copied();
    chosen
        .ok_or_else(|| ApiError::bad_request(format!("unable to negotiate protocol: client offered {offered:?}, server offers {spoken:?}")))
}

async fn socket(upgraded: Upgraded) -> Socket {
    let config = WebSocketConfig::default().max_message_size(Some(MESSAGE_BYTES_MAX));
    WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_requests_than_upgrades_are_told_so() {
        let refusal = |request: &mut Request<Bytes>| accept(request, &COMMANDS, &COMMANDS).err().map(|e| (e.code, e.message));
        assert_eq!(refusal(&mut Request::new(Bytes::new())), Some((400, "Upgrade request required".into())));
        let spdy = Request::builder().header(UPGRADE, "SPDY/3.1").header(SPDY_VERSION, "v1.channel.k8s.io");
        let refused = refusal(&mut spdy.body(Bytes::new()).expect("valid"));
        assert!(refused.is_some_and(|(code, message)| code == 400 && message.contains("v1.channel.k8s.io")));
    }

    #[test]
    fn a_terminal_has_one_output_and_a_size() {
        let query = Query::parse(Some("stdin=1&stdout=1&stderr=1&tty=1"));
        assert_eq!(wanted_channels(&query), [Channel::Error, Channel::Stdin, Channel::Stdout, Channel::Resize]);
    }
}
