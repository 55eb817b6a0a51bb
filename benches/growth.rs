//! How the cost of an API server grows: with tenants in the process, with objects, watchers and definitions; JSON and
//! protobuf. CPU of the server's processes per operation, writes durable.
//!
//! `cargo bench --bench growth -- --kubeconfig other.kubeconfig --pids 123,124`

mod support;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use clap::Parser;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use sublet_apiserver::protobuf;
use support::process::{Sublet, Usage};
use support::table::{self, number, ratio};
use support::wire::{Http1, Target};
use support::{objects, tenants};
use tokio::task::JoinSet;
use tokio::time::Instant;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

#[derive(Parser)]
struct Arguments {
    /// Parts to measure: tenants, objects, pods, watchers, definitions
    #[arg(long, value_delimiter = ',', default_value = "tenants,objects,pods,watchers,definitions")]
    only: Vec<String>,
    #[arg(long, value_delimiter = ',', default_value = "1,10,100")]
    tenants: Vec<usize>,
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000")]
    objects: Vec<usize>,
    /// The other server must take pods whose service account nobody made: `--disable-admission-plugins=ServiceAccount`
    #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
    pods: Vec<usize>,
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000")]
    watchers: Vec<usize>,
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000")]
    definitions: Vec<usize>,
    /// Operations of each sort
    #[arg(long, default_value_t = 2000)]
    operations: usize,
    /// Requests under way at once
    #[arg(long, default_value_t = 16)]
    clients: usize,
    #[command(flatten)]
    other: support::Other,
}

fn main() -> Result<()> {
    support::run(bench(support::arguments()))
}

/// API servers of one process, or of several that belong together.
struct Place {
    name: &'static str,
    targets: Vec<Target>,
    pids: Vec<u32>,
}

type Row = (String, f64);

async fn bench(arguments: Arguments) -> Result<()> {
    let other = match &arguments.other.kubeconfig {
        Some(path) => {
            let target = Target::new(&tokio::fs::read_to_string(path).await?, true)?;
            Some(Place { name: "other", targets: vec![target], pids: arguments.other.pids.clone() })
        }
        None => None,
    };
    let wants = |part: &str| arguments.only.iter().any(|o| o == part);
    if wants("tenants") {
        by_tenants(&arguments, other.as_ref()).await?;
    }
    for (part, measure) in
        [("objects", Part::Objects), ("pods", Part::Pods), ("watchers", Part::Watchers), ("definitions", Part::Definitions)]
    {
        if !wants(part) {
            continue;
        }
        let dir = tempfile::tempdir()?;
        let process = Sublet::start(&["apiserver", "--dir", &dir.path().to_string_lossy()]).await?;
        let target = Target::new(&tokio::fs::read_to_string(&process.kubeconfig).await?, true)?;
        let own = Place { name: "sublet apiserver", targets: vec![target], pids: vec![process.pid()] };
        for place in std::iter::once(&own).chain(&other) {
            measure.run(place, &arguments).await?;
        }
        process.stop().await?;
    }
    Ok(())
}

async fn by_tenants(arguments: &Arguments, other: Option<&Place>) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let process = Sublet::dev(dir.path(), 1).await?;
    let host = process.cluster().await?;
    let (mut made, mut columns) = (Vec::new(), Vec::new());
    for count in &arguments.tenants {
        made.extend(tenants::create(&host, made.len(), *count, 4).await?);
        support::process::settle(&process, 60).await?;
        let targets = made.iter().map(|t| Target::new(&t.cluster.kubeconfig, true)).collect::<Result<_>>()?;
        let place = Place { name: "sublet", targets, pids: vec![process.pid()] };
        columns.push((format!("{count} tenants"), place.operations(arguments, &format!("t{count}")).await?));
    }
    process.stop().await?;
    if let Some(other) = other {
        columns.push((other.name.into(), other.operations(arguments, "o").await?));
    }
    let head: Vec<String> = std::iter::once("CPU ms per operation".into()).chain(columns.iter().map(|(name, _)| name.clone())).collect();
    let rows: Vec<Vec<String>> = (0..columns[0].1.len())
        .map(|at| {
            let cells = columns.iter().map(|(_, rows)| number(rows[at].1));
            let mut row: Vec<String> = std::iter::once(columns[0].1[at].0.clone()).chain(cells).collect();
            if let Some(other) = other.and(columns.last()) {
                row.push(
                    columns[..columns.len() - 1].iter().map(|(_, rows)| ratio(other.1[at].1, rows[at].1)).collect::<Vec<_>>().join(" / "),
                );
            }
            row
        })
        .collect();
    let mut head: Vec<&str> = head.iter().map(String::as_str).collect();
    if other.is_some() {
        head.push("times less");
    }
    table::print("One process with its tenants, the load spread over all of them", &head, &rows);
    Ok(())
}

