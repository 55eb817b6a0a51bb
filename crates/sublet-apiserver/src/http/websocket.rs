//! The server's half of a WebSocket's handshake.

use super::body::Body;
use super::respond::HttpResponse;
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderValue, StatusCode};
use sublet_machinery::ApiError;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// The key of a request that wants a WebSocket.
pub fn key(headers: &HeaderMap) -> Option<&HeaderValue> {
    let upgrade = headers.get(UPGRADE).map(HeaderValue::as_bytes).unwrap_or_default();
    headers.get(SEC_WEBSOCKET_KEY).filter(|_| upgrade.eq_ignore_ascii_case(b"websocket"))
}

/// The answer that begins it, with the protocol that was chosen.
pub fn switched(key: &HeaderValue, protocol: Option<&'static str>) -> Result<HttpResponse, ApiError> {
    let mut response = http::Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, HeaderValue::from_str(&derive_accept_key(key.as_bytes())).map_err(ApiError::internal)?);
    if let Some(protocol) = protocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    Ok(response)
}
