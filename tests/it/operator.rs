//! The life of virtual clusters on the embedded host, as their admins see it.

use crate::harness::{Client, Request, Response, Server, eventually};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use sublet_operator::{ControlPlaneError, ControlPlanes, PlaneStatus, Tenant};
use sublet_pki::Pki;
use sublet_runtime::{Clock, Manager};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// A cluster has a namespace of its own.
fn namespace_of(cluster: &str) -> String {
    format!("team-{cluster}")
}

fn collection(cluster: &str) -> String {
    format!("/apis/sublet.dev/v1alpha1/namespaces/{}/virtualclusters", namespace_of(cluster))
}

fn path(cluster: &str) -> String {
    format!("{}/{cluster}", collection(cluster))
}

fn secret_path(cluster: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{}/secrets/{name}", namespace_of(cluster))
}

struct Admin {
    folder: TempDir,
    /// `None` while it is stopped.
    server: Option<Server>,
    host: Client,
}

impl Admin {
    fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let server = start(folder.path());
        Self { host: server.client(), server: Some(server), folder }
    }

    fn stop(&mut self) {
        assert!(self.server.take().unwrap().terminate().success());
    }

    fn start_again(&mut self) {
        let server = start(self.folder.path());
        self.host = server.client();
        self.server = Some(server);
    }

    async fn try_create(&self, name: &str, spec: Value) -> Response {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace_of(name)}});
        self.host.send(&Request::post("/api/v1/namespaces", &namespace)).await;
        let cluster = json!({"apiVersion": "sublet.dev/v1alpha1", "kind": "VirtualCluster", "metadata": {"name": name}, "spec": spec});
        self.host.send(&Request::post(collection(name), &cluster)).await
    }

    async fn create(&self, name: &str, spec: Value) {
        let created = self.try_create(name, spec).await;
        assert_eq!(created.status.as_u16(), 201, "{}", created.text());
    }

    async fn cluster(&self, name: &str) -> Value {
        self.host.send(&Request::get(path(name))).await.json()
    }

    async fn patch(&self, name: &str, patch: Value) -> Value {
        self.host.send(&Request::patch("merge", path(name), &patch)).await.json()
    }

    /// Waits until a condition has a status; its reason and message.
    async fn condition(&self, name: &str, type_: &str, status: &str) -> (String, String) {
        let mut found = Value::Null;
        eventually(&format!("{type_} of {name} is {status}"), async || {
            let cluster = self.cluster(name).await;
            let current = cluster["status"]["observedGeneration"] == cluster["metadata"]["generation"];
            let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
            found = conditions.into_iter().find(|c| c["type"] == type_).unwrap_or_default();
            current && found["status"] == status
        })
        .await;
        let text = |key: &str| found[key].as_str().unwrap_or_default().to_string();
        (text("reason"), text("message"))
    }

    async fn secret(&self, cluster: &str, name: &str) -> Option<Value> {
        let answer = self.host.send(&Request::get(secret_path(cluster, name))).await;
        answer.status.is_success().then(|| answer.json())
    }

    /// A client of the tenant with what its Secret says.
    async fn tenant(&self, name: &str) -> Client {
        self.condition(name, "Ready", "True").await;
        let secret = self.secret(name, &format!("{name}-kubeconfig")).await.expect("a kubeconfig");
        let path = self.folder.path().join(format!("{name}.kubeconfig"));
        std::fs::write(&path, decoded(&secret, "config").or_else(|| decoded(&secret, "kubeconfig")).expect("a key")).unwrap();
        Client::from_kubeconfig(&path)
    }

    async fn store(&self, name: &str) -> PathBuf {
        let uid = self.cluster(name).await["metadata"]["uid"].as_str().unwrap().to_string();
        self.folder.path().join("tenants").join(uid).join("store.redb")
    }
}

fn start(folder: &Path) -> Server {
    Server::start(folder, &["dev", "--nodes", "1", "--dir"])
}

fn decoded(secret: &Value, key: &str) -> Option<String> {
    use base64::Engine as _;
    let bytes = base64::prelude::BASE64_STANDARD.decode(secret["data"][key].as_str()?).ok()?;
    String::from_utf8(bytes).ok()
}

async fn remember(tenant: &Client, value: &str) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "memory"}, "data": {"of": value}});
    let created = tenant.send(&Request::post("/api/v1/namespaces/default/configmaps", &map)).await;
    assert_eq!(created.status.as_u16(), 201, "{}", created.text());
}

async fn remembered(tenant: &Client) -> String {
    tenant.send(&Request::get("/api/v1/namespaces/default/configmaps/memory")).await.str("/data/of")
}

