//! Pods made in tenants against pods made on the host itself, in one run: how long until the host has
//! them, until their maker sees them Ready, and what each one costs.
//!
//! `cargo bench --bench pods` runs everything; `-- --only burst,paced` a part.

mod support;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use sublet_api::marks;
use sublet_e2e::Cluster;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{NAMESPACES, PODS};
use sublet_runtime::{Client, ListOptions};
use support::load::{self, Pace, Times};
use support::objects;
use support::process::{Sublet, settle};
use support::seen::{Seen, What};
use support::table::{self, number, ratio};
use support::tenants::{self, Tenant};
use tokio::time::Instant;

const PATIENCE: Duration = Duration::from_secs(600);
/// Namespaces on the host that take part in the comparison.
const DIRECT: &str = "direct";

#[derive(Parser)]
struct Arguments {
    /// What to run
    #[arg(long, value_enum, value_delimiter = ',', default_value = "burst,paced,many,fair")]
    only: Vec<Part>,
    /// Pods of the burst in one tenant
    #[arg(long, default_value_t = 500)]
    burst: usize,
    /// Pods a second, and how many, when paced
    #[arg(long, default_value_t = 10.0)]
    rate: f64,
    #[arg(long, default_value_t = 200)]
    paced: usize,
    /// Tenants that share the pods of `many`
    #[arg(long, default_value_t = 100)]
    tenants: usize,
    /// Pods over all tenants
    #[arg(long, value_delimiter = ',', default_value = "1250,10000")]
    many: Vec<usize>,
    /// Pods a second over all tenants; 0 is as fast as it goes
    #[arg(long, default_value_t = 0.0)]
    many_rate: f64,
    /// Requests under way at once
    #[arg(long, default_value_t = 16)]
    clients: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Burst,
    Paced,
    Many,
    Fair,
}

fn main() -> Result<()> {
    support::run(bench(support::arguments()))
}

async fn bench(arguments: Arguments) -> Result<()> {
    let burst = Pace { clients: arguments.clients, rate: 0.0 };
    if arguments.only.contains(&Part::Burst) {
        compare(&format!("Burst of {} pods, one tenant", arguments.burst), 1, arguments.burst, burst).await?;
    }
    if arguments.only.contains(&Part::Paced) {
        let pace = Pace { rate: arguments.rate, ..burst };
        compare(&format!("{} pods at {} a second, one tenant", arguments.paced, arguments.rate), 1, arguments.paced, pace).await?;
    }
    if arguments.only.contains(&Part::Many) {
        for count in &arguments.many {
            let pace = Pace { rate: arguments.many_rate, ..burst };
            compare(&format!("{count} pods, {} tenants", arguments.tenants), arguments.tenants, *count, pace).await?;
        }
    }
    if arguments.only.contains(&Part::Fair) {
        fairness(burst).await?;
    }
    Ok(())
}

/// One run of one way.
struct Measured {
    took: Duration,
    created: Times,
    on_host: Times,
    ready: Times,
    /// From Ready on the host to Ready for its maker.
    status_back: Times,
    cpu_ms_per_pod: f64,
    kib_per_pod: f64,
}

/// Where a pod is made.
struct Place {
    client: Client,
    namespace: String,
    /// Of the tenant; empty on the host itself.
    tenant: String,
}

/// Each way in a process of its own, so that neither has the other's memory or warmth.
async fn compare(title: &str, tenants: usize, count: usize, pace: Pace) -> Result<()> {
    let stage = Stage::new(count).await?;
    let places = stage.on_host(tenants).await?;
    settle(&stage.process, 60).await?;
    let direct = stage.measure(&places, "p", count, pace).await?;
    stage.process.stop().await?;
    let stage = Stage::new(count).await?;
    let places = stage.in_tenants(tenants).await?;
    settle(&stage.process, 60).await?;
    let through = stage.measure(&places, "p", count, pace).await?;
    stage.process.stop().await?;
    report(title, count, &direct, &through);
    Ok(())
}

/// A process under load.
struct Stage {
    process: Sublet,
    host: Cluster,
    _dir: tempfile::TempDir,
}

