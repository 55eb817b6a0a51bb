//! What a tenant has on the host beside its own objects: rights, Services, and perhaps a pod.

use super::{BALANCER_INTERVAL, BINDING, CHECK_INTERVAL, Placed, dedicated, failed};
use crate::install::{OPERATOR, SHARD, TENANT_ROLE};
use serde_json::json;
use std::collections::HashSet;
use std::time::{Duration, Instant};
use sublet_api::{Expose, Mode, Placement, VirtualCluster, marks};
use sublet_machinery::ObjectExt;
use sublet_operator::tenant_service::{self, Behind, Ports, Reached, holds};
use sublet_operator::{ControlPlaneError, Tenant};
use sublet_runtime::resources::{INGRESSES, ROLE_BINDINGS, SERVICES, STATEFUL_SETS, VIRTUAL_CLUSTERS};
use sublet_runtime::{ClientError, DeleteOptions, ListOptions};

impl Placed {
    /// The rights of shards and operator in the namespace of the tenant.
    pub(super) async fn bind(&self, tenant: &Tenant) -> Result<(), ControlPlaneError> {
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
    pub(super) async fn surround(&self, tenant: &Tenant, placement: &Placement) -> Result<Reached, ControlPlaneError> {
        let known = self.known(&tenant.uid);
        if let Some((at, reached)) = &known.reached
            && known.generation == tenant.object.generation()
            && at.elapsed() < check_interval(&tenant.cluster(), reached)
        {
            return Ok(reached.clone());
        }
        self.change(tenant, |k| k.generation = tenant.object.generation());
        self.bind(tenant).await?;
        let cluster = tenant.cluster();
        if cluster.mode() == Mode::External {
            // It has an address already, and nothing of ours to lead to.
            let reached = Reached::default();
            self.change(tenant, |k| k.reached = Some((Instant::now(), reached.clone())));
            return Ok(reached);
        }
        let naming = if cluster.expose() == Expose::Ingress { Some(self.naming.lock().await) } else { None };
        if naming.is_some() {
            self.check_hosts(&cluster).await?;
        }
        let own_pod = dedicated::pod_name(&cluster);
        let first_look = known.reached.is_none();
        if placement.pod == own_pod {
            self.dedicate(&cluster).await?;
        } else if first_look && cluster.mode() != Mode::Dedicated && placement.from.as_ref().is_none_or(|f| f.pod != own_pod) {
            self.undedicate(&cluster).await.map_err(failed)?;
        }
        let behind = Behind::Pods(json!({"statefulset.kubernetes.io/pod-name": placement.pod}));
        let ports = Ports { api: placement.api_port, dns: Some(placement.dns_port) };
        let mut reached = tenant_service::ensure(&self.host, &cluster, &self.namespace, &behind, ports, None).await.map_err(failed)?;
        tenant_service::ensure_external(&self.host, &cluster, &self.namespace, &behind, ports, &mut reached).await.map_err(failed)?;
        self.change(tenant, |k| k.reached = Some((Instant::now(), reached.clone())));
        Ok(reached)
    }

    /// A name leads to one virtual cluster: the one that has it. Whoever asks holds `naming` until it has.
    async fn check_hosts(&self, cluster: &VirtualCluster<'_>) -> Result<(), ControlPlaneError> {
        let options = ListOptions { label_selector: marks::CONTROL_PLANE_OF.into(), ..ListOptions::default() };
        for other in self.host.list(&INGRESSES, &self.namespace, &options).await.map_err(failed)?.items {
            if other.label(marks::CONTROL_PLANE_OF) == Some(cluster.uid()) {
                continue;
            }
            let hosts: Vec<&str> = other.array_at("/spec/rules").iter().filter_map(|rule| rule["host"].as_str()).collect();
            if let Some(taken) = cluster.hosts().into_iter().find(|host| hosts.contains(host)) {
                // Whose it is is none of this one's business.
                let message =
                    format!("`{taken}` of spec.controlPlane.expose.hosts leads to another virtual cluster already; choose another name");
                return Err(ControlPlaneError::HostTaken(message));
            }
        }
        Ok(())
    }

    /// The pod of a tenant that has one for itself.
    pub(super) async fn dedicate(&self, cluster: &VirtualCluster<'_>) -> Result<(), ControlPlaneError> {
        let shards = self.host.get(&STATEFUL_SETS, &self.namespace, SHARD).await.map_err(failed)?;
        let wanted = dedicated::stateful_set(&shards, cluster, &self.namespace);
        let live = self.host.get_opt(&STATEFUL_SETS, &self.namespace, wanted.name()).await.map_err(failed)?;
        if !live.is_some_and(|l| holds(&l["spec"]["template"], &wanted["spec"]["template"])) {
            self.host.apply(&STATEFUL_SETS, &wanted).await.map_err(failed)?;
        }
        Ok(())
    }

    pub(super) async fn undedicate(&self, cluster: &VirtualCluster<'_>) -> Result<(), ClientError> {
        self.host.delete_if_exists(&STATEFUL_SETS, &self.namespace, &dedicated::set_name(cluster), &DeleteOptions::background()).await
    }

    pub(super) async fn surroundings_go(&self, tenant: &Tenant) -> Result<(), ControlPlaneError> {
        tenant_service::remove(&self.host, &tenant.cluster(), &self.namespace).await.map_err(failed)?;
        self.undedicate(&tenant.cluster()).await.map_err(failed)
    }

    /// Deletes what was made for tenants that are no more: somebody took their finalizers away.
    pub async fn sweep(&self) -> Result<(), ClientError> {
        self.clusters.wait_synced().await;
        let all = self.host.list(&VIRTUAL_CLUSTERS, "", &ListOptions::default()).await?.items;
        let known: HashSet<&str> = all.iter().map(|c| c.uid()).collect();
        let options = ListOptions { label_selector: marks::CONTROL_PLANE_OF.into(), ..ListOptions::default() };
        for gvr in [SERVICES, INGRESSES, STATEFUL_SETS] {
            for object in self.host.list(&gvr, &self.namespace, &options).await?.items {
                if object.label(marks::CONTROL_PLANE_OF).is_some_and(|uid| !known.contains(uid)) {
                    tracing::warn!(gvr = %gvr, name = object.name(), "its virtual cluster is gone without a farewell; deleted");
                    let delete = DeleteOptions::background().uid(object.uid());
                    self.host.delete_if_exists(&gvr, &self.namespace, object.name(), &delete).await?;
                }
            }
        }
        Ok(())
    }
}

/// An address from outside is looked for more often than what is there is compared.
fn check_interval(cluster: &VirtualCluster<'_>, reached: &Reached) -> Duration {
    let waits = cluster.expose() == Expose::LoadBalancer && reached.load_balancer.is_empty();
    if waits { BALANCER_INTERVAL } else { CHECK_INTERVAL }
}
