//! A tenant's API server before a host that writes down what it is asked for.

use super::api_server::{ApiServer, ApiServerSpec};
use super::streams::{Copies, HostStreams, Remote};
use super::usage::{HostUsage, TenantUsage};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use sublet_api::marks;
use sublet_apiserver::admission::PodSecurityLevel;
use sublet_apiserver::auth::authz::Mode;
use sublet_apiserver::reader::{Reader as _, Writer};
use sublet_machinery::ObjectExt as _;
use sublet_pki::{Pki, PkiConfig};
use sublet_runtime::Client;
use sublet_storage::MemoryBackend;
use sublet_syncer::translate::{NAME_BYTES_MAX_POD, Names, TenantKey};
use sublet_syncer::{HostCache, HostScope, TenantIdentity};
use tokio::net::TcpListener;
use tower::ServiceExt as _;

/// The host's namespace, which other tenants share.
pub const HOST_NAMESPACE: &str = "team-a";

/// What the host was asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

pub type Answer = fn(&Asked) -> Response<Full<Bytes>>;

/// An API server that serves the pods it is given, and answers other requests as it is told.
pub struct FakeHost {
    pub config: kube::Config,
    asked: Arc<Mutex<Vec<Asked>>>,
    pub pods: Arc<Mutex<Vec<Value>>>,
}

impl FakeHost {
    pub async fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let pods: Arc<Mutex<Vec<Value>>> = Arc::default();
        let (served, heard) = (pods.clone(), asked.clone());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (pods, heard) = (served.clone(), heard.clone());
                let service = service_fn(move |request: Request<Incoming>| {
                    let (pods, heard) = (pods.clone(), heard.clone());
                    async move {
                        let (parts, body) = request.into_parts();
                        let path = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
                        if let Some(name) = path.strip_prefix("/api/v1/namespaces/team-a/pods/").filter(|n| !n.contains(['/', '?'])) {
                            let found = pods.lock().unwrap().iter().find(|p| p["metadata"]["name"] == name).cloned();
                            return Ok::<_, Infallible>(json_answer(found.as_ref()));
                        }
                        // Asked in the background, whatever the test is about.
                        if path == "/apis/metrics.k8s.io/v1beta1" {
                            return Ok(answer(&Asked { method: parts.method, path, headers: parts.headers, body: Bytes::new() }));
                        }
                        let body = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
                        let asked = Asked { method: parts.method, path, headers: parts.headers, body };
                        heard.lock().unwrap().push(asked.clone());
                        Ok(answer(&asked))
                    }
                });
                tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { config: kube::Config::new(url.parse().unwrap()), asked, pods }
    }

    pub fn heard(&self) -> Vec<Asked> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

pub fn json_answer(object: Option<&Value>) -> Response<Full<Bytes>> {
    let missing =
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not found"});
    let mut response = Response::new(Full::new(Bytes::from(object.unwrap_or(&missing).to_string())));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    if object.is_none() {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    response
}

pub struct World {
    pub api: ApiServer,
    pub host: FakeHost,
    /// The name of the tenant's pod `web` on the host.
    pub copy: String,
}

fn names(uid: &str) -> Names {
    let tenant = TenantIdentity { name: "alpha".into(), namespace: HOST_NAMESPACE.into(), uid: uid.into() };
    Names::new(tenant, HOST_NAMESPACE)
}

/// A pod on the host, made for the pod of the same tenant's with this UID.
pub fn copy(tenant: &str, name: &str, uid: &str) -> Value {
    let key = names(tenant).host_key(&TenantKey::new("prod", name), NAME_BYTES_MAX_POD).namespaced();
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {
        "name": key.name, "namespace": key.namespace, "uid": format!("host-{uid}"),
        "labels": {marks::MANAGED_BY: marks::MANAGER, marks::VIRTUAL_CLUSTER_UID: tenant, marks::NAMESPACE: "prod"},
        "annotations": {marks::NAME: name, marks::UID: uid},
    }})
}

fn pod(name: &str, address: &str) -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "prod"},
        "spec": {"nodeName": "node-1", "containers": [{"name": "main", "image": "x", "ports": [{"containerPort": 8080}]}]},
        "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]},
    })
}

fn slice(service: &str, endpoints: Value) -> Value {
    json!({
        "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4", "endpoints": endpoints,
        "metadata": {"name": format!("{service}-1"), "namespace": "prod", "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": "http", "port": 8080}],
    })
}

