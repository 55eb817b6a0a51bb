//! An installation in a cluster: operators and a shard as processes, each with the rights that the
//! manifests give it and no others. The host is an API server of ours, which holds them to it.

use crate::harness::server::{Process, binary};
use crate::harness::{Client, Request, Server, eventually};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const SYSTEM: &str = "sublet-system";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/sublet-system/leases/sublet-operator";
const CLUSTER: &str = "/apis/sublet.dev/v1alpha1/namespaces/team-a/virtualclusters/alpha";

struct Installation {
    host: Client,
    operators: Vec<(String, Process)>,
    shards: [Option<Process>; 2],
    /// Shards listen on fixed ports, so each has an address of its own.
    addresses: [String; 2],
    server: Server,
    folder: TempDir,
}

impl Installation {
    /// `network`: the second number of the shards' addresses, another one for each test.
    async fn start(network: u8) -> Self {
        let folder = TempDir::new().unwrap();
        let server = Server::start(&folder.path().join("host"), &["apiserver", "--dir"]);
        let addresses = [1, 2].map(|n| format!("127.{network}.0.{n}"));
        let mut one = Self { host: server.client(), operators: Vec::new(), shards: [None, None], addresses, server, folder };
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
        command.arg("--dir").arg(self.stores(index)).args(["--listen", &self.addresses[index]]);
        self.shards[index] = Some(Process::start(command));
    }

    fn stores(&self, index: usize) -> PathBuf {
        self.folder.path().join(format!("stores-{index}"))
    }

