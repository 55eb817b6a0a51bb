//! Control planes in pods of the host, as the operator handles them: it chooses a place, makes the Service
//! and the rights, and reads what the pod says.

mod choose;
mod dedicated;

use crate::install::{API_PORTS, OPERATOR, SHARD, TENANT_ROLE};
use async_trait::async_trait;
use choose::{ShardPod, choose, dns_port};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use sublet_api::{Mode, Phase, Placement, Source, VirtualCluster, marks};
use sublet_machinery::ObjectExt;
use sublet_operator::tenant_service::{self, Behind, Ports, Reached, holds};
use sublet_operator::{ControlPlaneError, ControlPlanes, Offers, PlaneStatus, Tenant, keys_digest};
use sublet_pki::Pki;
use sublet_runtime::resources::{NAMESPACES, PODS, ROLE_BINDINGS, STATEFUL_SETS, VIRTUAL_CLUSTERS};
use sublet_runtime::{Client, ClientError, DeleteOptions, Informer};
use sublet_syncer::TenantIdentity;

/// How often what stands on the host is compared with what should.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// How long the deletion of a tenant waits for a shard that does not answer.
const SILENT_SHARD: Duration = Duration::from_secs(60);
const BINDING: &str = "sublet";

/// An operator in a cluster.
pub struct Placed {
    host: Client,
    /// Where shards and Services of tenants live.
    namespace: String,
    clusters: Arc<Informer>,
    /// Guards what is known of each tenant, by UID; held for map moves only.
    known: Mutex<HashMap<String, Known>>,
    /// One choice at a time, so that no port is given twice.
    choosing: tokio::sync::Mutex<()>,
}

#[derive(Clone, Default)]
struct Known {
    tenant_namespace: String,
    placement: Option<Placement>,
    /// The last `status.controlPlane` that we wrote or found.
    written: Value,
    reached: Option<(Instant, Reached)>,
    status: PlaneStatus,
    store_identity: Option<String>,
}

impl Placed {
    /// `clusters` is the informer of all `VirtualCluster` objects.
    pub fn new(host: Client, namespace: &str, clusters: Arc<Informer>) -> Self {
        Self { host, namespace: namespace.into(), clusters, known: Mutex::default(), choosing: tokio::sync::Mutex::default() }
    }

    fn known(&self, uid: &str) -> Known {
        self.known.lock().expect("no holder of this lock panics").get(uid).cloned().unwrap_or_default()
    }

    fn change(&self, tenant: &Tenant, change: impl FnOnce(&mut Known)) {
        let mut known = self.known.lock().expect("no holder of this lock panics");
        let entry = known.entry(tenant.uid.clone()).or_default();
        entry.tenant_namespace.clone_from(&tenant.namespace);
        change(entry);
    }

    /// Where the tenant is, or is to be from now on.
    async fn place(&self, tenant: &Tenant) -> Result<Placement, ControlPlaneError> {
        let _one_at_a_time = self.choosing.lock().await;
        let cluster = tenant.cluster();
        let own_pod = dedicated::pod_name(&cluster);
        let current = self.known(&tenant.uid).placement.or_else(|| tenant.placement.clone());
        let placement = match current {
            // One move at a time, and none that is not wanted.
            Some(current) if current.from.is_some() || self.suits(tenant, &current, &own_pod).await? => current,
            Some(current) => self.move_from(tenant, current, &own_pod).await?,
            None => self.new_place(&cluster, &own_pod).await?,
        };
        self.change(tenant, |k| k.placement = Some(placement.clone()));
        Ok(placement)
    }

    /// Whether the tenant may stay where it is.
    async fn suits(&self, tenant: &Tenant, current: &Placement, own_pod: &str) -> Result<bool, ControlPlaneError> {
        let cluster = tenant.cluster();
        if cluster.mode() == Mode::Dedicated {
            return Ok(current.pod == own_pod);
        }
        if current.pod == own_pod || wished(&cluster).is_some_and(|w| w != current.pod) {
            return Ok(false);
        }
        if tenant.store_identity.is_some() {
            // The store is where it is, also while its shard is away.
            return Ok(true);
        }
        // Who never began can begin elsewhere when the shard was scaled away.
        Ok(self.shards().await.map_err(failed)?.iter().any(|s| s.name == current.pod))
    }

