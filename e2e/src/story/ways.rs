//! Ways into a cluster beside its objects: proxies, ports, figures of use. All lead to the tenant's own pods and to
//! nothing else, on every host.

use super::containers::ready;
use super::workloads::{LABEL_NAME, NAMESPACE, from};
use super::{ALPHA, Story};
use crate::Cluster;
use crate::kubectl::Kubectl;
use crate::objects;
use crate::wait::eventually;
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;
use std::process::Stdio;
use std::time::Duration;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::resources::{ENDPOINT_SLICES, PODS, SERVICES};
use sublet_runtime::{DeleteOptions, ListOptions};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

const POD: &str = "reached";
const POD_METRICS: Gvr = Gvr::new("metrics.k8s.io", "v1beta1", "pods");
/// Clients look for a changed discovery about this often.
const METRICS_PATIENCE_S: u64 = 60;
/// The longest that kubectl's part takes over one protocol.
const KUBECTL_TIMEOUT: Duration = Duration::from_secs(120);
/// A file that is copied there and back.
const FILE_BYTES: usize = 8 << 20;

pub async fn lead_to_own_pods(story: &mut Story<'_>) -> Result<()> {
    let alpha = story.alpha()?;
    alpha.create(&PODS, &objects::reached(NAMESPACE, POD)).await?;
    alpha.create(&SERVICES, &objects::service(NAMESPACE, POD, POD, false)).await?;
    ready(story, alpha, POD).await?;
    proxies(story, alpha).await?;
    not_elsewhere(story, alpha).await?;
    usage(story, alpha).await?;
    match Kubectl::find(&alpha.kubeconfig)? {
        Some(kubectl) => {
            nowhere(story, alpha, &kubectl).await?;
            for websocket in [true, false] {
                let done = tokio::time::timeout(KUBECTL_TIMEOUT, with_kubectl(story, &kubectl, websocket)).await;
                done.with_context(|| format!("kubectl hangs, WebSockets: {websocket}"))??;
            }
        }
        None => story.report.fact("there is no kubectl here; not tried with it"),
    }
    alpha.delete(&SERVICES, NAMESPACE, POD, &DeleteOptions::default()).await?;
    alpha.delete(&PODS, NAMESPACE, POD, &DeleteOptions::now()).await?;
    Ok(())
}

/// The answer to a GET, or its code.
async fn get(cluster: &Cluster, path: &str) -> Result<Result<String, u16>> {
    let request = http::Request::get(path).body(Vec::new())?;
    match cluster.kube().request_text(request).await {
        Ok(text) => Ok(Ok(text)),
        Err(kube::Error::Api(status)) => Ok(Err(status.code)),
        Err(error) => Err(error).with_context(|| format!("GET {path}")),
    }
}

fn of(resource: &str, id: &str, path: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/{resource}/{id}/proxy/{path}")
}

async fn proxies(story: &Story<'_>, alpha: &Cluster) -> Result<()> {
    let ids = ["reached:80", "reached:http", "http:reached:http"].map(|id| ("services", id));
    for (resource, id) in ids.into_iter().chain([("pods", "reached"), ("pods", "http:reached:8080")]) {
        let path = of(resource, id, "hostname");
        // The slices of a new Service come a moment later.
        eventually(&path, story.stage.patience_s(), || async {
            let answer = get(alpha, &path).await?;
            Ok(if answer == Ok(POD.to_string()) { Ok(()) } else { Err(format!("{answer:?}")) })
        })
        .await?;
    }
    for (path, code) in
        [(of("services", "absent:80", ""), 404), (of("services", "ftp:reached:80", ""), 400), (of("pods", "absent", ""), 404)]
    {
        ensure!(get(alpha, &path).await? == Err(code), "{path} is not answered with {code}");
    }
    story.report.fact("Services and pods are reached through the API server, by number and name of their ports");
    Ok(())
}

/// Names, addresses and paths that are not the tenant's.
async fn not_elsewhere(story: &Story<'_>, alpha: &Cluster) -> Result<()> {
    let copies = story.host.list(&PODS, ALPHA.0, &from(LABEL_NAME, POD)).await?.items;
    let copy = copies.first().context("no host pod")?.name().to_string();
    let node = alpha.get(&PODS, NAMESPACE, POD).await?.str_at("/spec/nodeName").unwrap_or_default().to_string();
    for (path, code) in [
        (of("pods", &copy, ""), 404),
        (format!("/api/v1/namespaces/{}/pods/{copy}/log", ALPHA.0), 404),
        (format!("/api/v1/namespaces/{NAMESPACE}%2F..%2F{}/pods/{copy}/log", ALPHA.0), 404),
        (format!("/api/v1/nodes/{node}/proxy/pods"), 403),
        (format!("/api/v1/nodes/https:{node}:10250/proxy/runningpods/"), 403),
    ] {
        let answer = get(alpha, &path).await?;
        ensure!(answer == Err(code), "{path} is answered with {answer:?}, not {code}");
    }
    // Dots lead to the root of the program behind the proxy, not of the host.
    let answer = get(alpha, &of("pods", "reached:8080", "../../../../../../../../hostname")).await?;
    ensure!(matches!(&answer, Ok(text) if text == POD) || answer == Err(404), "dots lead to {answer:?}");
    story.report.fact("names of the host, nodes and dots in paths lead nowhere");
    Ok(())
}

