//! Plain HTTPS requests, one connection each, so that nothing is hidden: no retries, no default headers
//! but the user agent.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use sublet_pki::CertifiedKey;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long any one answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
const USER_AGENT: &str = "sublet-it/1.0";

#[derive(Clone, Debug, Default)]
pub enum Credential {
    #[default]
    Admin,
    Nobody,
    Token(String),
    Certificate(CertifiedKey),
    /// A certificate, and a token in the headers.
    Both(CertifiedKey, String),
}

#[derive(Clone, Debug)]
pub struct Request {
    pub method: Method,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    pub credential: Credential,
}

impl Request {
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), headers: Vec::new(), body: Bytes::new(), credential: Credential::Admin }
    }

    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub fn post(path: impl Into<String>, body: &Value) -> Self {
        Self::new(Method::POST, path).json(body)
    }

    pub fn put(path: impl Into<String>, body: &Value) -> Self {
        Self::new(Method::PUT, path).json(body)
    }

    pub fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path)
    }

    /// A patch of one of the four kinds: `json`, `merge`, `strategic`, `apply`.
    pub fn patch(kind: &str, path: impl Into<String>, body: &Value) -> Self {
        let media_type = match kind {
            "json" => "application/json-patch+json",
            "merge" => "application/merge-patch+json",
            "strategic" => "application/strategic-merge-patch+json",
            "apply" => "application/apply-patch+yaml",
            other => panic!("no patch is called {other}"),
        };
        Self::new(Method::PATCH, path).body(media_type, body.to_string())
    }

    pub fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    pub fn body(mut self, media_type: &str, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self.header("content-type", media_type)
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub fn accept(self, media_type: &str) -> Self {
        self.header("accept", media_type)
    }

    pub fn with(mut self, credential: Credential) -> Self {
        self.credential = credential;
        self
    }

    pub fn token(self, token: &str) -> Self {
        self.with(Credential::Token(token.into()))
    }
}

#[derive(Clone, Debug)]
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Response {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("not JSON ({e}): {:?}", self.body))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<String> {
        let values: Vec<&str> = self.headers.get_all(name).iter().filter_map(|v| v.to_str().ok()).collect();
        (!values.is_empty()).then(|| values.join(" | "))
    }

    /// The string at a pointer of the JSON body.
    pub fn str(&self, pointer: &str) -> String {
        self.json().pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_string()
    }
}

/// Where requests go, and who the admin is.
#[derive(Clone)]
pub struct Client {
    /// `127.0.0.1:6443`
    pub authority: String,
    roots: Arc<RootCertStore>,
    admin: Credential,
}

impl Client {
    pub fn from_kubeconfig(path: &Path) -> Self {
        let file: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let (cluster, user) = (&file["clusters"][0]["cluster"], &file["users"][0]["user"]);
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem(cluster, "certificate-authority").as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let admin = match user["token"].as_str() {
            Some(token) => Credential::Token(token.into()),
            None => {
                Credential::Certificate(CertifiedKey { certificate_pem: pem(user, "client-certificate"), key_pem: pem(user, "client-key") })
            }
        };
        let authority = cluster["server"].as_str().unwrap().trim_start_matches("https://").to_string();
        Self { authority, roots: Arc::new(roots), admin }
    }

    /// The same server, with another credential where requests say `Admin`.
    pub fn with_admin(self, admin: Credential) -> Self {
        Self { admin, ..self }
    }

    /// The same client, led to another address.
    pub fn at(&self, authority: &str) -> Self {
        Self { authority: authority.into(), ..self.clone() }
    }

    pub async fn send(&self, request: &Request) -> Response {
        self.try_send(request).await.unwrap_or_else(|error| panic!("{} {}: {error:#}", request.method, request.path))
    }

    pub async fn try_send(&self, request: &Request) -> Result<Response> {
        let answer = async {
            let (parts, body) = self.open(request).await?.into_parts();
            let body = body.collect().await.context("the body breaks off")?.to_bytes();
            Ok(Response { status: parts.status, headers: parts.headers, body })
        };
        tokio::time::timeout(ANSWER_TIMEOUT, answer).await.context("no answer in time")?
    }

    /// The first lines of a stream, at most `lines`, or all until it ends.
    pub async fn lines(&self, request: &Request, lines: usize) -> (Response, Vec<Value>) {
        let answer = async {
            let (parts, mut body) = self.open(request).await.unwrap().into_parts();
            let (mut bytes, mut events) = (Vec::new(), Vec::new());
            while events.len() < lines {
                let Some(frame) = body.frame().await else { break };
                bytes.extend_from_slice(&frame.expect("the stream is whole").into_data().unwrap_or_default());
                while let Some(end) = bytes.iter().position(|b| *b == b'\n') {
                    let line: Vec<u8> = bytes.drain(..=end).collect();
                    if events.len() < lines {
                        events.push(serde_json::from_slice(&line).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&line))));
                    }
                }
            }
            (Response { status: parts.status, headers: parts.headers, body: bytes.into() }, events)
        };
        tokio::time::timeout(ANSWER_TIMEOUT, answer).await.unwrap_or_else(|_| panic!("{}: the events do not come", request.path))
    }

    /// Sends a request and gives the answer as it comes in.
    pub async fn open(&self, request: &Request) -> Result<http::Response<Incoming>> {
        let credential = if matches!(request.credential, Credential::Admin) { &self.admin } else { &request.credential };
        let stream = TcpStream::connect(&self.authority).await?;
        let host = self.authority.rsplit_once(':').context("host and port")?.0.trim_matches(['[', ']']).to_string();
        let stream = TlsConnector::from(Arc::new(self.tls(credential)?)).connect(host.try_into()?, stream).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut builder = http::Request::builder().method(&request.method).uri(&request.path).header("host", &self.authority);
        if !request.headers.iter().any(|(name, _)| name == "user-agent") {
            builder = builder.header("user-agent", USER_AGENT);
        }
        if let Credential::Token(token) | Credential::Both(_, token) = credential {
            builder = builder.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        Ok(sender.send_request(builder.body(Full::new(request.body.clone()))?).await?)
    }

    fn tls(&self, credential: &Credential) -> Result<ClientConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = builder.with_root_certificates(self.roots.clone());
        Ok(match credential {
            Credential::Certificate(certified) | Credential::Both(certified, _) => {
                let chain = CertificateDer::pem_slice_iter(certified.certificate_pem.as_bytes()).collect::<Result<Vec<_>, _>>()?;
                builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(certified.key_pem.as_bytes())?)?
            }
            _ => builder.with_no_client_auth(),
        })
    }
}

/// PEM from `KEY-data`, or from the file that `KEY` names.
fn pem(object: &Value, key: &str) -> String {
    match (object[format!("{key}-data")].as_str(), object[key].as_str()) {
        (Some(data), _) => String::from_utf8(BASE64_STANDARD.decode(data).unwrap()).unwrap(),
        (None, Some(path)) => std::fs::read_to_string(path).unwrap(),
        (None, None) => panic!("the kubeconfig has no {key}"),
    }
}