#[derive(Clone, Copy)]
enum Part {
    Objects,
    Pods,
    Watchers,
    Definitions,
}

impl Part {
    async fn run(self, place: &Place, arguments: &Arguments) -> Result<()> {
        match self {
            Self::Objects => place.by_objects(arguments, "ConfigMaps", CONFIG_MAPS, objects::config_map, &arguments.objects).await,
            Self::Pods => place.by_objects(arguments, "Pods", PODS, objects::pod, &arguments.pods).await,
            Self::Watchers => place.by_watchers(arguments).await,
            Self::Definitions => place.by_definitions(arguments).await,
        }
    }
}

/// A request to be sent.
struct Sent {
    method: &'static str,
    path: String,
    media_type: &'static str,
    accept: &'static str,
    body: Bytes,
}

fn get(path: String, accept: &'static str) -> Sent {
    Sent { method: "GET", path, media_type: JSON, accept, body: Bytes::new() }
}

fn put(method: &'static str, path: String, media_type: &'static str, body: impl Into<Bytes>) -> Sent {
    Sent { method, path, media_type, accept: JSON, body: body.into() }
}

impl Place {
    fn usage(&self) -> Result<Usage> {
        Usage::of_all(&self.pids)
    }

    /// The CPU of each of `count` requests, spread over clients and servers.
    async fn measured(
        &self,
        name: &str,
        count: usize,
        clients: usize,
        make: impl Fn(usize) -> Sent + Send + Sync + 'static,
    ) -> Result<Row> {
        let (make, next) = (Arc::new(make), Arc::new(AtomicUsize::new(0)));
        let failed: Arc<Mutex<Option<String>>> = Arc::default();
        // Each client knows all servers: connections are there before it begins.
        let mut all = Vec::new();
        for _ in 0..clients {
            let mut connections = Vec::new();
            for target in &self.targets {
                connections.push(target.http1().await?);
            }
            all.push(connections);
        }
        let (before, begin) = (self.usage()?.cpu_ms, Instant::now());
        let mut tasks = JoinSet::new();
        for mut connections in all {
            let (make, next, failed) = (make.clone(), next.clone(), failed.clone());
            tasks.spawn(async move {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= count {
                        return;
                    }
                    let at = i % connections.len();
                    if let Err(error) = send(&mut connections[at], make(i)).await {
                        *failed.lock().expect("no holder panics") = Some(format!("{error:#}"));
                        return;
                    }
                }
            });
        }
        while tasks.join_next().await.is_some() {}
        let failure = failed.lock().expect("no holder panics").take();
        ensure!(failure.is_none(), "{}: {name}: {}", self.name, failure.unwrap_or_default());
        let cpu = (self.usage()?.cpu_ms - before) / count as f64;
        eprintln!("{}: {name}: {count} in {:.1} s, {} ms of CPU each", self.name, begin.elapsed().as_secs_f64(), number(cpu));
        Ok((name.to_string(), cpu))
    }

    /// The usual requests, in both encodings.
    async fn operations(&self, arguments: &Arguments, mark: &str) -> Result<Vec<Row>> {
        let (count, clients) = (arguments.operations, arguments.clients);
        let mut rows = Vec::new();
        for (encoding, media_type) in [("JSON", JSON), ("protobuf", PROTOBUF)] {
            let name = {
                let (mark, prefix) = (mark.to_string(), encoding.to_lowercase());
                move |i: usize| format!("{mark}-{prefix}-{i}")
            };
            let path = {
                let name = name.clone();
                move |i: usize| format!("{CONFIG_MAPS}/{}", name(i))
            };
            let as_said = |sent: Sent| Sent { accept: media_type, ..sent };
            let mut run = async |what: &str, make: Box<dyn Fn(usize) -> Sent + Send + Sync>| -> Result<()> {
                rows.push(self.measured(&format!("{what}, {encoding}"), count, clients, make).await?);
                Ok(())
            };
            let (n, p) = (name.clone(), path.clone());
            run("create ConfigMap", Box::new(move |i| as_said(put("POST", CONFIG_MAPS.into(), media_type, encoded(&n(i), media_type)))))
                .await?;
            run("get ConfigMap", Box::new(move |i| get(p(i), media_type))).await?;
            let (n, p) = (name.clone(), path.clone());
            run("update ConfigMap", Box::new(move |i| as_said(put("PUT", p(i), media_type, encoded(&n(i), media_type))))).await?;
            let p = path.clone();
            run("merge patch ConfigMap", Box::new(move |i| as_said(put("PATCH", p(i), MERGE, patch(i))))).await?;
            let (n, p) = (name.clone(), path.clone());
            run(
                "apply ConfigMap",
                Box::new(move |i| as_said(put("PATCH", format!("{}?fieldManager=bench&force=true", p(i)), APPLY, applied(&n(i))))),
            )
            .await?;
            let p = path.clone();
            run("delete ConfigMap", Box::new(move |i| as_said(put("DELETE", p(i), JSON, Bytes::new())))).await?;
        }
        Ok(rows)
    }

    async fn by_objects(
        &self,
        arguments: &Arguments,
        kind: &str,
        collection: &'static str,
        object: fn(&str, &str) -> Value,
        totals: &[usize],
    ) -> Result<()> {
        let mut rows = Vec::new();
        let (mut filled, clients) = (0, arguments.clients);
        let idle = self.usage()?.memory_kib;
        for total in totals {
            let from = filled;
            let fill = move |i: usize| put("POST", collection.into(), JSON, object("default", &format!("f-{}", from + i)).to_string());
            let (_, made) = self.measured("create", total - filled, clients, fill).await?;
            filled = *total;
            tokio::time::sleep(Duration::from_secs(10)).await;
            let memory = self.usage()?.memory_kib;
            let some = arguments.operations.min(1000);
            let all = filled;
            let spread = move |i: usize| format!("{collection}/f-{}", (i * 7919) % all);
            let read = self.measured("get", some, clients, move |i| get(spread(i), JSON)).await?.1;
            let changed = self.measured("merge patch", some, clients, move |i| put("PATCH", spread(i), MERGE, patch(i))).await?.1;
            let page = self.measured("page of 500", 40, 2, move |_| get(format!("{collection}?limit=500"), JSON)).await?.1;
            let selected =
                self.measured("selector of none", 20, 2, move |_| get(format!("{collection}?labelSelector=a=none"), JSON)).await?.1;
            let whole = self.measured("whole list", 4, 1, move |_| get(format!("{collection}?resourceVersion=0"), JSON)).await?.1;
            let cells = [
                made,
                read,
                changed,
                page,
                selected,
                whole,
                whole * 1000.0 / *total as f64,
                (memory - idle) / *total as f64,
                memory / 1024.0,
            ];
            rows.push(std::iter::once(total.to_string()).chain(cells.map(number)).collect());
        }
        let head = [
            kind,
            "create",
            "get",
            "merge patch",
            "page of 500",
            "selector that finds none",
            "whole list",
            "per 1,000 of it",
            "KiB per object",
            "MiB in all",
        ];
        table::print(&format!("{}: CPU ms per operation as objects grow", self.name), &head, &rows);
        Ok(())
    }

    async fn by_watchers(&self, arguments: &Arguments) -> Result<()> {
        const CHANGES: usize = 200;
        self.measured("create", 1, 1, |_| put("POST", CONFIG_MAPS.into(), JSON, encoded("watched", JSON))).await?;
        let change = |i: usize| put("PATCH", format!("{CONFIG_MAPS}/watched"), MERGE, patch(i));
        let alone = self.measured("merge patch, unwatched", CHANGES, 4, change).await?.1;
        let mut rows = Vec::new();
        for count in &arguments.watchers {
            let before_memory = self.usage()?.memory_kib;
            let seen = Arc::new(AtomicUsize::new(0));
            let mut watchers = JoinSet::new();
            for _ in 0..*count {
                let mut connection = self.targets[0].http1().await?;
                let response = connection
                    .open(
                        "GET",
                        &format!("{CONFIG_MAPS}?watch=true&resourceVersion=0&fieldSelector=metadata.name=watched"),
                        &[],
                        Bytes::new(),
                    )
                    .await?;
                ensure!(response.status() == 200, "a watch was answered with {}", response.status());
                let seen = seen.clone();
                watchers.spawn(async move {
                    let (mut body, _connection) = (response.into_body(), connection);
                    while let Some(Ok(frame)) = http_body_util::BodyExt::frame(&mut body).await {
                        let lines = frame.data_ref().map_or(0, |data| data.iter().filter(|b| **b == b'\n').count());
                        seen.fetch_add(lines, Ordering::Relaxed);
                    }
                });
            }
            wait(&seen, *count).await?;
            let memory = (self.usage()?.memory_kib - before_memory) / *count as f64;
            let before = self.usage()?.cpu_ms;
            seen.store(0, Ordering::Relaxed);
            self.measured("merge patch, watched", CHANGES, 4, change).await?;
            wait(&seen, count * CHANGES).await?;
            let delivery = (self.usage()?.cpu_ms - before - alone * CHANGES as f64) / (count * CHANGES) as f64;
            rows.push(vec![count.to_string(), number(delivery * 1000.0), number(memory)]);
            watchers.shutdown().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        table::print(
            &format!("{}: watchers", self.name),
            &["watchers", "CPU us per delivery", "KiB per watcher and its connection"],
            &rows,
        );
        Ok(())
    }

    async fn by_definitions(&self, arguments: &Arguments) -> Result<()> {
        let mut rows = Vec::new();
        let (mut made, idle) = (0, self.usage()?.memory_kib);
        for total in &arguments.definitions {
            let from = made;
            let (_, create) = self
                .measured("create definition", total - made, 4, move |i| put("POST", DEFINITIONS.into(), JSON, definition(from + i)))
                .await?;
            made = *total;
            let last = total - 1;
            self.served(last).await?;
            tokio::time::sleep(Duration::from_secs(3)).await;
            let memory = (self.usage()?.memory_kib - idle) / *total as f64;
            let count = 200;
            let object = move |i: usize| {
                let name = format!("o-{last}-{i}");
                let body = json!({"apiVersion": "bench.example.com/v1", "kind": format!("K{last}"), "metadata": {"name": name}, "spec": {"size": 3, "name": "a"}});
                put("POST", format!("/apis/bench.example.com/v1/namespaces/default/k{last}s"), JSON, body.to_string())
            };
            let (_, create_object) = self.measured("create object", count, 8, object).await?;
            let (_, discovery) = self
                .measured("discovery", 10, 1, |_| {
                    get("/apis".into(), "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
                })
                .await?;
            rows.push(vec![total.to_string(), number(create), number(memory), number(create_object), number(discovery)]);
        }
        let head = ["definitions", "create one", "KiB each", "create an object of one", "discovery of all"];
        table::print(&format!("{}: CPU ms per operation as definitions grow", self.name), &head, &rows);
        Ok(())
    }

    /// Waits until a kind is served.
    async fn served(&self, number: usize) -> Result<()> {
        let mut connection = self.targets[0].http1().await?;
        let end = Instant::now() + Duration::from_secs(120);
        while Instant::now() < end {
            let path = format!("/apis/bench.example.com/v1/namespaces/default/k{number}s");
            if connection.send("GET", &path, &[], Bytes::new()).await?.status == 200 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        anyhow::bail!("the kind is not served")
    }
}

async fn send(connection: &mut Http1, sent: Sent) -> Result<()> {
    let headers = [("content-type", sent.media_type), ("accept", sent.accept)];
    let answer = connection.send(sent.method, &sent.path, &headers, sent.body).await?;
    ensure!(answer.status < 300, "{} {}: {} {}", sent.method, sent.path, answer.status, String::from_utf8_lossy(&answer.body));
    Ok(())
}

async fn wait(seen: &AtomicUsize, count: usize) -> Result<()> {
    let wait = async {
        while seen.load(Ordering::Relaxed) < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), wait).await.context("watchers did not see every change")
}

fn encoded(name: &str, media_type: &str) -> Bytes {
    let object = objects::config_map("default", name);
    if media_type == PROTOBUF { protobuf::encode(&object).expect("ConfigMaps have a message") } else { object.to_string().into() }
}

fn patch(i: usize) -> String {
    json!({"metadata": {"annotations": {"changed": i.to_string()}}}).to_string()
}

fn applied(name: &str) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"applied": "yes"}}}).to_string()
}

fn definition(number: usize) -> String {
    let (plural, kind) = (format!("k{number}s"), format!("K{number}"));
    let spec = json!({"type": "object", "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 100},
        "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 63},
        "items": {"type": "array", "maxItems": 10, "items": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}, "b": {"type": "boolean"}}}},
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("{plural}.bench.example.com")},
        "spec": {
            "group": "bench.example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}],
        },
    })
    .to_string()
}