    /// There is no kubelet that would say it of the pod.
    async fn pretend_ready(&self, index: usize) {
        let path = format!("/api/v1/namespaces/{SYSTEM}/pods/sublet-shard-{index}/status");
        let status = json!({"status": {
            "podIP": self.addresses[index], "podIPs": [{"ip": self.addresses[index]}], "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        }});
        let patch = Request::patch("merge", path, &status);
        eventually("the pod of the shard is there", async || self.host.send(&patch).await.status.is_success()).await;
    }

    async fn is_ready(&self) -> bool {
        self.ready(CLUSTER).await["status"] == "True"
    }

    /// The `Ready` condition of a virtual cluster.
    async fn ready(&self, path: &str) -> Value {
        let cluster = self.host.send(&Request::get(path)).await.json();
        cluster["status"]["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == "Ready").cloned().unwrap_or_default()
    }

    /// Makes a virtual cluster in a namespace of its own.
    async fn create(&self, namespace: &str, name: &str, spec: Value) {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        self.host.send(&Request::post("/api/v1/namespaces", &object)).await;
        let cluster = json!({"apiVersion": "sublet.dev/v1alpha1", "kind": "VirtualCluster", "metadata": {"name": name}, "spec": spec});
        let path = format!("/apis/sublet.dev/v1alpha1/namespaces/{namespace}/virtualclusters");
        let created = self.host.send(&Request::post(path, &cluster)).await;
        assert_eq!(created.status.as_u16(), 201, "{}", created.text());
    }

    async fn leader(&self) -> String {
        self.host.send(&Request::get(LEASE)).await.str("/spec/holderIdentity")
    }

    /// The tenant's API where this machine reaches it: the address of its Service leads nowhere here.
    fn tenant(&self, shard: usize) -> Client {
        self.tenant_as(shard, &[])
    }

    fn tenant_as(&self, shard: usize, arguments: &[&str]) -> Client {
        let file = self.folder.path().join("alpha.kubeconfig");
        let mut command = binary();
        command.args(["kubeconfig", "alpha", "-n", "team-a"]).args(arguments).env("KUBECONFIG", &self.server.kubeconfig);
        let output = command.output().unwrap();
        std::fs::write(&file, output.stdout).unwrap();
        Client::from_kubeconfig(&file).at(&format!("{}:20000", self.addresses[shard]))
    }
}

fn process(subcommand: &str, pod: &str, kubeconfig: &Path) -> Command {
    let mut command = binary();
    command.args([subcommand, "--pod-name", pod, "--pod-namespace", SYSTEM, "--health", "127.0.0.1:0", "--kubeconfig"]).arg(kubeconfig);
    command
}

#[tokio::test]
async fn tenants_outlive_every_process_and_their_end_leaves_nothing() {
    let mut one = Installation::start(66).await;
    one.create("team-a", "alpha", json!({"controlPlane": {"expose": {"hosts": one.addresses}}})).await;
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

    // Its shard is scaled away: what to do is said, and the store waits.
    let scale = async |replicas: u32| {
        let path = format!("/apis/apps/v1/namespaces/{SYSTEM}/statefulsets/sublet-shard");
        one.host.send(&Request::patch("merge", path, &json!({"spec": {"replicas": replicas}}))).await
    };
    scale(1).await;
    let told = async || {
        let ready = one.ready(CLUSTER).await;
        ready["status"] == "False" && ready["message"].as_str().is_some_and(|m| m.contains("scaled away"))
    };
    eventually("it is said where the store is", told).await;
    scale(2).await;
    one.pretend_ready(1).await;
    eventually("the cluster is ready again", async || one.is_ready().await).await;

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

/// Whether nothing is there but the journal of the stores that come.
fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().all(|entry| entry.unwrap().file_name() == "journal")
}

#[tokio::test]
async fn a_name_leads_to_one_tenant_and_each_kubeconfig_says_what_was_asked_for() {
    let one = Installation::start(67).await;
    let exposed =
        json!({"type": "Ingress", "hosts": ["alpha.example.org", one.addresses[0], one.addresses[1]], "ingressClassName": "edge"});
    let deployer = json!({"secretName": "deployer", "server": "https://deploy.example.org:8443", "user": "deployer", "group": "ci", "namespace": "web"});
    one.create("team-a", "alpha", json!({"controlPlane": {"expose": exposed}, "kubeconfigs": [deployer]})).await;
    eventually("the cluster is ready", async || one.is_ready().await).await;
    let cluster = one.host.send(&Request::get(CLUSTER)).await;
    assert_eq!(cluster.str("/status/controlPlane/external"), "https://alpha.example.org:443");
    let ingresses = Request::get(format!("/apis/networking.k8s.io/v1/namespaces/{SYSTEM}/ingresses"));
    let made = one.host.send(&ingresses).await;
    assert_eq!(made.str("/items/0/spec/rules/0/host"), "alpha.example.org");
    let service = cluster.str("/status/controlPlane/service");
    assert_eq!(made.str("/items/0/spec/rules/0/http/paths/0/backend/service/name"), service);

    // Another one that asks for the same name is told so, and not whose it is.
    one.create("team-b", "beta", json!({"controlPlane": {"expose": {"type": "Ingress", "hosts": ["alpha.example.org"]}}})).await;
    let beta = CLUSTER.replace("team-a", "team-b").replace("/alpha", "/beta");
    eventually("the name is refused", async || one.ready(&beta).await["reason"] == "HostTaken").await;
    assert!(!one.ready(&beta).await["message"].as_str().unwrap().contains("team-a"));

    // The kubeconfig is for whom it was asked, and leads where it was to.
    let secrets = "/api/v1/namespaces/team-a/secrets";
    let secret = one.host.send(&Request::get(format!("{secrets}/deployer"))).await;
    assert_eq!(secret.status.as_u16(), 200, "{}", secret.text());
    let (text, good) = one.sublet(&["kubeconfig", "alpha", "-n", "team-a", "--secret", "deployer"]);
    assert!(
        good && text.contains(r#"server: "https://deploy.example.org:8443""#) && text.contains(r#"namespace: "web""#),
        "it leads elsewhere"
    );
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let who = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review);
    // Its pod may be any shard's.
    let shard = usize::from(cluster.str("/status/controlPlane/pod") != "sublet-shard-0");
    let who = one.tenant_as(shard, &["--secret", "deployer"]).send(&who).await;
    assert_eq!(who.str("/status/userInfo/username"), "deployer", "{}", who.text());
    assert_eq!(who.json()["status"]["userInfo"]["groups"][0], "ci");

    // A quiet cluster writes nothing; what is asked for no more goes, and so does the way from outside.
    let version = secret.str("/metadata/resourceVersion");
    let other = json!({"spec": {"weight": 2}});
    one.host.send(&Request::patch("merge", CLUSTER, &other)).await;
    let seen = async || one.host.send(&Request::get(CLUSTER)).await;
    eventually("the change is seen", async || seen().await.json()["status"]["effective"]["weight"] == 2).await;
    assert_eq!(one.host.send(&Request::get(format!("{secrets}/deployer"))).await.str("/metadata/resourceVersion"), version);
    let bare = json!({"spec": {"kubeconfigs": null, "controlPlane": {"expose": {"type": "ClusterIP", "ingressClassName": null}}}});
    let patched = one.host.send(&Request::patch("merge", CLUSTER, &bare)).await;
    assert_eq!(patched.status.as_u16(), 200, "{}", patched.text());
    eventually("the Secret is gone", async || one.host.send(&Request::get(format!("{secrets}/deployer"))).await.status.as_u16() == 404)
        .await;
    eventually("the name is free for the other one", async || {
        let live = one.host.send(&ingresses).await.json();
        let backends =
            live["items"].as_array().unwrap().iter().map(|i| &i["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["name"]);
        one.ready(&beta).await["status"] == "True"
            && backends.eq([&one.host.send(&Request::get(&beta)).await.json()["status"]["controlPlane"]["service"]])
    })
    .await;
}
