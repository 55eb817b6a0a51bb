//! Writing responses.

use super::body::Body;
use super::negotiate::{Accepted, Encoding, PROTOBUF};
use crate::protobuf::{self, ProtobufError};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER, VARY, WARNING};
use http::{HeaderValue, Response, StatusCode};
use serde_json::Value;
use std::io::Write as _;
use sublet_machinery::ApiError;

/// Bodies from this size on are compressed for clients that accept it, as upstream does.
pub const GZIP_BYTES_MIN: usize = 128 << 10;

pub type HttpResponse = Response<Body>;

/// A JSON value in the encoding that the client accepted.
pub fn value(status: StatusCode, accepted: Accepted, value: &Value) -> HttpResponse {
    match accepted.encoding {
        Encoding::Json if accepted.pretty => {
            let mut text = serde_json::to_vec_pretty(value).expect("a Value is always writable");
            text.push(b'\n');
            bytes(status, "application/json", text.into())
        }
        Encoding::Json => bytes(status, "application/json", serde_json::to_vec(value).expect("a Value is always writable").into()),
        Encoding::Yaml => yaml(status, value),
        Encoding::Protobuf => protobuf(status, protobuf::encode(value)),
    }
}

/// Encoded objects. A kind without a message is not acceptable to a client that wants nothing else.
pub fn protobuf(status: StatusCode, encoded: Result<Bytes, ProtobufError>) -> HttpResponse {
    match encoded {
        Ok(body) => bytes(status, PROTOBUF, body),
        Err(e) => error(&ApiError::not_acceptable(format!("the object has no protobuf form: {e}")), Accepted::default()),
    }
}

/// Bytes that are JSON already; only YAML and pretty output need them parsed.
pub fn json(status: StatusCode, accepted: Accepted, json: Bytes) -> HttpResponse {
    if accepted.encoding == Encoding::Json && !accepted.pretty {
        return bytes(status, "application/json", json);
    }
    let parsed: Value = serde_json::from_slice(&json).unwrap_or(Value::Null);
    value(status, accepted, &parsed)
}

fn yaml(status: StatusCode, value: &Value) -> HttpResponse {
    match serde_saphyr::to_string(value) {
        Ok(text) => bytes(status, "application/yaml", text.into()),
        Err(e) => error(&ApiError::internal(format!("YAML: {e}")), Accepted::default()),
    }
}

pub fn bytes(status: StatusCode, content_type: &'static str, body: Bytes) -> HttpResponse {
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

pub fn text(status: StatusCode, body: impl Into<Bytes>) -> HttpResponse {
    bytes(status, "text/plain; charset=utf-8", body.into())
}

/// Where no API is: the page of a plain web server.
pub fn no_such_page() -> HttpResponse {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// The one place where an error becomes a `Status`.
pub fn error(error: &ApiError, accepted: Accepted) -> HttpResponse {
    let status = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = value(status, accepted, &error.to_status());
    if error.retry_after_seconds > 0 {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(error.retry_after_seconds));
    }
    response
}

/// `Warning: 299 - "text"`, one header each. Texts are made safe for a header and bounded as upstream bounds them.
pub fn add_warnings(response: &mut HttpResponse, warnings: &[String]) {
    const BYTES_MAX: usize = 4 << 10;
    let mut used = 0;
    let mut seen: Vec<&str> = Vec::new();
    for warning in warnings {
        if seen.contains(&warning.as_str()) {
            continue;
        }
        seen.push(warning);
        let mut quoted = String::with_capacity(warning.len() + 8);
        quoted.push_str("299 - \"");
        for c in warning.chars() {
            match c {
                '"' | '\\' => {
                    quoted.push('\\');
                    quoted.push(c);
                }
                c if c.is_control() => quoted.push(' '),
                c => quoted.push(c),
            }
        }
        quoted.push('"');
        used += quoted.len();
        if used > BYTES_MAX {
            return;
        }
        if let Ok(value) = HeaderValue::from_bytes(quoted.as_bytes()) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// Compresses large complete bodies.
pub fn compress(mut response: HttpResponse) -> HttpResponse {
    let Body::Full(Some(body)) = response.body() else { return response };
    if body.len() < GZIP_BYTES_MIN || response.headers().contains_key(CONTENT_ENCODING) {
        return response;
    }
    // Level 1 as upstream: three quarters of the gain for a fifth of the time.
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 8), Compression::new(1));
    let Ok(compressed) = encoder.write_all(body).and_then(|()| encoder.finish()) else { return response };
    *response.body_mut() = Body::full(compressed);
    say_compressed(&mut response);
    response
}

/// A body that is compressed already.
pub fn compressed(status: StatusCode, content_type: &'static str, body: Bytes) -> HttpResponse {
    let mut response = bytes(status, content_type, body);
    say_compressed(&mut response);
    response
}

fn say_compressed(response: &mut HttpResponse) {
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().append(VARY, HeaderValue::from_static("Accept-Encoding"));
}
