//! Answers that go on for a while, told over a WebSocket, as browsers ask for them: each event of a watch and each piece of
//! a log is one message.

use crate::http::body::Body;
use crate::http::respond::HttpResponse;
use crate::http::websocket::{key, switched};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{SinkExt as _, Stream, StreamExt as _};
use http::HeaderMap;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderName, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::request::Parts;
use http_body_util::BodyExt as _;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use sublet_machinery::ApiError;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Message, Role, WebSocketConfig};

/// The most of a client's message that is read; nothing is expected but the word that it goes away.
const MESSAGE_BYTES_MAX: usize = 4 << 10;
/// How pieces of a log are written, by the names of protocols. Without one they are as they come.
const BINARY: &str = "binary.k8s.io";
const BASE64: &str = "base64.binary.k8s.io";

/// The headers without what concerns the WebSocket.
pub(super) fn plain_headers(headers: &HeaderMap) -> HeaderMap {
    let is_socket = |name: &HeaderName| *name == CONNECTION || *name == UPGRADE || name.as_str().starts_with("sec-websocket-");
    headers.iter().filter(|(name, _)| !is_socket(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// How the parts of an answer become messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Binary,
    Base64,
}

/// Turns an answer that has begun well into messages for who wants them so. Others are told as they are.
pub(super) fn over(parts: &Parts, mut answer: HttpResponse) -> Result<HttpResponse, ApiError> {
    let Some(key) = key(&parts.headers).filter(|_| answer.status().is_success()) else { return Ok(answer) };
    let is_json = answer.headers().get(CONTENT_TYPE).is_some_and(|v| v.as_bytes().starts_with(b"application/json"));
    let (form, protocol) = form(&parts.headers, is_json)?;
    let upgrade = parts.extensions.get::<OnUpgrade>().cloned();
    let upgrade = upgrade.ok_or_else(|| ApiError::bad_request("this connection cannot be upgraded; use HTTP/1.1"))?;
    let switched = switched(key, protocol)?;
    let body = std::mem::replace(answer.body_mut(), Body::empty());
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => tell(upgraded, body.into_data_stream(), form).await,
            Err(error) => tracing::debug!(%error, "a stream was not upgraded"),
        }
    });
    Ok(switched)
}

/// By the protocols that the client offers; of those that are spoken here the first.
fn form(headers: &HeaderMap, is_json: bool) -> Result<(Form, Option<&'static str>), ApiError> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|v| v.to_str().ok());
    // A token that came as a protocol is no protocol.
    let offered: Vec<&str> = values.flat_map(|v| v.split(',')).map(str::trim).filter(|p| !p.starts_with("base64url.bearer.")).collect();
    match offered.iter().find_map(|p| [BINARY, BASE64].into_iter().find(|spoken| spoken == p)) {
        Some(BASE64) => Ok((Form::Base64, Some(BASE64))),
        Some(protocol) => Ok((if is_json { Form::Text } else { Form::Binary }, Some(protocol))),
        None if offered.is_empty() || is_json => Ok((if is_json { Form::Text } else { Form::Binary }, None)),
        None => Err(ApiError::bad_request(format!(
            "unable to negotiate protocol: client offered {offered:?}, server offers {:?}",
            [BINARY, BASE64]
        ))),
    }
}

/// Events end with their line, and several may come together.
fn messages(piece: &Bytes, form: Form) -> Vec<Message> {
    match (form, std::str::from_utf8(piece)) {
        (Form::Text, Ok(text)) => text.split_inclusive('\n').map(Message::text).collect(),
        (Form::Base64, _) => vec![Message::text(STANDARD.encode(piece))],
        _ => vec![Message::binary(piece.clone())],
    }
}

/// Until the answer ends, or the client goes away.
async fn tell<E: std::fmt::Display>(upgraded: Upgraded, pieces: impl Stream<Item = Result<Bytes, E>>, form: Form) {
    let config = WebSocketConfig::default().max_message_size(Some(MESSAGE_BYTES_MAX)).max_frame_size(Some(MESSAGE_BYTES_MAX));
    let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
    let (mut writes, mut reads) = socket.split();
    let told = async {
        let mut pieces = std::pin::pin!(pieces);
        while let Some(Ok(piece)) = pieces.next().await {
            for message in messages(&piece, form) {
                writes.send(message).await?;
            }
        }
        writes.close().await
    };
    let gone = async {
        while let Some(Ok(message)) = reads.next().await
            && !message.is_close()
        {}
    };
    tokio::select! {
        ended = told => if let Err(error) = ended { tracing::debug!(%error, "a stream ended") },
        () = gone => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn protocols_say_how_pieces_are_written() {
        let chosen = |offered: &str, is_json| {
            let mut headers = HeaderMap::new();
            if !offered.is_empty() {
                headers.insert(SEC_WEBSOCKET_PROTOCOL, offered.parse().unwrap());
            }
            form(&headers, is_json).map_err(|e| e.code)
        };
        assert_eq!(chosen("", true), Ok((Form::Text, None)));
        assert_eq!(chosen("", false), Ok((Form::Binary, None)));
        assert_eq!(chosen("x, base64.binary.k8s.io", false), Ok((Form::Base64, Some(BASE64))));
        assert_eq!(chosen("base64url.bearer.authorization.k8s.io.c2VjcmV0, binary.k8s.io", false), Ok((Form::Binary, Some(BINARY))));
        assert_eq!(chosen("v5.channel.k8s.io", false), Err(400));
    }

    #[test]
    fn what_is_passed_on_does_not_ask_for_a_socket() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("connection", "Upgrade"), ("upgrade", "WebSocket"), ("sec-websocket-key", "x"), ("accept", "*/*")] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        assert!(key(&headers).is_some());
        assert_eq!(plain_headers(&headers).len(), 1);
        assert!(key(&plain_headers(&headers)).is_none());
    }
}
