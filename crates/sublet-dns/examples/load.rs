//! Questions per second and core: `cargo run --release -p sublet-dns --example load`, or with
//! `ADDRESS PID NAME` against another server. The machine may be busy: what counts is the CPU time that
//! the server took for each question.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use sublet_dns::proto::op::{Message, MessageType, OpCode, Query};
use sublet_dns::proto::rr::{Name, RecordType};
use sublet_dns::{DnsServer, ServerConfig, Sockets, Zone, ZoneConfig};

#[path = "../tests/support/mod.rs"]
mod support;

const QUESTIONS: u64 = 200_000;
const UNDER_WAY: u64 = 16;
const LOST_AFTER: Duration = Duration::from_millis(500);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [address, pid, name] => {
            let address = address.parse().expect("ADDRESS:PORT");
            report(name, address, name, &format!("/proc/{pid}/stat"));
        }
        _ => {
            let (address, stat) = serve();
            for (what, name) in [
                ("a Service", "web.prod.svc.cluster.local."),
                ("a headless Service", "db.prod.svc.cluster.local."),
                ("no name", "nothing.prod.svc.cluster.local."),
            ] {
                report(what, address, name, &stat);
            }
        }
    }
}

/// A server on a thread of its own, and where its CPU time is told.
fn serve() -> (SocketAddr, String) {
    let (told, learnt) = mpsc::channel();
    std::thread::spawn(move || {
        let thread = std::fs::read_link("/proc/thread-self").expect("Linux");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
            let config = ZoneConfig { domain: "cluster.local".into(), servers: vec![localhost] };
            let zone = Zone::new(&config, Arc::new(support::cluster("www.example.org"))).expect("a zone");
            let sockets = Sockets::bind(localhost, None).await.expect("a port");
            let server = DnsServer::start(ServerConfig { zone, upstream: None }, sockets).expect("starts");
            told.send((server.address(), format!("/proc/{}/stat", thread.display()))).expect("is heard");
            std::future::pending::<()>().await;
        });
    });
    learnt.recv().expect("the server starts")
}

fn report(what: &str, address: SocketAddr, name: &str, stat: &str) {
    let before = cpu_ticks(stat);
    let started = Instant::now();
    let lost = ask(address, name);
    let wall = started.elapsed().as_secs_f64();
    // A tick is a hundredth of a second.
    let cpu = (cpu_ticks(stat) - before) as f64 / 100.0;
    let answered = (QUESTIONS - lost) as f64;
    println!(
        "{what}: {:.0} per second of CPU ({:.1} us each), {:.0}/s here, {lost} lost",
        answered / cpu,
        cpu / answered * 1e6,
        answered / wall
    );
}

/// User and system time of a process or thread.
fn cpu_ticks(stat: &str) -> u64 {
    let text = std::fs::read_to_string(stat).expect("the server runs");
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    [11, 12].into_iter().filter_map(|i| fields.get(i)?.parse::<u64>().ok()).sum()
}

/// Asks with some questions under way at once; how many got no reply.
fn ask(server: SocketAddr, name: &str) -> u64 {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
    socket.connect(server).expect("an address");
    socket.set_read_timeout(Some(LOST_AFTER)).expect("a timeout");
    let mut question = Message::new(0, MessageType::Query, OpCode::Query);
    question.add_query(Query::query(Name::from_ascii(name).expect("a name"), RecordType::A));
    let mut packet = question.to_vec().expect("a packet");
    let (mut sent, mut done, mut lost, mut buffer) = (0, 0, 0, [0; 1500]);
    while done < QUESTIONS {
        while sent - done < UNDER_WAY && sent < QUESTIONS {
            packet[..2].copy_from_slice(&(sent as u16).to_be_bytes());
            socket.send(&packet).expect("sends");
            sent += 1;
        }
        match socket.recv(&mut buffer) {
            Ok(_) => done += 1,
            Err(_) => {
                lost += sent - done;
                done = sent;
            }
        }
    }
    lost
}
