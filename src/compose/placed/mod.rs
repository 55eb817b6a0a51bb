//! Control planes in pods of the host, as the operator handles them: it chooses a place, makes the Service
//! and the rights, and reads what the pod says.

mod choose;
mod dedicated;
mod places;
mod surroundings;

use super::api_server::url;
use super::tenant::remove_copies;
use crate::install::SHARD;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use sublet_api::condition;
use sublet_api::{Expose, Mode, Phase, Placement, VirtualCluster, marks};
use sublet_machinery::ObjectExt;
use sublet_operator::tenant_service::{self, Reached};
use sublet_operator::{ControlPlaneError, ControlPlanes, Offers, PlaneStatus, Tenant, keys_digest};
use sublet_pki::Pki;
use sublet_runtime::resources::{NAMESPACES, PODS, ROLE_BINDINGS, VIRTUAL_CLUSTERS};
use sublet_runtime::{Client, ClientError, DeleteOptions, Informer, ListOptions};

/// How often what stands on the host is compared with what should.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// How often a load balancer is asked for its address.
const BALANCER_INTERVAL: Duration = Duration::from_secs(3);
/// How old the knowledge may be of which pods are ready.
const PODS_INTERVAL: Duration = Duration::from_secs(3);
/// How long the deletion of a tenant waits for a shard that does not answer.
const SILENT_SHARD: Duration = Duration::from_secs(60);
/// How long a tenant that serves is not called ready while nothing answers at its Service's address. Where the operator
/// cannot reach Services, it is ready all the same.
const LED_PATIENCE: Duration = Duration::from_secs(3);
const LED_TIMEOUT: Duration = Duration::from_millis(250);
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
    /// One at a time looks for a free name and takes it.
    naming: tokio::sync::Mutex<()>,
    /// What was seen of the pods when they were last listed; whoever holds it lists them.
    seen: tokio::sync::Mutex<Option<Seen>>,
}

/// The pods of the installation at one moment.
struct Seen {
    at: Instant,
    ready: HashSet<String>,
    /// The names of the shards that are wanted.
    shards: HashSet<String>,
}

/// What there is of a pod.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Ready,
    Away,
    /// That of a shard which is wanted no more.
    ScaledAway,
}

impl Seen {
    fn presence(&self, pod: &str) -> Presence {
        let is_shard = || pod.strip_prefix(SHARD).and_then(|rest| rest.strip_prefix('-')).is_some_and(|n| n.parse::<u32>().is_ok());
        if self.ready.contains(pod) {
            Presence::Ready
        } else if is_shard() && !self.shards.contains(pod) {
            Presence::ScaledAway
        } else {
            Presence::Away
        }
    }
}

#[derive(Clone, Default)]
struct Known {
    tenant_namespace: String,
    placement: Option<Placement>,
    /// The last `status.controlPlane` that we wrote or found.
    written: Value,
    reached: Option<(Instant, Reached)>,
    /// Of the object that `reached` was made for.
    generation: i64,
    status: PlaneStatus,
    store_identity: Option<String>,
    /// Since when it is asked whether the address of the tenant's Service leads to its API server.
    asked: Option<Instant>,
}

