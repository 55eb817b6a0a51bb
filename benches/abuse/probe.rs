//! A neighbour who goes about its business, and how long it takes: on a thread and connections of its own.

use crate::support::load::Times;
use crate::support::wire::{Http1, Target};
use anyhow::{Context as _, Result};
use bytes::Bytes;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(8);

/// What the neighbour did, each in milliseconds.
#[derive(Default)]
pub struct Seen {
    pub reads: Times,
    pub writes: Times,
    pub failed: usize,
}

/// A probe at work.
pub struct Probe {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Seen>>,
}

impl Probe {
    /// Reads and writes by turns until it is stopped.
    pub fn start(target: &Target) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (target, stopped) = (target.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(run(&target, &stopped))
        });
        Self { stop, thread }
    }

    pub fn stop(self) -> Result<Seen> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().ok().context("the probe panicked")?
    }
}

async fn run(target: &Target, stop: &AtomicBool) -> Result<Seen> {
    let mut connection = target.http1().await?;
    let (mut reads, mut writes, mut failed) = (Vec::new(), Vec::new(), 0);
    let path = "/api/v1/namespaces/default/configmaps/probe";
    let content = [("content-type", "application/merge-patch+json")];
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}}).to_string();
    connection.send("POST", "/api/v1/namespaces/default/configmaps", &[("content-type", "application/json")], Bytes::from(object)).await?;
    let mut at = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        at += 1;
        let patch = json!({"data": {"at": at.to_string()}}).to_string();
        let read = timed(&mut connection, "GET", path, &[], Bytes::new()).await;
        let write = timed(&mut connection, "PATCH", path, &content, Bytes::from(patch)).await;
        for (times, took) in [(&mut reads, read), (&mut writes, write)] {
            match took {
                Ok(ms) => times.push(ms),
                Err(_) => failed += 1,
            }
        }
        if failed > 0 {
            connection = target.http1().await?;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(Seen { reads: Times::new(reads), writes: Times::new(writes), failed })
}

async fn timed(connection: &mut Http1, method: &str, path: &str, headers: &[(&str, &str)], body: Bytes) -> Result<f64> {
    let begin = Instant::now();
    let answer = connection.send(method, path, headers, body).await?;
    anyhow::ensure!(answer.status == 200, "{}", answer.status);
    Ok(begin.elapsed().as_secs_f64() * 1000.0)
}
