//! Logs and commands of pods on simulated nodes: answered here, for no container runs.

use async_trait::async_trait;
use bytes::Bytes;
use futures::{SinkExt, StreamExt, stream};
use http::header::{CONNECTION, CONTENT_TYPE, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderValue, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use sublet_apiserver::hooks::{ConnectTarget, Connector};
use sublet_apiserver::http::body::RequestBody;
use sublet_apiserver::http::{Body, HttpResponse, Query};
use sublet_host::{Executed, LogRequest, SimulatedShell};
use sublet_machinery::{ApiError, ObjectExt};
use sublet_runtime::Client;
use sublet_runtime::resources::PODS;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

/// The protocols of remote commands, best first.
const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const CLOSE: u8 = 255;
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Input that a command may have.
const INPUT_BYTES_MAX: usize = 16 << 20;
const PROMPT: &str = "$ ";
const END_OF_INPUT: char = '\u{4}';
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
        let mut response = http::Response::new(body);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        Ok(response)
    }

    fn exec(&self, pod: &Arc<Value>, query: &Query, mut request: Request<RequestBody>, attach: bool) -> Result<HttpResponse, ApiError> {
        let container = sublet_host::stream_container(pod, query.get("container"))?;
        let words: Vec<String> = query.all("command").map(str::to_string).collect();
        if words.is_empty() && !attach {
            return Err(ApiError::bad_request("you must specify at least 1 command for the container"));
        }
        let (upgrade, response) = accept(&mut request)?;
        let session =
            Session { shell: SimulatedShell::new(pod, container), words, wants_input: query.bool("stdin"), tty: query.bool("tty") };
        let log = LogRequest { container: container["name"].as_str().unwrap_or_default().into(), ..LogRequest::default() };
        let printed = if attach { sublet_host::simulated_log(pod, &log)? } else { String::new() };
        tokio::spawn(async move {
            match upgrade.await {
                Ok(upgraded) => {
                    let config = WebSocketConfig::default().max_message_size(Some(MESSAGE_BYTES_MAX));
                    let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
                    if let Err(error) = session.run(socket, attach, printed).await {
                        tracing::debug!(%error, "a simulated stream ended");
                    }
                }
                Err(error) => tracing::debug!(%error, "a stream was not upgraded"),
            }
        });
        Ok(response)
    }
}

#[async_trait]
impl Connector for SimulatedStreams {
    async fn connect(&self, target: ConnectTarget<'_>, request: Request<RequestBody>) -> Result<HttpResponse, ApiError> {
        match (target.info.resource.as_str(), target.info.subresource.as_str()) {
            ("pods", "log") => self.log(&target.object, target.query),
            ("pods", "exec") => self.exec(&target.object, target.query, request, false),
            ("pods", "attach") => self.exec(&target.object, target.query, request, true),
            (resource, subresource) => {
                Err(ApiError::unavailable(format!("{subresource} of {resource} needs a real node; the nodes of this host are simulated")))
            }
        }
    }
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

/// The server's half of the WebSocket handshake.
fn accept<B>(request: &mut Request<B>) -> Result<(hyper::upgrade::OnUpgrade, HttpResponse), ApiError> {
    let headers = request.headers();
    let websocket = headers.get(UPGRADE).is_some_and(|u| u.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|_| websocket);
    let Some(key) = key else {
        return Err(ApiError::bad_request("simulated nodes speak WebSocket alone: an upgrade request to websocket is needed"));
    };
    let offered: Vec<&str> =
        headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(',')).map(str::trim).collect();
    let Some(protocol) = PROTOCOLS.into_iter().find(|p| offered.contains(p)) else {
        return Err(ApiError::bad_request(format!(
            "unable to negotiate protocol: client offered {offered:?}, server offers {PROTOCOLS:?}"
        )));
    };
    let accepted = HeaderValue::from_str(&derive_accept_key(key.as_bytes())).map_err(ApiError::internal)?;
    let upgrade = request
        .extensions_mut()
        .remove::<hyper::upgrade::OnUpgrade>()
        .ok_or_else(|| ApiError::bad_request("this connection cannot be upgraded; use HTTP/1.1"))?;
    let mut response = http::Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    for (name, value) in [
        (UPGRADE, HeaderValue::from_static("websocket")),
        (CONNECTION, HeaderValue::from_static("Upgrade")),
        (SEC_WEBSOCKET_ACCEPT, accepted),
        (SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol)),
    ] {
        response.headers_mut().insert(name, value);
    }
    Ok((upgrade, response))
}

type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;
type SocketError = tokio_tungstenite::tungstenite::Error;

/// One exec or attach.
struct Session {
    shell: SimulatedShell,
    words: Vec<String>,
    wants_input: bool,
    tty: bool,
}

