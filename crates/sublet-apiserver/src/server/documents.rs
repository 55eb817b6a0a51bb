//! Serving discovery and OpenAPI documents.

use super::Server;
use crate::discovery::{self, Document, DocumentId, Root};
use crate::http::negotiate::{Accepted, Encoding, accepts_gzip};
use crate::http::respond::{self, HttpResponse};
use crate::http::{Body, Query};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_ENCODING, ETAG, IF_NONE_MATCH, LOCATION, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use sublet_machinery::ApiError;

/// OpenAPI version 2 in protobuf, by its old name and by the one in answers.
const OPENAPI_PROTOBUF: [&str; 2] =
    ["application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"];
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

impl Server {
    /// Serves a path of discovery or OpenAPI; `None` when it is neither.
    pub(crate) fn document(
        &self,
        path: &str,
        query: &Query,
        headers: &HeaderMap,
        accepted: Accepted,
    ) -> Option<Result<HttpResponse, ApiError>> {
        let snapshot = self.registry().snapshot();
        let root = match path {
            "/api" => Some(Root::Api),
            "/apis" => Some(Root::Apis),
            _ => None,
        };
        if let Some(root) = root.filter(|_| wants_aggregated(headers)) {
            let document = self.documents().get(&DocumentId::Aggregated(root), &snapshot)?;
            return Some(Ok(response(&document, headers, AGGREGATED)));
        }
        if path == "/openapi/v2" && wants_openapi_protobuf(headers) {
            let document = self.documents().get(&DocumentId::OpenApiV2Protobuf, &snapshot)?;
            return Some(Ok(response(&document, headers, OPENAPI_PROTOBUF[1])));
        }
        let id = match path {
            // It names the address that the client used, so it is never the same for all.
            "/api" => {
                let host = headers.get(http::header::HOST).and_then(|h| h.to_str().ok()).unwrap_or("127.0.0.1:443");
                let value = discovery::legacy(path, &snapshot, host)?;
                return Some(Ok(respond::value(StatusCode::OK, accepted, &value)));
            }
            "/openapi/v2" => DocumentId::OpenApiV2,
            "/openapi/v3" => DocumentId::OpenApiV3Index,
            path if path.starts_with("/openapi/v3/") => {
                let id = DocumentId::OpenApiV3(path["/openapi/v3/".len()..].to_string());
                let hash = query.get("hash");
                if !hash.is_empty()
                    && let Some(etag) = self.documents().etag(&id, &snapshot).filter(|e| **e != *hash)
                {
                    return Some(Ok(moved(&format!("{path}?hash={etag}"))));
                }
                id
            }
            path if path == "/apis" || path.starts_with("/api/") || path.starts_with("/apis/") => DocumentId::Legacy(path.to_string()),
            _ => return None,
        };
        let document = self.documents().get(&id, &snapshot)?;
        // OpenAPI has protobuf of its own: this one it does not speak.
        let accepted = match (&id, accepted.encoding) {
            (DocumentId::Legacy(_), _) | (_, Encoding::Json | Encoding::Yaml) => accepted,
            (_, Encoding::Protobuf) => Accepted::default(),
        };
        if accepted.encoding != Default::default() || accepted.pretty {
            return Some(Ok(respond::json(StatusCode::OK, accepted, document.plain())));
        }
        let mut response = response(&document, headers, "application/json");
        if !query.get("hash").is_empty() {
            // The hash names the content, so the content never changes.
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
        }
        Some(Ok(response))
    }
}

fn moved(location: &str) -> HttpResponse {
    let mut response = http::Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// Whether it is named before JSON, which is what the rest get.
fn wants_openapi_protobuf(headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|v| v.to_str().ok());
    let mut types = accepts.flat_map(|v| v.split(',')).map(|e| e.split(';').next().unwrap_or_default().trim());
    types
        .find(|t| OPENAPI_PROTOBUF.contains(t) || matches!(*t, "application/json" | "application/*" | "*/*"))
        .is_some_and(|t| OPENAPI_PROTOBUF.contains(&t))
}

fn wants_aggregated(headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|v| v.to_str().ok());
    accepts.flat_map(|v| v.split(',')).any(|e| {
        let parts: Vec<&str> = e.split(';').map(str::trim).collect();
        parts.first() == Some(&"application/json")
            && ["g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"].iter().all(|p| parts.contains(p))
    })
}

fn response(document: &Document, headers: &HeaderMap, content_type: &'static str) -> HttpResponse {
    let etag = format!("\"{}\"", document.etag);
    let known = headers.get(IF_NONE_MATCH).and_then(|v| v.to_str().ok());
    let mut response = if known == Some(&etag) {
        let mut response = http::Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else if accepts_gzip(headers) {
        let mut response = respond::bytes(StatusCode::OK, content_type, document.gzip.clone());
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response
    } else {
        respond::bytes(StatusCode::OK, content_type, document.plain())
    };
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        response.headers_mut().insert(ETAG, etag);
    }
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    response
}
