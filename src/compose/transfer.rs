//! Moves a tenant's store from one pod to another: the pod that held it serves the closed file, the pod
//! that is to have it fetches it. Nobody writes meanwhile, and the old copy goes only after the new one
//! is in use.

use super::api_server::url;
use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use sublet_api::Source;
use sublet_apiserver::auth::tls::ServingCertificate;
use sublet_pki::Pki;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::io::ReaderStream;
use tokio_util::sync::CancellationToken;

const PATH: &str = "/store";
/// How long a client may take for the handshake; the file itself takes as long as it takes.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// A name that every serving certificate covers.
const SERVER_NAME: &str = "kubernetes";

/// A store that can be fetched until this is stopped.
pub struct Offer {
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

impl Offer {
    /// Serves `file` at the port where its API server was.
    pub fn start(listener: TcpListener, file: PathBuf, uid: &str, pki: &Pki) -> Result<Self> {
        let serving = ServingCertificate::new(&pki.serving.certificate_pem, &pki.serving.key_pem)?;
        let config = ServerConfig::builder().with_no_client_auth().with_cert_resolver(Arc::new(serving));
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let served = Arc::new(Served { file, secret: secret(pki, uid) });
        let cancel = CancellationToken::new();
        let task = tokio::spawn({
            let cancel = cancel.clone();
            async move {
                loop {
                    // One at a time: there is one other pod.
                    tokio::select! {
                        Ok((stream, _)) = listener.accept() => {
                            if let Err(error) = serve(&acceptor, stream, served.clone()).await {
                                tracing::debug!(%error, "a store was not fetched to its end");
                            }
                        }
                        () = cancel.cancelled() => return,
                    }
                }
            }
        });
        Ok(Self { cancel, task })
    }

    pub async fn stop(self) {
        self.cancel.cancel();
        // A client that hangs must not hold up the end.
        self.task.abort();
    }
}

struct Served {
    file: PathBuf,
    secret: String,
}

type Answer = Response<BoxBody<Bytes, std::io::Error>>;

impl Served {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let told = request.headers().get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()).and_then(|v| v.strip_prefix("Bearer "));
        // Digests are compared, so how far they agree tells nothing about the secret.
        let allowed = told.is_some_and(|told| Sha256::digest(told.as_bytes()) == Sha256::digest(self.secret.as_bytes()));
        if !allowed {
            return status(StatusCode::UNAUTHORIZED);
        }
        if request.method() != Method::GET || request.uri().path() != PATH {
            return status(StatusCode::NOT_FOUND);
        }
        let Ok(file) = tokio::fs::File::open(&self.file).await else { return status(StatusCode::NOT_FOUND) };
        let Ok(length) = file.metadata().await.map(|m| m.len()) else { return status(StatusCode::NOT_FOUND) };
        let body = BodyExt::boxed(StreamBody::new(ReaderStream::new(file).map_ok(Frame::data)));
        Response::builder().header(header::CONTENT_LENGTH, length).body(body).unwrap_or_else(|_| status(StatusCode::NOT_FOUND))
    }
}

fn status(code: StatusCode) -> Answer {
    let mut response = Response::new(BodyExt::boxed(Full::new(Bytes::new()).map_err(|never| match never {})));
    *response.status_mut() = code;
    response
}

async fn serve(acceptor: &TlsAcceptor, stream: TcpStream, served: Arc<Served>) -> Result<()> {
    let stream = tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(stream)).await??;
    let service = service_fn(move |request| {
        let served = served.clone();
        async move { Ok::<_, std::convert::Infallible>(served.answer(request).await) }
    });
    http1::Builder::new().timer(TokioTimer::new()).keep_alive(false).serve_connection(TokioIo::new(stream), service).await?;
    Ok(())
}

/// What only those know who may read the keys of the tenant.
fn secret(pki: &Pki, uid: &str) -> String {
    let mut sha = Sha256::new();
    for part in ["sublet store transfer", uid, &pki.service_account_key_pem] {
        sha.update((part.len() as u64).to_be_bytes());
        sha.update(part.as_bytes());
    }
    format!("{:x}", sha.finalize())
}

/// Fetches the store into `file`. It has its name only when it is complete and on disk.
pub async fn fetch(source: &Source, file: &Path, uid: &str, pki: &Pki) -> Result<()> {
    let mut config = kube::Config::new(url(&source.address, source.port).parse()?);
    let authority = rustls_pki_types::pem::PemObject::from_pem_slice(pki.authority.certificate_pem().as_bytes());
    let authority: rustls_pki_types::CertificateDer<'static> = authority.context("the authority of the tenant cannot be read")?;
    config.root_cert = Some(vec![authority.to_vec()]);
    config.tls_server_name = Some(SERVER_NAME.into());
    config.proxy_url = None;
    let client = kube::Client::try_from(config)?;
    let request =
        Request::get(PATH).header(header::AUTHORIZATION, format!("Bearer {}", secret(pki, uid))).body(kube::client::Body::empty())?;
    let response = client.send(request).await.with_context(|| format!("pod `{}` does not give the store", source.pod))?;
    if !response.status().is_success() {
        bail!("pod `{}` does not give the store: {}", source.pod, response.status());
    }
    let length: Option<u64> = response.headers().get(header::CONTENT_LENGTH).and_then(|l| l.to_str().ok()).and_then(|l| l.parse().ok());
    let unfinished = file.with_extension("part");
    if let Some(dir) = file.parent() {
        tokio::fs::create_dir_all(dir).await?;
    }
    let mut out = tokio::fs::File::create(&unfinished).await?;
    let mut body = response.into_body().into_data_stream();
    let mut received = 0;
    while let Some(bytes) = body.next().await {
        let bytes = bytes.context("the store was not received to its end")?;
        received += bytes.len() as u64;
        out.write_all(&bytes).await?;
    }
    if length.is_some_and(|length| length != received) {
        bail!("{received} bytes of the store came, and {length:?} were told");
    }
    out.sync_all().await?;
    drop(out);
    tokio::fs::rename(&unfinished, file).await?;
    if let Some(dir) = file.parent() {
        tokio::fs::File::open(dir).await?.sync_all().await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use sublet_pki::PkiConfig;

    fn pki() -> Pki {
        let names = vec!["kubernetes".into(), "127.0.0.1".into()];
        Pki::new(&PkiConfig { cluster: "alpha".into(), names }, jiff::Timestamp::now()).unwrap()
    }

    #[tokio::test]
    async fn a_store_moves_whole_and_only_to_who_holds_the_keys() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old.redb"), dir.path().join("sub/new.redb"));
        let contents: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
        std::fs::write(&old, &contents).unwrap();
        let pki = pki();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let source = Source { pod: "shard-0".into(), address: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() };
        let offer = Offer::start(listener, old, "uid-1", &pki).unwrap();
        // Another tenant's secret, over the same connection.
        let refused = fetch(&source, &new, "uid-2", &pki).await.unwrap_err().to_string();
        assert!(refused.contains("401") && !new.exists(), "{refused}");
        // Another server than the one that the keys are for.
        assert!(fetch(&source, &new, "uid-1", &self::pki()).await.is_err());
        fetch(&source, &new, "uid-1", &pki).await.unwrap();
        assert!(std::fs::read(&new).unwrap() == contents);
        offer.stop().await;
    }
}
