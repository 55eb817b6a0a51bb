//! Documents about the API: discovery and OpenAPI, made when asked for and kept while nothing changes.

use super::Server;
use crate::discovery::{self, Root};
use crate::http::negotiate::Accepted;
use crate::http::respond::{self, HttpResponse};
use crate::http::{Body, Query};
use crate::registry::Snapshot;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use sublet_machinery::ApiError;

/// Documents kept per server; beyond it all are dropped and made again when asked for.
const DOCUMENTS_MAX: usize = 16;
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Discovery documents of one server. Empty until somebody asks.
#[derive(Default)]
pub struct Documents {
    /// Guards the documents of one generation of the registry.
    cache: Mutex<(u64, HashMap<String, Document>)>,
}

#[derive(Clone)]
struct Document {
    bytes: Bytes,
    etag: Arc<str>,
}

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
        if path.starts_with("/openapi/") {
            return crate::openapi::serve(path, query, headers, &snapshot);
        }
        let root = match path {
            "/api" => Some(Root::Api),
            "/apis" => Some(Root::Apis),
            _ => None,
        };
        if let Some(root) = root.filter(|_| wants_aggregated(headers)) {
            let document =
                self.documents().find(&snapshot, &format!("aggregated {path}"), || Some(discovery::aggregated(&snapshot, root)))?;
            return Some(Ok(aggregated_response(&document, headers)));
        }
        if !(path == "/api" || path == "/apis" || path.starts_with("/api/") || path.starts_with("/apis/")) {
            return None;
        }
        let host = headers.get(http::header::HOST).and_then(|h| h.to_str().ok()).unwrap_or("127.0.0.1:443");
        let document = self.documents().find(&snapshot, path, || discovery::legacy(path, &snapshot, host))?;
        Some(Ok(respond::json(StatusCode::OK, accepted, document.bytes)))
    }
}

impl Documents {
    fn find(&self, snapshot: &Snapshot, name: &str, make: impl FnOnce() -> Option<Value>) -> Option<Document> {
        {
            let cache = self.cache.lock().expect("no holder of this lock panics");
            if cache.0 == snapshot.generation
                && let Some(document) = cache.1.get(name)
            {
                return Some(document.clone());
            }
        }
        let bytes = Bytes::from(serde_json::to_vec(&make()?).expect("a Value is always writable"));
        let digest = Sha256::digest(&bytes);
        let etag: String = digest.iter().map(|b| format!("{b:02X}")).collect();
        let document = Document { bytes, etag: format!("\"{etag}\"").into() };
        let mut cache = self.cache.lock().expect("no holder of this lock panics");
        if cache.0 != snapshot.generation || cache.1.len() >= DOCUMENTS_MAX {
            *cache = (snapshot.generation, HashMap::new());
        }
        cache.1.insert(name.to_string(), document.clone());
        Some(document)
    }
}

fn wants_aggregated(headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|v| v.to_str().ok());
    accepts.flat_map(|v| v.split(',')).any(|e| {
        let parts: Vec<&str> = e.split(';').map(str::trim).collect();
        parts.first() == Some(&"application/json")
            && ["g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"].iter().all(|p| parts.contains(p))
    })
}

fn aggregated_response(document: &Document, headers: &HeaderMap) -> HttpResponse {
    let known = headers.get(IF_NONE_MATCH).and_then(|v| v.to_str().ok());
    let mut response = if known == Some(&document.etag) {
        let mut response = http::Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        respond::bytes(StatusCode::OK, AGGREGATED, document.bytes.clone())
    };
    if let Ok(etag) = HeaderValue::from_str(&document.etag) {
        response.headers_mut().insert(ETAG, etag);
    }
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(AGGREGATED));
    response
}
