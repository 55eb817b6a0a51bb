//! Where containers are real: what runs in them is the tenant's, and streams reach it.

use super::workloads::NAMESPACE;
use super::{ALPHA, Story};
use crate::Cluster;
use crate::kubectl::Kubectl;
use crate::objects;
use crate::wait::eventually;
use anyhow::{Context as _, Result, bail, ensure};
use futures::AsyncBufReadExt;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, AttachParams, LogParams};
use std::time::Duration;
use sublet_machinery::ObjectExt;
use sublet_runtime::DeleteOptions;
use sublet_runtime::resources::{CONFIG_MAPS, PODS};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const POD: &str = "inside";
/// The longest that one stream of the story lasts.
const STREAM_TIMEOUT: Duration = Duration::from_secs(30);
/// More than fits into the windows and buffers on the way.
const BULK_BYTES: usize = 4 << 20;
pub(super) const MOUNTS: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

pub async fn are_reached(story: &mut Story<'_>) -> Result<()> {
    if !story.stage.has_containers() {
        story.report.fact("this host's nodes are simulated: there is no container to reach");
        return Ok(());
    }
    let alpha = story.alpha()?;
    alpha.create(&PODS, &objects::inside(NAMESPACE, POD)).await?;
    ready(story, alpha, POD).await?;
    let pods: Api<Pod> = Api::namespaced(alpha.kube().clone(), NAMESPACE);
    logs(story, &pods).await?;
    commands(story, &pods).await?;
    ports(story, &pods).await?;
    sees_itself(story, alpha, &pods).await?;
    reaches_its_api(story, &pods).await?;
    refusals_are_the_tenants(story, alpha, &pods).await?;
    mounted_edits_arrive(story, alpha, &pods).await?;
    match Kubectl::find(&alpha.kubeconfig)? {
        Some(kubectl) => with_kubectl(story, &kubectl).await?,
        None => story.report.fact("there is no kubectl here; not tried with it"),
    }
    alpha.delete(&PODS, NAMESPACE, POD, &DeleteOptions::default()).await?;
    Ok(())
}

/// Waits for a pod of the tenant.
pub(super) async fn ready(story: &Story<'_>, tenant: &Cluster, name: &str) -> Result<()> {
    eventually(&format!("pod {name} is ready"), story.stage.patience_s(), || async {
        let pod = tenant.get(&PODS, NAMESPACE, name).await?;
        let ready = pod.is_condition_true("Ready");
        Ok(if ready { Ok(()) } else { Err(pod["status"].to_string()) })
    })
    .await
}

async fn logs(story: &Story<'_>, pods: &Api<Pod>) -> Result<()> {
    let of = |container: &str| LogParams { container: Some(container.into()), ..LogParams::default() };
    // A pod that is ready this moment has hardly said anything yet.
    eventually("the last two lines of the log", story.stage.patience_s(), || async {
        let text = pods.logs(POD, &LogParams { tail_lines: Some(2), ..of("main") }).await.context("logs")?;
        Ok(if text.lines().count() == 2 && text.starts_with("line ") { Ok(()) } else { Err(format!("{text:?}")) })
    })
    .await?;
    // Lines that are written while we look.
    let follow = LogParams { follow: true, tail_lines: Some(1), ..of("main") };
    let mut lines = pods.log_stream(POD, &follow).await.context("logs -f")?.lines();
    let three = async {
        let mut numbers = Vec::new();
        while numbers.len() < 3 {
            let line = lines.next().await.context("the followed log ended")??;
            numbers.push(line.strip_prefix("line ").and_then(|n| n.parse::<u64>().ok()).with_context(|| format!("a line is {line:?}"))?);
        }
        anyhow::Ok(numbers)
    };
    let numbers = tokio::time::timeout(STREAM_TIMEOUT, three).await.context("the followed log does not move")??;
    ensure!(numbers.windows(2).all(|w| w[1] == w[0] + 1), "the followed log skips: {numbers:?}");
    story.report.fact("logs, and logs as they are written");
    Ok(())
}

/// What a command wrote and how it ended.
struct Ran {
    out: Vec<u8>,
    err: String,
    /// `None`: success.
    failure: Option<String>,
}

impl Ran {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).trim().to_string()
    }
}