    async fn new_place(&self, cluster: &VirtualCluster<'_>, own_pod: &str) -> Result<Placement, ControlPlaneError> {
        let chosen = match cluster.mode() {
            Mode::Dedicated => Some((own_pod.to_string(), API_PORTS.0)),
            Mode::Packed | Mode::External => {
                let mut shards = self.shards().await.map_err(failed)?;
                if let Some(wished) = wished(cluster) {
                    shards.retain(|s| s.name == wished);
                }
                choose(&shards, self.taken().values())
            }
        };
        let Some((pod, api_port)) = chosen else {
            return Err(ControlPlaneError::Failed(format!(
                "no shard has room: scale StatefulSet `{SHARD}` in namespace `{}` up",
                self.namespace
            )));
        };
        let (address, keys) = (String::new(), String::new());
        Ok(Placement { pod, api_port, dns_port: dns_port(api_port), address, keys, from: None })
    }

    /// All places that are given, also those that the informer does not show yet.
    fn taken(&self) -> HashMap<String, Placement> {
        let known = self.known.lock().expect("no holder of this lock panics");
        let mut taken = HashMap::new();
        for object in self.clusters.list(None) {
            if let Some(placement) = VirtualCluster::new(&object).placement() {
                taken.insert(object.uid().to_string(), placement);
            }
        }
        taken.extend(known.iter().filter_map(|(uid, k)| Some((uid.clone(), k.placement.clone()?))));
        taken
    }

    /// The place to go to, with the way to the store. It stays `current` until the new pod can take over:
    /// whoever moves is away for as long as the file takes.
    async fn move_from(&self, tenant: &Tenant, current: Placement, own_pod: &str) -> Result<Placement, ControlPlaneError> {
        let mut next = self.new_place(&tenant.cluster(), own_pod).await?;
        if next.pod == own_pod {
            self.dedicate(&tenant.cluster()).await?;
        }
        if self.ready_address(&next.pod).await?.is_none() {
            self.change(tenant, |k| k.reached = None);
            return Ok(current);
        }
        // The address is that of the Service, which leads to the new pod from now on.
        next.address = current.address;
        if tenant.store_identity.is_some() {
            let Some(address) = self.ready_address(&current.pod).await? else {
                return Err(ControlPlaneError::Failed(format!("pod `{}` has the store and must be ready for the move", current.pod)));
            };
            next.from = Some(Source { pod: current.pod, address, port: current.api_port });
        }
        self.change(tenant, |k| k.reached = None);
        Ok(next)
    }

    /// Where a pod is reached, when it is ready.
    async fn ready_address(&self, pod: &str) -> Result<Option<String>, ControlPlaneError> {
        let pod = self.host.get_opt(&PODS, &self.namespace, pod).await.map_err(failed)?;
        Ok(pod.filter(is_ready).and_then(|p| p.str_at("/status/podIP").map(str::to_string)))
    }

    /// The move is over when the new pod serves the same store; whoever had it may delete it then.
    fn finish_move(&self, tenant: &Tenant, placement: &mut Placement) {
        let Some(report) = &tenant.report else { return };
        let arrived = report.phase == Phase::Serving && report.store_identity.is_some() && report.store_identity == tenant.store_identity;
        if placement.from.is_some() && arrived && tenant.placement.as_ref().is_some_and(|p| p.pod == placement.pod) {
            placement.from = None;
            // What the old pod was for is looked at again.
            self.change(tenant, |k| k.reached = None);
        }
    }

