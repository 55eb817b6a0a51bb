//! The server over UDP and TCP, with another server behind it for other names.

#![expect(clippy::unwrap_used, reason = "a test may panic: that is how it fails")]

#[path = "support/mod.rs"]
mod support;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use sublet_dns::proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use sublet_dns::proto::rr::rdata::{A, PTR};
use sublet_dns::proto::rr::{Name, RData, Record, RecordType};
use sublet_dns::{DnsServer, ServerConfig, Sockets, Upstream, Zone, ZoneConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn query(text: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::new(4711, MessageType::Query, OpCode::Query);
    message.add_query(Query::query(name(text), kind));
    message.metadata.recursion_desired = true;
    message.to_vec().unwrap()
}

async fn by_udp(server: SocketAddr, text: &str, kind: RecordType) -> Message {
    let socket = UdpSocket::bind((LOCALHOST, 0)).await.unwrap();
    socket.send_to(&query(text, kind), server).await.unwrap();
    let mut buffer = vec![0; 4096];
    let length = socket.recv(&mut buffer).await.unwrap();
    Message::from_vec(&buffer[..length]).unwrap()
}

async fn by_tcp(server: SocketAddr, text: &str, kind: RecordType) -> Message {
    let mut stream = TcpStream::connect(server).await.unwrap();
    let packet = query(text, kind);
    stream.write_u16(packet.len().try_into().unwrap()).await.unwrap();
    stream.write_all(&packet).await.unwrap();
    let mut buffer = vec![0; stream.read_u16().await.unwrap().into()];
    stream.read_exact(&mut buffer).await.unwrap();
    Message::from_vec(&buffer).unwrap()
}

/// The host's server: `www.example.org` by TCP only, names of the host's cluster for all addresses.
struct Host {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

fn host_reply(packet: &[u8], truncated: bool) -> Vec<u8> {
    let mut message = Message::from_vec(packet).unwrap().into_response();
    let asked = message.queries[0].clone();
    message.metadata.truncation = truncated;
    let data = match asked.query_type() {
        RecordType::PTR => RData::PTR(PTR(name("web-x.tenant-b.svc.cluster.local."))),
        RecordType::A => RData::A(A::new(192, 0, 2, 80)),
        _ => return message.to_vec().unwrap(),
    };
    if !truncated {
        message.add_answer(Record::from_rdata(asked.name().clone(), 300, data));
    }
    message.to_vec().unwrap()
}

impl Host {
    async fn start() -> Self {
        let tcp = TcpListener::bind((LOCALHOST, 0)).await.unwrap();
        let address = tcp.local_addr().unwrap();
        let udp = UdpSocket::bind(address).await.unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        tokio::spawn(async move {
            let mut buffer = vec![0; 4096];
            loop {
                let (length, from) = udp.recv_from(&mut buffer).await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let is_long = buffer[..length].windows(3).any(|w| w == b"www");
                udp.send_to(&host_reply(&buffer[..length], is_long), from).await.unwrap();
            }
        });
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = tcp.accept().await.unwrap();
                let mut buffer = vec![0; stream.read_u16().await.unwrap().into()];
                stream.read_exact(&mut buffer).await.unwrap();
                let reply = host_reply(&buffer, false);
                stream.write_u16(reply.len().try_into().unwrap()).await.unwrap();
                stream.write_all(&reply).await.unwrap();
            }
        });
        Self { address, asked }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

async fn server(host: &Host) -> DnsServer {
    let config = ZoneConfig { domain: "cluster.local".into(), servers: vec![LOCALHOST] };
    let zone = Zone::new(&config, Arc::new(support::cluster("www.example.org"))).unwrap();
    let upstream = Some(Arc::new(Upstream::new(vec![host.address])));
    DnsServer::start(ServerConfig { zone, upstream }, Sockets::bind(LOCALHOST, None).await.unwrap()).unwrap()
}

fn data(message: &Message) -> Vec<String> {
    message.answers.iter().map(|r| r.data.to_string()).collect()
}

#[tokio::test]
async fn names_of_the_cluster_are_answered_and_never_asked_elsewhere() {
    let host = Host::start().await;
    let server = server(&host).await;
    for message in [
        by_udp(server.address(), "web.prod.svc.cluster.local.", RecordType::A).await,
        by_tcp(server.address(), "web.prod.svc.cluster.local.", RecordType::A).await,
    ] {
        assert_eq!((message.metadata.id, data(&message)), (4711, vec!["10.96.0.5".to_string()]));
        assert!(message.metadata.authoritative && message.metadata.recursion_available);
        assert_eq!(message.answers[0].ttl, 5);
    }
    let missing = by_udp(server.address(), "no.prod.svc.cluster.local.", RecordType::A).await;
    assert_eq!(missing.metadata.response_code, ResponseCode::NXDomain);
    assert_eq!(missing.authorities[0].record_type(), RecordType::SOA);
    let inner = by_udp(server.address(), "alias.prod.svc.cluster.local.", RecordType::AAAA).await;
    assert_eq!(data(&inner), ["db.prod.svc.cluster.local.", "fd00::1"]);
    assert_eq!(host.asked(), 0);
    server.stop().await;
}

#[tokio::test]
async fn other_names_come_from_the_host_and_are_remembered_for_a_while() {
    let host = Host::start().await;
    let server = server(&host).await;
    for asked in [1, 1] {
        let message = by_udp(server.address(), "www.example.org.", RecordType::A).await;
        assert_eq!(data(&message), ["192.0.2.80"]);
        assert!(message.answers[0].ttl <= 30 && !message.metadata.authoritative);
        assert_eq!(host.asked(), asked);
    }
    let alias = by_tcp(server.address(), "elsewhere.prod.svc.cluster.local.", RecordType::A).await;
    assert_eq!(data(&alias), ["www.example.org.", "192.0.2.80"]);
    server.stop().await;
}

/// Tenants must not learn the names that the host or other tenants have for addresses.
#[tokio::test]
async fn names_of_the_hosts_cluster_are_not_told() {
    let host = Host::start().await;
    let server = server(&host).await;
    let message = by_udp(server.address(), "77.0.96.10.in-addr.arpa.", RecordType::PTR).await;
    assert_eq!((message.metadata.response_code, data(&message).len()), (ResponseCode::NXDomain, 0));
    let own = by_udp(server.address(), "5.0.96.10.in-addr.arpa.", RecordType::PTR).await;
    assert_eq!(data(&own), ["web.prod.svc.cluster.local."]);
    server.stop().await;
}

/// A pod that is not ready resolves its own full name at start, as it does where kubelets write it into its
/// hosts file; others must not see it yet. Here the asker's address is that of the pod.
#[tokio::test]
async fn a_pod_knows_its_own_name_before_others_do() {
    let host = Host::start().await;
    let server = server(&host).await;
    let own = by_udp(server.address(), "db-2.db.prod.svc.cluster.local.", RecordType::A).await;
    assert_eq!(data(&own), ["10.244.0.3", "127.0.0.1"]);
    let other = by_tcp(server.address(), "db-3.db.prod.svc.cluster.local.", RecordType::A).await;
    assert_eq!(other.metadata.response_code, ResponseCode::NXDomain);
    server.stop().await;
}
