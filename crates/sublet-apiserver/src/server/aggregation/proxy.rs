//! Passing requests on.

use super::{is_available, target};
use crate::admission::UserInfo;
use crate::http::body::{Body, BoxError};
use crate::http::respond::{self, HttpResponse};
use crate::outgoing::{CallError, drop_hop_headers};
use crate::server::Server;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long a server may take to begin its answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Discovery is asked for by everybody, so it is quick or missing.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);

impl Server {
    /// Passes a request on to the server of an APIService, in the name of its user.
    pub(crate) async fn pass_on(&self, api: &Value, parts: &Parts, user: &UserInfo, body: Bytes) -> HttpResponse {
        if !is_available(api) {
            return unavailable("service unavailable");
        }
        match self.exchange(api, parts, user, body).await {
            Ok(response) => response,
            Err(error) => unavailable(&error.to_string()),
        }
    }

    async fn exchange(&self, api: &Value, parts: &Parts, user: &UserInfo, body: Bytes) -> Result<HttpResponse, CallError> {
        let path = parts.uri.path_and_query().map_or("/", |p| p.as_str());
        let target = target(api, path).map_err(CallError::Transport)?;
        let is_discovery = parts.uri.path().trim_matches('/').split('/').count() == 3;
        let deadline = Instant::now() + if is_discovery { DISCOVERY_TIMEOUT } else { ANSWER_TIMEOUT };
        let headers = headers(&parts.headers, user, &target.authority());
        let request = || {
            let mut request = Request::builder().method(parts.method.clone()).uri(path);
            if let Some(all) = request.headers_mut() {
                all.clone_from(&headers);
            }
            request.body(Full::new(body.clone())).map_err(|e| CallError::Transport(e.to_string()))
        };
        let identity = self.front_proxy();
        let sent = self.outgoing().send(self, &target, identity.as_ref(), deadline, request);
        let (response, connected) =
            timeout_at(deadline, sent).await.map_err(|_| CallError::Transport("context deadline exceeded".into()))??;
        let (head, incoming) = response.into_parts();
        // The connection is kept when the answer was read to its end.
        let state = (incoming, Some(connected), self.clone());
        let stream = futures::stream::unfold(state, |(mut incoming, mut connected, server)| async move {
            loop {
                match incoming.frame().await {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => return Some((Ok::<Bytes, BoxError>(data), (incoming, connected, server))),
                        Err(_) => continue,
                    },
                    Some(Err(error)) => return Some((Err(error.into()), (incoming, None, server))),
                    None => {
                        if let Some(connected) = connected.take() {
                            server.outgoing().give_back(connected).await;
                        }
                        return None;
                    }
                }
            }
        });
        let mut response = http::Response::new(Body::stream(stream));
        *response.status_mut() = head.status;
        *response.headers_mut() = head.headers;
        drop_hop_headers(response.headers_mut());
        Ok(response)
    }
}

fn unavailable(why: &str) -> HttpResponse {
    respond::text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"))
}

/// What the other server is told: the request's headers, and who asks, vouched for by this server's certificate.
fn headers(given: &HeaderMap, user: &UserInfo, authority: &str) -> HeaderMap {
    let mut headers = given.clone();
    drop_hop_headers(&mut headers);
    let is_identity = |name: &HeaderName| {
        let name = name.as_str();
        name == "authorization" || name == "upgrade" || name.starts_with("impersonate-") || name.starts_with("x-remote-")
    };
    let identities: Vec<HeaderName> = headers.keys().filter(|name| is_identity(name)).cloned().collect();
    for name in identities {
        headers.remove(name);
    }
    let mut add = |name: &str, value: &str| {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
            headers.append(name, value);
        }
    };
    add("x-remote-user", &user.name);
    if !user.uid.is_empty() {
        add("x-remote-uid", &user.uid);
    }
    user.groups.iter().for_each(|group| add("x-remote-group", group));
    for (key, values) in &user.extra {
        let escaped = percent_encoding::utf8_percent_encode(key, percent_encoding::NON_ALPHANUMERIC).to_string();
        values.iter().for_each(|value| add(&format!("x-remote-extra-{escaped}"), value));
    }
    headers.remove(http::header::CONTENT_LENGTH);
    if let Ok(host) = HeaderValue::from_str(authority) {
        headers.insert(http::header::HOST, host);
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_but_this_server_says_who_asks() {
        let mut given = HeaderMap::new();
        for (name, value) in [("authorization", "Bearer x"), ("x-remote-user", "root"), ("impersonate-user", "root"), ("accept", "*/*")] {
            given.insert(name, HeaderValue::from_static(value));
        }
        let user = UserInfo { name: "eve".into(), groups: vec!["a".into(), "b".into()], ..UserInfo::default() };
        let sent = headers(&given, &user, "api.ns.svc:443");
        let values = |name: &str| sent.get_all(name).iter().map(|v| v.to_str().unwrap()).collect::<Vec<_>>();
        assert_eq!((values("x-remote-user"), values("x-remote-group")), (vec!["eve"], vec!["a", "b"]));
        assert_eq!((values("authorization"), values("impersonate-user")), (vec![], vec![]));
        assert_eq!((values("accept"), values("host")), (vec!["*/*"], vec!["api.ns.svc:443"]));
    }
}