    /// The pod of a tenant that has one for itself.
    async fn dedicate(&self, cluster: &VirtualCluster<'_>) -> Result<(), ControlPlaneError> {
        let shards = self.host.get(&STATEFUL_SETS, &self.namespace, SHARD).await.map_err(failed)?;
        let wanted = dedicated::stateful_set(&shards, cluster, &self.namespace);
        let live = self.host.get_opt(&STATEFUL_SETS, &self.namespace, wanted.name()).await.map_err(failed)?;
        if !live.is_some_and(|l| holds(&l["spec"]["template"], &wanted["spec"]["template"])) {
            self.host.apply(&STATEFUL_SETS, &wanted).await.map_err(failed)?;
        }
        Ok(())
    }

    async fn undedicate(&self, cluster: &VirtualCluster<'_>) -> Result<(), ClientError> {
        self.host.delete_if_exists(&STATEFUL_SETS, &self.namespace, &dedicated::set_name(cluster), &DeleteOptions::background()).await
    }

    async fn shards(&self) -> Result<Vec<ShardPod>, ClientError> {
        let set = self.host.get(&STATEFUL_SETS, &self.namespace, SHARD).await?;
        let count = set.i64_at("/spec/replicas").unwrap_or(1);
        let mut shards = Vec::new();
        for ordinal in 0..count {
            let name = format!("{SHARD}-{ordinal}");
            let pod = self.host.get_opt(&PODS, &self.namespace, &name).await?;
            shards.push(ShardPod { name, ready: pod.is_some_and(|p| is_ready(&p)) });
        }
        Ok(shards)
    }

    /// The rights of shards and operator in the namespace of the tenant.
    async fn bind(&self, tenant: &Tenant) -> Result<(), ControlPlaneError> {
        let account = |name: &str| json!({"kind": "ServiceAccount", "name": name, "namespace": self.namespace});
        let wanted = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": BINDING, "namespace": tenant.namespace, "labels": tenant_service::labels(&tenant.cluster())},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": TENANT_ROLE},
            "subjects": [account(SHARD), account(OPERATOR)],
        });
        let live = self.host.get_opt(&ROLE_BINDINGS, &tenant.namespace, BINDING).await.map_err(failed)?;
        let same = live.as_ref().is_some_and(|l| l["subjects"] == wanted["subjects"] && l["roleRef"]["name"] == wanted["roleRef"]["name"]);
        if !same {
            self.host.apply(&ROLE_BINDINGS, &wanted).await.map_err(failed)?;
        }
        Ok(())
    }

    /// The rights and the Service of the tenant, looked at from time to time.
    async fn surround(&self, tenant: &Tenant, placement: &Placement) -> Result<Reached, ControlPlaneError> {
        if let Some((at, reached)) = self.known(&tenant.uid).reached
            && at.elapsed() < CHECK_INTERVAL
        {
            return Ok(reached);
        }
        self.bind(tenant).await?;
        let cluster = tenant.cluster();
        if cluster.mode() == Mode::External {
            // It has an address already, and nothing of ours to lead to.
            let reached = Reached::default();
            self.change(tenant, |k| k.reached = Some((Instant::now(), reached.clone())));
            return Ok(reached);
        }
        let own_pod = dedicated::pod_name(&cluster);
        let first_look = self.known(&tenant.uid).reached.is_none();
        if placement.pod == own_pod {
            self.dedicate(&cluster).await?;
        } else if first_look && cluster.mode() != Mode::Dedicated && placement.from.as_ref().is_none_or(|f| f.pod != own_pod) {
            self.undedicate(&cluster).await.map_err(failed)?;
        }
        let behind = Behind::Pods(json!({"statefulset.kubernetes.io/pod-name": placement.pod}));
        let ports = Ports { api: placement.api_port, dns: Some(placement.dns_port) };
        let mut reached = tenant_service::ensure(&self.host, &cluster, &self.namespace, &behind, ports).await.map_err(failed)?;
        tenant_service::ensure_external(&self.host, &cluster, &self.namespace, &behind, ports, &mut reached).await.map_err(failed)?;
        self.change(tenant, |k| k.reached = Some((Instant::now(), reached.clone())));
        Ok(reached)
    }

    /// Tells the pod where it stands. Written when it differs from what was written before.
    async fn tell(&self, tenant: &Tenant, placement: &Placement, reached: &Reached) -> Result<(), ControlPlaneError> {
        let mut wanted = json!({
            "pod": placement.pod, "namespace": self.namespace, "service": reached.name, "apiPort": placement.api_port,
            "dnsPort": placement.dns_port, "address": placement.address, "keys": placement.keys,
        });
        // A merge leaves out what is null, so an ended move is told as one.
        wanted["from"] = placement.from.as_ref().map_or(Value::Null, |f| json!({"pod": f.pod, "address": f.address, "port": f.port}));
        if let Some(external) = external(&tenant.cluster(), reached) {
            wanted["external"] = json!(external);
        }
        let mut written = self.known(&tenant.uid).written;
        if written.is_null() {
            written = tenant.object["status"]["controlPlane"].clone();
        }
        if written != without_nulls(&wanted) {
            let patch = json!({"metadata": {"uid": tenant.uid}, "status": {"controlPlane": wanted}});
            self.host.patch_status(&VIRTUAL_CLUSTERS, &tenant.namespace, &tenant.name, patch).await.map_err(failed)?;
        }
        self.change(tenant, |k| k.written = without_nulls(&wanted));
        Ok(())
    }

    async fn surroundings_go(&self, tenant: &Tenant) -> Result<(), ControlPlaneError> {
        tenant_service::remove(&self.host, &tenant.cluster(), &self.namespace).await.map_err(failed)?;
        self.undedicate(&tenant.cluster()).await.map_err(failed)
    }

    /// Whether a process may still write for the tenant.
    async fn may_write(&self, tenant: &Tenant) -> Result<bool, ClientError> {
        let Some(placement) = &tenant.placement else { return Ok(false) };
        if tenant.report.as_ref().is_some_and(|r| r.phase == Phase::Stopped) {
            return Ok(false);
        }
        let Some(pod) = self.host.get_opt(&PODS, &self.namespace, &placement.pod).await? else { return Ok(false) };
        // A shard that comes back reads first that the tenant is being deleted.
        let since: Option<jiff::Timestamp> = tenant.object.str_at("/metadata/deletionTimestamp").and_then(|t| t.parse().ok());
        let waited = since.is_some_and(|s| jiff::Timestamp::now().duration_since(s).unsigned_abs() > SILENT_SHARD);
        Ok(is_ready(&pod) || !waited)
    }
}