impl Placed {
    /// `clusters` is the informer of all `VirtualCluster` objects.
    pub fn new(host: Client, namespace: &str, clusters: Arc<Informer>) -> Self {
        Self {
            host,
            namespace: namespace.into(),
            clusters,
            known: Mutex::default(),
            choosing: tokio::sync::Mutex::default(),
            naming: tokio::sync::Mutex::default(),
            seen: tokio::sync::Mutex::default(),
        }
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

    /// Tells the pod where it stands. Written when it differs from what was written before.
    async fn tell(&self, tenant: &Tenant, placement: &Placement, reached: &Reached) -> Result<(), ControlPlaneError> {
        let wanted = place(&tenant.cluster(), &self.namespace, placement, reached);
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

    /// Whether the pod is ready: what a process said before it went away is no news of it.
    async fn presence(&self, pod: &str) -> Result<Presence, ClientError> {
        let mut seen = self.seen.lock().await;
        if let Some(seen) = &*seen
            && seen.at.elapsed() < PODS_INTERVAL
        {
            return Ok(seen.presence(pod));
        }
        let options = ListOptions { label_selector: "app.kubernetes.io/name=sublet".into(), ..ListOptions::default() };
        let listed = self.host.list(&PODS, &self.namespace, &options).await?.items;
        let ready = listed.iter().filter(|p| is_ready(p)).map(|p| p.name().to_string()).collect();
        let shards = self.shard_names().await?.collect();
        let fresh = Seen { at: Instant::now(), ready, shards };
        let presence = fresh.presence(pod);
        *seen = Some(fresh);
        Ok(presence)
    }

    /// Whether the address leads to the tenant: the host's nodes learn of it on their own time. One that was ready before
    /// is not asked again.
    async fn leads(&self, tenant: &Tenant, address: &str) -> bool {
        if tenant.object.is_condition_true(condition::READY) {
            return true;
        }
        let since = self.known(&tenant.uid).asked.unwrap_or_else(Instant::now);
        self.change(tenant, |k| k.asked = Some(since));
        if since.elapsed() > LED_PATIENCE {
            return true;
        }
        let connecting = tokio::net::TcpStream::connect((address, tenant_service::API_PORT));
        matches!(tokio::time::timeout(LED_TIMEOUT, connecting).await, Ok(Ok(_)))
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

/// Where a tenant stands, as a merge patch: what is no longer so is null, such as a move that ended or a way from
/// outside that was closed.
fn place(cluster: &VirtualCluster<'_>, namespace: &str, placement: &Placement, reached: &Reached) -> Value {
    json!({
        "pod": placement.pod, "namespace": namespace, "service": reached.name, "apiPort": placement.api_port,
        "dnsPort": placement.dns_port, "address": placement.address, "keys": placement.keys,
        "from": placement.from.as_ref().map(|f| json!({"pod": f.pod, "address": f.address, "port": f.port})),
        "external": external(cluster, reached),
    })
}

/// The URL for clients outside of the host cluster, if there is one.
fn external(cluster: &VirtualCluster<'_>, reached: &Reached) -> Option<String> {
    let host = cluster.hosts().first().map(|h| (*h).to_string()).or_else(|| reached.load_balancer.first().cloned());
    match cluster.expose() {
        Expose::LoadBalancer => host.map(|h| url(&h, tenant_service::API_PORT)),
        Expose::Ingress => cluster.host_names().first().map(|name| url(name, tenant_service::API_PORT)),
        Expose::NodePort => host.zip(reached.node_port).map(|(h, port)| url(&h, port)),
        _ => None,
    }
}

fn without_nulls(value: &Value) -> Value {
    let fields = value.as_object().into_iter().flatten().filter(|(_, v)| !v.is_null());
    Value::Object(fields.map(|(k, v)| (k.clone(), v.clone())).collect())
}

fn is_ready(pod: &Value) -> bool {
    !pod.is_deleting() && pod.is_condition_true("Ready")
}

fn failed(error: ClientError) -> ControlPlaneError {
    ControlPlaneError::Failed(error.to_string())
}

/// What the process says, in the terms of the lifecycle.
fn status_of(tenant: &Tenant, placement: &Placement, there: bool) -> PlaneStatus {
    let Some(report) = tenant.report.as_ref().filter(|_| there) else {
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
        off: report.off.clone(),
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
        let mut names = reached.names();
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
        let presence = self.presence(&placement.pod).await.map_err(failed)?;
        let mut status = status_of(tenant, &placement, presence == Presence::Ready);
        if presence == Presence::ScaledAway {
            status.message = format!(
                "its store is in the volume of pod `{}`, which was scaled away: scale StatefulSet `{SHARD}` in namespace `{}` up again; \
                 move virtual clusters before scaling down, see annotation `{}`",
                placement.pod,
                self.namespace,
                marks::SHARD
            );
        }
        if status.serving && !placement.address.is_empty() && !self.leads(tenant, &placement.address).await {
            status.serving = false;
            status.message = format!("waits until the host's nodes lead {} to it", placement.address);
        }
        self.change(tenant, |k| {
            k.status = status;
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
        let left = remove_copies(&self.host, tenant, keep_volumes).await?;
        if left.is_none() {
            self.surroundings_go(tenant).await?;
        }
        Ok(left)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A virtual cluster behind a load balancer that became one without kept the address in its status, and
    /// `sublet kubeconfig` led to it.
    #[test]
    fn a_way_from_outside_that_was_closed_is_told_as_such() {
        let reached = Reached { name: "vc".into(), load_balancer: vec!["192.0.2.7".into()], ..Reached::default() };
        let placement = Placement {
            pod: "shard-0".into(),
            api_port: 20_000,
            dns_port: 30_000,
            address: String::new(),
            keys: String::new(),
            from: None,
        };
        let external = |kind: &str| {
            let object = json!({"spec": {"controlPlane": {"expose": {"type": kind}}}});
            place(&VirtualCluster::new(&object), "sublet-system", &placement, &reached).get("external").cloned()
        };
        assert_eq!(external("LoadBalancer"), Some(json!("https://192.0.2.7:443")));
        assert_eq!(external("ClusterIP"), Some(Value::Null));
    }
}