impl Session {
    async fn run(mut self, mut socket: Socket, attach: bool, printed: String) -> Result<(), SocketError> {
        let code = if attach {
            send(&mut socket, STDOUT, &printed).await?;
            while input(&mut socket).await?.is_some() {}
            0
        } else if self.wants_input && sublet_host::is_interactive(&self.words) {
            self.interact(&mut socket).await?
        } else {
            let mut text = String::new();
            while self.wants_input
                && let Some(more) = input(&mut socket).await?
            {
                text.push_str(&more);
                if text.len() > INPUT_BYTES_MAX {
                    break;
                }
            }
            let words = self.words.clone();
            self.answer(&mut socket, words, &text).await?
        };
        send(&mut socket, ERROR, &exit_status(code).to_string()).await?;
        // Clients take anything but a normal closure for a broken stream.
        socket.close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() })).await?;
        while socket.next().await.is_some_and(|m| m.is_ok()) {}
        Ok(())
    }

    async fn answer(&mut self, socket: &mut Socket, words: Vec<String>, text: &str) -> Result<i64, SocketError> {
        let executed = self.shell.exec(&words, text);
        self.print(socket, &executed).await?;
        Ok(executed.code)
    }

    async fn print(&self, socket: &mut Socket, executed: &Executed) -> Result<(), SocketError> {
        if self.tty {
            // A terminal has one output, and lines end with a carriage return.
            return send(socket, STDOUT, &format!("{}{}", executed.stdout, executed.stderr).replace('\n', "\r\n")).await;
        }
        send(socket, STDOUT, &executed.stdout).await?;
        send(socket, STDERR, &executed.stderr).await
    }

    /// A shell that takes lines until its input ends or it is told to exit.
    async fn interact(&mut self, socket: &mut Socket) -> Result<i64, SocketError> {
        let mut line = String::new();
        let mut code = 0;
        self.echo(socket, PROMPT).await?;
        while let Some(text) = input(socket).await? {
            for c in text.chars() {
                match c {
                    END_OF_INPUT => return Ok(code),
                    '\u{7f}' | '\u{8}' => self.erase(socket, &mut line).await?,
                    '\r' | '\n' => {
                        self.echo(socket, "\r\n").await?;
                        let entered = std::mem::take(&mut line);
                        let mut words = entered.split_whitespace();
                        if words.next() == Some("exit") {
                            return Ok(words.next().and_then(|w| w.parse().ok()).unwrap_or(code));
                        }
                        code = self.entered(socket, &entered).await?;
                        self.echo(socket, PROMPT).await?;
                    }
                    c if line.len() < MESSAGE_BYTES_MAX => {
                        line.push(c);
                        self.echo(socket, c.encode_utf8(&mut [0; 4])).await?;
                    }
                    _ => {}
                }
            }
        }
        if line.is_empty() { Ok(code) } else { self.entered(socket, &line).await }
    }

    async fn entered(&mut self, socket: &mut Socket, line: &str) -> Result<i64, SocketError> {
        let executed = self.shell.line(line);
        self.print(socket, &executed).await?;
        Ok(executed.code)
    }

    async fn erase(&self, socket: &mut Socket, line: &mut String) -> Result<(), SocketError> {
        match line.pop() {
            Some(_) => self.echo(socket, "\u{8} \u{8}").await,
            None => Ok(()),
        }
    }

    /// What a terminal shows beside the output.
    async fn echo(&self, socket: &mut Socket, text: &str) -> Result<(), SocketError> {
        if self.tty { send(socket, STDOUT, text).await } else { Ok(()) }
    }
}

async fn send(socket: &mut Socket, channel: u8, text: &str) -> Result<(), SocketError> {
    if text.is_empty() {
        return Ok(());
    }
    let mut message = Vec::with_capacity(text.len() + 1);
    message.push(channel);
    message.extend_from_slice(text.as_bytes());
    socket.send(Message::Binary(message.into())).await
}

/// The next piece of standard input; `None` at its end.
async fn input(socket: &mut Socket) -> Result<Option<String>, SocketError> {
    while let Some(message) = socket.next().await {
        match message? {
            Message::Binary(bytes) => match bytes.split_first() {
                Some((&STDIN, text)) => return Ok(Some(String::from_utf8_lossy(text).into_owned())),
                // v5: the client has closed one of its channels.
                Some((&CLOSE, [STDIN])) => return Ok(None),
                _ => {}
            },
            Message::Close(_) => return Ok(None),
            _ => {}
        }
    }
    Ok(None)
}

/// What the error channel says at the end.
fn exit_status(code: i64) -> Value {
    if code == 0 {
        return json!({"metadata": {}, "status": "Success"});
    }
    json!({
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": format!("command terminated with non-zero exit code: exit status {code}"),
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_told_as_upstream_tells_them() {
        assert_eq!(exit_status(0)["status"], "Success");
        assert_eq!(exit_status(3)["details"]["causes"][0], json!({"reason": "ExitCode", "message": "3"}));
    }

    #[test]
    fn only_websockets_are_accepted() {
        let mut plain = Request::new(Bytes::new());
        assert_eq!(accept(&mut plain).expect_err("no upgrade").code, 400);
        let mut spdy = Request::builder().header("upgrade", "SPDY/3.1").body(Bytes::new()).expect("valid");
        assert_eq!(accept(&mut spdy).expect_err("no websocket").code, 400);
    }
}
