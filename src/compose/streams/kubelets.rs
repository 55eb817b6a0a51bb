//! Streams to pods of nodes that have a kubelet: to the kubelet, which knows the pod by the same name, and of `proxy`
//! to the pod itself. Paths and parameters are those of `registry/core/pod/strategy.go` and `registry/core/node`.

use super::links::is_html;
use super::pages::Pages;
use super::relay::Relays;
use super::remote::{Failed, Remote, Sent, answer};
use super::{PATH, PORT, is_refusal};
use anyhow::{Context as _, Result};
use async_trait::async_trait;
use form_urlencoded::Serializer;
use http::header::{CONTENT_LENGTH, LOCATION};
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use percent_encoding::utf8_percent_encode;
use serde_json::Value;
use std::sync::Arc;
use sublet_apiserver::hooks::{ConnectTarget, Connector, Proxied};
use sublet_apiserver::http::body::RequestBody;
use sublet_apiserver::http::{Body, HttpResponse, Query};
use sublet_apiserver::outgoing::client_tls;
use sublet_apiserver::reader::Reader;
use sublet_machinery::{ApiError, ObjectExt as _, Reason};
use sublet_runtime::chain;
use tokio::sync::OwnedSemaphorePermit;

/// Where kubelets listen when their node does not say.
const KUBELET_PORT: u64 = 10250;
/// Which address of a node is asked for first, as `--kubelet-preferred-address-types` has it.
const ADDRESS_TYPES: [&str; 5] = ["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"];
/// How much of a kubelet's refusal is told.
const REFUSAL_BYTES_MAX: usize = 50_000;
/// The largest page whose links are put right; a larger one passes as it is.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// What kubelets know this API server by.
pub struct KubeletClient {
    pub certificate_pem: String,
    pub key_pem: String,
    /// Who signs kubelets' certificates; without it any certificate will do, as upstream has it.
    pub authorities_pem: Option<String>,
}

/// Forwards to kubelets and to pods.
pub struct KubeletStreams<R> {
    objects: R,
    kubelets: Remote,
    /// Kubelets whose certificate is not looked at: `insecureSkipTLSVerifyBackend` of logs.
    unverified: Remote,
    pods: Remote,
    relays: Arc<Relays>,
}

impl<R: Reader> KubeletStreams<R> {
    pub fn new(objects: R, client: &KubeletClient) -> Result<Self> {
        let remote = |authorities: Option<&str>, identity: Option<(&str, &str)>| {
            let tls = client_tls(authorities, identity).map_err(anyhow::Error::msg).context("cannot make a client for kubelets");
            Ok::<_, anyhow::Error>(Remote::of_anybody(tls?))
        };
        let identity = Some((client.certificate_pem.as_str(), client.key_pem.as_str()));
        Ok(Self {
            objects,
            kubelets: remote(client.authorities_pem.as_deref(), identity)?,
            unverified: remote(None, identity)?,
            pods: remote(None, None)?,
            relays: Arc::new(Relays::default()),
        })
    }

    fn kubelet_of(&self, pod: &Value) -> Result<String, ApiError> {
        let name = pod.str_at("/spec/nodeName").unwrap_or_default();
        let node = self.objects.get("nodes", "", name).ok_or_else(|| ApiError::not_found("", "nodes", name))?;
        kubelet_authority(&node)
    }

    /// `log`, `exec`, `attach`, `portforward`.
    async fn by_kubelet(&self, target: &ConnectTarget<'_>, request: Request<RequestBody>) -> Result<HttpResponse, ApiError> {
        let (subresource, query) = (target.info.subresource.as_str(), target.query);
        let uri = format!("https://{}{}", self.kubelet_of(&target.object)?, kubelet_path(subresource, &target.object, query));
        let remote = if query.bool("insecureSkipTLSVerifyBackend") { &self.unverified } else { &self.kubelets };
        match remote.forward(&self.relays, &uri, false, request).await {
            Ok(Sent::Upgraded(response)) => Ok(response),
            Ok(Sent::Answer(response, _)) if is_refusal(response.status()) => Err(refusal(response, subresource, &target.info.name).await),
            Ok(Sent::Answer(response, permit)) => Ok(answer(response, permit, None)),
            Err(Failed::Refused(error)) => Err(error),
            Err(Failed::Unreached(error)) if subresource == "log" => Err(ApiError::internal(format!("Get {uri:?}: {}", chain(&*error)))),
            Err(Failed::Unreached(error)) => Err(ApiError::internal(format!("error dialing backend: {}", chain(&*error)))),
        }
    }