/// The shard that an admin chose.
fn wished<'a>(cluster: &VirtualCluster<'a>) -> Option<&'a str> {
    cluster.object().annotation(marks::SHARD).filter(|shard| !shard.is_empty())
}

/// The URL for clients outside of the host cluster, if there is one.
fn external(cluster: &VirtualCluster<'_>, reached: &Reached) -> Option<String> {
    let host = cluster.hosts().first().map(|h| (*h).to_string()).or_else(|| reached.load_balancer.first().cloned());
    match cluster.expose() {
        sublet_api::Expose::LoadBalancer => host.map(|h| format!("https://{}:{}", bracketed(&h), tenant_service::API_PORT)),
        sublet_api::Expose::NodePort => host.zip(reached.node_port).map(|(h, port)| format!("https://{}:{port}", bracketed(&h))),
        _ => None,
    }
}

fn without_nulls(value: &Value) -> Value {
    let fields = value.as_object().into_iter().flatten().filter(|(_, v)| !v.is_null());
    Value::Object(fields.map(|(k, v)| (k.clone(), v.clone())).collect())
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_string() }
}

fn is_ready(pod: &Value) -> bool {
    !pod.is_deleting() && pod.array_at("/status/conditions").iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

fn failed(error: ClientError) -> ControlPlaneError {
    ControlPlaneError::Failed(error.to_string())
}

/// What the process says, in the terms of the lifecycle.
fn status_of(tenant: &Tenant, placement: &Placement) -> PlaneStatus {
    let Some(report) = &tenant.report else {
        return PlaneStatus { message: format!("waits for pod `{}`", placement.pod), ..PlaneStatus::default() };
    };
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    PlaneStatus {
        serving: report.phase == Phase::Serving,
        synced: report.synced,
        pods: count(report.pods),
        namespaces: count(report.namespaces),
        objects: count(report.objects),
        bytes: report.bytes,
        message: report.message.clone(),
    }
}

#[async_trait]
impl ControlPlanes for Placed {
    fn offers(&self) -> Offers {
        Offers { exposure: true, dedicated: true, external: true }
    }

    async fn names(&self, tenant: &Tenant) -> Result<Vec<String>, ControlPlaneError> {
        let mut placement = self.place(tenant).await?;
        self.finish_move(tenant, &mut placement);
        let reached = self.surround(tenant, &placement).await?;
        if let Some(address) = reached.cluster_ips.first() {
            placement.address.clone_from(address);
        }
        self.change(tenant, |k| k.placement = Some(placement.clone()));
        let mut names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
            .map(String::from)
            .to_vec();
        names.push("127.0.0.1".into());
        names.extend(reached.names());
        names.extend(tenant.hosts.iter().cloned());
        Ok(names)
    }

    async fn ensure(&self, tenant: &Tenant, pki: &Pki) -> Result<String, ControlPlaneError> {
        let known = self.known(&tenant.uid);
        let (Some(mut placement), Some((_, reached))) = (known.placement, known.reached) else {
            return Err(ControlPlaneError::Failed("the control plane has no place yet".into()));
        };
        placement.keys = keys_digest(pki);
        self.tell(tenant, &placement, &reached).await?;
        if let Some(report) = tenant.report.as_ref().filter(|r| r.phase == Phase::WrongStore) {
            return Err(ControlPlaneError::WrongStore(report.message.clone()));
        }
        self.change(tenant, |k| {
            k.status = status_of(tenant, &placement);
            k.store_identity = tenant.report.as_ref().and_then(|r| r.store_identity.clone());
            k.placement = Some(placement);
        });
        Ok(if tenant.cluster().mode() == Mode::External { String::new() } else { reached.url() })
    }

    async fn status(&self, uid: &str) -> PlaneStatus {
        self.known(uid).status
    }

    async fn store_identity(&self, uid: &str) -> Option<String> {
        self.known(uid).store_identity
    }

    /// The shard reads of the deletion itself.
    async fn stop(&self, _uid: &str) {}

    async fn remove_host_objects(&self, tenant: &Tenant, keep_volumes: bool) -> Result<Option<String>, ControlPlaneError> {
        self.change(tenant, |_| {});
        if self.may_write(tenant).await.map_err(failed)? {
            let pod = tenant.placement.as_ref().map(|p| p.pod.clone()).unwrap_or_default();
            return Ok(Some(format!("its syncer in pod `{pod}`")));
        }
        let namespace = self.host.get_opt(&NAMESPACES, "", &tenant.namespace).await.map_err(failed)?;
        if namespace.is_none_or(|n| n.is_deleting()) {
            // It takes everything along that is in it, and takes no new rights.
            self.surroundings_go(tenant).await?;
            return Ok(None);
        }
        self.bind(tenant).await?;
        let identity = TenantIdentity { name: tenant.name.clone(), namespace: tenant.namespace.clone(), uid: tenant.uid.clone() };
        let left = sublet_syncer::remove_copies(&self.host, &tenant.namespace, &identity, keep_volumes).await;
        let left = left.map_err(|e| ControlPlaneError::Failed(format!("host objects cannot be deleted: {e}")))?;
        if !left.is_empty() {
            return Ok(Some(left.message()));
        }
        self.surroundings_go(tenant).await?;
        Ok(None)
    }

    async fn remove(&self, uid: &str) -> Result<(), ControlPlaneError> {
        let namespace = self.known(uid).tenant_namespace;
        if !namespace.is_empty() {
            let options = DeleteOptions::background();
            self.host.delete_if_exists(&ROLE_BINDINGS, &namespace, BINDING, &options).await.map_err(failed)?;
        }
        self.known.lock().expect("no holder of this lock panics").remove(uid);
        Ok(())
    }
}
