//! The operator stops and starts again under many tenants and pods: how long until every syncer has seen
//! both sides and has nothing left to do, what it wrote, and what a patrol over everything costs.
//!
//! `cargo bench --bench restart -- --tenants 100 --pods 10000`

mod support;

use anyhow::{Result, ensure};
use clap::Parser;
use std::time::Duration;
use sublet::compose::host::{EmbeddedHost, EmbeddedHostSpec, Operator};
use sublet::compose::name_server::host_resolver;
use sublet::compose::packed::PackedConfig;
use sublet::compose::streams::Remote;
use sublet::compose::tenant_reach;
use sublet_e2e::{Cluster, eventually};
use sublet_host::HostConfig;
use sublet_machinery::ObjectExt;
use sublet_pki::{Credential, Kubeconfig};
use sublet_runtime::ListOptions;
use sublet_runtime::resources::PODS;
use sublet_storage::Journal;
use support::load::{self, Pace};
use support::process::Usage;
use support::table::{self, number};
use support::{objects, tenants};
use tokio::time::Instant;

const PATIENCE_S: u64 = 900;

#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value_t = 100)]
    tenants: usize,
    /// Over all tenants
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
}

fn main() -> Result<()> {
    support::run(bench(support::arguments()))
}

async fn bench(arguments: Arguments) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let listen = [127, 0, 0, 1].into();
    let service_cidr = "10.96.0.0/16".parse()?;
    let journal = Journal::of(dir.path());
    let host = EmbeddedHost::start(EmbeddedHostSpec {
        dir: &dir.path().join("host"),
        journal: journal.clone(),
        listen,
        service_cidr,
        host: HostConfig { nodes: 2 + arguments.pods / 400, ..HostConfig::default() },
    })
    .await?;
    let cluster = Cluster::from_text(&kubeconfig(&host)).await?;
    let file = kube::config::Kubeconfig::from_yaml(&kubeconfig(&host))?;
    let streams = Remote::of_host(&kube::Config::from_custom_kubeconfig(file, &Default::default()).await?)?;
    let start = || async {
        let config = PackedConfig {
            dir: dir.path().join("tenants"),
            journal: journal.clone(),
            listen,
            service_cidr,
            pods_reach: tenant_reach(listen, None),
            streams: streams.clone(),
            resolver: host_resolver(),
            pods_resolve: true,
        };
        Operator::start(host.api.client("sublet"), config, "").await
    };
    let operator = start().await?;
    fill(&cluster, &arguments).await?;
    quiet(&operator, arguments.tenants).await?;
    operator.stop().await;

    let revision = host.api.server.store().revision();
    let (cpu, begin) = (Usage::of(std::process::id())?.cpu_ms, Instant::now());
    let operator = start().await?;
    quiet(&operator, arguments.tenants).await?;
    let took = begin.elapsed();
    let cpu = Usage::of(std::process::id())?.cpu_ms - cpu;
    let revisions = host.api.server.store().revision() - revision;
    let mut writes = [0; 3];
    let syncers = operator.packed().syncers().await;
    for stats in syncers.iter().map(sublet_syncer::Syncer::stats) {
        writes[0] += stats.host_writes + stats.host_deletes;
        writes[1] += stats.tenant_writes + stats.tenant_deletes;
        writes[2] += stats.failures + stats.refusals;
    }
    let (patrol_cpu, begin) = (Usage::of(std::process::id())?.cpu_ms, Instant::now());
    let mut found = 0;
    for syncer in &syncers {
        found += syncer.patrol().await.len();
    }
    let patrol = begin.elapsed();
    let patrol_cpu = Usage::of(std::process::id())?.cpu_ms - patrol_cpu;
    operator.stop().await;
    host.stop().await;
    table::print(
        &format!("The operator starts again: {} tenants, {} pods", arguments.tenants, arguments.pods),
        &["", "measured"],
        &[
            vec!["to converged, s".into(), number(took.as_secs_f64())],
            vec!["CPU of it, s".into(), number(cpu / 1000.0)],
            vec!["writes of the syncers to the host".into(), writes[0].to_string()],
            vec!["writes of the syncers to tenants".into(), writes[1].to_string()],
            vec!["failures and refusals".into(), writes[2].to_string()],
            vec!["revisions of the host meanwhile (leases of nodes among them)".into(), revisions.to_string()],
            vec!["patrol of everything, ms".into(), number(patrol.as_secs_f64() * 1000.0)],
            vec!["CPU of it, ms".into(), number(patrol_cpu)],
            vec!["found out of step by it".into(), found.to_string()],
        ],
    );
    Ok(())
}

async fn fill(host: &Cluster, arguments: &Arguments) -> Result<()> {
    let made = tenants::create(host, 0, arguments.tenants, 4).await?;
    for tenant in &made {
        tenants::wait_for_account(&tenant.cluster, "default").await?;
    }
    load::run(arguments.pods, Pace { clients: 16, rate: 0.0 }, |i| {
        let tenant = &made[i % made.len()];
        async move { Ok(tenant.cluster.create(&PODS, &objects::pod("default", &format!("p-{i}"))).await?) }
    })
    .await?;
    for tenant in &made {
        eventually("running pods", PATIENCE_S, || async {
            let pods = tenant.cluster.list(&PODS, "default", &ListOptions::default()).await?.items;
            let waiting = pods.iter().filter(|p| p.str_at("/status/phase") != Some("Running")).count();
            Ok(if waiting == 0 { Ok(()) } else { Err(format!("{waiting} pods of {} wait", tenant.name)) })
        })
        .await?;
    }
    Ok(())
}

/// Every syncer has seen both sides in full and has nothing left to do.
async fn quiet(operator: &Operator, tenants: usize) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(PATIENCE_S);
    loop {
        let syncers = operator.packed().syncers().await;
        if syncers.len() == tenants && syncers.iter().all(|s| s.backlog() == 0) {
            return Ok(());
        }
        ensure!(Instant::now() < end, "{} of {tenants} syncers run", syncers.len());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn kubeconfig(host: &EmbeddedHost) -> String {
    Kubeconfig {
        cluster: "host",
        server: &host.api.url,
        authority_pem: host.pki.authority.certificate_pem(),
        user: "admin",
        credential: Credential::Certificate(&host.pki.admin),
        namespace: None,
    }
    .render()
}