impl Stage {
    async fn new(pods: usize) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let process = Sublet::dev(dir.path(), 2 + pods / 400).await?;
        let host = process.cluster().await?;
        Ok(Self { process, host, _dir: dir })
    }

    async fn on_host(&self, namespaces: usize) -> Result<Vec<Place>> {
        let mut places = Vec::new();
        for i in 0..namespaces {
            let namespace = format!("{DIRECT}-{i}");
            self.host.create(&NAMESPACES, &objects::namespace(&namespace)).await?;
            tenants::wait_for_account(&self.host, &namespace).await?;
            places.push(Place { client: (*self.host).clone(), namespace, tenant: String::new() });
        }
        Ok(places)
    }

    async fn in_tenants(&self, count: usize) -> Result<Vec<Place>> {
        let made = tenants::create(&self.host, 0, count, 4).await?;
        for tenant in &made {
            tenants::wait_for_account(&tenant.cluster, "default").await?;
        }
        Ok(made
            .into_iter()
            .map(|Tenant { name, cluster, .. }| Place { client: (*cluster).clone(), namespace: "default".into(), tenant: name })
            .collect())
    }

    /// Makes pods round robin over the places and follows them until all are Ready.
    async fn measure(&self, places: &[Place], prefix: &str, count: usize, pace: Pace) -> Result<Measured> {
        let (on_host, by_maker) = (Seen::default(), Seen::default());
        let uids = self.tenants_by_uid().await?;
        let ours = |key: Option<String>, prefix: &str| key.filter(|k| k.split('/').nth(1).is_some_and(|name| name.starts_with(prefix)));
        let mut watches = Vec::new();
        let of_host = prefix.to_string();
        watches.push(on_host.follow(&self.host, "", move |pod| ours(host_key(pod, &uids), &of_host)).await?);
        for place in places {
            let (tenant, of_place) = (place.tenant.clone(), prefix.to_string());
            let key = move |pod: &Value| ours(Some(maker_key(&tenant, pod)), &of_place);
            watches.push(by_maker.follow(&place.client, &place.namespace, key).await?);
        }
        let before = self.process.usage()?;
        let begin = Instant::now();
        let sent = load::run(count, pace, |i| make(&places[i % places.len()], format!("{prefix}-{i}"))).await?;
        let seen = by_maker.wait(What::Ready, count, PATIENCE).await;
        let took = begin.elapsed();
        ensure!(seen == count, "{seen} of {count} pods became Ready");
        settle(&self.process, 60).await?;
        let after = self.process.usage()?;
        drop(watches);
        let since = |seen: &Seen, what: What| {
            let times = sent.iter().filter_map(|(at, (key, _))| Some(seen.at(what, key)?.saturating_duration_since(*at)));
            Times::new(times.map(ms).collect())
        };
        let back = sent
            .iter()
            .filter_map(|(_, (key, _))| Some(ms(by_maker.at(What::Ready, key)?.saturating_duration_since(on_host.at(What::Ready, key)?))));
        Ok(Measured {
            took,
            created: Times::new(sent.iter().map(|(_, (_, took))| ms(*took)).collect()),
            on_host: since(&on_host, What::Added),
            ready: since(&by_maker, What::Ready),
            status_back: Times::new(back.collect()),
            cpu_ms_per_pod: (after.cpu_ms - before.cpu_ms) / count as f64,
            kib_per_pod: (after.memory_kib - before.memory_kib) / count as f64,
        })
    }

    /// Names of tenants by the UID that marks their copies.
    async fn tenants_by_uid(&self) -> Result<HashMap<String, String>> {
        let all = self.host.list(&sublet_runtime::resources::VIRTUAL_CLUSTERS, "", &ListOptions::default()).await?;
        Ok(all.items.iter().map(|vc| (vc.uid().to_string(), vc.name().to_string())).collect())
    }
}

