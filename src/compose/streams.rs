//! Streams to a tenant's pods: through the tenant's API server to the host's API, with its rights.

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, COOKIE, HOST, LOCATION, UPGRADE};
use http::{HeaderMap, HeaderName, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper_util::rt::TokioIo;
use kube::client::Body as ClientBody;
use serde_json::Value;
use std::sync::Arc;
use sublet_apiserver::hooks::{ConnectTarget, Connector};
use sublet_apiserver::http::{Body, HttpResponse};
use sublet_machinery::{ApiError, ObjectExt};
use sublet_runtime::Client;
use sublet_syncer::translate::{TenantKey, to_tenant_text};

/// How much of a refusal is read; they are a few sentences.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

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
        let place = OnHost { namespace, name, tenant: TenantKey::new(object.namespace(), object.name()) };
        // The name of a proxied object has a scheme and a port around it.
        let name = info.name.replacen(object.name(), &place.name, 1);
        let mut path = format!("/api/v1/namespaces/{}/{}/{name}/{}", place.namespace, info.resource, info.subresource);
        if !info.rest.is_empty() {
            path.push('/');
            path.push_str(&info.rest);
        }
        // Without its last slash the host would redirect, back to here.
        if request.uri().path().ends_with('/') && !path.ends_with('/') {
            path.push('/');
        }
        if let Some(query) = request.uri().query() {
            path.push('?');
            path.push_str(query);
        }
        let response = forward(&self.host, &path, request).await?;
        if info.subresource == "proxy" {
            return Ok(place.redirect(response, &info.resource));
        }
        place.refusal(response).await
    }
}

/// Where an object is on the host, and what the tenant calls it.
struct OnHost {
    namespace: String,
    name: String,
    tenant: TenantKey,
}

impl OnHost {
    fn told(&self, text: &str) -> String {
        to_tenant_text(text, &self.namespace, |name| (name == self.name).then(|| self.tenant.clone()))
    }

    /// What the host refuses is told in the tenant's names; an answer passes as it is.
    async fn refusal(&self, response: http::Response<ClientBody>) -> Result<HttpResponse, ApiError> {
        if !(response.status().is_client_error() || response.status().is_server_error()) {
            return Ok(answer(response));
        }
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, REFUSAL_BYTES_MAX).collect().await.map(|b| b.to_bytes()).unwrap_or_default();
        if let Ok(status) = serde_json::from_slice::<Value>(&body)
            && status.kind() == "Status"
        {
            let mut error = ApiError::from_status(&status);
            error.message = self.told(&error.message);
            error.name = self.told(&error.name);
            return Err(error);
        }
        // A kubelet refuses in plain text.
        let mut plain = http::Response::new(Body::full(self.told(&String::from_utf8_lossy(&body))));
        *plain.status_mut() = parts.status;
        if let Some(kind) = parts.headers.get(CONTENT_TYPE) {
            plain.headers_mut().insert(CONTENT_TYPE, kind.clone());
        }
        Ok(plain)
    }

    /// The host's API writes its own paths into the redirects of the programs behind it.
    fn redirect(&self, response: http::Response<ClientBody>, resource: &str) -> HttpResponse {
        let mut answer = answer(response);
        let location = answer.headers().get(LOCATION).and_then(|l| l.to_str().ok());
        if let Some(location) = location.and_then(|l| self.own_path(l, resource))
            && let Ok(location) = location.parse()
        {
            answer.headers_mut().insert(LOCATION, location);
        }
        answer
    }

    fn own_path(&self, path: &str, resource: &str) -> Option<String> {
        let rest = path.strip_prefix(&format!("/api/v1/namespaces/{}/{resource}/", self.namespace))?;
        let (name, rest) = rest.split_once('/')?;
        let name = name.replacen(&self.name, &self.tenant.name, 1);
        Some(format!("/api/v1/namespaces/{}/{resource}/{name}/{rest}", self.tenant.namespace))
    }
}

/// Sends the request on to `path` of another API server, upgrades included.
async fn forward(host: &Client, path: &str, request: Request<Bytes>) -> Result<http::Response<ClientBody>, ApiError> {
    let (mut parts, body) = request.into_parts();
    let upgrades = parts.headers.contains_key(UPGRADE);
    let client_side = parts.extensions.remove::<hyper::upgrade::OnUpgrade>();
    let mut builder = Request::builder().method(parts.method).uri(path);
    if let Some(headers) = builder.headers_mut() {
        *headers = forwarded_headers(&parts.headers, upgrades);
    }
    let outgoing = builder.body(ClientBody::from(body.to_vec())).map_err(|e| ApiError::bad_request(e.to_string()))?;
    // Not as an API call: what a program behind a proxy answers is its own.
    let mut response = match host.kube().send(outgoing).await {
        Ok(response) => response,
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
        let mut switched = http::Response::new(ClientBody::empty());
        *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *switched.headers_mut() = response.headers().clone();
        return Ok(switched);
    }
    Ok(response)
}

/// The host's answer as this server's.
fn answer(response: http::Response<ClientBody>) -> HttpResponse {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return response.map(|_| Body::empty());
    }
    let (parts, body) = response.into_parts();
    let stream = body.into_data_stream();
    let mut answer = http::Response::new(Body::stream(futures::TryStreamExt::map_err(stream, |e| e.to_string().into())));
    *answer.status_mut() = parts.status;
    *answer.headers_mut() = answered_headers(&parts.headers);
    answer
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

    fn place() -> OnHost {
        OnHost { namespace: "team-a".into(), name: "web-prod-x1".into(), tenant: TenantKey::new("prod", "web") }
    }

    async fn refused(code: u16, body: &str) -> Result<(u16, String), ApiError> {
        let mut response = http::Response::new(ClientBody::from(body.as_bytes().to_vec()));
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        let told = place().refusal(response).await?;
        let code = told.status().as_u16();
        Ok((code, String::from_utf8(told.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()))
    }

    #[tokio::test]
    async fn refusals_speak_the_tenants_names() {
        let status = r#"{"kind": "Status", "code": 400, "reason": "BadRequest", "message": "container in pod \"web-prod-x1\" waits"}"#;
        let error = refused(400, status).await.unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (400, "container in pod \"web\" waits"));
        let plain = refused(404, "container c not found in pod web-prod-x1_team-a").await.unwrap();
        assert_eq!(plain, (404, "container c not found in pod web_prod".into()));
        assert_eq!(refused(200, "web-prod-x1").await.unwrap(), (200, "web-prod-x1".into()));
    }

    #[test]
    fn redirects_stay_in_the_tenant() {
        let own = |path| place().own_path(path, "pods");
        let moved = own("/api/v1/namespaces/team-a/pods/http:web-prod-x1:80/proxy/a?b=c");
        assert_eq!(moved.as_deref(), Some("/api/v1/namespaces/prod/pods/http:web:80/proxy/a?b=c"));
        assert_eq!(own("https://elsewhere.example/"), None);
    }

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
