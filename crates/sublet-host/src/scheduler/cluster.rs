//! Nodes with the pods on them, assumed ones included: what decisions are made against.

use super::pod::{HostPort, PodInfo, Taint};
use super::resources::Resources;
use crate::selector::Labels;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use sublet_machinery::ObjectExt;
use sublet_runtime::Key;

/// One node and what is used of it. Cloned to try things out.
#[derive(Clone, Debug)]
pub(crate) struct NodeInfo {
    pub(crate) object: Arc<Value>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) unschedulable: bool,
    pub(crate) allocatable: Resources,
    pub(crate) pods_max: i64,
    pub(crate) requested: Resources,
    pub(crate) pods: HashMap<Key, Arc<PodInfo>>,
    ports: HashMap<HostPort, usize>,
    /// Pods with required anti-affinity, and pods with any affinity: most clusters have none.
    pub(crate) with_anti_affinity: usize,
    pub(crate) with_affinity: usize,
    owners: HashMap<String, i64>,
}

impl NodeInfo {
    pub(crate) fn new(object: Arc<Value>) -> Self {
        let allocatable = &object["status"]["allocatable"];
        Self {
            taints: object.array_at("/spec/taints").iter().map(Taint::parse).collect(),
            unschedulable: object.bool_at("/spec/unschedulable") == Some(true),
            allocatable: Resources::parse(allocatable),
            pods_max: crate::quantity::milli_of(&allocatable["pods"]) / 1000,
            requested: Resources::default(),
            pods: HashMap::new(),
            ports: HashMap::new(),
            with_anti_affinity: 0,
            with_affinity: 0,
            owners: HashMap::new(),
            object,
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.object.name()
    }

    pub(crate) fn labels(&self) -> Option<&Labels> {
        self.object.labels()
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.object.label(key)
    }

    /// Pods of the same controller.
    pub(crate) fn siblings(&self, owner: &str) -> i64 {
        self.owners.get(owner).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, pod: Arc<PodInfo>) {
        self.remove(&pod.key);
        self.requested.add(&pod.requests);
        for port in &pod.host_ports {
            *self.ports.entry(port.clone()).or_default() += 1;
        }
        self.with_anti_affinity += usize::from(!pod.anti_affinity.is_empty());
        self.with_affinity += usize::from(pod.has_affinity());
        if !pod.owner.is_empty() {
            *self.owners.entry(pod.owner.clone()).or_default() += 1;
        }
        self.pods.insert(pod.key.clone(), pod);
    }

    pub(crate) fn remove(&mut self, key: &Key) -> Option<Arc<PodInfo>> {
        let pod = self.pods.remove(key)?;
        self.requested.subtract(&pod.requests);
        for port in &pod.host_ports {
            if let Some(count) = self.ports.get_mut(port) {
                *count -= 1;
                if *count == 0 {
                    self.ports.remove(port);
                }
            }
        }
        self.with_anti_affinity -= usize::from(!pod.anti_affinity.is_empty());
        self.with_affinity -= usize::from(pod.has_affinity());
        if let Some(count) = self.owners.get_mut(&pod.owner) {
            *count -= 1;
            if *count == 0 {
                self.owners.remove(&pod.owner);
            }
        }
        Some(pod)
    }

    /// Whether another pod holds the port: addresses clash when equal or when one is the wildcard.
    pub(crate) fn port_in_use(&self, wanted: &HostPort) -> bool {
        let wildcard = |a: &str| a == "0.0.0.0" || a == "::";
        self.ports.keys().any(|(address, protocol, number)| {
            *number == wanted.2 && *protocol == wanted.1 && (*address == wanted.0 || wildcard(address) || wildcard(&wanted.0))
        })
    }
}

/// All nodes, and where each pod is.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    nodes: BTreeMap<String, NodeInfo>,
    places: HashMap<Key, String>,
    /// Pods on nodes that are not known (yet).
    homeless: HashMap<Key, Arc<PodInfo>>,
}