/// Services that lead to no pod of the tenant, asked with kubectl: the client of the story would try again and again.
async fn nowhere(story: &Story<'_>, alpha: &Cluster, kubectl: &Kubectl) -> Result<()> {
    outside_services(alpha).await?;
    for (resource, id) in [
        ("services", "metadata:http"),
        ("services", "borrowed:http"),
        ("services", "away:80"),
        ("services", "absent:http"),
        ("services", "reached:81"),
        ("pods", "reached:9"),
    ] {
        let ended = kubectl.run(&["get", "--raw", &of(resource, id, "latest/meta-data")], "").await?;
        let told = String::from_utf8_lossy(&ended.stderr);
        ensure!(!ended.status.success() && told.contains("(ServiceUnavailable)"), "{id} is answered with {ended:?}");
    }
    for name in ["metadata", "borrowed", "away"] {
        alpha.delete(&SERVICES, NAMESPACE, name, &DeleteOptions::default()).await?;
    }
    story.report.fact("Services that point at other addresses or names lead nowhere either");
    Ok(())
}

/// Services that point where the tenant has no pods: at a cloud's metadata, at a Service of the host, away.
async fn outside_services(alpha: &Cluster) -> Result<()> {
    for (name, endpoint) in [
        ("metadata", json!({"addresses": ["169.254.169.254"]})),
        ("borrowed", json!({"addresses": ["10.96.0.1"], "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": POD}})),
    ] {
        let mut service = objects::service(NAMESPACE, name, "", false);
        service["spec"]["selector"] = json!(null);
        alpha.create(&SERVICES, &service).await?;
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": name}},
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": [endpoint],
        });
        match alpha.create(&ENDPOINT_SLICES, &slice).await {
            Ok(_) => {}
            // A link-local address is no endpoint, says validation.
            Err(error) if error.api().is_some_and(|e| e.code == 422) => {}
            Err(error) => bail!("the slice of {name}: {error}"),
        }
    }
    let mut away = objects::service(NAMESPACE, "away", "", false);
    away["spec"] = json!({"type": "ExternalName", "externalName": "kubernetes.default.svc", "ports": [{"port": 80}]});
    alpha.create(&SERVICES, &away).await?;
    Ok(())
}

/// `kubectl top`, where the host has figures.
async fn usage(story: &Story<'_>, alpha: &Cluster) -> Result<()> {
    if story.host.list(&POD_METRICS, ALPHA.0, &ListOptions::default()).await.is_err() {
        ensure!(alpha.list(&POD_METRICS, "", &ListOptions::default()).await.is_err(), "the tenant has figures that its host has not");
        story.report.fact("this host has no metrics API, and neither has the tenant");
        return Ok(());
    }
    let own: Vec<String> = alpha.list(&PODS, "", &ListOptions::default()).await?.items.iter().map(|p| p.name().to_string()).collect();
    eventually("figures of use", METRICS_PATIENCE_S, || async {
        let Ok(figures) = alpha.list(&POD_METRICS, "", &ListOptions::default()).await else { return Ok(Err("none".into())) };
        let names: Vec<&str> = figures.items.iter().map(|f| f.name()).collect();
        if let Some(stranger) = names.iter().find(|name| !own.iter().any(|o| o == *name)) {
            bail!("the tenant is told what {stranger} uses, which is none of its pods");
        }
        Ok(if names.contains(&POD) { Ok(()) } else { Err(format!("{names:?}")) })
    })
    .await?;
    story.report.fact("the tenant is told what its pods use, and no others");
    Ok(())
}

/// The same over both protocols that clients speak.
async fn with_kubectl(story: &Story<'_>, kubectl: &Kubectl, websocket: bool) -> Result<()> {
    let protocol = if websocket { "WebSocket" } else { "SPDY" };
    let start = |arguments: &[&str]| {
        let mut command = kubectl.command(&[&["-n", NAMESPACE], arguments].concat());
        for variable in ["KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS"] {
            command.env(variable, websocket.to_string());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let ended = start(&["exec", POD, "--", "sh", "-c", "echo out; echo err >&2; exit 3"]).output().await?;
    let result = (ended.status.code(), ended.stdout.as_slice(), ended.stderr.starts_with(b"err\n"));
    ensure!(result == (Some(3), b"out\n", true), "{protocol}: kubectl exec ended with {ended:?}");

    let mut forward = start(&["port-forward", POD, ":8080"]).spawn()?;
    // Kept until the end: kubectl ends when nobody listens to it.
    let mut told = BufReader::new(forward.stdout.take().context("no output")?);
    let mut line = String::new();
    told.read_line(&mut line).await?;
    let address = line.split_whitespace().nth(2).context("kubectl port-forward does not say where it listens")?;
    let mut stream = tokio::net::TcpStream::connect(address).await.with_context(|| format!("{protocol}: {line:?}"))?;
    stream.write_all(b"GET /hostname HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    forward.kill().await?;
    ensure!(answer.ends_with(POD), "{protocol}: the forwarded port answers {answer:?}");

    if story.stage.has_containers() {
        let dir = tempfile::tempdir()?;
        let (there, back) = (dir.path().join("there"), dir.path().join("back"));
        let content: Vec<u8> = (0..FILE_BYTES).map(|n| (n % 251) as u8).collect();
        std::fs::write(&there, &content)?;
        let in_pod = format!("{POD}:/tmp/{protocol}");
        for (from, to) in [(there.display().to_string(), in_pod.clone()), (in_pod, back.display().to_string())] {
            let ended = start(&["cp", &from, &to]).output().await?;
            ensure!(ended.status.success(), "{protocol}: kubectl cp: {}", String::from_utf8_lossy(&ended.stderr));
        }
        ensure!(std::fs::read(&back)? == content, "{protocol}: kubectl cp changed the file");
    }
    story
        .report
        .fact(&format!("over {protocol}: exec with its exit code, port-forward{}", if story.stage.has_containers() { ", cp" } else { "" }));
    Ok(())
}
