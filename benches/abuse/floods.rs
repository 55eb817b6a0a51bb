//! What one tenant may do to a process, as rows of a table.

use crate::support::wire::{Target, frames, read};
use anyhow::Result;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::Full;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;
use sublet_fuzz::nested_aliases;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

const BODY_BYTES: usize = (3 << 20) - 4096;
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const JSON: (&str, &str) = ("content-type", "application/json");
/// Between two bytes of somebody who is slow on purpose.
const SLOW: Duration = Duration::from_secs(1);

/// The place that is flooded, and what was answered.
pub struct Site {
    pub admin: Target,
    /// Without credentials.
    pub nobody: Target,
    /// Answers by code, with a mark when they say when to come back. Guards the map alone.
    pub answers: Mutex<BTreeMap<String, usize>>,
    next: AtomicUsize,
}

impl Site {
    pub fn new(admin: Target, nobody: Target) -> Arc<Self> {
        Arc::new(Self { admin, nobody, answers: Mutex::default(), next: AtomicUsize::new(0) })
    }

    fn note(&self, what: impl Into<String>) {
        *self.answers.lock().expect("no holder panics").entry(what.into()).or_default() += 1;
    }

    fn number(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// What was answered since the last time.
    pub fn take_answers(&self) -> BTreeMap<String, usize> {
        std::mem::take(&mut *self.answers.lock().expect("no holder panics"))
    }
}

/// A request to be sent again and again.
pub struct Sent {
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

type Running = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// One way to be a bad neighbour. Runs until it is dropped.
pub struct Flood {
    pub name: &'static str,
    pub run: fn(Arc<Site>) -> Running,
}

macro_rules! flood {
    ($name:literal, $run:expr) => {
        Flood { name: $name, run: |site| Box::pin($run(site)) }
    };
}

pub const FLOODS: &[Flood] = &[
    flood!("nothing", nothing),
    flood!("writes", |site| hammer(site, 64, |n| create(n, 1 << 10))),
    flood!("writes of 900 KiB", |site| hammer(site, 32, |n| replace(n % 64, 900 << 10))),
    flood!("gets", |site| hammer(site, 64, |_| get(format!("{CONFIG_MAPS}/kube-root-ca.crt")))),
    flood!("lists", |site| hammer(site, 32, |_| get("/api/v1/configmaps".into()))),
    flood!("lists as tables", |site| hammer(site, 16, |_| table("/api/v1/configmaps"))),
    flood!("watches that do not read", |site| readers(
        site,
        500,
        "/api/v1/configmaps?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    )),
    flood!("readers of lists that stop reading", |site| readers(site, 200, "/api/v1/configmaps")),
    flood!("huge definitions", |site| hammer(site, 4, definition)),
    flood!("definitions with many patterns", |site| hammer(site, 4, patterned)),
    flood!("expressions at their limit", |site| stored(site, expressive(), |_| items(40_000))),
    flood!("patterns over long texts", |site| stored(site, backtracking(), |_| long_text())),
    flood!("deep JSON", |site| hammer(site, 8, |_| post(CONFIG_MAPS, JSON.1, "[".repeat(BODY_BYTES)))),
    flood!("wide JSON", |site| hammer(site, 8, |_| post(CONFIG_MAPS, JSON.1, wide()))),
    flood!("bodies beyond the limit", |site| hammer(site, 8, |_| post(CONFIG_MAPS, JSON.1, " ".repeat(20 << 20)))),
    flood!("YAML of aliases", |site| hammer(site, 8, |_| post(CONFIG_MAPS, "application/yaml", nested_aliases()))),
    flood!("protobuf with lengths that lie", |site| hammer(site, 16, |_| post(
        CONFIG_MAPS,
        "application/vnd.kubernetes.protobuf",
        lying()
    ))),
    flood!("compressed bodies", |site| hammer(site, 8, |_| bomb())),
    flood!("patches of 10,000 operations", |site| hammer(site, 8, |_| patch("application/json-patch+json", operations()))),
    flood!("patches that copy copies", |site| hammer(site, 8, |_| patch("application/json-patch+json", copies()))),
    flood!("applied objects of 20,000 fields", |site| hammer(site, 4, applied)),
    flood!("huge selectors", |site| hammer(site, 16, |_| get(format!("/api/v1/configmaps?labelSelector=app+in+({})", letters(50_000))))),
    flood!("huge continue tokens", |site| hammer(site, 16, |_| get(format!("/api/v1/configmaps?limit=1&continue={}", "A".repeat(60_000))))),
    flood!("names that nobody knows", |site| hammer(site, 32, |n| get(format!("/apis/g{n}.example.com/v1/r{n}")))),
    flood!("names that nobody knows, from nobody", |site| as_nobody(site, 32, |n| get(format!("/apis/g{n}.example.com/v1/r{n}")))),
    flood!("floods of headers", |site| hammer(site, 16, |_| headers())),
    flood!("connections", |site| connections(site, 3000)),
    flood!("handshakes", handshakes),
    flood!("headers a byte a second", |site| slow(site, 1000, "GET /api/v1/configmaps HTTP/1.1\r\nhost: x\r\nx-slow: ")),
    flood!("bodies a byte a second", |site| slow(
        site,
        1000,
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 3000000\r\n\r\n{\"a\":\""
    )),
    flood!("HTTP/2 streams that are reset", |site| framed(site, 8, resets)),
    flood!("HTTP/2 settings", |site| framed(site, 8, |_, _| frames::frame(frames::SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]).repeat(100))),
    flood!("HTTP/2 pings", |site| framed(site, 8, |_, _| frames::frame(frames::PING, 0, 0, &[7; 8]).repeat(100))),
    flood!("HTTP/2 continuations", |site| framed(site, 8, continuations)),
    flood!("HTTP/2 streams", |site| streams(site, 16)),
];

async fn nothing(_: Arc<Site>) -> Result<()> {
    std::future::pending().await
}

/// Clients that send as fast as they are answered.
async fn hammer(site: Arc<Site>, clients: usize, make: impl Fn(usize) -> Sent + Clone + Send + 'static) -> Result<()> {
    let target = site.admin.clone();
    each(site, target, clients, make).await
}

async fn as_nobody(site: Arc<Site>, clients: usize, make: impl Fn(usize) -> Sent + Clone + Send + 'static) -> Result<()> {
    let target = site.nobody.clone();
    each(site, target, clients, make).await
}

async fn each(site: Arc<Site>, target: Target, clients: usize, make: impl Fn(usize) -> Sent + Clone + Send + 'static) -> Result<()> {
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let (site, target, make) = (site.clone(), target.clone(), make.clone());
        tasks.spawn(async move {
            loop {
                let Ok(mut connection) = target.http1().await else {
                    site.note("refused");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                loop {
                    let sent = make(site.number());
                    let headers: Vec<(&str, &str)> = sent.headers.iter().map(|(k, v)| (*k, v.as_str())).collect();
                    match connection.send(sent.method, &sent.path, &headers, sent.body).await {
                        Ok(answer) => {
                            site.note(format!("{}{}", answer.status, if answer.retry_after { " later" } else { "" }));
                            if answer.status == 429 {
                                // Whoever is told to wait and does not will see little more than this.
                                tokio::time::sleep(Duration::from_millis(20)).await;
                            }
                        }
                        Err(_) => {
                            site.note("cut");
                            break;
                        }
                    }
                }
            }
        });
    }
    while tasks.join_next().await.is_some() {}
    Ok(())
}

fn get(path: String) -> Sent {
    Sent { method: "GET", path, headers: Vec::new(), body: Bytes::new() }
}

fn table(path: &str) -> Sent {
    let accept = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io".to_string());
    Sent { headers: vec![accept], ..get(path.into()) }
}

fn post(path: &str, media_type: &str, body: impl Into<Bytes>) -> Sent {
    Sent { method: "POST", path: path.into(), headers: vec![("content-type", media_type.into())], body: body.into() }
}

fn patch(media_type: &str, body: impl Into<Bytes>) -> Sent {
    Sent { method: "PATCH", ..post(&format!("{CONFIG_MAPS}/kube-root-ca.crt?dryRun=All"), media_type, body) }
}

fn config_map(name: &str, bytes: usize) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": "flood"}}, "data": {"a": "x".repeat(bytes)}})
        .to_string()
}

fn create(number: usize, bytes: usize) -> Sent {
    post(CONFIG_MAPS, JSON.1, config_map(&format!("flood-{number}-{}", std::process::id()), bytes))
}

fn replace(number: usize, bytes: usize) -> Sent {
    let name = format!("large-{number}");
    Sent { method: "PUT", ..post(&format!("{CONFIG_MAPS}/{name}"), JSON.1, config_map(&name, bytes)) }
}

/// Stands for the number of a definition in text that is made once.
const NUMBER: &str = "z9z9";

/// A definition whose schema is all that a body can hold.
fn definition(number: usize) -> Sent {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let leaf = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}});
        let properties: serde_json::Map<String, Value> = (0..20_000).map(|i| (format!("field{i}"), leaf.clone())).collect();
        crd(NUMBER, json!({"type": "object", "properties": properties})).to_string()
    });
    numbered(&TEXT, number)
}