#[tokio::test]
async fn a_deleted_piece_comes_back() {
    let admin = Admin::start();
    admin.create("alpha", json!({})).await;
    let before = admin.tenant("alpha").await;
    remember(&before, "alpha").await;
    for name in ["alpha-kubeconfig", "alpha-pki"] {
        let old = admin.secret("alpha", name).await.unwrap_or_else(|| panic!("no Secret {name}"));
        assert!(admin.host.send(&Request::delete(secret_path("alpha", name))).await.status.is_success());
        let mut new = Value::Null;
        eventually(&format!("another {name}"), async || {
            new = admin.secret("alpha", name).await.unwrap_or_default();
            new["metadata"]["uid"].is_string() && new["metadata"]["uid"] != old["metadata"]["uid"]
        })
        .await;
    }
    // Who has the old kubeconfig goes on, and the new one works.
    assert_eq!(remembered(&before).await, "alpha");
    assert_eq!(remembered(&admin.tenant("alpha").await).await, "alpha");
}

/// A cluster whose store is not its own would answer as an empty one, and the syncer would believe it.
#[tokio::test]
async fn a_store_that_is_not_the_clusters_own_is_refused() {
    let mut admin = Admin::start();
    for name in ["alpha", "beta"] {
        admin.create(name, json!({})).await;
        remember(&admin.tenant(name).await, name).await;
    }
    let (alpha, beta) = (admin.store("alpha").await, admin.store("beta").await);
    let aside = admin.folder.path().join("aside");

    admin.stop();
    std::fs::rename(&alpha, &aside).unwrap();
    admin.start_again();
    let (reason, message) = admin.condition("alpha", "ControlPlaneReady", "False").await;
    assert_eq!(reason, "WrongStore", "{message}");
    assert!(message.contains("is missing from") && message.contains("put it back"), "{message}");
    assert_eq!(remembered(&admin.tenant("beta").await).await, "beta");

    admin.stop();
    std::fs::copy(&beta, &alpha).unwrap();
    admin.start_again();
    eventually("the refusal of another's store", async || {
        let (reason, message) = admin.condition("alpha", "ControlPlaneReady", "False").await;
        reason == "WrongStore" && message.contains("not this cluster's")
    })
    .await;

    admin.stop();
    std::fs::rename(&aside, &alpha).unwrap();
    admin.start_again();
    assert_eq!(remembered(&admin.tenant("alpha").await).await, "alpha");
}

#[tokio::test]
async fn what_is_not_supported_is_refused_by_name() {
    let admin = Admin::start();
    admin.create("mapped", json!({"layout": "Mapped"})).await;
    let (reason, message) = admin.condition("mapped", "Ready", "False").await;
    assert_eq!(reason, "NotSupported", "{message}");
    assert!(message.contains("Mapped"), "{message}");
    // And what makes no sense is refused at once.
    let refused = admin.try_create("many", json!({"controlPlane": {"replicas": 3}})).await;
    assert_eq!(refused.status.as_u16(), 422);
    assert!(refused.str("/message").contains("a packed control plane has one replica"), "{}", refused.text());
}

#[tokio::test]
async fn pods_hold_to_the_baseline_unless_the_admin_says_otherwise() {
    let admin = Admin::start();
    admin.create("alpha", json!({})).await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "root"}, "spec": {"containers": [
        {"name": "c", "image": "busybox", "securityContext": {"privileged": true}}]}});
    let tenant = admin.tenant("alpha").await;
    eventually("the default service account", async || {
        tenant.send(&Request::get("/api/v1/namespaces/default/serviceaccounts/default")).await.status.is_success()
    })
    .await;
    // The tenant is its own admin, and cannot allow it.
    let label = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}});
    assert!(tenant.send(&Request::patch("merge", "/api/v1/namespaces/default", &label)).await.status.is_success());
    let refused = tenant.send(&Request::post(pods, &pod)).await;
    assert_eq!(refused.status.as_u16(), 403);
    assert_eq!(
        refused.str("/message"),
        "pods \"root\" is forbidden: violates PodSecurity \"baseline:latest\": privileged (container \"c\" must not set \
         securityContext.privileged=true)"
    );
    admin.patch("alpha", json!({"spec": {"podSecurity": {"enforce": "privileged"}}})).await;
    eventually("a privileged pod", async || admin.tenant("alpha").await.send(&Request::post(pods, &pod)).await.status.is_success()).await;
}

