//! Where requests carry their token.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::{HeaderMap, header};

/// Browsers cannot set headers on a WebSocket; they offer the token as a protocol.
const WEBSOCKET_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// The token of `Authorization: Bearer`, or of a WebSocket's protocol list.
pub(crate) fn token(headers: &HeaderMap) -> Option<String> {
    authorization(headers).or_else(|| websocket(headers))
}

fn authorization(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let mut parts = value.splitn(3, ' ');
    let (scheme, token) = (parts.next()?, parts.next()?);
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_string())
}

fn websocket(headers: &HeaderMap) -> Option<String> {
    let protocols = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let encoded = protocols.flat_map(|list| list.split(',')).find_map(|protocol| protocol.trim().strip_prefix(WEBSOCKET_PREFIX))?;
    String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(encoded).ok()?).ok().filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn websockets_carry_the_token_as_a_protocol() {
        let mut headers = HeaderMap::new();
        let protocols = format!("v5.channel.k8s.io, {WEBSOCKET_PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode("secret"));
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocols.parse().unwrap());
        assert_eq!(token(&headers).as_deref(), Some("secret"));
    }
}
