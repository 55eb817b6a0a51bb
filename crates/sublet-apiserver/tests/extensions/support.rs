//! An API server in this process, and an HTTPS server that plays webhooks for it.

use base64::Engine as _;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use sublet_apiserver::admission::UserInfo;
use sublet_apiserver::server::{InProcess, Server};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

pub struct Cluster {
    pub server: Server,
}

/// What the server answered.
#[derive(Debug)]
pub struct Reply {
    pub code: StatusCode,
    pub warnings: Vec<String>,
    pub body: Value,
}

impl Reply {
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    #[track_caller]
    pub fn ok(self) -> Value {
        assert!(self.code.is_success(), "{} {}", self.code, self.body);
        self.body
    }

    #[track_caller]
    pub fn refused(self, code: u16, message: &str) {
        assert_eq!((self.code.as_u16(), self.message()), (code, message));
    }
}

impl Cluster {
    pub async fn start() -> Self {
        Self { server: crate::common::server().await }
    }

    pub async fn send(&self, method: &str, path: &str, body: Option<Value>) -> Reply {
        self.send_as("admin", method, path, body).await
    }

    /// As an administrator of that name.
    pub async fn send_as(&self, name: &str, method: &str, path: &str, body: Option<Value>) -> Reply {
        let groups = vec!["system:masters".to_string(), "system:authenticated".to_string()];
        let user = UserInfo { name: name.into(), groups, ..UserInfo::default() };
        let media_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", media_type)
            .extension(InProcess(Arc::new(user)))
            .body(Full::new(body.map(|b| Bytes::from(b.to_string())).unwrap_or_default()))
            .expect("a request");
        let response = self.server.handle(request).await;
        let headers = response.headers().get_all("warning");
        let warnings = headers.iter().filter_map(|h| h.to_str().ok()?.split('"').nth(1).map(str::to_string)).collect();
        let code = response.status();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        Reply { code, warnings, body: serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes))) }
    }

    /// The body of an answer that goes on.
    pub async fn open(&self, path: &str) -> sublet_apiserver::http::Body {
        let groups = vec!["system:masters".to_string()];
        let user = UserInfo { name: "admin".into(), groups, ..UserInfo::default() };
        let request = Request::get(path).extension(InProcess(Arc::new(user))).body(Full::new(Bytes::new())).expect("a request");
        self.server.handle(request).await.into_body()
    }

    pub async fn create(&self, path: &str, object: Value) -> Reply {
        self.send("POST", path, Some(object)).await
    }

    pub async fn config_map(&self, name: &str, data: Value) -> Reply {
        self.create("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": name}, "data": data})).await
    }
}

type Answer = dyn Fn(&str, &Value) -> (u16, Value) + Send + Sync;

/// A server that answers what a function says, and remembers what it was asked.
pub struct Webhooks {
    pub port: u16,
    pub ca_bundle: String,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Webhooks {
    /// `answer` gets the path and the JSON of a request, and gives status and JSON.
    pub async fn start(answer: impl Fn(&str, &Value) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let names = ["127.0.0.1", "localhost", "hook.default.svc"].map(String::from).to_vec();
        // As `openssl req -x509` makes them: an authority that signs nothing but itself.
        let mut params = rcgen::CertificateParams::new(names).expect("names");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let chain = vec![CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM")];
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("PEM");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
        let config = config.with_no_client_auth().with_single_cert(chain, key).expect("a key that fits");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let asked: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let (acceptor, answer, remembered): (_, Arc<Answer>, _) = (TlsAcceptor::from(Arc::new(config)), Arc::new(answer), asked.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answer, remembered) = (acceptor.clone(), answer.clone(), remembered.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| respond(request, answer.clone(), remembered.clone()));
                    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        let ca_bundle = base64::engine::general_purpose::STANDARD.encode(&pem);
        Self { port, ca_bundle, asked }
    }

    pub fn asked(&self) -> Vec<(String, Value)> {
        self.asked.lock().expect("no panic under the lock").clone()
    }

    /// A client configuration that leads here.
    pub fn client(&self, path: &str) -> Value {
        json!({"url": format!("https://127.0.0.1:{}{path}", self.port), "caBundle": self.ca_bundle})
    }

    /// The Service `hook` of the default namespace, whose only endpoint is here.
    pub async fn as_service(&self, cluster: &Cluster) {
        let service =
            json!({"metadata": {"name": "hook"}, "spec": {"selector": {"app": "hook"}, "ports": [{"port": 443, "targetPort": 8443}]}});
        cluster.create("/api/v1/namespaces/default/services", service).await.ok();
        let slice = json!({
            "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}}, "addressType": "IPv4",
            "ports": [{"name": "", "port": self.port}], "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": true}}],
        });
        // Users may not name loopback addresses in slices; the server's own stores take them.
        let mut object = slice;
        object["metadata"]["namespace"] = json!("default");
        object["kind"] = json!("EndpointSlice");
        object["apiVersion"] = json!("discovery.k8s.io/v1");
        sublet_apiserver::reader::Writer::create(&cluster.server, "endpointslices.discovery.k8s.io", object).await.expect("stored");
    }
}

async fn respond(
    request: Request<Incoming>,
    answer: Arc<Answer>,
    remembered: Arc<Mutex<Vec<(String, Value)>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_string();
    let headers: serde_json::Map<String, Value> =
        request.headers().iter().filter_map(|(k, v)| Some((k.to_string(), json!(v.to_str().ok()?)))).collect();
    let method = request.method().to_string();
    let body = request.into_body().collect().await.map(|b| b.to_bytes()).unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or_else(|_| json!({"method": method, "headers": headers}));
    remembered.lock().expect("no panic under the lock").push((path.clone(), body.clone()));
    let (code, reply) = answer(&path, &body);
    if code == 0 {
        // Never answers.
        std::future::pending::<()>().await;
    }
    let text = reply.as_str().map_or_else(|| reply.to_string(), str::to_string);
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = StatusCode::from_u16(code).expect("a code");
    response.headers_mut().insert("content-type", "application/json".parse().expect("a value"));
    Ok(response)
}

/// An AdmissionReview that answers `review` with `response`.
pub fn reviewed(review: &Value, mut response: Value) -> (u16, Value) {
    response["uid"] = review["request"]["uid"].clone();
    (200, json!({"kind": "AdmissionReview", "apiVersion": review["apiVersion"], "response": response}))
}

pub fn patch(operations: &Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": base64::engine::general_purpose::STANDARD.encode(operations.to_string())})
}
