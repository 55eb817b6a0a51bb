//! One tenant's sockets: UDP and TCP on the same port.
//!
//! Names of the cluster are answered where the datagram is read; only names of others wait, each in a
//! task of a bounded set.

use crate::answer::{Answer, Outcome};
use crate::memory::{ClusterMemory, Known, OtherMemory, OwnMemory};
use crate::question::Question;
use crate::reply::{Reply, Request, Unreadable};
use crate::upstream::Upstream;
use crate::zone::Zone;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Name, RData, RecordType};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Names of others that one tenant may wait for at once.
const WAITING_MAX: usize = 64;
const CONNECTIONS_MAX: usize = 64;
const CONNECTION_IDLE: Duration = Duration::from_secs(10);
const QUESTION_BYTES_MAX: usize = 4096;
/// Datagrams that are answered before other tasks have their turn.
const DATAGRAMS_AT_ONCE: usize = 32;
const ALIASES_MAX: usize = 8;
/// What others say lives no longer than this, whatever they say.
const OTHER_TTL_MAX_S: u32 = 30;
/// Tries to find a port that is free for UDP and TCP.
const BIND_TRIES: usize = 16;
/// A socket that fails is not tried again at once.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

pub struct ServerConfig {
    pub zone: Zone,
    /// `None`: other names are refused.
    pub upstream: Option<Arc<Upstream>>,
}

/// A port for UDP and TCP.
pub struct Sockets {
    udp: UdpSocket,
    tcp: TcpListener,
}