fn patterned(number: usize) -> Sent {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let field = |i: usize| json!({"type": "string", "pattern": format!("^(\\w{{1,{}}}|[a-z]+)*$", 20 + i % 50)});
        let properties: serde_json::Map<String, Value> = (0..2_000).map(|i| (format!("field{i}"), field(i))).collect();
        crd(NUMBER, json!({"type": "object", "properties": properties})).to_string()
    });
    numbered(&TEXT, number)
}

fn numbered(text: &str, number: usize) -> Sent {
    let name = format!("n{number}");
    post(&format!("{DEFINITIONS}?dryRun=All"), JSON.1, text.replace(NUMBER, &name).replace(&NUMBER.to_uppercase(), &name.to_uppercase()))
}

fn crd(name: &str, schema: Value) -> Value {
    let plural = format!("{name}s");
    let kind = name.to_uppercase();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("{plural}.flood.example.com")},
        "spec": {
            "group": "flood.example.com", "scope": "Namespaced",
            "names": {"plural": plural, "singular": name, "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// A definition, and objects of it.
async fn stored(site: Arc<Site>, definition: Value, make: fn(usize) -> Value) -> Result<()> {
    let mut connection = site.admin.http1().await?;
    let made = connection.send("POST", DEFINITIONS, &[JSON], Bytes::from(definition.to_string())).await?;
    site.note(format!("definition {}", made.status));
    let plural = definition["spec"]["names"]["plural"].as_str().unwrap_or_default().to_string();
    let kind = definition["spec"]["names"]["kind"].clone();
    tokio::time::sleep(Duration::from_millis(300)).await;
    hammer(site, 8, move |number| {
        let mut object = make(number);
        object["apiVersion"] = "flood.example.com/v1".into();
        object["kind"] = kind.clone();
        object["metadata"] = json!({"name": format!("o-{number}")});
        post(&format!("/apis/flood.example.com/v1/namespaces/default/{plural}?dryRun=All"), JSON.1, object.to_string())
    })
    .await
}

fn expressive() -> Value {
    let rule = json!([{"rule": "self.all(x, x.startsWith('a') || x.matches('^([a-z]+)+$') || self.size() > 1)"}]);
    let items = json!({"type": "array", "maxItems": 40_000, "items": {"type": "string", "maxLength": 8}, "x-kubernetes-validations": rule});
    crd("expressive", json!({"type": "object", "properties": {"items": items}}))
}

fn items(count: usize) -> Value {
    json!({"items": vec!["abcdefgh"; count]})
}

fn backtracking() -> Value {
    let pattern = json!({"type": "string", "pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"});
    let wide = json!({"type": "string", "pattern": "[01]*1[01]{200}2$"});
    crd("backtracking", json!({"type": "object", "properties": {"a": pattern, "b": wide}}))
}

fn long_text() -> Value {
    json!({"a": "a".repeat(900 << 10), "b": "01".repeat(450 << 10)})
}

fn wide() -> String {
    format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"wide\"}},\"x\":[{}0]}}",
        "0,".repeat(BODY_BYTES / 2 - 100)
    )
}

fn lying() -> Vec<u8> {
    let mut body = b"k8s\0".to_vec();
    for _ in 0..1000 {
        // A field of bytes whose length is nearly all of 32 bits.
        body.extend_from_slice(&[0x12, 0xff, 0xff, 0xff, 0xff, 0x07]);
    }
    body
}

fn bomb() -> Sent {
    static BODY: LazyLock<Bytes> = LazyLock::new(|| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        for _ in 0..512 {
            let _ = encoder.write_all(&[b' '; 1 << 20]);
        }
        encoder.finish().unwrap_or_default().into()
    });
    let mut sent = post(CONFIG_MAPS, JSON.1, BODY.clone());
    sent.headers.push(("content-encoding", "gzip".into()));
    sent
}

