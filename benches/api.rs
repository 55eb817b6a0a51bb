//! CPU of an API server per operation: of the built one, and beside it of any other that a kubeconfig and
//! the ids of its processes name.
//!
//! `cargo bench --bench api -- --kubeconfig other.kubeconfig --pids 123,124`

mod support;

use anyhow::{Context as _, Result};
use clap::Parser;
use futures::StreamExt as _;
use serde_json::json;
use std::time::Duration;
use sublet_e2e::Cluster;
use sublet_machinery::Gvr;
use sublet_runtime::resources::{CONFIG_MAPS, NAMESPACES, PODS};
use sublet_runtime::{Client, DeleteOptions, ListOptions};
use support::load::{self, Pace};
use support::process::{Sublet, Usage};
use support::table::{self, number, ratio};
use support::{objects, tenants};
use tokio::time::Instant;

const NAMESPACE: &str = "bench";
/// A page of a long list.
const PAGE: u32 = 500;

#[derive(Parser)]
struct Arguments {
    /// Objects made, read, changed and deleted
    #[arg(long, default_value_t = 1000)]
    objects: usize,
    /// Requests under way at once
    #[arg(long, default_value_t = 16)]
    clients: usize,
    /// Watchers that follow the deletions
    #[arg(long, default_value_t = 50)]
    watchers: usize,
    /// Whole lists of each sort
    #[arg(long, default_value_t = 20)]
    lists: usize,
    #[command(flatten)]
    other: support::Other,
}

fn main() -> Result<()> {
    support::run(bench(support::arguments()))
}

async fn bench(arguments: Arguments) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().to_string_lossy().to_string();
    // The second start is the usual one: keys and first objects are there.
    let first = Sublet::start(&["apiserver", "--dir", &path]).await?;
    let first_start = first.started_in;
    first.stop().await?;
    let own = Sublet::start(&["apiserver", "--dir", &path]).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let idle = own.usage()?.memory_kib;
    let ours = Load { client: (*own.cluster().await?).clone(), pids: vec![own.pid()], arguments: &arguments }.run().await?;
    let after = own.usage()?.memory_kib;
    let other = match &arguments.other.kubeconfig {
        Some(path) => {
            let cluster = Cluster::from_text(&tokio::fs::read_to_string(path).await?).await?;
            let load = Load { client: (*cluster).clone(), pids: arguments.other.pids.clone(), arguments: &arguments };
            Some((load.run().await?, Usage::of_all(&arguments.other.pids)?.memory_kib))
        }
        None => None,
    };
    let second_start = own.started_in;
    own.stop().await?;
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (at, (name, cpu)) in ours.iter().enumerate() {
        let theirs = other.as_ref().map(|(o, _)| o[at].1);
        rows.push(vec![name.clone(), number(*cpu), theirs.map_or("-".into(), number), theirs.map_or("-".into(), |t| ratio(t, *cpu))]);
    }
    table::print("CPU ms per operation", &["operation", "sublet apiserver", "other", "times less"], &rows);
    let mib = |kib: f64| number(kib / 1024.0);
    let mut rows = vec![
        vec!["start to ready, first time, ms".into(), number(first_start.as_secs_f64() * 1000.0)],
        vec!["start to ready, ms".into(), number(second_start.as_secs_f64() * 1000.0)],
        vec!["memory idle, MiB".into(), mib(idle)],
        vec!["memory after the load, MiB".into(), mib(after)],
    ];
    if let Some((_, kib)) = other {
        rows.push(vec!["memory of the other after the load, MiB".into(), mib(kib)]);
    }
    table::print("sublet apiserver", &["", "measured"], &rows);
    Ok(())
}

/// One server under load.
struct Load<'a> {
    client: Client,
    pids: Vec<u32>,
    arguments: &'a Arguments,
}

type Row = (String, f64);