async fn exec(pods: &Api<Pod>, pod: &str, command: &[&str], input: &[u8]) -> Result<Ran> {
    let parameters = AttachParams::default().container("main").stdin(!input.is_empty()).stdout(true).stderr(true);
    let run = async {
        let mut process = pods.exec(pod, command.iter().copied(), &parameters).await.context("exec")?;
        let status = process.take_status().context("no status")?;
        let (mut stdout, mut stderr) = (process.stdout().context("no stdout")?, process.stderr().context("no stderr")?);
        let (mut out, mut err, stdin) = (Vec::new(), String::new(), process.stdin());
        let write = async {
            if let Some(mut stdin) = stdin {
                stdin.write_all(input).await?;
                stdin.shutdown().await?;
            }
            Ok(())
        };
        tokio::try_join!(write, stdout.read_to_end(&mut out), stderr.read_to_string(&mut err))?;
        let status = status.await.context("the command ended without a status")?;
        let failure = (status.status.as_deref() != Some("Success")).then(|| status.message.unwrap_or_default());
        anyhow::Ok(Ran { out, err, failure })
    };
    tokio::time::timeout(STREAM_TIMEOUT, run).await.with_context(|| format!("{command:?} does not end"))?
}

pub(super) async fn shell(pods: &Api<Pod>, pod: &str, script: &str) -> Result<String> {
    let ran = exec(pods, pod, &["sh", "-c", script], b"").await?;
    ensure!(ran.failure.is_none(), "`{script}`: {:?}: {}{}", ran.failure, ran.text(), ran.err);
    Ok(ran.text())
}

async fn commands(story: &Story<'_>, pods: &Api<Pod>) -> Result<()> {
    let ran = exec(pods, POD, &["sh", "-c", "echo out; echo err >&2; exit 7"], b"").await?;
    ensure!(ran.text() == "out" && ran.err.trim() == "err", "the command wrote {:?} and {:?}", ran.text(), ran.err);
    ensure!(ran.failure.as_deref().is_some_and(|m| m.ends_with("exit code 7")), "the command ended with {:?}", ran.failure);
    let bulk: Vec<u8> = (0..BULK_BYTES).map(|n| (n % 251) as u8).collect();
    let ran = exec(pods, POD, &["head", "-c", &BULK_BYTES.to_string()], &bulk).await?;
    ensure!(ran.out == bulk, "{} of {BULK_BYTES} bytes came back from a container", ran.out.len());
    story.report.fact("exec: output, errors, exit codes; 4 MiB go in and come back as they were");
    Ok(())
}

