//! Streams to a tenant's pods: through the tenant's API server to the host's API, with its rights.

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, COOKIE, HOST, UPGRADE};
use http::{HeaderMap, HeaderName, Request, StatusCode};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use kube::client::Body as ClientBody;
use std::sync::Arc;
use sublet_apiserver::hooks::{ConnectTarget, Connector};
use sublet_apiserver::http::{Body, HttpResponse};
use sublet_machinery::{ApiError, ObjectExt};
use sublet_runtime::{Client, ClientError};

/// Where a tenant's pod or service lives on the host: namespace and name.
pub type Locate = Arc<dyn Fn(&str, &str, &str) -> Option<(String, String)> + Send + Sync>;

/// Forwards to the host's API under the name that the object has there.
pub struct HostStreams {
    host: Client,
    locate: Locate,
}

impl HostStreams {
    /// `locate` gets the resource (`pods`, `services`), namespace and name in the tenant.
    pub fn new(host: Client, locate: Locate) -> Self {
        Self { host, locate }
    }
}

#[async_trait]
impl Connector for HostStreams {
    async fn connect(&self, target: ConnectTarget<'_>, request: Request<Bytes>) -> Result<HttpResponse, ApiError> {
        let info = target.info;
        let object = &target.object;
        // Nodes are shared by all tenants: a path through a node would lead to pods of others.
        let located = (self.locate)(&info.resource, object.namespace(), object.name());
        let Some((namespace, name)) = located.filter(|_| matches!(info.resource.as_str(), "pods" | "services")) else {
            let why = format!("{} of {} is not offered to virtual clusters", info.subresource, info.resource);
            return Err(ApiError::forbidden("", &info.resource, &info.name, why));
        };
        let name = info.name.replacen(object.name(), &name, 1);
        let mut path = format!("/api/v1/namespaces/{namespace}/{}/{name}/{}", info.resource, info.subresource);
        if !info.rest.is_empty() {
            path.push('/');
            path.push_str(&info.rest);
        }
        if let Some(query) = request.uri().query() {
            path.push('?');
            path.push_str(query);
        }
        forward(&self.host, &path, request).await
    }
}

/// Sends the request on to `path` of another API server, upgrades included.
pub async fn forward(host: &Client, path: &str, request: Request<Bytes>) -> Result<HttpResponse, ApiError> {
    let (mut parts, body) = request.into_parts();
    let upgrades = parts.headers.contains_key(UPGRADE);
    let client_side = parts.extensions.remove::<hyper::upgrade::OnUpgrade>();
    let mut builder = Request::builder().method(parts.method).uri(path);
    if let Some(headers) = builder.headers_mut() {
        *headers = forwarded_headers(&parts.headers, upgrades);
    }
    let outgoing = builder.body(ClientBody::from(body.to_vec())).map_err(|e| ApiError::bad_request(e.to_string()))?;
    let mut response = match host.send(outgoing).await {
        Ok(response) => response,
        Err(ClientError::Api(error)) => return Err(error),
        Err(error) => {
            tracing::warn!(%error, "the host did not answer a stream request");
            return Err(ApiError::unavailable("the host cluster did not answer; try again"));
        }
    };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(client_side) = client_side else {
            return Err(ApiError::bad_request("this connection cannot be upgraded; use HTTP/1.1"));
        };
        let host_side = hyper::upgrade::on(&mut response);
        tokio::spawn(async move {
            let (client, host) = match tokio::try_join!(client_side, host_side) {
                Ok(sides) => sides,
                Err(error) => return tracing::debug!(%error, "a stream was not upgraded"),
            };
            // Each direction is closed on its own, so that half-closed streams work.
            if let Err(error) = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(host)).await {
                tracing::debug!(%error, "a stream ended");
            }
        });
        let mut switched = http::Response::new(Body::empty());
        *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *switched.headers_mut() = response.headers().clone();
        return Ok(switched);
    }
    let (parts, body) = response.into_parts();
    let stream = body.into_data_stream();
    let mut answer = http::Response::new(Body::stream(futures::TryStreamExt::map_err(stream, |e| e.to_string().into())));
    *answer.status_mut() = parts.status;
    *answer.headers_mut() = answered_headers(&parts.headers);
    Ok(answer)
}

/// Headers that the host may see: nothing of the tenant's credentials or connection.
fn forwarded_headers(headers: &HeaderMap, upgrades: bool) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for (name, value) in headers {
        let hop = name == CONNECTION || name == UPGRADE;
        let private = name == AUTHORIZATION || name == COOKIE || name == HOST || name.as_str().starts_with("impersonate-");
        if private || (hop && !upgrades) || is_hop_by_hop(name) {
            continue;
        }
        kept.append(name.clone(), value.clone());
    }
    if !kept.contains_key(ACCEPT) {
        kept.insert(ACCEPT, http::HeaderValue::from_static("*/*"));
    }
    kept
}

fn answered_headers(headers: &HeaderMap) -> HeaderMap {
    headers.iter().filter(|(n, _)| !is_hop_by_hop(n) && *n != CONNECTION).map(|(n, v)| (n.clone(), v.clone())).collect()
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "keep-alive" | "proxy-authenticate" | "proxy-authorization" | "te" | "trailer" | "transfer-encoding" | "content-length"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_the_tenant_stay_in_the_tenant() {
        let mut headers = HeaderMap::new();
        for (name, value) in
            [("authorization", "Bearer x"), ("impersonate-user", "root"), ("cookie", "a"), ("upgrade", "websocket"), ("x-a", "1")]
        {
            headers.insert(HeaderName::from_static(name), value.parse().unwrap());
        }
        let kept = forwarded_headers(&headers, true);
        let names: Vec<&str> = kept.keys().map(HeaderName::as_str).collect();
        assert_eq!(names.len(), 3);
        assert!(["upgrade", "x-a", "accept"].iter().all(|n| names.contains(n)));
    }
}
