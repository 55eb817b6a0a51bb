//! Plain TLS streams and requests over them, for what a client library would not do.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Whoever gets no answer for that long asks again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// An API server, and who is known there.
#[derive(Clone)]
pub struct Target {
    pub authority: String,
    token: Option<String>,
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
}

/// What came back.
pub struct Answer {
    pub status: u16,
    pub retry_after: bool,
    pub body: Bytes,
}

impl Target {
    /// With the credentials of a kubeconfig, or as nobody.
    pub fn new(kubeconfig: &str, known: bool) -> Result<Self> {
        let file: Value = serde_saphyr::from_str(kubeconfig)?;
        let (cluster, user) = (&file["clusters"][0]["cluster"], &file["users"][0]["user"]);
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem(cluster, "certificate-authority")?) {
            roots.add(certificate?)?;
        }
        let builder = ClientConfig::builder().with_root_certificates(roots);
        let token = user["token"].as_str().filter(|_| known).map(|token| format!("Bearer {token}"));
        let mut config = if known && token.is_none() {
            let chain = CertificateDer::pem_slice_iter(&pem(user, "client-certificate")?).collect::<Result<_, _>>()?;
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(&pem(user, "client-key")?)?)?
        } else {
            builder.with_no_client_auth()
        };
        let server = cluster["server"].as_str().context("the kubeconfig names no server")?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let http1 = Arc::new(config.clone());
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self { authority: server.trim_start_matches("https://").into(), token, http1, http2: Arc::new(config) })
    }

    pub async fn plain(&self) -> Result<TcpStream> {
        Ok(TcpStream::connect(&self.authority).await?)
    }

    /// A stream that will speak HTTP/1.1.
    pub async fn stream(&self) -> Result<TlsStream<TcpStream>> {
        self.tls(&self.http1).await
    }

    /// A stream that will speak HTTP/2.
    pub async fn stream2(&self) -> Result<TlsStream<TcpStream>> {
        self.tls(&self.http2).await
    }

    async fn tls(&self, config: &Arc<ClientConfig>) -> Result<TlsStream<TcpStream>> {
        let host = self.authority.rsplit_once(':').context("host and port")?.0.to_string();
        let connect = async {
            let stream = self.plain().await?;
            stream.set_nodelay(true)?;
            Ok(TlsConnector::from(config.clone()).connect(ServerName::try_from(host)?, stream).await?)
        };
        tokio::time::timeout(CONNECT_TIMEOUT, connect).await.context("no connection in time")?
    }

    pub async fn http1(&self) -> Result<Http1> {
        let (sender, connection) = http1::handshake(TokioIo::new(self.stream().await?)).await?;
        tokio::spawn(connection);
        Ok(Http1 { sender, authority: self.authority.clone(), token: self.token.clone() })
    }

    pub async fn http2(&self) -> Result<http2::SendRequest<Full<Bytes>>> {
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(self.stream2().await?)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    pub fn request(&self, method: &str, path: &str) -> http::request::Builder {
        Request::builder().method(method).uri(format!("https://{}{path}", self.authority))
    }
}

/// A connection that is kept.
pub struct Http1 {
    sender: http1::SendRequest<Full<Bytes>>,
    authority: String,
    token: Option<String>,
}

impl Http1 {
    /// Sends a request and gives the answer as it comes in.
    pub async fn open(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: Bytes) -> Result<Response<Incoming>> {
        self.sender.ready().await?;
        let mut request = Request::builder().method(method).uri(path).header("host", &self.authority);
        if let Some(token) = &self.token {
            request = request.header("authorization", token);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self.sender.send_request(request.body(Full::new(body))?);
        Ok(tokio::time::timeout(ANSWER_TIMEOUT, answer).await.context("no answer in time")??)
    }

    pub async fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: Bytes) -> Result<Answer> {
        read(self.open(method, path, headers, body).await?).await
    }
}

pub async fn read(response: Response<Incoming>) -> Result<Answer> {
    let (parts, body) = response.into_parts();
    let body = tokio::time::timeout(ANSWER_TIMEOUT, body.collect()).await.context("the answer does not end")??.to_bytes();
    Ok(Answer { status: parts.status.as_u16(), retry_after: parts.headers.contains_key("retry-after"), body })
}

/// What a kubeconfig holds under a key, or the file that it names.
fn pem(of: &Value, key: &str) -> Result<Vec<u8>> {
    if let Some(data) = of[format!("{key}-data")].as_str() {
        return Ok(BASE64_STANDARD.decode(data)?);
    }
    let path = of[key].as_str().with_context(|| format!("the kubeconfig has no {key}"))?;
    Ok(std::fs::read(path)?)
}

/// Frames of HTTP/2, written by hand.
pub mod frames {
    pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    pub const SETTINGS: u8 = 4;
    pub const PING: u8 = 6;
    pub const RST_STREAM: u8 = 3;
    pub const HEADERS: u8 = 1;
    pub const CONTINUATION: u8 = 9;
    pub const END_STREAM_AND_HEADERS: u8 = 5;

    pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
        let mut out = vec![length[1], length[2], length[3], kind, flags];
        out.extend_from_slice(&stream.to_be_bytes());
        out.extend_from_slice(payload);
        out
    }

    /// The headers of `GET /api/v1/configmaps`, without a dynamic table.
    pub fn get_configmaps(authority: &str) -> Vec<u8> {
        let mut block = vec![0x82, 0x87];
        let mut literal = |index: u8, text: &str| {
            block.push(index);
            block.push(u8::try_from(text.len()).unwrap_or(0));
            block.extend_from_slice(text.as_bytes());
        };
        literal(0x04, "/api/v1/configmaps");
        literal(0x01, authority);
        block
    }
}