async fn ports(story: &Story<'_>, pods: &Api<Pod>) -> Result<()> {
    let get = async {
        let mut forwarder = pods.portforward(POD, &[8080]).await.context("port-forward")?;
        let mut stream = forwarder.take_stream(8080).context("no stream")?;
        stream.write_all(b"GET /hostname HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer)
    };
    let answer = tokio::time::timeout(STREAM_TIMEOUT, get).await.context("the forwarded port does not answer")??;
    ensure!(answer.starts_with("HTTP/1.0 200") && answer.ends_with(POD), "the forwarded port answers {answer:?}");
    story.report.fact("port-forward: the program behind a port answers");
    Ok(())
}

async fn sees_itself(story: &Story<'_>, alpha: &Cluster, pods: &Api<Pod>) -> Result<()> {
    let uid = alpha.get(&PODS, NAMESPACE, POD).await?.uid().to_string();
    let seen =
        shell(pods, POD, "hostname; echo $POD_NAME $POD_NAMESPACE $POD_UID $POD_ACCOUNT; cat /info/name /info/namespace /info/labels")
            .await?;
    let expected = format!("{POD}\n{POD} {NAMESPACE} {uid} default\n{POD}{NAMESPACE}app=\"{POD}\"");
    ensure!(seen == expected, "the pod sees itself as {seen:?}, not {expected:?}");
    let mounted = shell(pods, POD, "cat /settings/greeting /credentials/password; echo $greeting").await?;
    ensure!(mounted == "good eveninghushgood evening", "ConfigMap and Secret are {mounted:?} in the pod");
    story.report.fact("inside, names, namespace, UID and labels are the tenant's; ConfigMap and Secret are mounted");
    Ok(())
}

async fn reaches_its_api(story: &Story<'_>, pods: &Api<Pod>) -> Result<()> {
    let ask = |path: &str| {
        format!(
            "cd {MOUNTS} && curl -sS --max-time 10 --cacert ca.crt -H \"Authorization: Bearer $(cat token)\" \
             -w ' %{{http_code}}' https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT_HTTPS{path}"
        )
    };
    let namespace = shell(pods, POD, &format!("cat {MOUNTS}/namespace")).await?;
    ensure!(namespace == NAMESPACE, "the mounted namespace is {namespace:?}");
    let version = shell(pods, POD, &ask("/version")).await?;
    ensure!(version.contains("sublet") && version.ends_with(" 200"), "the API server that the pod reaches says {version}");
    let list = shell(pods, POD, &ask(&format!("/api/v1/namespaces/{NAMESPACE}/pods"))).await?;
    let who = format!("User \\\"system:serviceaccount:{NAMESPACE}:default\\\" cannot list");
    ensure!(list.contains(&who) && list.ends_with(" 403"), "the pod's token is answered with {list}");
    story.report.fact("the mounted token and CA lead to the tenant's API server, which knows the pod's account");
    Ok(())
}

async fn refusals_are_the_tenants(story: &Story<'_>, alpha: &Cluster, pods: &Api<Pod>) -> Result<()> {
    let host_names = story.host.list(&PODS, ALPHA.0, &super::workloads::from(super::workloads::LABEL_NAME, POD)).await?.items;
    let host_name = host_names.first().context("no host pod")?.name().to_string();
    alpha.create(&PODS, &objects::waiting(NAMESPACE, "waiting")).await?;
    let told = eventually("a log of a container that does not run", 30, || async {
        let parameters = LogParams::default();
        Ok(match pods.logs("waiting", &parameters).await {
            Err(kube::Error::Api(status)) if status.message.contains("waiting to start") => Ok(status.message.clone()),
            other => Err(format!("{other:?}")),
        })
    })
    .await?;
    ensure!(told.contains("in pod \"waiting\""), "the refusal is {told:?}");
    alpha.delete(&PODS, NAMESPACE, "waiting", &DeleteOptions::now()).await?;
    match pods.exec(POD, ["true"], &AttachParams::default().container("nothing")).await {
        Err(error) => ensure!(!error.to_string().contains(&host_name), "the host's name of the pod is told: {error}"),
        Ok(_) => bail!("a container that does not exist runs a command"),
    }
    story.report.fact(&format!("refusals speak the tenant's names: {told}"));
    Ok(())
}

/// Kubelets look at what they mounted about once a minute.
async fn mounted_edits_arrive(story: &Story<'_>, alpha: &Cluster, pods: &Api<Pod>) -> Result<()> {
    alpha.merge_patch(&CONFIG_MAPS, NAMESPACE, "settings", serde_json::json!({"data": {"greeting": "good night"}})).await?;
    eventually("the edited ConfigMap is in the mounted file", story.stage.patience_s(), || async {
        let text = shell(pods, POD, "cat /settings/greeting").await?;
        if text != "good night" {
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        Ok(if text == "good night" { Ok(()) } else { Err(text) })
    })
    .await?;
    story.report.fact("an edited ConfigMap changes the mounted file");
    Ok(())
}

async fn with_kubectl(story: &Story<'_>, kubectl: &Kubectl) -> Result<()> {
    let at = |verb: &'static str| vec!["-n", NAMESPACE, verb];
    let run = |verb: &'static str, rest: &'static [&'static str]| [at(verb), rest.to_vec()].concat();
    let log = kubectl.text(&run("logs", &[POD, "-c", "main", "--tail=1"])).await?;
    ensure!(log.starts_with("line "), "kubectl logs prints {log:?}");
    let ended = kubectl.run(&run("exec", &["-i", POD, "-c", "main", "--", "sh", "-c", "cat; exit 3"]), "hello").await?;
    ensure!(ended.status.code() == Some(3) && ended.stdout == b"hello", "kubectl exec ended with {ended:?}");
    let attached = kubectl.converse(&run("attach", &["-i", POD, "-c", "echo"]), "to and fro").await?;
    ensure!(attached == "to and fro", "kubectl attach printed {attached:?}");

    let (dir, content) = (tempfile::tempdir()?, "there and back");
    let (there, back) = (dir.path().join("there").display().to_string(), dir.path().join("back").display().to_string());
    std::fs::write(&there, content)?;
    let (in_pod, from_pod) = (format!("{POD}:/tmp/copied"), ["-c", "main"]);
    kubectl.text(&[&at("cp")[..], &[&there, &in_pod], &from_pod].concat()).await?;
    kubectl.text(&[&at("cp")[..], &[&in_pod, &back], &from_pod].concat()).await?;
    ensure!(std::fs::read_to_string(&back)? == content, "kubectl cp changed the file");

    let image = format!("--image={}", objects::IMAGE);
    let debug = ["debug", POD, &image, "-c", "debugger", "--profile=baseline", "--target=main", "--", "sh", "-c", "echo debugging"];
    kubectl.text(&[&["-n", NAMESPACE], &debug[..]].concat()).await?;
    eventually("the debug container has run", story.stage.patience_s(), || async {
        let log = kubectl.run(&run("logs", &[POD, "-c", "debugger"]), "").await?;
        Ok(if log.stdout == b"debugging\n" { Ok(()) } else { Err(format!("{log:?}")) })
    })
    .await?;
    story.report.fact("kubectl logs, exec, attach, cp and debug do what they do anywhere");
    Ok(())
}