    async fn by_proxy(
        &self,
        target: &ConnectTarget<'_>,
        proxied: &Proxied,
        mut request: Request<RequestBody>,
    ) -> Result<HttpResponse, ApiError> {
        let (remote, origin) = match target.info.resource.as_str() {
            "nodes" => {
                let authority = kubelet_authority(&target.object)?;
                let (host, port) = authority.rsplit_once(':').unwrap_or((&authority, ""));
                if proxied.port.is_empty() || proxied.port == port {
                    (&self.kubelets, format!("https://{authority}"))
                } else {
                    (&self.pods, origin(&proxied.scheme, host, &proxied.port))
                }
            }
            _ => (
                &self.pods,
                origin(&proxied.scheme, &bracketed(target.object.str_at("/status/podIPs/0/ip").unwrap_or_default()), &proxied.port),
            ),
        };
        let info = target.info;
        let namespace = if info.namespace.is_empty() { String::new() } else { format!("/namespaces/{}", info.namespace) };
        let prefix = utf8_percent_encode(&format!("/api/v1{namespace}/{}/{}/proxy", info.resource, info.name), PATH).to_string();
        let path = utf8_percent_encode(&proxied.path, PATH).to_string();
        let query = request.uri().query().map(|q| format!("?{q}")).unwrap_or_default();
        if let Ok(forwarded) = HeaderValue::from_str(&format!("{prefix}{path}")) {
            request.headers_mut().insert(HeaderName::from_static("x-forwarded-uri"), forwarded);
        }
        match remote.forward(&self.relays, &format!("{origin}{path}{query}"), true, request).await {
            Ok(Sent::Upgraded(response)) => Ok(response),
            Ok(Sent::Answer(response, permit)) => page(response, permit, &Pages { prefix: &prefix, origin: &origin }).await,
            Err(Failed::Refused(error)) => Err(error),
            Err(Failed::Unreached(error)) => Err(ApiError::unavailable(format!("error trying to reach service: {}", chain(&*error)))),
        }
    }
}

#[async_trait]
impl<R: Reader> Connector for KubeletStreams<R> {
    async fn connect(&self, target: ConnectTarget<'_>, request: Request<RequestBody>) -> Result<HttpResponse, ApiError> {
        match &target.proxied {
            Some(proxied) => self.by_proxy(&target, proxied, request).await,
            None => self.by_kubelet(&target, request).await,
        }
    }
}

/// Name or address and port of a node's kubelet.
fn kubelet_authority(node: &Value) -> Result<String, ApiError> {
    let addresses = node.array_at("/status/addresses");
    let of_type = |kind: &&str| addresses.iter().find(|a| a["type"].as_str() == Some(*kind))?["address"].as_str();
    let host = ADDRESS_TYPES.iter().find_map(of_type).ok_or_else(|| {
        ApiError::internal(format!(
            "no preferred addresses found; known addresses: {}",
            addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        ))
    })?;
    let port =
        node.pointer("/status/daemonEndpoints/kubeletEndpoint/Port").and_then(Value::as_u64).filter(|p| *p > 0).unwrap_or(KUBELET_PORT);
    Ok(format!("{}:{port}", bracketed(host)))
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_string() }
}

fn origin(scheme: &str, host: &str, port: &str) -> String {
    let scheme = if scheme.is_empty() { "http" } else { scheme };
    match port {
        "" => format!("{scheme}://{host}"),
        port => format!("{scheme}://{host}:{}", utf8_percent_encode(port, PORT)),
    }
}

