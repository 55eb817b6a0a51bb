//! Names of Services and pods: each tenant's name server knows its own, on the host's addresses.

use super::containers::{MOUNTS, ready, shell};
use super::workloads::{LABEL_NAME, NAMESPACE, from};
use super::{ALPHA, BETA, Story};
use crate::Cluster;
use crate::objects;
use crate::wait::eventually;
use anyhow::{Context as _, Result, bail, ensure};
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use std::net::SocketAddr;
use std::time::Duration;
use sublet_machinery::ObjectExt;
use sublet_runtime::DeleteOptions;
use sublet_runtime::resources::{PODS, SERVICES};
use tokio::net::UdpSocket;

const POD: &str = "asker";
const PATIENCE: Duration = Duration::from_secs(5);
/// Ids tell replies apart; each question has a socket of its own.
const ID: u16 = 1;
const DATAGRAM_BYTES_MAX: usize = 4096;

/// Who asks: this process where pods run nothing, or a container.
enum Asker {
    Direct(SocketAddr),
    Pod(Box<Api<Pod>>),
}

/// What is there: the code in words, and the data of the answers.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    code: String,
    data: Vec<String>,
}

pub async fn leads_to_its_own(story: &mut Story<'_>) -> Result<()> {
    let mut addresses = Vec::new();
    for ((host_namespace, name), tenant) in [(ALPHA, story.alpha()?), (BETA, story.beta()?)] {
        let service = in_front(story, host_namespace).await?;
        let address = service.str_at("/spec/clusterIP").context("the Service in front has no address")?.to_string();
        let asker = asker(story, tenant, &service).await?;
        addresses.push(of_services(&asker, tenant, &address, story.stage.patience_s()).await.with_context(|| format!("in {name}"))?);
        if let Asker::Pod(pods) = &asker {
            by_name(story, pods).await?;
            tenant.delete(&PODS, NAMESPACE, POD, &DeleteOptions::now()).await?;
        }
        let host_pods = story.host.list(&PODS, host_namespace, &from(LABEL_NAME, "db-0")).await?.items;
        let pod = host_pods.first().context("db-0 is not on the host")?;
        ensure!(
            pod.str_at("/spec/dnsPolicy") == Some("None") && pod["spec"]["dnsConfig"]["nameservers"][0] == *address,
            "pods ask elsewhere: {}",
            pod["spec"]["dnsConfig"]
        );
        story.report.fact(&format!("{name}: pods ask {address} for names and reach their API server at {address}:443"));
    }
    ensure!(addresses[0] != addresses[1], "Service web of both has the address {}", addresses[0]);
    story.report.fact(&format!("web.{NAMESPACE} is {} in alpha and {} in beta", addresses[0], addresses[1]));
    Ok(())
}

/// The Service on the host that leads to the tenant's servers.
async fn in_front(story: &Story<'_>, namespace: &str) -> Result<serde_json::Value> {
    let options = sublet_runtime::ListOptions { label_selector: "sublet.dev/control-plane-of".into(), ..Default::default() };
    story.host.list(&SERVICES, namespace, &options).await?.items.into_iter().next().context("no Service leads to the control plane")
}

async fn asker(story: &Story<'_>, tenant: &Cluster, service: &serde_json::Value) -> Result<Asker> {
    if !story.stage.has_containers() {
        let port = service.array_at("/spec/ports").iter().find(|p| p["name"] == "dns").and_then(|p| p["targetPort"].as_u64());
        let port = port.and_then(|p| u16::try_from(p).ok()).context("the Service in front has no port for names")?;
        return Ok(Asker::Direct(([127, 0, 0, 1], port).into()));
    }
    tenant.create(&PODS, &objects::asker(NAMESPACE, POD)).await?;
    ready(story, tenant, POD).await?;
    Ok(Asker::Pod(Box::new(Api::namespaced(tenant.kube().clone(), NAMESPACE))))
}

impl Asker {
    async fn ask(&self, name: &str, kind: RecordType) -> Result<Told> {
        match self {
            Self::Direct(server) => tokio::time::timeout(PATIENCE, directly(*server, name, kind)).await.context("no reply")?,
            Self::Pod(pods) => {
                let script = format!("dig +noall +comments +answer +search {name} {kind}");
                dug(&shell(pods, POD, &script).await?)
            }
        }
    }
}

