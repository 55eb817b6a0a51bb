//! The node objects of simulated nodes: registration, status and leases.

use super::network::{NodeNetwork, node_range, nth};
use crate::config::HostConfig;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{LEASES, NODES};
use sublet_runtime::{Client, ClientError, Clock, Informer, Patch, PatchOptions};
use tokio_util::sync::CancellationToken;

const LEASE_NAMESPACE: &str = "kube-node-lease";
/// A node object with this annotation set to "true" is as a machine without power.
pub const FAIL_ANNOTATION: &str = "sim.sublet.dev/fail";
const STATUS_REFRESH_SECONDS: i64 = 300;
const REGISTER_RETRY: Duration = Duration::from_millis(200);

/// One simulated node.
pub(crate) struct SimulatedNode {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    pub(crate) zone: String,
    /// Guards the addresses of the pods.
    pub(crate) network: Mutex<NodeNetwork>,
}

/// All simulated nodes, by name.
pub(crate) struct Nodes {
    pub(crate) by_name: BTreeMap<String, Arc<SimulatedNode>>,
    pub(crate) config: HostConfig,
}

impl Nodes {
    pub(crate) fn new(config: &HostConfig) -> Self {
        let mut by_name = BTreeMap::new();
        for (index, name) in config.node_names().enumerate() {
            let Some(range) = node_range(config.pod_cidr, index, config.pods_per_node) else {
                tracing::warn!(node = name, cidr = %config.pod_cidr, "the pod range is too small for another node");
                break;
            };
            let zone = char::from(b'a' + u8::try_from(index % config.zones.clamp(1, 26)).unwrap_or(0));
            let node = SimulatedNode {
                name: name.clone(),
                address: nth(config.node_cidr, index as u128 + 2),
                zone: format!("zone-{zone}"),
                network: Mutex::new(NodeNetwork::new(range)),
            };
            by_name.insert(name, Arc::new(node));
        }
        Self { by_name, config: config.clone() }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<SimulatedNode>> {
        self.by_name.get(name)
    }

    /// Registers the nodes, then renews their leases until cancelled.
    pub(crate) async fn run(&self, client: Client, informer: Arc<Informer>, cancel: CancellationToken) {
        let client = client.with_field_manager("kubelet");
        for node in self.by_name.values() {
            loop {
                match self.register(&client, node).await {
                    Ok(()) => break,
                    Err(error) => tracing::warn!(node = node.name, %error, "cannot register the node yet"),
                }
                tokio::select! {
                    () = tokio::time::sleep(REGISTER_RETRY) => {}
                    () = cancel.cancelled() => return,
                }
            }
        }
        let mut ticks = tokio::time::interval(Duration::from_secs(self.config.timings.lease_renew.max(1)));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = cancel.cancelled() => return,
            }
            for node in self.by_name.values() {
                let beat = tokio::select! {
                    result = self.beat(&client, &informer, node) => result,
                    () = cancel.cancelled() => return,
                };
                if let Err(error) = beat {
                    tracing::debug!(node = node.name, %error, "heartbeat failed");
                }
            }
        }
    }

    async fn register(&self, client: &Client, node: &SimulatedNode) -> Result<(), ClientError> {
        let object = self.object(node);
        match client.create(&NODES, &object).await {
            Ok(_) => {}
            Err(error) if error.is_already_exists() => {}
            Err(error) => return Err(error),
        }
        self.write_status(client, node).await
    }

    async fn write_status(&self, client: &Client, node: &SimulatedNode) -> Result<(), ClientError> {
        let status = self.object(node)["status"].take();
        let patch = Patch::Strategic(json!({"status": status}));
        client.patch(&NODES, "", &node.name, "status", &patch, &PatchOptions::default()).await.map(drop)
    }

    async fn beat(&self, client: &Client, informer: &Informer, node: &SimulatedNode) -> Result<(), ClientError> {
        let Some(object) = informer.get("", &node.name) else { return Ok(()) };
        if object.annotation(FAIL_ANNOTATION) == Some("true") {
            return Ok(());
        }
        self.renew(client, &object).await?;
        if let Some(allocatable) = follow_capacity(&object["status"]) {
            let patch = json!({"status": {"allocatable": allocatable}});
            client.patch(&NODES, "", &node.name, "status", &Patch::Merge(patch), &PatchOptions::default()).await?;
        }
        let ready = object.condition("Ready");
        let beat_at = ready.and_then(|c| super::container::seconds(&c["lastHeartbeatTime"])).unwrap_or(0);
        let stale = self.config.clock.now().as_second() - beat_at > STATUS_REFRESH_SECONDS;
        if stale || ready.is_none_or(|c| c["status"] != "True") {
            self.write_status(client, node).await?;
        }
        Ok(())
    }

    async fn renew(&self, client: &Client, node: &Value) -> Result<(), ClientError> {
        let now = self.config.clock.rfc3339_micro();
        let patch = json!({"spec": {"renewTime": now, "holderIdentity": node.name()}});
        match client.merge_patch(&LEASES, LEASE_NAMESPACE, node.name(), patch).await {
            Err(error) if error.is_not_found() => {}
            other => return other.map(drop),
        }
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": node.name(), "uid": node.uid()});
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"namespace": LEASE_NAMESPACE, "name": node.name(), "ownerReferences": [owner]},
            "spec": {"holderIdentity": node.name(), "leaseDurationSeconds": self.config.timings.lease_duration, "renewTime": now},
        });
        client.create(&LEASES, &lease).await.map(drop)
    }

    fn object(&self, node: &SimulatedNode) -> Value {
        let config = &self.config;
        let cidr = node.network.lock().expect("no holder panics").cidr().to_string();
        let capacity = json!({
            "cpu": config.node_cpu, "memory": config.node_memory, "ephemeral-storage": config.node_ephemeral_storage,
            "pods": config.pods_per_node.to_string(), "hugepages-1Gi": "0", "hugepages-2Mi": "0",
        });
        let handler = |name: &str| json!({"name": name, "features": {"recursiveReadOnlyMounts": true, "userNamespaces": true}});
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": node.name,
                "labels": {
                    "kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                    "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64",
                    "node.kubernetes.io/instance-type": "simulated",
                    "topology.kubernetes.io/region": "local", "topology.kubernetes.io/zone": node.zone,
                },
                "annotations": {"node.alpha.kubernetes.io/ttl": "0", "volumes.kubernetes.io/controller-managed-attach-detach": "true"},
            },
            "spec": {"podCIDR": cidr, "podCIDRs": [cidr], "providerID": format!("sublet://simulated/{}", node.name)},
            "status": {
                "capacity": capacity, "allocatable": capacity,
                "addresses": [
                    {"type": "InternalIP", "address": node.address.to_string()}, {"type": "Hostname", "address": node.name},
                ],
                "conditions": conditions(&config.clock),
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                "nodeInfo": {
                    "architecture": "amd64", "operatingSystem": "linux", "osImage": "Simulated", "kernelVersion": "6.12.0",
                    "containerRuntimeVersion": "containerd://2.2.0", "kubeletVersion": config.kubelet_version, "kubeProxyVersion": "",
                    "machineID": node.name, "systemUUID": node.name, "bootID": node.name,
                },
                "runtimeHandlers": [handler(""), handler("runc")],
                "features": {"supplementalGroupsPolicy": true},
            },
        })
    }
}