/// The path at a kubelet, with the parameters that it knows.
fn kubelet_path(subresource: &str, pod: &Value, query: &Query) -> String {
    let mut parameters = Serializer::new(String::new());
    let kind = match subresource {
        "log" => {
            for flag in ["follow", "previous", "timestamps"] {
                if query.bool(flag) {
                    parameters.append_pair(flag, "true");
                }
            }
            for value in ["sinceSeconds", "sinceTime", "tailLines", "limitBytes", "stream"] {
                if !query.get(value).is_empty() {
                    parameters.append_pair(value, query.get(value));
                }
            }
            "containerLogs"
        }
        "portforward" => {
            let ports: Vec<&str> = query.all("ports").collect();
            if !ports.is_empty() {
                parameters.append_pair("port", &ports.join(","));
            }
            "portForward"
        }
        other => {
            for (flag, told) in [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")] {
                if query.bool(flag) {
                    parameters.append_pair(told, "1");
                }
            }
            for word in query.all("command").filter(|_| other == "exec") {
                parameters.append_pair("command", word);
            }
            other
        }
    };
    let mut path = format!("/{kind}/{}/{}", pod.namespace(), pod.name());
    if subresource != "portforward" {
        let only = pod.str_at("/spec/containers/0/name").unwrap_or_default();
        let container = Some(query.get("container")).filter(|c| !c.is_empty()).unwrap_or(only);
        path = format!("{path}/{container}");
    }
    match parameters.finish() {
        query if query.is_empty() => path,
        query => format!("{path}?{query}"),
    }
}

/// A kubelet says no in plain text.
async fn refusal(response: Response<Incoming>, subresource: &str, name: &str) -> ApiError {
    let code = response.status().as_u16();
    let body = Limited::new(response.into_body(), REFUSAL_BYTES_MAX).collect().await.map(|b| b.to_bytes()).unwrap_or_default();
    let text = String::from_utf8_lossy(&body).into_owned();
    match code {
        400 => ApiError::bad_request(text),
        500 => ApiError::internal(text),
        404 => {
            ApiError::new(404, Reason::NotFound, format!("the server could not find the requested resource ( pods/{subresource} {name})"))
        }
        code => ApiError::new(code, Reason::Unknown, text),
    }
}

