//! Where tenants are, and how they get elsewhere.

use super::choose::{ShardPod, choose, dns_port};
use super::{Placed, dedicated, failed, is_ready};
use crate::install::{API_PORTS, SHARD};
use std::collections::HashMap;
use sublet_api::{Mode, Phase, Placement, Source, VirtualCluster, marks};
use sublet_machinery::ObjectExt;
use sublet_operator::{ControlPlaneError, Tenant};
use sublet_runtime::ClientError;
use sublet_runtime::resources::{PODS, STATEFUL_SETS};

impl Placed {
    /// Where the tenant is, or is to be from now on.
    pub(super) async fn place(&self, tenant: &Tenant) -> Result<Placement, ControlPlaneError> {
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
    pub(super) async fn ready_address(&self, pod: &str) -> Result<Option<String>, ControlPlaneError> {
        let pod = self.host.get_opt(&PODS, &self.namespace, pod).await.map_err(failed)?;
        Ok(pod.filter(is_ready).and_then(|p| p.str_at("/status/podIP").map(str::to_string)))
    }

    /// The move is over when the new pod serves the same store; whoever had it may delete it then.
    pub(super) fn finish_move(&self, tenant: &Tenant, placement: &mut Placement) {
        let Some(report) = &tenant.report else { return };
        let arrived = report.phase == Phase::Serving && report.store_identity.is_some() && report.store_identity == tenant.store_identity;
        if placement.from.is_some() && arrived && tenant.placement.as_ref().is_some_and(|p| p.pod == placement.pod) {
            placement.from = None;
            // What the old pod was for is looked at again.
            self.change(tenant, |k| k.reached = None);
        }
    }

    pub(super) async fn shards(&self) -> Result<Vec<ShardPod>, ClientError> {
        let mut shards = Vec::new();
        for name in self.shard_names().await? {
            let pod = self.host.get_opt(&PODS, &self.namespace, &name).await?;
            shards.push(ShardPod { name, ready: pod.is_some_and(|p| is_ready(&p)) });
        }
        Ok(shards)
    }

    /// The pods that the StatefulSet of shards is to have.
    pub(super) async fn shard_names(&self) -> Result<impl Iterator<Item = String> + use<>, ClientError> {
        let set = self.host.get(&STATEFUL_SETS, &self.namespace, SHARD).await?;
        Ok((0..set.i64_at("/spec/replicas").unwrap_or(1)).map(|ordinal| format!("{SHARD}-{ordinal}")))
    }
}

/// The shard that an admin chose.
fn wished<'a>(cluster: &VirtualCluster<'a>) -> Option<&'a str> {
    cluster.object().annotation(marks::SHARD).filter(|shard| !shard.is_empty())
}
