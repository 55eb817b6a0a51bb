//! HTTPS: accepts connections and hands their requests to the server.

use super::Server;
use super::handle::Peer;
use crate::audit::RemoteAddress;
use crate::auth::authn::certificate;
use crate::auth::tls::ServerTls;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Connections of one server at a time; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 8192;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Streams per HTTP/2 connection, as upstream's default.
const STREAMS_MAX: u32 = 250;
const HEADER_LIST_BYTES_MAX: u32 = 64 << 10;
/// How long open requests may still run when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// A listening server; dropping it does not stop it, cancelling its token does.
pub struct Listening {
    pub address: SocketAddr,
    pub task: JoinHandle<()>,
}

/// Serves HTTPS on the listener until cancelled.
pub fn listen(server: Server, listener: TcpListener, tls: ServerTls, cancel: CancellationToken) -> std::io::Result<Listening> {
    let address = listener.local_addr()?;
    let task = tokio::spawn(accept_loop(server, listener, tls, cancel));
    Ok(Listening { address, task })
}

async fn accept_loop(server: Server, listener: TcpListener, tls: ServerTls, cancel: CancellationToken) {
    let graceful = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let slot = tokio::select! {
            slot = slots.clone().acquire_owned() => slot.expect("the semaphore is never closed"),
            () = cancel.cancelled() => break,
        };
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, most likely: wait for some to come free.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = cancel.cancelled() => break,
        };
        let (server, tls, watcher) = (server.clone(), tls.clone(), graceful.watcher());
        tokio::spawn(async move {
            let _slot = slot;
            if let Err(error) = connection(server, stream, tls, watcher).await {
                tracing::debug!(%peer, %error, "connection ended");
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::debug!("requests were cut when the server stopped");
    }
}

async fn connection(
    server: Server,
    stream: TcpStream,
    tls: ServerTls,
    watcher: hyper_util::server::graceful::Watcher,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    stream.set_nodelay(true)?;
    let remote = stream.peer_addr()?;
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(tls.config.clone()).accept(stream)).await??;
    let peer = match stream.get_ref().1.peer_certificates() {
        Some(chain) if !tls.is_good(chain) => Some(Peer::Refused),
        Some([leaf, ..]) => certificate::user(leaf).map(|user| Peer::User { user: Arc::new(user), until: certificate::ends_at(leaf) }),
        _ => None,
    };
    let service = service_fn(move |mut request: http::Request<Incoming>| {
        let server = server.clone();
        request.extensions_mut().insert(RemoteAddress(remote));
        if let Some(peer) = &peer {
            request.extensions_mut().insert(peer.clone());
        }
        async move { Ok::<_, Infallible>(server.handle(request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        .keep_alive_interval(Duration::from_secs(30));
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    watcher.watch(connection).await
}