/// An answer of a program: links and redirects are put right.
async fn page(response: Response<Incoming>, permit: OwnedSemaphorePermit, pages: &Pages<'_>) -> Result<HttpResponse, ApiError> {
    let mut answered = answer(response, permit, None);
    let location = answered.headers().get(LOCATION).and_then(|l| l.to_str().ok());
    if let Some(moved) = location.and_then(|l| HeaderValue::from_str(&pages.moved(l)).ok()) {
        answered.headers_mut().insert(LOCATION, moved);
        return Ok(answered);
    }
    let is_page = is_html(answered.headers()) && !answered.headers().contains_key(http::header::CONTENT_ENCODING);
    let length = answered.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if !is_page || length.is_some_and(|n| n > PAGE_BYTES_MAX) {
        return Ok(answered);
    }
    let (mut parts, body) = answered.into_parts();
    let body = Limited::new(body, PAGE_BYTES_MAX)
        .collect()
        .await
        .map_err(|e| ApiError::unavailable(format!("error trying to reach service: {e}")))?;
    parts.headers.remove(CONTENT_LENGTH);
    Ok(Response::from_parts(parts, Body::full(pages.rewritten(&body.to_bytes()))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compose::testing::{Asked, FakeHost};
    use bytes::Bytes;
    use http::header::CONTENT_TYPE;
    use http_body_util::Full;
    use jiff::Timestamp;
    use serde_json::json;
    use sublet_apiserver::admission::UserInfo;
    use sublet_apiserver::http::RequestInfo;
    use sublet_pki::{Pki, PkiConfig};

    #[test]
    fn paths_at_a_kubelet_have_its_words() {
        let pod = json!({"metadata": {"namespace": "ns", "name": "p"}, "spec": {"containers": [{"name": "main"}]}});
        for (subresource, query, expected) in [
            ("log", "", "/containerLogs/ns/p/main"),
            ("log", "container=i&follow=true&tailLines=3&previous=false&pretty=1", "/containerLogs/ns/p/i?follow=true&tailLines=3"),
            (
                "exec",
                "command=sh&command=-c&command=a%26b&stdin=true&stdout=1&tty=0",
                "/exec/ns/p/main?input=1&output=1&command=sh&command=-c&command=a%26b",
            ),
            ("attach", "container=main&stderr=true&command=no", "/attach/ns/p/main?error=1"),
            ("portforward", "ports=80&ports=81", "/portForward/ns/p?port=80%2C81"),
        ] {
            assert_eq!(kubelet_path(subresource, &pod, &Query::parse(Some(query))), expected, "{subresource} {query}");
        }
    }

    #[test]
    fn nodes_say_where_their_kubelet_is() {
        let node = |addresses: Value, port: u64| json!({"status": {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
        let address = |kind: &str, at: &str| json!({"type": kind, "address": at});
        let told = |node: Value| kubelet_authority(&node).map_err(|e| e.code);
        assert_eq!(told(node(json!([address("InternalIP", "10.0.0.1"), address("Hostname", "n1")]), 10251)), Ok("n1:10251".into()));
        assert_eq!(told(node(json!([address("InternalIP", "fd00::1")]), 0)), Ok("[fd00::1]:10250".into()));
        assert_eq!(told(node(json!([]), 0)), Err(500));
    }

    #[test]
    fn origins_are_one_host() {
        assert_eq!(origin("", "10.0.0.1", ""), "http://10.0.0.1");
        assert_eq!(origin("https", "[fd00::1]", "8443"), "https://[fd00::1]:8443");
        assert_eq!(origin("", "10.0.0.1", "80@elsewhere/"), "http://10.0.0.1:80%40elsewhere%2F");
    }

    struct NoObjects;

    impl Reader for NoObjects {
        fn get(&self, _: &str, _: &str, _: &str) -> Option<Arc<Value>> {
            None
        }

        fn list(&self, _: &str, _: Option<&str>) -> Vec<Arc<Value>> {
            Vec::new()
        }

        fn revision(&self, _: &str) -> u64 {
            0
        }
    }

    fn page_of_a_program(_: &Asked) -> Response<Full<Bytes>> {
        let mut page = Response::new(Full::new(Bytes::from_static(b"<a href=\"/next\">next</a>")));
        page.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
        page
    }

    #[tokio::test]
    async fn proxy_asks_the_pod_and_its_pages_lead_back() {
        let program = FakeHost::start(page_of_a_program).await;
        let pki = Pki::new(&PkiConfig { cluster: "alpha".into(), names: Vec::new() }, Timestamp::now()).unwrap();
        let client = KubeletClient { certificate_pem: pki.admin.certificate_pem, key_pem: pki.admin.key_pem, authorities_pem: None };
        let streams = KubeletStreams::new(NoObjects, &client).unwrap();
        let path = "/api/v1/namespaces/ns/pods/http:p:x/proxy/a%20b/?c=d";
        let request = |path: &str| {
            Request::builder()
                .uri(path)
                .header("authorization", "Bearer secret")
                .body(RequestBody::new(Full::default().map_err(|never| match never {})))
                .unwrap()
        };
        let (user, query) = (UserInfo::default(), Query::default());
        let info = RequestInfo::parse(&http::Method::GET, path, &query);
        let target = |port: &str| ConnectTarget {
            info: &info,
            query: &query,
            user: &user,
            object: Arc::new(
                json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": {"nodeName": "n"}, "status": {"podIPs": [{"ip": "127.0.0.1"}]}}),
            ),
            proxied: Some(Proxied { scheme: "http".into(), port: port.into(), path: "/a b/".into() }),
        };
        let port = program.config.cluster_url.port_u16().unwrap().to_string();
        let answer = streams.connect(target(&port), request(path)).await.unwrap();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(String::from_utf8_lossy(&body), "<a href=\"/api/v1/namespaces/ns/pods/http:p:x/proxy/next\">next</a>");
        let heard = program.heard();
        assert_eq!(heard.iter().map(|a| a.path.as_str()).collect::<Vec<_>>(), ["/a%20b/?c=d"]);
        assert_eq!(heard[0].headers.get("x-forwarded-uri").unwrap(), "/api/v1/namespaces/ns/pods/http:p:x/proxy/a%20b/");
        assert!(!heard[0].headers.contains_key("authorization"), "credentials of the API server are not the program's");
        let refused = streams.connect(target("1"), request(path)).await.unwrap_err();
        assert!(refused.code == 503 && refused.message.starts_with("error trying to reach service: "), "{refused:?}");
        let log = ConnectTarget { proxied: None, ..target("1") };
        assert_eq!(streams.connect(log, request(path)).await.unwrap_err().message, "nodes \"n\" not found");
    }
}
