//! One connection: TCP, TLS, HTTP/1.1.

use super::pool::Key;
use super::tls::{self, Configs, Identity};
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

/// A connection that takes requests, one after the other.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(super) key: Key,
    pub(crate) sender: SendRequest<Full<Bytes>>,
}

/// Connects; the error is worded as Go words it.
pub(super) async fn connect(
    key: Key,
    configs: &Configs,
    identity: Option<&Arc<Identity>>,
    refuses_local: bool,
) -> Result<Connected, String> {
    let failed = |error: std::io::Error| format!("dial tcp {}: {}", key.address, dial_error(&error));
    let mut addresses: Vec<SocketAddr> = lookup_host(&key.address).await.map_err(|_| no_such_host(&key.address))?.collect();
    if refuses_local {
        addresses.retain(|address| !is_local(address.ip()));
        if addresses.is_empty() {
            return Err(format!("dial tcp {}: the address is one of the API server's own machine", key.address));
        }
    }
    let stream = TcpStream::connect(&*addresses).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    let name = ServerName::try_from(key.server_name.clone()).map_err(|e| format!("tls: invalid server name: {e}"))?;
    let config = configs.get(&key.trust, identity)?;
    let stream = TlsConnector::from(config).connect(name, stream).await.map_err(|error| tls::shown(&error, &key.server_name))?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    // Ends when the sender is dropped: by the pool, or by whoever reads an answer.
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection to a webhook or another API server ended");
        }
    });
    Ok(Connected { key, sender })
}

/// What only this machine has: itself, and what answers on its link alone, such as a cloud's metadata.
fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_link_local() || ip.is_unspecified(),
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(ip) => is_local(ip.into()),
            None => ip.is_loopback() || ip.is_unicast_link_local() || ip.is_unspecified(),
        },
    }
}

fn no_such_host(address: &str) -> String {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    format!("dial tcp: lookup {host}: no such host")
}

fn dial_error(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connect: connection refused".into(),
        std::io::ErrorKind::HostUnreachable => "connect: no route to host".into(),
        std::io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".into(),
        std::io::ErrorKind::TimedOut => "i/o timeout".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::is_local;

    #[test]
    fn addresses_of_the_machine_are_known() {
        for (address, expected) in [
            ("127.0.0.1", true),
            ("169.254.169.254", true),
            ("::ffff:127.0.0.1", true),
            ("fe80::1", true),
            ("10.0.0.1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_local(address.parse().expect("an address")), expected, "{address}");
        }
    }
}