impl World {
    pub async fn start(answer: Answer) -> Self {
        let host = FakeHost::start(answer).await;
        let keys = PkiConfig { cluster: "alpha".into(), names: vec!["localhost".into()] };
        let api = ApiServer::start(ApiServerSpec {
            name: "alpha".into(),
            pki: Pki::new(&keys, Timestamp::now()).unwrap(),
            backend: Arc::new(MemoryBackend::new()),
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            reached_at: None,
            reached_port: None,
            service_cidrs: vec!["10.96.0.0/16".parse().unwrap()],
            service_ip: None,
            node_ports: None,
            authorization: vec![Mode::Rbac],
            static_tokens: None,
            client_authorities_pem: String::new(),
            enabled_plugins: Vec::new(),
            disabled_plugins: Vec::new(),
            least_pod_security: PodSecurityLevel::Privileged,
        })
        .await
        .unwrap();
        let client = Client::new(kube::Client::try_from(host.config.clone()).unwrap(), "sublet");
        let copies = Copies::new(names("alpha-uid"), HostCache::new(client.clone(), HostScope::Cluster));
        let usage = TenantUsage::new(Arc::new(HostUsage::new(client)), copies.clone(), HOST_NAMESPACE, "alpha-uid");
        api.server.set_usage_source(Arc::new(usage));
        api.server.set_connector(Arc::new(HostStreams::new(Remote::of_host(&host.config).unwrap(), copies)));
        let world = Self { api, host, copy: copy("alpha-uid", "web", "").name().into() };
        world.fill().await;
        let uid = |name: &str| world.api.server.get("pods", "prod", name).unwrap().uid().to_string();
        // Somebody made a pod of the right name, without a mark of this tenant.
        let mut foreign = copy("alpha-uid", "foreign", &uid("foreign"));
        foreign["metadata"]["labels"] = json!({});
        *world.host.pods.lock().unwrap() = vec![
            copy("alpha-uid", "web", &uid("web")),
            copy("alpha-uid", "replaced", "its-uid-before"),
            foreign,
            copy("beta-uid", "web", &uid("web")),
            copy("beta-uid", "secret", "s"),
        ];
        world
    }

    async fn fill(&self) {
        let own = |ip: &str, pod: &str| json!([{"addresses": [ip], "targetRef": {"kind": "Pod", "namespace": "prod", "name": pod}}]);
        let service = |name: &str, spec: Value| json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": name, "namespace": "prod"}, "spec": spec});
        let ports = || json!([{"name": "http", "port": 80}]);
        let objects = [
            ("namespaces", json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "prod"}})),
            ("nodes", json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "node-1"}})),
            ("pods", pod("web", "10.1.0.1")),
            ("pods", pod("replaced", "10.1.0.2")),
            ("pods", pod("foreign", "10.1.0.3")),
            ("pods", pod("http", "10.1.0.4")),
            ("pods", pod("link", "169.254.169.254")),
            ("services", service("web", json!({"ports": ports()}))),
            ("endpointslices.discovery.k8s.io", slice("web", own("10.1.0.1", "web"))),
            ("services", service("outside", json!({"ports": ports(), "clusterIP": "None"}))),
            ("endpointslices.discovery.k8s.io", slice("outside", json!([{"addresses": ["169.254.169.254"]}]))),
            ("services", service("lies", json!({"ports": ports()}))),
            ("endpointslices.discovery.k8s.io", slice("lies", own("10.96.0.1", "web"))),
            ("services", service("named", json!({"type": "ExternalName", "externalName": "kubernetes.default.svc", "ports": ports()}))),
        ];
        for (bucket, object) in objects {
            Writer::create(&self.api.server, bucket, object).await.unwrap();
        }
    }

    pub async fn send(&self, request: Request<Full<Bytes>>) -> (StatusCode, HeaderMap, String) {
        let response = self.api.server.system_service().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (parts.status, parts.headers, String::from_utf8_lossy(&body).into_owned())
    }

    pub async fn ask(&self, method: &str, path: &str) -> (StatusCode, HeaderMap, String) {
        let upgrades = ["/exec", "/attach", "/portforward"].iter().any(|s| path.contains(s));
        let mut request = Request::builder().method(method).uri(path);
        if upgrades {
            request = request.header("connection", "Upgrade").header("upgrade", "SPDY/3.1");
        }
        self.send(request.body(Full::default()).unwrap()).await
    }
}