#[tokio::test]
async fn a_paused_cluster_answers_and_syncs_nothing() {
    let admin = Admin::start();
    admin.create("alpha", json!({"state": "Paused"})).await;
    let tenant = admin.tenant("alpha").await;
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    assert_eq!(tenant.send(&Request::post("/api/v1/namespaces/default/persistentvolumeclaims", &claim)).await.status.as_u16(), 201);
    let copies = async || {
        let list = admin.host.send(&Request::get("/api/v1/namespaces/team-alpha/persistentvolumeclaims")).await.json();
        list["items"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(copies().await, 0);
    admin.patch("alpha", json!({"spec": {"state": "Running"}})).await;
    eventually("the copy", async || copies().await == 1).await;
}

/// Neither a Service that waits for ever, nor one that names what the host has.
#[tokio::test]
async fn a_node_port_that_the_host_uses_is_refused_at_once() {
    let admin = Admin::start();
    admin.create("alpha", json!({})).await;
    let tenant = admin.tenant("alpha").await;
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, port: u16| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"type": "NodePort",
            "ports": [{"port": 80, "nodePort": port}]}})
    };
    let taken = admin.host.send(&Request::post(services, &service("taken", 30080))).await;
    assert_eq!(taken.status.as_u16(), 201, "{}", taken.text());
    let refused = tenant.send(&Request::post(services, &service("mine", 30080))).await;
    assert_eq!(refused.status.as_u16(), 422);
    assert_eq!(
        refused.str("/message"),
        "Service \"mine\" is invalid: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated"
    );
    // The address in the answer is the one that the host gave.
    let made = tenant.send(&Request::post(services, &service("mine", 30081))).await;
    assert_eq!(made.status.as_u16(), 201, "{}", made.text());
    let copies = admin.host.send(&Request::get("/api/v1/namespaces/team-alpha/services?labelSelector=sublet.dev/name%3Dmine")).await;
    assert_eq!(made.str("/spec/clusterIP"), copies.str("/items/0/spec/clusterIP"));
}

/// Control planes that are there at once, and note what is asked of them.
#[derive(Default)]
struct Noting(Mutex<Vec<(&'static str, String)>>);

impl Noting {
    fn note(&self, what: &'static str, uid: &str) {
        self.0.lock().unwrap().push((what, uid.to_string()));
    }
}

#[async_trait]
impl ControlPlanes for Noting {
    async fn ensure(&self, _: &Tenant, _: &Pki) -> Result<String, ControlPlaneError> {
        Ok("https://192.0.2.1:443".into())
    }

    async fn names(&self, _: &Tenant) -> Result<Vec<String>, ControlPlaneError> {
        Ok(Vec::new())
    }

    async fn status(&self, _: &str) -> PlaneStatus {
        PlaneStatus { serving: true, synced: true, ..PlaneStatus::default() }
    }

    async fn store_identity(&self, _: &str) -> Option<String> {
        None
    }

    async fn stop(&self, _: &str) {}

    async fn remove_host_objects(&self, tenant: &Tenant, _: bool) -> Result<Option<String>, ControlPlaneError> {
        self.note("host objects", &tenant.uid);
        Ok(None)
    }

    async fn remove(&self, uid: &str) -> Result<(), ControlPlaneError> {
        self.note("state", uid);
        Ok(())
    }
}

/// The operator's own copy of a virtual cluster lives a moment longer than the virtual cluster. It was taken apart a
/// second time then, for which the operator gave itself rights in the namespace, and an operator that ended just then
/// left them there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_let_go_is_not_taken_apart_again() {
    const CLUSTERS: usize = 20;
    let server = Server::for_api();
    let host = server.client();
    let definition = include_str!("../../manifests/crds/customresourcedefinition-virtualclusters.sublet.dev.yaml");
    let mut request = Request::post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &json!(null));
    request.headers = vec![("content-type".into(), "application/yaml".into())];
    request.body = definition.into();
    assert_eq!(host.send(&request).await.status.as_u16(), 201);
    let kubeconfig = kube::config::Kubeconfig::read_from(&server.kubeconfig).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    let client = sublet_runtime::Client::new(kube::Client::try_from(config).unwrap(), "test");
    let planes = Arc::new(Noting::default());
    let mut manager = Manager::new(client, Clock::default());
    manager.add(sublet_operator::controller(planes.clone()));
    let cancel = CancellationToken::new();
    let running = tokio::spawn(manager.run(cancel.clone()));

    let names: Vec<String> = (0..CLUSTERS).map(|i| format!("c{i}")).collect();
    for name in &names {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace_of(name)}});
        host.send(&Request::post("/api/v1/namespaces", &namespace)).await;
        let cluster = json!({"apiVersion": "sublet.dev/v1alpha1", "kind": "VirtualCluster", "metadata": {"name": name}, "spec": {}});
        eventually("the definition is served", async || host.send(&Request::post(collection(name), &cluster)).await.status.as_u16() == 201)
            .await;
    }
    for name in &names {
        let is_ready = async || {
            let live = host.send(&Request::get(path(name))).await.json();
            live["status"]["conditions"].as_array().into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
        };
        eventually("the cluster is ready", is_ready).await;
    }
    for name in &names {
        host.send(&Request::delete(path(name))).await;
    }
    for name in &names {
        eventually("the cluster is gone", async || host.send(&Request::get(path(name))).await.status.as_u16() == 404).await;
    }
    cancel.cancel();
    running.await.unwrap();
    let mut removed = HashSet::new();
    for (what, uid) in &*planes.0.lock().unwrap() {
        match *what {
            "state" => assert!(removed.insert(uid.clone()), "{uid} was removed twice"),
            _ => assert!(!removed.contains(uid), "{uid} was taken apart after it was gone"),
        }
    }
    assert_eq!(removed.len(), CLUSTERS);
}