fn operations() -> String {
    Value::Array((0..10_000).map(|i| json!({"op": "add", "path": format!("/data/k{i}"), "value": "v"})).collect()).to_string()
}

fn copies() -> String {
    let mut all = vec![json!({"op": "add", "path": "/data", "value": {"a": "x".repeat(100_000)}})];
    all.extend((0..300).map(|i| json!({"op": "copy", "from": "/data/a", "path": format!("/data/k{i}")})));
    Value::Array(all).to_string()
}

fn applied(number: usize) -> Sent {
    let data: serde_json::Map<String, Value> = (0..20_000).map(|i| (format!("key-{i}"), json!(number.to_string()))).collect();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": data});
    let path = format!("{CONFIG_MAPS}/applied?fieldManager=flood&force=true");
    Sent { method: "PATCH", ..post(&path, "application/apply-patch+yaml", object.to_string()) }
}

fn letters(bytes: usize) -> String {
    (0..bytes / 5).map(|i| format!("{i:04}")).collect::<Vec<_>>().join(",")
}

fn headers() -> Sent {
    let mut sent = get("/api/v1/configmaps?limit=1".into());
    sent.headers = (0..90).map(|_| ("x-flood", "f".repeat(4000))).collect();
    sent
}

/// Connections that ask once and do not read what comes.
async fn readers(site: Arc<Site>, count: usize, path: &'static str) -> Result<()> {
    let mut open = Vec::new();
    for _ in 0..count {
        match site.admin.stream().await {
            Ok(mut stream) => {
                stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await?;
                open.push(stream);
                site.note("asked");
            }
            Err(_) => site.note("refused"),
        }
    }
    // Something to be told of.
    hammer(site, 2, |n| replace(n % 64, 100 << 10)).await
}