async fn directly(server: SocketAddr, name: &str, kind: RecordType) -> Result<Told> {
    let mut question = Message::new(ID, MessageType::Query, OpCode::Query);
    question.add_query(Query::query(Name::from_ascii(name)?, kind));
    let socket = UdpSocket::bind("127.0.0.1:0").await?;
    socket.connect(server).await?;
    socket.send(&question.to_vec()?).await?;
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let length = socket.recv(&mut buffer).await?;
    let reply = Message::from_vec(&buffer[..length])?;
    let code = match reply.metadata.response_code {
        ResponseCode::NoError => "NOERROR".into(),
        ResponseCode::NXDomain => "NXDOMAIN".into(),
        other => other.to_string(),
    };
    Ok(Told { code, data: sorted(reply.answers.iter().map(|r| r.data.to_string()).collect()) })
}

/// What `dig` printed.
fn dug(text: &str) -> Result<Told> {
    let Some((_, rest)) = text.split_once("status: ") else { bail!("dig printed {text:?}") };
    let code = rest.split(',').next().unwrap_or_default().to_string();
    // Name, TTL, class, type, data.
    let data = |line: &str| line.split_whitespace().skip(4).collect::<Vec<_>>().join(" ");
    Ok(Told { code, data: sorted(text.lines().filter(|l| !l.starts_with(';') && !l.trim().is_empty()).map(data).collect()) })
}

fn sorted(mut data: Vec<String>) -> Vec<String> {
    data.sort();
    data
}

/// The address of Service web.
async fn of_services(asker: &Asker, tenant: &Cluster, front: &str, patience: u64) -> Result<String> {
    use RecordType::{A, PTR, SRV};
    let full = |name: &str| format!("{name}.{NAMESPACE}.svc.cluster.local.");
    let web = tenant.get(&SERVICES, NAMESPACE, "web").await?.str_at("/spec/clusterIP").unwrap_or_default().to_string();
    expect(asker, &full("web"), A, "NOERROR", &[&web]).await?;
    expect(asker, &full("_http._tcp.web"), SRV, "NOERROR", &[&format!("0 100 80 {}", full("web"))]).await?;
    expect(asker, &full("nothing"), A, "NXDOMAIN", &[]).await?;
    let reverse = web.split('.').rev().collect::<Vec<_>>().join(".");
    expect(asker, &format!("{reverse}.in-addr.arpa."), PTR, "NOERROR", &[&full("web")]).await?;
    expect(asker, "kubernetes.default.svc.cluster.local.", A, "NOERROR", &[front]).await?;
    let own = tenant.get(&SERVICES, "default", "kubernetes").await?;
    ensure!(own.str_at("/spec/clusterIP") == Some(front), "Service kubernetes has the address {}", own["spec"]["clusterIP"]);
    // A headless Service has the addresses of its pods, and each pod of a StatefulSet a name.
    let mut pods = Vec::new();
    for name in ["db-0", "db-1"] {
        let pod = tenant.get(&PODS, NAMESPACE, name).await?;
        let address = pod.str_at("/status/podIP").context("db has no address")?.to_string();
        let found = eventually(&format!("the name of {name}"), patience, || async {
            let told = asker.ask(&full(&format!("{name}.db")), A).await?;
            Ok(if told.data == [address.clone()] { Ok(told) } else { Err(format!("{told:?}, not {address}")) })
        })
        .await?;
        pods.extend(found.data);
    }
    let pods = sorted(pods);
    expect(asker, &full("db"), A, "NOERROR", &pods.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    Ok(web)
}

async fn expect(asker: &Asker, name: &str, kind: RecordType, code: &str, data: &[&str]) -> Result<()> {
    let told = asker.ask(name, kind).await.with_context(|| format!("{name} {kind}"))?;
    ensure!(told.code == code && told.data == data, "{name} {kind} is {told:?}, not {code} {data:?}");
    Ok(())
}

/// Short names, by the pod's own resolver and with its own credentials.
async fn by_name(story: &Story<'_>, pods: &Api<Pod>) -> Result<()> {
    for host in ["kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"] {
        let script = format!(
            "curl -sS --max-time 10 --cacert {MOUNTS}/ca.crt -H \"Authorization: Bearer $(cat {MOUNTS}/token)\" https://{host}/version"
        );
        let version = shell(pods, POD, &script).await?;
        ensure!(version.contains("sublet"), "https://{host} answers {version}");
    }
    let short = shell(pods, POD, "getent hosts db-0.db").await?;
    ensure!(short.contains(&format!("db-0.db.{NAMESPACE}.svc.cluster.local")), "db-0.db is {short:?}");
    story.report.fact("inside, https://kubernetes.default with the mounted CA and token is the tenant's API server");
    Ok(())
}
