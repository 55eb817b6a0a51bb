//! Processes and what they cost, as the kernel counts it.

use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use sublet_e2e::Cluster;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// `USER_HZ`: the kernel tells times of processes in this unit on every architecture it has.
const TICKS_PER_S: f64 = 100.0;
const START_MAX: Duration = Duration::from_secs(300);

/// A `sublet` process.
pub struct Sublet {
    child: Child,
    pub kubeconfig: PathBuf,
    /// From the start to the line that says it is ready.
    pub started_in: Duration,
}

impl Sublet {
    /// Starts the built binary; it is up when it prints the path of its kubeconfig.
    pub async fn start(arguments: &[&str]) -> Result<Self> {
        let begin = Instant::now();
        let mut command = Command::new(env!("CARGO_BIN_EXE_sublet"));
        command.args(arguments).args(["--v", "0"]).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().context("the binary does not start")?;
        let mut lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        let line = tokio::time::timeout(START_MAX, lines.next_line()).await.context("it is not up after minutes")??;
        let kubeconfig = PathBuf::from(line.context("it ended before it was up; run it by hand to see why")?);
        Ok(Self { child, kubeconfig, started_in: begin.elapsed() })
    }

    /// `sublet dev` with its state in `dir`.
    pub async fn dev(dir: &Path, nodes: usize) -> Result<Self> {
        Self::start(&["dev", "--dir", &dir.to_string_lossy(), "--nodes", &nodes.to_string()]).await
    }

    pub async fn cluster(&self) -> Result<Cluster> {
        Cluster::from_text(&tokio::fs::read_to_string(&self.kubeconfig).await?).await
    }

    pub fn pid(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    pub fn usage(&self) -> Result<Usage> {
        Usage::of(self.pid())
    }

    /// Asks it to end, and waits.
    pub async fn stop(mut self) -> Result<()> {
        // Without a signal call in the standard library, `kill` is the way to ask.
        Command::new("kill").arg(self.pid().to_string()).status().await?;
        self.child.wait().await?;
        Ok(())
    }
}

/// What a process used until now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub cpu_ms: f64,
    /// Its own memory and its share of what it shares.
    pub memory_kib: f64,
    pub threads: u64,
}

impl Usage {
    pub fn of(pid: u32) -> Result<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name in parentheses may hold anything; what follows it is numbers.
        let fields: Vec<&str> = stat[stat.rfind(')').context("no stat line")? + 2..].split(' ').collect();
        let number = |at: usize| fields[at].parse::<f64>().unwrap_or_default();
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let pss = rollup.lines().find_map(|l| l.strip_prefix("Pss:")).context("no Pss line")?;
        let memory_kib = pss.trim().trim_end_matches("kB").trim().parse()?;
        Ok(Self { cpu_ms: (number(11) + number(12)) * 1000.0 / TICKS_PER_S, memory_kib, threads: number(17) as u64 })
    }

    /// The sum over several processes.
    pub fn of_all(pids: &[u32]) -> Result<Self> {
        let mut sum = Self::default();
        for pid in pids {
            let one = Self::of(*pid)?;
            sum.cpu_ms += one.cpu_ms;
            sum.memory_kib += one.memory_kib;
            sum.threads += one.threads;
        }
        Ok(sum)
    }
}

/// CPU of a quiet process in milliseconds per second, over `seconds`.
pub async fn idle_cpu(process: &Sublet, seconds: u64) -> Result<f64> {
    let (before, begin) = (process.usage()?.cpu_ms, Instant::now());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    Ok((process.usage()?.cpu_ms - before) / begin.elapsed().as_secs_f64())
}

/// Waits until a process has been nearly idle for two seconds, at most `seconds`.
pub async fn settle(process: &Sublet, seconds: u64) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        if idle_cpu(process, 2).await? < 60.0 {
            return Ok(());
        }
    }
    Ok(())
}
