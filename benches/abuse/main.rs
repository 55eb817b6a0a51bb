//! What the neighbours notice when one tenant of a process floods its API server: their latency beside
//! what it is when nothing happens, what the process holds, and what the flood is answered.
//!
//! The flood's own client takes its part of the machine, so each flood is also sent to a process of its
//! own: what the neighbours notice then is the machine's affair, and not the product's.
//!
//! `cargo bench --bench abuse -- --only writes,lists`

mod floods;
mod probe;

#[path = "../support/mod.rs"]
mod support;

use anyhow::{Context as _, Result};
use clap::Parser;
use floods::{FLOODS, Flood, Site};
use probe::{Probe, Seen};
use std::sync::Arc;
use std::time::Duration;
use support::process::Sublet;
use support::table::{self, number, ratio};
use support::wire::Target;
use support::{load, tenants};

/// From the start of a flood until it is measured.
const WARM_UP: Duration = Duration::from_millis(500);
const SAMPLE: Duration = Duration::from_millis(50);
/// Objects that lists and watches are about.
const OBJECTS: usize = 2000;

#[derive(Parser)]
struct Arguments {
    /// Floods by their beginnings; all when none is named
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Tenants in the process
    #[arg(long, default_value_t = 4)]
    tenants: usize,
    /// Seconds that each flood is measured
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Leave out the flood of another process
    #[arg(long)]
    no_control: bool,
}

fn main() -> Result<()> {
    support::run(bench(support::arguments()))
}

/// A process, the site of its flood and its neighbours.
struct House {
    process: Sublet,
    site: Arc<Site>,
    neighbour: Target,
    _dir: tempfile::TempDir,
}

async fn bench(arguments: Arguments) -> Result<()> {
    let ours = house(arguments.tenants).await?;
    let other = if arguments.no_control { None } else { Some(house(1).await?) };
    let wanted = |f: &&Flood| arguments.only.is_empty() || arguments.only.iter().any(|o| f.name.starts_with(o.as_str()));
    let length = Duration::from_secs(arguments.seconds);
    let mut rows = Vec::new();
    let mut idle: Option<Seen> = None;
    for flood in FLOODS.iter().filter(|f| f.name == "nothing" || wanted(f)) {
        let (seen, memory) = measured(&ours, flood, &ours.site, length).await?;
        let control = match &other {
            Some(other) if flood.name != "nothing" => Some(measured(&ours, flood, &other.site, length).await?.0),
            _ => None,
        };
        let answers = ours.site.take_answers();
        let told: Vec<String> = answers.iter().map(|(what, count)| format!("{count} x {what}")).collect();
        let base = idle.as_ref().unwrap_or(&seen);
        let times = |all: fn(&Seen) -> &load::Times, at: f64| {
            let other = control.as_ref().map_or("-".into(), |c| ratio(all(&seen).at(at), all(c).at(at)));
            format!("{} / {other}", ratio(all(&seen).at(at), all(base).at(at)))
        };
        eprintln!("{}: {} MiB, {} failed; {}", flood.name, number(memory), seen.failed, told.join(", "));
        rows.push(vec![
            flood.name.into(),
            number(seen.reads.at(0.5)),
            times(|s| &s.reads, 0.5),
            times(|s| &s.reads, 0.99),
            number(seen.writes.at(0.5)),
            times(|s| &s.writes, 0.5),
            times(|s| &s.writes, 0.99),
            seen.failed.to_string(),
            number(memory),
            told.join(", "),
        ]);
        if idle.is_none() {
            idle = Some(seen);
        }
    }
    table::print(
        "A neighbour's times under a flood: times of idle / times of the same flood beside the process",
        &["flood", "read p50 ms", "p50", "p99", "write p50 ms", "p50", "p99", "failed", "MiB at most", "the flood was answered"],
        &rows,
    );
    ours.process.stop().await?;
    if let Some(other) = other {
        other.process.stop().await?;
    }
    Ok(())
}

/// The neighbour of one house under a flood of some site, and the most memory that the house had.
async fn measured(house: &House, flood: &Flood, site: &Arc<Site>, length: Duration) -> Result<(Seen, f64)> {
    let running = tokio::spawn((flood.run)(site.clone()));
    tokio::time::sleep(WARM_UP).await;
    let probe = Probe::start(&house.neighbour);
    let mut most: f64 = 0.0;
    let end = tokio::time::Instant::now() + length;
    while tokio::time::Instant::now() < end {
        most = most.max(house.process.usage()?.memory_kib / 1024.0);
        tokio::time::sleep(SAMPLE).await;
    }
    let seen = tokio::task::spawn_blocking(|| probe.stop()).await?.with_context(|| format!("the neighbour of {:?}", flood.name));
    running.abort();
    let _ = running.await;
    // What the flood left is not the next one's.
    support::process::settle(&house.process, 20).await?;
    Ok((seen?, most))
}

async fn house(count: usize) -> Result<House> {
    let dir = tempfile::tempdir()?;
    let process = Sublet::dev(dir.path(), 1).await?;
    let host = process.cluster().await?;
    let made = tenants::create(&host, 0, count.max(2), 2).await?;
    let kubeconfig = |at: usize| &made[at].cluster.kubeconfig;
    let site = Site::new(Target::new(kubeconfig(0), true)?, Target::new(kubeconfig(0), false)?);
    let neighbour = Target::new(kubeconfig(1), true)?;
    let greedy = &made[0].cluster;
    let make = |i: usize| async move {
        let object = support::objects::config_map("default", &format!("o-{i}"));
        Ok(greedy.create(&sublet_runtime::resources::CONFIG_MAPS, &object).await?)
    };
    load::run(OBJECTS, load::Pace { clients: 16, rate: 0.0 }, make).await?;
    for i in 0..64 {
        greedy.create(&sublet_runtime::resources::CONFIG_MAPS, &support::objects::config_map("default", &format!("large-{i}"))).await?;
    }
    Ok(House { process, site, neighbour, _dir: dir })
}
