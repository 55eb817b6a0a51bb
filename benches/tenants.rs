//! What packed tenants cost: memory and CPU of one quiet process with the embedded host and 1, 100, 500
//! tenants, and how long a new one takes.
//!
//! `cargo bench --bench tenants -- --tenants 1,100,500`

mod support;

use anyhow::{Context as _, Result};
use clap::Parser;
use std::time::Duration;
use support::load::Times;
use support::process::{Sublet, Usage, idle_cpu, settle};
use support::table::{self, number};
use support::tenants;
use tokio::time::Instant;

#[derive(Parser)]
struct Arguments {
    /// Numbers of tenants, rising
    #[arg(long, value_delimiter = ',', default_value = "1,100,500")]
    tenants: Vec<usize>,
    /// Seconds over which idle CPU is measured
    #[arg(long, default_value_t = 30)]
    idle: u64,
    /// Tenants made one after the other, to see how long one takes
    #[arg(long, default_value_t = 10)]
    alone: usize,
    /// Do not start again at each number: quicker, and memory is as it grew
    #[arg(long)]
    no_restart: bool,
}

struct Measured {
    tenants: usize,
    grown: Usage,
    restarted: Usage,
    idle_ms: f64,
    restart: Duration,
}

fn main() -> Result<()> {
    support::run(bench(support::arguments()))
}

async fn bench(arguments: Arguments) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut process = Sublet::dev(dir.path(), 2).await?;
    settle(&process, 30).await?;
    let mut all = vec![measure(&process, 0, Duration::ZERO, arguments.idle, process.usage()?).await?];
    let (mut answered, mut ready) = (Vec::new(), Vec::new());
    for count in arguments.tenants {
        let host = process.cluster().await?;
        let from = all.last().context("the first is there")?.tenants;
        let alone = arguments.alone.min(count - from);
        for tenant in tenants::create(&host, from, from + alone, 1).await? {
            answered.push(tenant.answered_in.as_secs_f64() * 1000.0);
            ready.push(tenant.ready_in.as_secs_f64() * 1000.0);
        }
        let begin = Instant::now();
        tenants::create(&host, from + alone, count, 4).await?;
        let made = count - from - alone;
        if made > 0 {
            println!("{made} more in {:.1} s, four at once", begin.elapsed().as_secs_f64());
        }
        settle(&process, 60).await?;
        let grown = process.usage()?;
        let mut restart = Duration::ZERO;
        if !arguments.no_restart {
            process.stop().await?;
            let begin = Instant::now();
            process = Sublet::dev(dir.path(), 2).await?;
            tenants::connect(&process.cluster().await?, &format!("t-{}", count - 1)).await?;
            restart = begin.elapsed();
            settle(&process, 60).await?;
        }
        all.push(measure(&process, count, restart, arguments.idle, grown).await?);
    }
    process.stop().await?;
    report(&all, &Times::new(answered), &Times::new(ready));
    Ok(())
}

async fn measure(process: &Sublet, tenants: usize, restart: Duration, idle: u64, grown: Usage) -> Result<Measured> {
    let idle_ms = idle_cpu(process, idle).await?;
    Ok(Measured { tenants, grown, restarted: process.usage()?, idle_ms, restart })
}

fn report(all: &[Measured], answered: &Times, ready: &Times) {
    let rows: Vec<Vec<String>> = all
        .iter()
        .enumerate()
        .map(|(at, now)| {
            let before = &all[at.saturating_sub(1)];
            let more = (now.tenants - before.tenants) as f64;
            let each = |f: fn(&Measured) -> f64| if more > 0.0 { number((f(now) - f(before)) / more) } else { "-".into() };
            vec![
                now.tenants.to_string(),
                number(now.restarted.memory_kib / 1024.0),
                each(|m| m.restarted.memory_kib),
                number(now.grown.memory_kib / 1024.0),
                each(|m| m.grown.memory_kib),
                number(now.idle_ms),
                each(|m| m.idle_ms),
                now.restarted.threads.to_string(),
                number(now.restart.as_secs_f64()),
            ]
        })
        .collect();
    table::print(
        "Idle, one process with the embedded host (PSS; after a restart, and as it grew)",
        &[
            "tenants",
            "MiB",
            "KiB per further tenant",
            "grown MiB",
            "KiB per further tenant",
            "CPU ms/s",
            "per further tenant",
            "threads",
            "restart to last tenant answers, s",
        ],
        &rows,
    );
    let times = |name: &str, t: &Times| vec![name.into(), t.len().to_string(), number(t.at(0.5)), number(t.at(1.0))];
    table::print(
        "From the creation of a VirtualCluster, one after the other",
        &["until", "of", "p50 ms", "max ms"],
        &[times("its API server answers", answered), times("Ready", ready)],
    );
}