async fn connections(site: Arc<Site>, count: usize) -> Result<()> {
    let mut open = Vec::new();
    for _ in 0..count {
        match site.nobody.stream().await {
            Ok(stream) => {
                site.note("open");
                open.push(stream);
            }
            Err(_) => site.note("refused"),
        }
    }
    std::future::pending().await
}

async fn handshakes(site: Arc<Site>) -> Result<()> {
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let site = site.clone();
        tasks.spawn(async move {
            loop {
                let opened = site.nobody.stream().await.is_ok();
                site.note(if opened { "open" } else { "refused" });
            }
        });
    }
    while tasks.join_next().await.is_some() {}
    Ok(())
}

/// Requests that are never whole.
async fn slow(site: Arc<Site>, count: usize, begin: &'static str) -> Result<()> {
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        match site.admin.stream().await {
            Ok(mut stream) => {
                let site = site.clone();
                tasks.spawn(async move {
                    let mut answer = [0; 16];
                    let mut next = begin.as_bytes();
                    loop {
                        if stream.write_all(next).await.is_err() || stream.flush().await.is_err() {
                            site.note("cut");
                            return;
                        }
                        next = b"a";
                        if let Ok(read) = tokio::time::timeout(SLOW, stream.read(&mut answer)).await {
                            let code = read
                                .ok()
                                .and_then(|n| std::str::from_utf8(&answer[..n]).ok())
                                .and_then(|l| l.split(' ').nth(1).map(str::to_string));
                            site.note(code.unwrap_or_else(|| "cut".into()));
                            return;
                        }
                    }
                });
            }
            Err(_) => site.note("refused"),
        }
    }
    while tasks.join_next().await.is_some() {}
    std::future::pending().await
}