impl Sockets {
    /// On the given port, or on a free one.
    pub async fn bind(address: IpAddr, port: Option<u16>) -> io::Result<Self> {
        let mut last = io::ErrorKind::AddrInUse.into();
        for _ in 0..if port.is_some() { 1 } else { BIND_TRIES } {
            let tcp = TcpListener::bind((address, port.unwrap_or(0))).await?;
            match UdpSocket::bind((address, tcp.local_addr()?.port())).await {
                Ok(udp) => return Ok(Self { udp, tcp }),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

/// A running name server. It ends when stopped.
pub struct DnsServer {
    address: SocketAddr,
    cancel: CancellationToken,
    tasks: JoinSet<()>,
}

impl DnsServer {
    pub fn start(config: ServerConfig, sockets: Sockets) -> io::Result<Self> {
        let address = sockets.address()?;
        let cancel = CancellationToken::new();
        let desk = Arc::new(Desk {
            zone: config.zone,
            upstream: config.upstream,
            cluster: Mutex::default(),
            others: Mutex::default(),
            own: Mutex::default(),
            waiting: Semaphore::new(WAITING_MAX),
            turn: AtomicUsize::new(0),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_udp(desk.clone(), Arc::new(sockets.udp), cancel.clone()));
        tasks.spawn(serve_tcp(desk, sockets.tcp, cancel.clone()));
        Ok(Self { address, cancel, tasks })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub async fn stop(mut self) {
        self.cancel.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Where questions of one tenant are answered.
struct Desk {
    zone: Zone,
    upstream: Option<Arc<Upstream>>,
    /// Guards remembered answers; held for map moves.
    cluster: Mutex<ClusterMemory>,
    /// As `cluster`, of other names.
    others: Mutex<OtherMemory>,
    /// As `cluster`, of pods that ask for themselves. Held while one pod is looked for.
    own: Mutex<OwnMemory>,
    waiting: Semaphore,
    turn: AtomicUsize,
}

/// What is known at once.
enum AtOnce {
    Reply(Arc<Reply>),
    /// Others must be asked for this name; the records so far lead to it.
    Ask(Question, Vec<hickory_proto::rr::Record>),
}

impl Desk {
    /// Answers what needs no waiting, following aliases within the cluster.
    fn at_once(&self, request: &Request, from: IpAddr) -> AtOnce {
        let mut question = request.question.clone();
        let mut so_far = Vec::new();
        for _ in 0..ALIASES_MAX {
            let Some(known) = self.of_cluster(&question) else {
                return match self.remembered(&question, request.dnssec_ok) {
                    Some(reply) => AtOnce::Reply(joined(so_far, reply)),
                    None => AtOnce::Ask(question, so_far),
                };
            };
            let Some(target) = known.follow else {
                let own = if known.reply.code == ResponseCode::NXDomain { self.own(&question, from) } else { None };
                return AtOnce::Reply(joined(so_far, own.unwrap_or(known.reply)));
            };
            so_far.extend(known.reply.answers.iter().cloned());
            question = Question::new(target, question.kind);
        }
        AtOnce::Reply(Arc::new(Reply::failure(ResponseCode::ServFail)))
    }

    /// `None`: the name is somebody else's.
    fn of_cluster(&self, question: &Question) -> Option<Known> {
        let revision = self.zone.world().revision();
        let key = (question.labels().join("."), question.kind, false);
        if let Some(known) = self.cluster.lock().expect("no holder panics").get(&key, revision) {
            return Some(known);
        }
        let Outcome::Cluster(mut answer) = self.zone.answer(question) else { return None };
        let follow = answer.follow.take();
        let is_of_pods = question.labels().iter().any(|l| l == "pod");
        let known = Known { reply: Arc::new(self.reply(answer)), follow };
        // Pods change far more often than what the others depend on, and are not counted in the revision.
        if !is_of_pods {
            self.cluster.lock().expect("no holder panics").keep(key, known.clone(), revision);
        }
        Some(known)
    }

    /// What a pod is told of itself, under a name that is nobody else's.
    fn own(&self, question: &Question, from: IpAddr) -> Option<Arc<Reply>> {
        let namespace = self.zone.may_be_own(question)?;
        let look = || self.zone.own_name(from, namespace);
        let own = self.own.lock().expect("no holder panics").get(from, namespace, Instant::now(), look)?;
        Some(Arc::new(self.reply(own.answer(question)?)))
    }

    fn reply(&self, answer: Answer) -> Reply {
        Reply::cluster(answer, || self.zone.authority())
    }

    fn remembered(&self, question: &Question, dnssec_ok: bool) -> Option<Arc<Reply>> {
        let key = (question.labels().join("."), question.kind, dnssec_ok);
        self.others.lock().expect("no holder panics").get(&key, Instant::now())
    }

    /// Asks others. What they do not say in time is a failure that the client may try again.
    async fn ask(&self, request: &Request, question: &Question, so_far: Vec<hickory_proto::rr::Record>) -> Arc<Reply> {
        let Some(upstream) = &self.upstream else { return Arc::new(Reply::failure(ResponseCode::Refused)) };
        let Ok(_slot) = self.waiting.try_acquire() else { return Arc::new(Reply::failure(ResponseCode::ServFail)) };
        match upstream.ask(question, request.dnssec_ok, request.checking_disabled()).await {
            Ok(message) => {
                let mut reply = Reply::forwarded(message, OTHER_TTL_MAX_S);
                if question.kind == RecordType::PTR {
                    self.hide_host_names(&mut reply);
                }
                let reply = Arc::new(reply);
                let key = (question.labels().join("."), question.kind, request.dnssec_ok);
                self.others.lock().expect("no holder panics").keep(key, reply.clone(), Instant::now());
                joined(so_far, reply)
            }
            Err(error) => {
                tracing::debug!(name = %question.name, %error, "no answer from the host's name servers");
                Arc::new(Reply::failure(ResponseCode::ServFail))
            }
        }
    }

    /// The host knows names of the cluster's domain for addresses of its own Services and of other
    /// tenants. In this cluster those names are not, and they are nobody's business here.
    fn hide_host_names(&self, reply: &mut Reply) {
        let is_hosts = |name: &Name| self.zone.holds(name);
        let before = reply.answers.len();
        reply.answers.retain(|r| !matches!(&r.data, RData::PTR(target) if is_hosts(&target.0)));
        if reply.answers.is_empty() && before > 0 {
            *reply = Reply { authorities: vec![self.zone.authority()], ..Reply::failure(ResponseCode::NXDomain) };
        }
    }

    fn turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// The whole way of a question that came by TCP.
    async fn answer(&self, packet: &[u8], from: IpAddr, bytes_max: usize) -> Option<Vec<u8>> {
        let request = match Request::read(packet) {
            Ok(request) => request,
            Err(Unreadable::Refused(reply)) => return Some(reply),
            Err(Unreadable::Ignored) => return None,
        };
        let reply = match self.at_once(&request, from) {
            AtOnce::Reply(reply) => reply,
            AtOnce::Ask(question, so_far) => self.ask(&request, &question, so_far).await,
        };
        request.encode(&reply, bytes_max, self.turn()).ok()
    }
}

/// Records that lead to the name that `reply` is about, and the reply.
fn joined(so_far: Vec<hickory_proto::rr::Record>, reply: Arc<Reply>) -> Arc<Reply> {
    if so_far.is_empty() {
        return reply;
    }
    let mut whole = (*reply).clone();
    whole.answers = so_far.into_iter().chain(whole.answers).collect();
    whole.is_authoritative = true;
    Arc::new(whole)
}

async fn serve_udp(desk: Arc<Desk>, socket: Arc<UdpSocket>, cancel: CancellationToken) {
    let mut waiting = JoinSet::new();
    loop {
        let ready = tokio::select! {
            ready = socket.readable() => ready,
            () = cancel.cancelled() => return,
        };
        let more = ready.and_then(|()| drain(&desk, &socket, &mut waiting));
        while waiting.try_join_next().is_some() {}
        match more {
            Ok(()) => tokio::task::yield_now().await,
            Err(error) => {
                tracing::warn!(%error, "a name server's socket failed; it is read again soon");
                tokio::time::sleep(ERROR_PAUSE).await;
            }
        }
    }
}

/// Reads what has come, and answers what can be answered. The buffer lives on the stack, so that an idle
/// tenant has none.
fn drain(desk: &Arc<Desk>, socket: &Arc<UdpSocket>, waiting: &mut JoinSet<()>) -> io::Result<()> {
    let mut buffer = [0; QUESTION_BYTES_MAX];
    for _ in 0..DATAGRAMS_AT_ONCE {
        let (length, from) = match socket.try_recv_from(&mut buffer) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            // A client that is gone, told by ICMP.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
            Err(error) => return Err(error),
        };
        let request = match Request::read(&buffer[..length]) {
            Ok(request) => request,
            Err(Unreadable::Refused(reply)) => {
                send(socket, &reply, from);
                continue;
            }
            Err(Unreadable::Ignored) => continue,
        };
        match desk.at_once(&request, from.ip()) {
            AtOnce::Reply(reply) => respond(desk, socket, &request, &reply, from),
            AtOnce::Ask(..) if waiting.len() >= WAITING_MAX => {
                respond(desk, socket, &request, &Reply::failure(ResponseCode::ServFail), from);
            }
            AtOnce::Ask(question, so_far) => {
                let (desk, socket) = (desk.clone(), socket.clone());
                waiting.spawn(async move {
                    let reply = desk.ask(&request, &question, so_far).await;
                    respond(&desk, &socket, &request, &reply, from);
                });
            }
        }
    }
    Ok(())
}

fn respond(desk: &Desk, socket: &UdpSocket, request: &Request, reply: &Reply, to: SocketAddr) {
    match request.encode(reply, request.udp_bytes(), desk.turn()) {
        Ok(packet) => send(socket, &packet, to),
        Err(error) => tracing::debug!(%error, "a reply cannot be written"),
    }
}

/// Clients ask again; a full socket buffer is no reason to wait.
fn send(socket: &UdpSocket, packet: &[u8], to: SocketAddr) {
    if let Err(error) = socket.try_send_to(packet, to) {
        tracing::debug!(%error, "a reply was not sent");
    }
}

async fn serve_tcp(desk: Arc<Desk>, listener: TcpListener, cancel: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => accepted,
            Some(_) = connections.join_next() => continue,
            () = cancel.cancelled() => return,
        };
        match stream {
            Ok((stream, from)) => _ = connections.spawn(connection(desk.clone(), stream, from.ip())),
            Err(error) => {
                tracing::debug!(%error, "a connection was not accepted");
                tokio::time::sleep(ERROR_PAUSE).await;
            }
        }
    }
}

async fn connection(desk: Arc<Desk>, mut stream: TcpStream, from: IpAddr) {
    loop {
        let next = tokio::time::timeout(CONNECTION_IDLE, read_question(&mut stream)).await;
        let Ok(Ok(packet)) = next else { return };
        let Some(reply) = desk.answer(&packet, from, u16::MAX.into()).await else { return };
        let Ok(length) = u16::try_from(reply.len()) else { return };
        let sent = tokio::time::timeout(CONNECTION_IDLE, stream.write_all(&[&length.to_be_bytes(), &*reply].concat())).await;
        if !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}

async fn read_question(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = usize::from(stream.read_u16().await?);
    if length > QUESTION_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut packet = vec![0; length];
    stream.read_exact(&mut packet).await?;
    Ok(packet)
}