impl Load<'_> {
    async fn run(&self) -> Result<Vec<Row>> {
        self.client.create(&NAMESPACES, &objects::namespace(NAMESPACE)).await?;
        tenants::wait_or_make_account(&self.client, NAMESPACE).await?;
        let mut rows = Vec::new();
        for (kind, gvr) in [("ConfigMap", &CONFIG_MAPS), ("Pod", &PODS)] {
            self.writes(kind, gvr, &mut rows).await?;
            if gvr == &PODS {
                self.lists(&mut rows).await?;
            }
            self.deletes(kind, gvr, &mut rows).await?;
        }
        self.client.delete_if_exists(&NAMESPACES, "", NAMESPACE, &DeleteOptions::background()).await?;
        Ok(rows)
    }

    async fn writes(&self, kind: &str, gvr: &Gvr, rows: &mut Vec<Row>) -> Result<()> {
        let name = |i: usize| format!("o-{i}");
        rows.push(
            self.each(&format!("create {kind}"), |i| async move { Ok(self.client.create(gvr, &object(gvr, &name(i))).await?) }).await?,
        );
        rows.push(self.each(&format!("get {kind}"), |i| async move { Ok(self.client.get(gvr, NAMESPACE, &name(i)).await?) }).await?);
        let patch = |i: usize| json!({"metadata": {"annotations": {"changed": i.to_string()}}});
        let merge = |i| async move { Ok(self.client.merge_patch(gvr, NAMESPACE, &name(i), patch(i)).await?) };
        rows.push(self.each(&format!("merge patch {kind}"), merge).await?);
        let apply = |i: usize| async move {
            let (api_version, kind) = ("v1", kind);
            let labels = json!({"applied": i.to_string()});
            let object =
                json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": NAMESPACE, "name": name(i), "labels": labels}});
            Ok(self.client.apply(gvr, &object).await?)
        };
        rows.push(self.each(&format!("apply {kind}"), apply).await?);
        Ok(())
    }

    async fn lists(&self, rows: &mut Vec<Row>) -> Result<()> {
        let sorts = [
            ("list all", ListOptions::default()),
            ("list all, rv=0", ListOptions { resource_version: "0".into(), ..ListOptions::default() }),
            ("list with a selector of one", ListOptions { label_selector: "applied=7".into(), ..ListOptions::default() }),
            ("list a page of 500", ListOptions { limit: Some(PAGE), ..ListOptions::default() }),
        ];
        for (name, options) in &sorts {
            let list = |_| async move { Ok(self.client.list(&PODS, NAMESPACE, options).await?) };
            rows.push(self.measured(&format!("{name} ({} Pods)", self.arguments.objects), self.arguments.lists, list).await?);
        }
        Ok(())
    }

    /// Deletes under watchers; theirs is the share above deletes that nobody watches.
    async fn deletes(&self, kind: &str, gvr: &Gvr, rows: &mut Vec<Row>) -> Result<()> {
        let half = self.arguments.objects / 2;
        let delete = |i: usize| async move { Ok(self.client.delete(gvr, NAMESPACE, &format!("o-{i}"), &DeleteOptions::now()).await?) };
        let (name, unwatched) = self.measured(&format!("delete {kind}"), half, delete).await?;
        rows.push((name, unwatched));
        if gvr != &CONFIG_MAPS {
            return self.measured("", self.arguments.objects - half, |i| delete(half + i)).await.map(|_| ());
        }
        let version = self.client.list(gvr, NAMESPACE, &ListOptions { limit: Some(1), ..ListOptions::default() }).await?.resource_version;
        let mut watchers = tokio::task::JoinSet::new();
        let expected = self.arguments.objects - half;
        for _ in 0..self.arguments.watchers {
            let mut events = self.client.watch(gvr, NAMESPACE, &version, &ListOptions::default()).await?;
            watchers.spawn(async move {
                let mut seen = 0;
                while seen < expected && events.next().await.is_some() {
                    seen += 1;
                }
            });
        }
        let before = Usage::of_all(&self.pids)?.cpu_ms;
        load::run(expected, self.pace(), |i| delete(half + i)).await?;
        tokio::time::timeout(Duration::from_secs(60), async { while watchers.join_next().await.is_some() {} })
            .await
            .context("watchers did not see every deletion")?;
        let watched = Usage::of_all(&self.pids)?.cpu_ms - before - unwatched * expected as f64;
        rows.push((
            format!("watch, per delivery ({} watchers)", self.arguments.watchers),
            watched / (expected * self.arguments.watchers) as f64,
        ));
        Ok(())
    }

    fn pace(&self) -> Pace {
        Pace { clients: self.arguments.clients, rate: 0.0 }
    }

    async fn each<T, F, Fut>(&self, name: &str, operation: F) -> Result<Row>
    where
        F: Fn(usize) -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        self.measured(name, self.arguments.objects, operation).await
    }

    async fn measured<T, F, Fut>(&self, name: &str, count: usize, operation: F) -> Result<Row>
    where
        F: Fn(usize) -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        let (before, begin) = (Usage::of_all(&self.pids)?.cpu_ms, Instant::now());
        load::run(count, self.pace(), operation).await?;
        let cpu = Usage::of_all(&self.pids)?.cpu_ms - before;
        eprintln!("{name}: {count} in {:.1} s", begin.elapsed().as_secs_f64());
        Ok((name.to_string(), cpu / count as f64))
    }
}

fn object(gvr: &Gvr, name: &str) -> serde_json::Value {
    if gvr == &PODS {
        // No node has the label, so nothing but the API server works on it.
        let mut pod = objects::pod(NAMESPACE, name);
        pod["spec"]["nodeSelector"] = json!({"none": "none"});
        return pod;
    }
    objects::config_map(NAMESPACE, name)
}
