//! Reading only the metadata of objects of any kind.

use http::{Method, Request, header};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::client::collection_path;
use sublet_runtime::{Client, ClientError};

const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const PAGE_ITEMS: usize = 500;
/// One page of metadata is far below this; more is refused rather than held.
const BODY_BYTES_MAX: usize = 256 << 20;

/// The metadata of one page of a collection, with what it takes to go on.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) items: Vec<Value>,
    pub(crate) continue_token: String,
    pub(crate) resource_version: String,
}

/// Every object of a collection, page by page.
pub(crate) async fn list(client: &Client, gvr: &Gvr, namespace: &str) -> Result<Vec<Value>, ClientError> {
    let mut items = Vec::new();
    let mut token = String::new();
    loop {
        let page = list_page(client, gvr, namespace, &token).await?;
        items.extend(page.items);
        if page.continue_token.is_empty() {
            return Ok(items);
        }
        token = page.continue_token;
    }
}

pub(crate) async fn list_page(client: &Client, gvr: &Gvr, namespace: &str, token: &str) -> Result<Page, ClientError> {
    let mut uri = format!("{}?limit={PAGE_ITEMS}", collection_path(gvr, namespace));
    if !token.is_empty() {
        // Tokens are URL-safe base64.
        uri.push_str("&continue=");
        uri.push_str(token);
    }
    let mut list = get(client, &uri, METADATA_LIST).await?;
    let items = match list["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    };
    Ok(Page {
        items,
        continue_token: list.str_at("/metadata/continue").unwrap_or_default().into(),
        resource_version: list.str_at("/metadata/resourceVersion").unwrap_or_default().into(),
    })
}

/// A GET with an Accept header of its own.
pub(crate) async fn get(client: &Client, uri: &str, accept: &str) -> Result<Value, ClientError> {
    let request = Request::builder().method(Method::GET).uri(uri).header(header::ACCEPT, accept).body(Body::empty());
    let response = client.send(request.map_err(|e| ClientError::Transport(e.to_string()))?).await?;
    let body = http_body_util::Limited::new(response.into_body(), BODY_BYTES_MAX);
    let bytes = body.collect().await.map_err(|e| ClientError::Transport(e.to_string()))?.to_bytes();
    serde_json::from_slice(&bytes).map_err(|e| ClientError::Decode(format!("{uri}: {e}")))
}