/// Makes a pod; its key, and how long the answer took.
async fn make(place: &Place, name: String) -> Result<(String, Duration)> {
    let sent = Instant::now();
    let pod = place.client.create(&PODS, &objects::pod(&place.namespace, &name)).await?;
    Ok((maker_key(&place.tenant, &pod), sent.elapsed()))
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// How a pod is known to whoever made it.
fn maker_key(tenant: &str, pod: &Value) -> String {
    let place = if tenant.is_empty() { pod.namespace() } else { tenant };
    format!("{place}/{}", pod.name())
}

/// The same of a pod on the host, by what is written on copies.
fn host_key(pod: &Value, uids: &HashMap<String, String>) -> Option<String> {
    match pod.label(marks::VIRTUAL_CLUSTER_UID) {
        Some(uid) => Some(format!("{}/{}", uids.get(uid)?, pod.annotation(marks::NAME)?)),
        None => Some(maker_key("", pod)),
    }
}

fn report(title: &str, count: usize, direct: &Measured, through: &Measured) {
    let row = |name: &str, of: &dyn Fn(&Measured) -> f64| {
        let (d, t) = (of(direct), of(through));
        vec![name.to_string(), number(d), number(t), ratio(t, d), number(t - d)]
    };
    let rate = |m: &Measured| count as f64 / m.took.as_secs_f64();
    table::print(
        title,
        &["", "direct", "through the tenant", "ratio", "more"],
        &[
            row("pods Ready a second", &rate),
            row("create answered, p50 ms", &|m| m.created.at(0.5)),
            row("create answered, p99 ms", &|m| m.created.at(0.99)),
            row("seen on the host, p50 ms", &|m| m.on_host.at(0.5)),
            row("seen on the host, p99 ms", &|m| m.on_host.at(0.99)),
            row("seen Ready by its maker, p50 ms", &|m| m.ready.at(0.5)),
            row("seen Ready by its maker, p99 ms", &|m| m.ready.at(0.99)),
            row("Ready on the host to Ready for the maker, p50 ms", &|m| m.status_back.at(0.5)),
            row("Ready on the host to Ready for the maker, p99 ms", &|m| m.status_back.at(0.99)),
            row("CPU ms per pod, all of the process", &|m| m.cpu_ms_per_pod),
            row("KiB per pod, all of the process", &|m| m.kib_per_pod),
        ],
    );
}

/// Ten tenants that make as many pods as they can beside forty that make a few.
async fn fairness(pace: Pace) -> Result<()> {
    const GREEDY: usize = 10;
    const GREEDY_PODS: usize = 900;
    const REGULAR: usize = 40;
    const REGULAR_PODS: usize = 10;
    const REGULAR_RATE: f64 = 20.0;
    let stage = Stage::new(GREEDY * GREEDY_PODS + 2 * REGULAR * REGULAR_PODS).await?;
    let mut places = stage.in_tenants(GREEDY + REGULAR).await?;
    let regular = places.split_off(GREEDY);
    settle(&stage.process, 60).await?;
    let few = Pace { rate: REGULAR_RATE, ..pace };
    let alone = stage.measure(&regular, "alone", REGULAR * REGULAR_PODS, few).await?;
    let greedy: Arc<[Place]> = places.into();
    let begin = Instant::now();
    let burst = tokio::spawn({
        let greedy = greedy.clone();
        async move {
            let all = Pace { clients: GREEDY * pace.clients, rate: 0.0 };
            let made = load::run(GREEDY * GREEDY_PODS, all, |i| make(&greedy[i % GREEDY], format!("greedy-{i}"))).await;
            made.map(|_| begin.elapsed())
        }
    });
    let beside = stage.measure(&regular, "beside", REGULAR * REGULAR_PODS, few).await?;
    let burst = burst.await??;
    let row = |name: &str, of: &dyn Fn(&Measured) -> f64| {
        let (a, b) = (of(&alone), of(&beside));
        vec![name.to_string(), number(a), number(b), ratio(b, a)]
    };
    table::print(
        &format!(
            "{REGULAR} tenants with {REGULAR_PODS} pods each at {REGULAR_RATE} a second, beside {GREEDY} tenants with {GREEDY_PODS} pods as \
             fast as they go (made in {:.1} s)",
            burst.as_secs_f64()
        ),
        &["regular tenants", "alone", "beside", "ratio"],
        &[
            row("create answered, mean ms", &|m| m.created.mean()),
            row("seen on the host, mean ms", &|m| m.on_host.mean()),
            row("seen on the host, p99 ms", &|m| m.on_host.at(0.99)),
            row("seen Ready by its maker, mean ms", &|m| m.ready.mean()),
            row("seen Ready by its maker, p99 ms", &|m| m.ready.at(0.99)),
        ],
    );
    Ok(())
}
