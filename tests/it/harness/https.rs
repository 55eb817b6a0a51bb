//! An HTTPS server on this machine that answers what a test says.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use sublet_pki::{Authority, Leaf, Usage};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

type Answer = dyn Fn(u16, &str) -> Option<Value> + Send + Sync;

pub struct Https {
    pub port: u16,
    pub authority_pem: String,
}

impl Https {
    /// `answer` gets the port and the path of a GET and gives its JSON; `None` is 404.
    pub async fn start(answer: impl Fn(u16, &str) -> Option<Value> + Send + Sync + 'static) -> Self {
        let (now, names) = (Timestamp::now(), ["127.0.0.1".to_string(), "localhost".to_string()]);
        let authority = Authority::new("test", now).unwrap();
        let leaf =
            Leaf { common_name: "test", organization: None, names: &names, usage: Usage::Server, lifetime: SignedDuration::from_hours(1) };
        let pair = authority.issue(&leaf, now).unwrap();
        let chain = CertificateDer::pem_slice_iter(pair.certificate_pem.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer: Arc<Answer> = Arc::new(answer);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answer) = (acceptor.clone(), answer.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| respond(request, port, answer.clone()));
                    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { port, authority_pem: authority.certificate_pem().to_string() }
    }
}

async fn respond(request: Request<Incoming>, port: u16, answer: Arc<Answer>) -> Result<Response<Full<Bytes>>, Infallible> {
    let answer = answer(port, request.uri().path());
    let status = if answer.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
    let mut response = Response::new(Full::new(Bytes::from(answer.unwrap_or_default().to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    Ok(response)
}