/// Frames, as fast as they are taken.
async fn framed(site: Arc<Site>, clients: usize, make: fn(&str, u32) -> Vec<u8>) -> Result<()> {
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let site = site.clone();
        tasks.spawn(async move {
            loop {
                let Ok(stream) = site.admin.stream2().await else {
                    site.note("refused");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                site.note("open");
                let (mut from, mut to) = tokio::io::split(stream);
                let reading = tokio::spawn(async move { while from.read(&mut [0; 4096]).await.is_ok_and(|n| n > 0) {} });
                let _ = to.write_all(frames::PREFACE).await;
                let _ = to.write_all(&frames::frame(frames::SETTINGS, 0, 0, &[])).await;
                let mut stream = 1;
                while !reading.is_finished() && to.write_all(&make(&site.admin.authority, stream)).await.is_ok() {
                    stream += 200;
                }
                reading.abort();
                site.note("cut");
            }
        });
    }
    while tasks.join_next().await.is_some() {}
    Ok(())
}

/// A hundred requests, each withdrawn at once.
fn resets(authority: &str, first: u32) -> Vec<u8> {
    let block = frames::get_configmaps(authority);
    let one = |i: u32| {
        let stream = first + 2 * i;
        let mut out = frames::frame(frames::HEADERS, frames::END_STREAM_AND_HEADERS, stream, &block);
        out.extend(frames::frame(frames::RST_STREAM, 0, stream, &[0, 0, 0, 8]));
        out
    };
    (0..100).flat_map(one).collect()
}

/// Headers that do not end.
fn continuations(authority: &str, first: u32) -> Vec<u8> {
    let mut out = Vec::new();
    if first == 1 {
        out.extend(frames::frame(frames::HEADERS, 1, 1, &frames::get_configmaps(authority)));
    }
    // A literal header, again and again.
    let literal = [&[0x00, 0x01, b'x', 0x7f, 0x81, 0x01][..], &[b'y'; 256]].concat();
    out.extend(frames::frame(frames::CONTINUATION, 0, 1, &literal.repeat(40)));
    out
}

/// As many watches as a connection takes, and the next connection.
async fn streams(site: Arc<Site>, clients: usize) -> Result<()> {
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let sender = site.admin.http2().await?;
        for _ in 0..300 {
            let (site, mut sender) = (site.clone(), sender.clone());
            tasks.spawn(async move {
                if sender.ready().await.is_err() {
                    return site.note("refused");
                }
                let request = site.admin.request("GET", "/api/v1/configmaps?watch=true").body(Full::new(Bytes::new()));
                let Ok(request) = request else { return };
                match sender.send_request(request).await {
                    Ok(response) => {
                        site.note(response.status().as_str());
                        let _ = read(response).await;
                    }
                    Err(_) => site.note("refused"),
                }
            });
        }
    }
    hammer(site, 4, |n| create(n, 1 << 10)).await
}
