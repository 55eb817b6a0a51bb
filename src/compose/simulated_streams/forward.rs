//! Ports of simulated pods: each connection is a pair of SPDY streams, and gets one made-up answer to its HTTP request.

use super::spdy::{Event, Spdy, StreamId};
use anyhow::{Result, ensure};
use bytes::BytesMut;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use sublet_host::simulated_page;
use sublet_machinery::ObjectExt;

/// Connections of one client at a time.
const CONNECTIONS_MAX: usize = 256;
/// The head of a request; what is longer gets its answer early.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// A connection to a port, until it is answered.
struct Connection {
    port: u16,
    error: Option<StreamId>,
    head: BytesMut,
}

/// Answers until the client goes away.
pub async fn serve(mut spdy: Spdy, pod: Arc<Value>) -> Result<()> {
    // By the client's number of the connection, which both its streams name.
    let mut errors: BTreeMap<String, StreamId> = BTreeMap::new();
    let mut connections: BTreeMap<StreamId, Connection> = BTreeMap::new();
    while let Some(event) = spdy.next().await? {
        match event {
            Event::Opened { id, headers, .. } => {
                ensure!(connections.len() + errors.len() < CONNECTIONS_MAX, "too many connections at once");
                spdy.reply(id).await?;
                let text = |name: &str| headers.get(name).cloned().unwrap_or_default();
                if text("streamtype") == "error" {
                    errors.insert(text("requestid"), id);
                } else {
                    let connection = Connection {
                        port: text("port").parse().unwrap_or_default(),
                        error: errors.remove(&text("requestid")),
                        head: BytesMut::new(),
                    };
                    if simulated_page(&pod, connection.port, "/").is_some() {
                        connections.insert(id, connection);
                    } else {
                        refuse(&mut spdy, id, &connection, &pod).await?;
                    }
                }
            }
            Event::Data { id, data, ended } => {
                let Some(connection) = connections.get_mut(&id) else { continue };
                connection.head.extend_from_slice(&data);
                let complete = connection.head.windows(4).any(|w| w == b"\r\n\r\n");
                if (complete || ended || connection.head.len() > HEAD_BYTES_MAX)
                    && let Some(connection) = connections.remove(&id)
                {
                    answer(&mut spdy, id, &connection, &pod).await?;
                }
            }
            Event::Reset { id } => {
                connections.remove(&id);
                errors.retain(|_, error| *error != id);
            }
            Event::Ping { id } => spdy.pong(id).await?,
            Event::GoAway => break,
            Event::Other => {}
        }
    }
    Ok(())
}

async fn refuse(spdy: &mut Spdy, id: StreamId, connection: &Connection, pod: &Value) -> Result<()> {
    let port = connection.port;
    let why = format!("error forwarding port {port} to pod {}: no container of this simulated pod declares the port", pod.name());
    if let Some(error) = connection.error {
        spdy.data(error, why.as_bytes(), true).await?;
    }
    spdy.data(id, b"", true).await
}

async fn answer(spdy: &mut Spdy, id: StreamId, connection: &Connection, pod: &Value) -> Result<()> {
    let page = simulated_page(pod, connection.port, path_of(&connection.head)).unwrap_or_default();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", page.len());
    spdy.data(id, (head + &page).as_bytes(), true).await?;
    match connection.error {
        Some(error) => spdy.data(error, b"", true).await,
        None => Ok(()),
    }
}

/// The path in the first line of a request.
fn path_of(head: &[u8]) -> &str {
    let line = head.split(|b| *b == b'\r').next().unwrap_or_default();
    std::str::from_utf8(line).ok().and_then(|line| line.split(' ').nth(1)).unwrap_or("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_stands_in_the_first_line() {
        assert_eq!(path_of(b"GET /hostname HTTP/1.1\r\nHost: x\r\n\r\n"), "/hostname");
        assert_eq!(path_of(b"\x00\xff"), "/");
    }
}
