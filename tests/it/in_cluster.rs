//! An installation in a cluster: operators and a shard as processes, each with the rights that the
//! manifests give it and no others. The host is an API server of ours, which holds them to it.

use crate::harness::server::{Process, binary};
use crate::harness::{Client, Request, Server, eventually};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Shards listen on fixed ports, so each has an address of its own.
const SHARD_ADDRESSES: [&str; 2] = ["127.66.0.1", "127.66.0.2"];
const SYSTEM: &str = "sublet-system";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/sublet-system/leases/sublet-operator";
const CLUSTER: &str = "/apis/sublet.dev/v1alpha1/namespaces/team-a/virtualclusters/alpha";

struct Installation {
    host: Client,
    operators: Vec<(String, Process)>,
    shards: [Option<Process>; 2],
    server: Server,
    folder: TempDir,
}

impl Installation {
    async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let server = Server::start(&folder.path().join("host"), &["apiserver", "--dir"]);
        let mut one = Self { host: server.client(), operators: Vec::new(), shards: [None, None], server, folder };
        let (text, good) = one.sublet(&["install", "--no-wait", "--shards", "2"]);
        assert!(good, "{text}");
        for name in ["operator-a", "operator-b"] {
            let process = one.start_operator(name).await;
            one.operators.push((name.into(), process));
        }
        for index in 0..2 {
            one.start_shard(index).await;
            one.pretend_ready(index).await;
        }
        one
    }

    /// A command of the administrator: what it says, and whether it went well.
    fn sublet(&self, arguments: &[&str]) -> (String, bool) {
        let output = binary().args(arguments).env("KUBECONFIG", &self.server.kubeconfig).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (String::from_utf8_lossy(&text).into_owned(), output.status.success())
    }

    /// A kubeconfig with the token of a service account of the installation.
    async fn kubeconfig_of(&self, account: &str) -> PathBuf {
        let path = format!("/api/v1/namespaces/{SYSTEM}/serviceaccounts/{account}/token");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
        let token = self.host.send(&Request::post(path, &request)).await.str("/status/token");
        let admin = std::fs::read_to_string(&self.server.kubeconfig).unwrap();
        let kept = admin.lines().filter(|l| !l.contains("client-certificate-data"));
        let lines = kept.map(|l| if l.contains("client-key-data") { format!("    token: {token}") } else { l.to_string() });
        let file = self.folder.path().join(format!("{account}.kubeconfig"));
        std::fs::write(&file, lines.collect::<Vec<_>>().join("\n")).unwrap();
        file
    }

    async fn start_operator(&self, name: &str) -> Process {
        let kubeconfig = self.kubeconfig_of("sublet-operator").await;
        Process::start(process("operator", name, &kubeconfig))
    }

    async fn start_shard(&mut self, index: usize) {
        let kubeconfig = self.kubeconfig_of("sublet-shard").await;
        let mut command = process("shard", &format!("sublet-shard-{index}"), &kubeconfig);
        command.arg("--dir").arg(self.stores(index)).args(["--listen", SHARD_ADDRESSES[index]]);
        self.shards[index] = Some(Process::start(command));
    }

    fn stores(&self, index: usize) -> PathBuf {
        self.folder.path().join(format!("stores-{index}"))
    }

    /// There is no kubelet that would say it of the pod.
    async fn pretend_ready(&self, index: usize) {
        let path = format!("/api/v1/namespaces/{SYSTEM}/pods/sublet-shard-{index}/status");
        let status = json!({"status": {
            "podIP": SHARD_ADDRESSES[index], "podIPs": [{"ip": SHARD_ADDRESSES[index]}], "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        }});
        let patch = Request::patch("merge", path, &status);
        eventually("the pod of the shard is there", async || self.host.send(&patch).await.status.is_success()).await;
    }

    async fn is_ready(&self) -> bool {
        let cluster = self.host.send(&Request::get(CLUSTER)).await.json();
        cluster["status"]["conditions"].as_array().into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
    }

    async fn leader(&self) -> String {
        self.host.send(&Request::get(LEASE)).await.str("/spec/holderIdentity")
    }

    /// The tenant's API where this machine reaches it: the address of its Service leads nowhere here.
    fn tenant(&self, shard: usize) -> Client {
        let file = self.folder.path().join("alpha.kubeconfig");
        let output = binary().args(["kubeconfig", "alpha", "-n", "team-a"]).env("KUBECONFIG", &self.server.kubeconfig).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        std::fs::write(&file, text).unwrap();
        Client::from_kubeconfig(&file).at(&format!("{}:20000", SHARD_ADDRESSES[shard]))
    }
}

fn process(subcommand: &str, pod: &str, kubeconfig: &Path) -> Command {
    let mut command = binary();
    command.args([subcommand, "--pod-name", pod, "--pod-namespace", SYSTEM, "--health", "127.0.0.1:0", "--kubeconfig"]).arg(kubeconfig);
    command
}

#[tokio::test]
async fn tenants_outlive_every_process_and_their_end_leaves_nothing() {
    let mut one = Installation::start().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}});
    one.host.send(&Request::post("/api/v1/namespaces", &namespace)).await;
    let cluster = json!({
        "apiVersion": "sublet.dev/v1alpha1", "kind": "VirtualCluster", "metadata": {"name": "alpha"},
        "spec": {"controlPlane": {"expose": {"hosts": SHARD_ADDRESSES}}},
    });
    let (collection, _) = CLUSTER.rsplit_once('/').unwrap();
    let created = one.host.send(&Request::post(collection, &cluster)).await;
    assert_eq!(created.status.as_u16(), 201, "{}", created.text());
    eventually("the cluster is ready", async || one.is_ready().await).await;

    // What the tenant makes is copied with the rights in its namespace.
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"a": "b"}});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "web", "image": "web"}], "volumes": [{"name": "c", "configMap": {"name": "kept"}}]},
    });
    let tenant = one.tenant(0);
    for (path, object) in [("configmaps", &config), ("pods", &pod)] {
        let made = tenant.send(&Request::post(format!("/api/v1/namespaces/default/{path}"), object)).await;
        assert_eq!(made.status.as_u16(), 201, "{}", made.text());
    }
    let host = one.host.clone();
    let copies = || async {
        let pods: Value = host.send(&Request::get("/api/v1/namespaces/team-a/pods")).await.json();
        pods["items"].as_array().unwrap().iter().map(|p| p["metadata"]["uid"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    eventually("the pod is copied", async || copies().await.len() == 1).await;
    let before = copies().await;

    // The shard ends as in a power cut, and finds everything again.
    one.shards[0].take().unwrap().kill();
    one.start_shard(0).await;
    let kept = Request::get("/api/v1/namespaces/default/configmaps/kept");
    eventually("the tenant answers again", async || match tenant.try_send(&kept).await {
        Ok(answer) => answer.str("/data/a") == "b",
        Err(_) => false,
    })
    .await;
    assert_eq!(copies().await, before);

    // The leader ends in the same way, and the other one goes on.
    let leader = one.leader().await;
    let at = one.operators.iter().position(|(name, _)| *name == leader).unwrap();
    one.operators.remove(at).1.kill();
    eventually("another operator leads", async || one.leader().await == one.operators[0].0).await;

    // The tenant moves to the other shard, with its store.
    let wish = json!({"metadata": {"annotations": {"sublet.dev/shard": "sublet-shard-1"}}});
    one.host.send(&Request::patch("merge", CLUSTER, &wish)).await;
    eventually("the tenant has moved", async || {
        let at = one.host.send(&Request::get(CLUSTER)).await.json()["status"]["controlPlane"].clone();
        at["pod"] == "sublet-shard-1" && at["from"].is_null() && one.is_ready().await
    })
    .await;
    assert_eq!(one.tenant(1).send(&kept).await.str("/data/a"), "b");
    eventually("the old store is gone", async || is_empty(&one.stores(0))).await;
    assert_eq!(copies().await, before);

    // Who has tenants does not lose them by an oversight.
    let (text, good) = one.sublet(&["uninstall"]);
    assert!(!good && text.contains("team-a/alpha") && text.contains("--delete-tenants"), "{text}");
    let (text, good) = one.sublet(&["uninstall", "--delete-tenants", "--timeout", "60"]);
    assert!(good, "{text}");
    assert_eq!(copies().await, Vec::<String>::new());
    for path in ["/api/v1/namespaces/team-a/secrets", "/apis/rbac.authorization.k8s.io/v1/namespaces/team-a/rolebindings"] {
        assert_eq!(one.host.send(&Request::get(path)).await.json()["items"], json!([]), "{path}");
    }
    let services = one.host.send(&Request::get(format!("/api/v1/namespaces/{SYSTEM}/services"))).await.json();
    assert_eq!(services["items"], json!([]));
    eventually("the store is gone", async || is_empty(&one.stores(1))).await;
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}
