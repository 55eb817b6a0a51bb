//! HTTPS: accepts connections and hands their requests to the server.

mod connections;
mod gathered;
mod io;

use super::Server;
use super::handle::Peer;
use crate::audit::RemoteAddress;
use crate::auth::authn::certificate;
use crate::auth::tls::ServerTls;
use connections::{Connection, Connections, Slot};
use gathered::Gathered;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use io::{Held, Noted, ShareExecutor};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use sublet_share::Spent;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Connections of one server at a time. Beyond them the longest idle one makes room.
const CONNECTIONS_MAX: usize = 2048;
/// How often idle and stuck connections are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(15);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// What HTTP/1.1 headers may take. Tokens and certificates of proxies are long.
const HEADER_BYTES_MAX: usize = 256 << 10;
/// Streams per HTTP/2 connection, as upstream's default.
const STREAMS_MAX: u32 = 250;
const HEADER_LIST_BYTES_MAX: u32 = 64 << 10;
/// Bytes that an HTTP/2 client may send before somebody reads them: on one stream, and on all of a connection.
const STREAM_BYTES_MAX: u32 = 128 << 10;
const STREAMS_BYTES_MAX: u32 = 256 << 10;
/// Streams that a client may withdraw before they were looked at; upstream's bound for the same attack is its own.
const RESETS_MAX: usize = 20;
/// How long open requests may still run when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection that is asked to end may take, beside its requests.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(60);

/// A listening server; dropping it does not stop it, cancelling its token does.
pub struct Listening {
    pub address: SocketAddr,
    pub task: JoinHandle<()>,
}

/// Serves HTTPS on the listener until cancelled.
pub fn listen(server: Server, listener: TcpListener, tls: ServerTls, cancel: CancellationToken) -> std::io::Result<Listening> {
    let address = listener.local_addr()?;
    let share = server.share().clone();
    let task = tokio::spawn(share.run(accept_loop(server, listener, tls, cancel)));
    Ok(Listening { address, task })
}

async fn accept_loop(server: Server, listener: TcpListener, tls: ServerTls, cancel: CancellationToken) {
    let connections = Connections::new(connections::most(CONNECTIONS_MAX));
    let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
    loop {
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
            _ = sweep.tick() => {
                connections.sweep();
                continue;
            }
            () = cancel.cancelled() => break,
        };
        let Some(slot) = connections.admit() else {
            tracing::debug!(%peer, open = connections.count(), "refused: all connections are at work");
            continue;
        };
        let (server, tls) = (server.clone(), tls.clone());
        let share = server.share().clone();
        tokio::spawn(share.run(async move {
            let cut = slot.connection.cut.clone();
            let ended = tokio::select! {
                ended = connection(server, stream, tls, &slot) => ended,
                () = cut.cancelled() => Err("it made room, or was stuck".into()),
            };
            if let Err(error) = ended {
                tracing::debug!(%peer, %error, "connection ended");
            }
        }));
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_TIMEOUT, connections.close_all()).await.is_err() {
        tracing::debug!("requests were cut when the server stopped");
    }
}

async fn connection(
    server: Server,
    stream: TcpStream,
    tls: ServerTls,
    slot: &Slot,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    stream.set_nodelay(true)?;
    let remote = stream.peer_addr()?;
    let stream = Noted { socket: stream, connection: slot.connection.clone() };
    let accepting = tokio::time::timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(tls.config.clone()).accept(stream));
    let stream = tokio::select! {
        accepted = accepting => accepted??,
        () = slot.connection.close.cancelled() => return Ok(()),
    };
    slot.connection.speaks(stream.get_ref().1.alpn_protocol() == Some(b"h2"));
    let peer = match stream.get_ref().1.peer_certificates() {
        Some(chain) if !tls.is_good(chain) => Some(Peer::Refused),
        Some([leaf, ..]) => certificate::user(leaf).map(|user| Peer::User { user: Arc::new(user), until: certificate::ends_at(leaf) }),
        _ => None,
    };
    let share = server.share().clone();
    let of: Arc<Connection> = slot.connection.clone();
    let service = service_fn(move |mut request: http::Request<Incoming>| {
        let server = server.clone();
        request.extensions_mut().insert(RemoteAddress(remote));
        server.share().visit();
        let counted = of.request();
        if let Some(peer) = &peer {
            request.extensions_mut().insert(peer.clone());
        }
        async move {
            let (mut parts, body) = server.handle(request).await.into_parts();
            let spent = parts.extensions.remove::<Arc<Spent>>();
            Ok::<_, Infallible>(http::Response::from_parts(parts, Held::new(body, counted, spent)))
        }
    });
    let mut builder = auto::Builder::new(ShareExecutor(share));
    // Its clock for headers runs between requests too; `Connections` tells both apart.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(HEADER_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        .initial_stream_window_size(STREAM_BYTES_MAX)
        .initial_connection_window_size(STREAMS_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(RESETS_MAX)
        .keep_alive_interval(Duration::from_secs(30));
    let stream = Gathered::new(stream);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream.clone()), service);
    let mut connection = std::pin::pin!(connection);
    let close = slot.connection.close.cancelled();
    let connection = async move {
        tokio::select! {
            ended = connection.as_mut() => return ended,
            () = close => connection.as_mut().graceful_shutdown(),
        }
        tokio::time::timeout(CLOSE_TIMEOUT, connection).await?
    };
    stream.drive(connection, || slot.connection.has_several()).await
}