/// Extended resources that somebody gave the node, or took from it: what is there can be allocated.
fn follow_capacity(status: &Value) -> Option<Value> {
    let (capacity, allocatable) = (status["capacity"].as_object()?, &status["allocatable"]);
    let mut changes = serde_json::Map::new();
    for (name, amount) in capacity.iter().filter(|(name, _)| name.contains('/')) {
        if allocatable.get(name) != Some(amount) {
            changes.insert(name.clone(), amount.clone());
        }
    }
    for name in allocatable.as_object().into_iter().flatten().map(|(name, _)| name) {
        if name.contains('/') && !capacity.contains_key(name) {
            changes.insert(name.clone(), Value::Null);
        }
    }
    (!changes.is_empty()).then_some(Value::Object(changes))
}

fn conditions(clock: &Clock) -> Vec<Value> {
    let now = clock.rfc3339();
    [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ]
    .iter()
    .map(|(kind, status, reason, message)| {
        json!({"type": kind, "status": status, "reason": reason, "message": message, "lastHeartbeatTime": now, "lastTransitionTime": now})
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extended_resources_become_allocatable() {
        let check = |capacity: Value, allocatable: Value, expected: Option<Value>| {
            assert_eq!(follow_capacity(&json!({"capacity": capacity, "allocatable": allocatable})), expected);
        };
        check(json!({"cpu": "1"}), json!({"cpu": "1"}), None);
        check(json!({"cpu": "2", "x.io/a": "5"}), json!({"cpu": "1"}), Some(json!({"x.io/a": "5"})));
        check(json!({}), json!({"x.io/a": "5"}), Some(json!({"x.io/a": null})));
        check(json!({"x.io/a": "5"}), json!({"x.io/a": "5"}), None);
    }
}