impl Cluster {
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.nodes.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn node(&self, name: &str) -> Option<&NodeInfo> {
        self.nodes.get(name)
    }

    /// Takes in a new or changed node. True when something changed that matters to pods that wait.
    pub(crate) fn put_node(&mut self, object: Arc<Value>) -> bool {
        let name = object.name().to_string();
        let mut fresh = NodeInfo::new(object);
        match self.nodes.remove(&name) {
            Some(old) => {
                let changed = old.taints != fresh.taints
                    || old.unschedulable != fresh.unschedulable
                    || old.allocatable != fresh.allocatable
                    || old.pods_max != fresh.pods_max
                    || old.labels() != fresh.labels();
                for pod in old.pods.into_values() {
                    fresh.add(pod);
                }
                self.nodes.insert(name, fresh);
                changed
            }
            None => {
                let waiting: Vec<Key> = self.homeless.keys().filter(|k| self.places.get(*k) == Some(&name)).cloned().collect();
                for key in waiting {
                    if let Some(pod) = self.homeless.remove(&key) {
                        fresh.add(pod);
                    }
                }
                self.nodes.insert(name, fresh);
                true
            }
        }
    }

    pub(crate) fn remove_node(&mut self, name: &str) {
        if let Some(node) = self.nodes.remove(name) {
            self.homeless.extend(node.pods);
        }
    }

    /// Puts a pod on a node, moving it there if it was elsewhere.
    pub(crate) fn put_pod(&mut self, pod: Arc<PodInfo>, node: &str) {
        if self.places.get(&pod.key).is_some_and(|n| n != node) {
            self.remove_pod(&pod.key.clone());
        }
        self.places.insert(pod.key.clone(), node.to_string());
        match self.nodes.get_mut(node) {
            Some(info) => info.add(pod),
            None => {
                self.homeless.insert(pod.key.clone(), pod);
            }
        }
    }

    pub(crate) fn remove_pod(&mut self, key: &Key) -> bool {
        let Some(node) = self.places.remove(key) else { return false };
        self.homeless.remove(key);
        if let Some(info) = self.nodes.get_mut(&node) {
            info.remove(key);
        }
        true
    }

    pub(crate) fn place(&self, key: &Key) -> Option<&str> {
        self.places.get(key).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str) -> Arc<PodInfo> {
        Arc::new(PodInfo::parse(Arc::new(json!({"metadata": {"name": name, "namespace": "n", "uid": name,
            "ownerReferences": [{"uid": "rs", "controller": true}]},
            "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}, "ports": [{"hostPort": 80}]}]}}))))
    }

    #[test]
    fn adding_and_removing_leaves_nothing() {
        let mut cluster = Cluster::default();
        cluster.put_pod(pod("a"), "n1");
        cluster.put_node(Arc::new(json!({"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4", "pods": "10"}}})));
        cluster.put_pod(pod("a"), "n1");
        let node = cluster.node("n1").unwrap();
        assert_eq!((node.requested.cpu, node.pods.len(), node.siblings("rs")), (1000, 1, 1));
        assert!(node.port_in_use(&("10.0.0.1".into(), "TCP".into(), 80)) && !node.port_in_use(&("10.0.0.1".into(), "UDP".into(), 80)));
        let same =
            Arc::new(json!({"metadata": {"name": "n1", "resourceVersion": "2"}, "status": {"allocatable": {"cpu": "4", "pods": "10"}}}));
        assert!(!cluster.put_node(same));
        assert!(cluster.remove_pod(&Key::new("n", "a")));
        let node = cluster.node("n1").unwrap();
        assert_eq!((node.requested.cpu, node.pods.len(), node.siblings("rs"), node.ports.len()), (0, 0, 0, 0));
        assert!(!cluster.remove_pod(&Key::new("n", "a")));
    }
}
