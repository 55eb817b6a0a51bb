//! Questions to a tenant's name server: how many a second, and what each costs; beside CoreDNS, which reads
//! the same Services from the same API server, when there is one.
//!
//! `cargo bench --bench dns -- --services 1000 --coredns PATH`

mod support;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use sublet_runtime::resources::SERVICES;
use support::load::{self, Pace};
use support::process::{Sublet, Usage};
use support::table::{self, number};
use support::tenants;
use tokio::net::UdpSocket;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// An answer that takes longer is lost.
const ANSWER_MAX: Duration = Duration::from_secs(2);
const START_MAX: Duration = Duration::from_secs(60);

#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value_t = 1000)]
    services: usize,
    /// Sockets that ask, one question at a time each
    #[arg(long, default_value_t = 16)]
    clients: usize,
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// The program to compare with
    #[arg(long)]
    coredns: Option<PathBuf>,
}

struct Measured {
    server: &'static str,
    per_second: f64,
    lost: u64,
    cpu_us: f64,
    memory_kib: f64,
}

fn main() -> Result<()> {
    support::run(bench(support::arguments()))
}

async fn bench(arguments: Arguments) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let process = Sublet::dev(dir.path(), 2).await?;
    let host = process.cluster().await?;
    let tenant = tenants::create(&host, 0, 1, 1).await?.remove(0);
    load::run(arguments.services, Pace { clients: 8, rate: 0.0 }, |i| {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("s-{i}"), "namespace": "default"},
            "spec": {"ports": [{"name": "http", "port": 80}]},
        });
        let cluster = &tenant.cluster;
        async move { Ok(cluster.create(&SERVICES, &service).await?) }
    })
    .await?;

    let port = name_server(process.pid())?;
    let mut all = vec![measure("Sublet", process.pid(), (Ipv4Addr::LOCALHOST, port).into(), &arguments).await?];
    if let Some(program) = &arguments.coredns {
        let (child, address) = coredns(program, dir.path(), &tenant.cluster.kubeconfig).await?;
        let pid = child.id().context("CoreDNS ended")?;
        all.push(measure("CoreDNS", pid, address, &arguments).await?);
    }
    process.stop().await?;
    report(&all, &arguments);
    Ok(())
}

/// The UDP port that the process has: that of its tenant's name server.
fn name_server(pid: u32) -> Result<u16> {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd"))?.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let sockets: Vec<String> =
        links.filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_string())).collect();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/udp"))?;
    // Number, local address with its port in hexadecimal digits, ..., and tenth the inode.
    let own = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>()).find(|row| sockets.iter().any(|s| s == row[9]));
    let port = own.and_then(|row| u16::from_str_radix(row[1].split_once(':')?.1, 16).ok());
    port.context("the process has no name server")
}

/// CoreDNS as clusters have it, for the tenant's names.
async fn coredns(program: &Path, dir: &Path, kubeconfig: &str) -> Result<(Child, SocketAddr)> {
    let file = dir.join("coredns.kubeconfig");
    tokio::fs::write(&file, kubeconfig).await?;
    let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?.port();
    let corefile = dir.join("Corefile");
    let text = format!(
        ".:{port} {{\n  bind 127.0.0.1\n  kubernetes cluster.local {{\n    kubeconfig {}\n  }}\n  cache 30\n  loadbalance\n}}\n",
        file.display()
    );
    tokio::fs::write(&corefile, text).await?;
    let mut command = Command::new(program);
    command.arg("-conf").arg(&corefile).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let child = command.spawn().with_context(|| format!("{} does not start", program.display()))?;
    Ok((child, (Ipv4Addr::LOCALHOST, port).into()))
}

async fn measure(server: &'static str, pid: u32, address: SocketAddr, arguments: &Arguments) -> Result<Measured> {
    wait_for_answers(address, arguments.services).await.with_context(|| format!("{server} does not answer"))?;
    let (before, begin) = (Usage::of(pid)?, Instant::now());
    let until = begin + Duration::from_secs(arguments.seconds);
    let mut clients = JoinSet::new();
    for client in 0..arguments.clients {
        clients.spawn(ask_until(address, client, arguments.services, until));
    }
    let (mut answered, mut lost) = (0, 0);
    while let Some(result) = clients.join_next().await {
        let (a, l) = result??;
        answered += a;
        lost += l;
    }
    let after = Usage::of(pid)?;
    ensure!(answered > 0, "{server} gave no answer");
    Ok(Measured {
        server,
        per_second: answered as f64 / begin.elapsed().as_secs_f64(),
        lost,
        cpu_us: (after.cpu_ms - before.cpu_ms) * 1000.0 / answered as f64,
        memory_kib: after.memory_kib,
    })
}

async fn wait_for_answers(address: SocketAddr, services: usize) -> Result<()> {
    let socket = connect(address).await?;
    let end = Instant::now() + START_MAX;
    let mut buffer = [0; 512];
    loop {
        let _ = socket.send(&question(1, services - 1)).await;
        if let Ok(Ok(length)) = tokio::time::timeout(ANSWER_MAX, socket.recv(&mut buffer)).await
            && has_answer(&buffer[..length])
        {
            return Ok(());
        }
        ensure!(Instant::now() < end, "no answer for the last Service");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// One question after the other; how many were answered, and how many were not.
async fn ask_until(address: SocketAddr, client: usize, services: usize, until: Instant) -> Result<(u64, u64)> {
    let socket = connect(address).await?;
    let (mut answered, mut lost) = (0, 0);
    let mut buffer = [0; 512];
    let mut at = client * 7919;
    while Instant::now() < until {
        at = at.wrapping_mul(1_103_515_245).wrapping_add(12345);
        let id = (at >> 8) as u16;
        socket.send(&question(id, (at >> 16) % services)).await?;
        match tokio::time::timeout(ANSWER_MAX, socket.recv(&mut buffer)).await {
            Ok(Ok(length)) if buffer[..2] == id.to_be_bytes() && has_answer(&buffer[..length]) => answered += 1,
            _ => lost += 1,
        }
    }
    Ok((answered, lost))
}

async fn connect(address: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    socket.connect(address).await?;
    Ok(socket)
}

/// The address of a Service, asked for in full.
fn question(id: u16, service: usize) -> Vec<u8> {
    // Recursion is desired; one question.
    let mut message = [id.to_be_bytes().as_slice(), &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
    for label in [format!("s-{service}").as_str(), "default", "svc", "cluster", "local"] {
        message.push(label.len() as u8);
        message.extend(label.as_bytes());
    }
    // The end of the name, type A, class IN.
    message.extend([0, 0, 1, 0, 1]);
    message
}

/// No error, and at least one record.
fn has_answer(message: &[u8]) -> bool {
    message.len() > 12 && message[3] & 0x0f == 0 && message[6..8] != [0, 0]
}

fn report(all: &[Measured], arguments: &Arguments) {
    let row =
        |m: &Measured| vec![m.server.into(), number(m.per_second), number(m.cpu_us), m.lost.to_string(), number(m.memory_kib / 1024.0)];
    let title = format!(
        "{} Services, {} clients, answers from memory; Sublet's process is host, operator and tenant as well",
        arguments.services, arguments.clients
    );
    table::print(&title, &["server", "answers a second", "CPU us each", "lost", "MiB"], &all.iter().map(row).collect::<Vec<_>>());
    if let [ours, theirs] = all {
        println!("\n{} times less CPU for an answer", number(theirs.cpu_us / ours.cpu_us));
    }
}
