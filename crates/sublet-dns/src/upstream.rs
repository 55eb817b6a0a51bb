//! Names of others, asked from the servers of the host.

use crate::question::Question;
use crate::reply::query_for;
use hickory_proto::op::{Message, MessageType};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;

/// Questions under way of all tenants of a process; each has a socket. A tenant alone gets a small part of it.
const IN_FLIGHT_MAX: usize = 1024;
/// As resolvers do: two rounds over the servers.
const ROUNDS: usize = 2;
const WAIT: Duration = Duration::from_millis(1500);
const DATAGRAM_BYTES_MAX: usize = 4096;

/// The servers that other names are asked from, shared by the tenants of a process.
pub struct Upstream {
    servers: Vec<SocketAddr>,
    slots: Semaphore,
}

#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    #[error("no server is known")]
    NoServer,
    #[error("too many questions are under way")]
    Busy,
    #[error("no server answered")]
    Silent(#[source] io::Error),
}

impl Upstream {
    pub fn new(servers: Vec<SocketAddr>) -> Self {
        Self { servers, slots: Semaphore::new(IN_FLIGHT_MAX) }
    }

    /// Asks one server after the other. What one says is taken, be it a refusal.
    pub async fn ask(&self, question: &Question, dnssec_ok: bool, checking_disabled: bool) -> Result<Message, UpstreamError> {
        let Ok(_slot) = self.slots.try_acquire() else { return Err(UpstreamError::Busy) };
        let mut last = None;
        for server in self.servers.iter().cycle().take(self.servers.len() * ROUNDS) {
            let query = query_for(question, dnssec_ok, checking_disabled, rand::random());
            match tokio::time::timeout(WAIT, ask_one(*server, &query)).await {
                Ok(Ok(message)) => return Ok(message),
                Ok(Err(error)) => last = Some(error),
                Err(_) => last = Some(io::ErrorKind::TimedOut.into()),
            }
        }
        Err(last.map_or(UpstreamError::NoServer, UpstreamError::Silent))
    }
}

/// By UDP, and by TCP when that is too short. Each question has a port of its own, so that a forged
/// reply has to guess the port as well.
async fn ask_one(server: SocketAddr, query: &Message) -> io::Result<Message> {
    let packet = query.to_vec().map_err(io::Error::other)?;
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(&packet).await?;
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let length = socket.recv(&mut buffer).await?;
        match Message::from_vec(&buffer[..length]) {
            Ok(message) if answers(&message, query) => {
                return if message.metadata.truncation { ask_by_tcp(server, query, &packet).await } else { Ok(message) };
            }
            // Not ours, or forged: the true one may still come.
            _ => {}
        }
    }
}

async fn ask_by_tcp(server: SocketAddr, query: &Message, packet: &[u8]) -> io::Result<Message> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(packet.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), packet].concat()).await?;
    let mut buffer = vec![0; stream.read_u16().await?.into()];
    stream.read_exact(&mut buffer).await?;
    let message = Message::from_vec(&buffer).map_err(io::Error::other)?;
    if answers(&message, query) { Ok(message) } else { Err(io::Error::other("the reply is to another question")) }
}

fn answers(message: &Message, query: &Message) -> bool {
    message.metadata.message_type == MessageType::Response && message.metadata.id == query.metadata.id && message.queries == query.queries
}
