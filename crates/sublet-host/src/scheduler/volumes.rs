//! The volumes of a pod that is to be placed: bound ones restrict its nodes, delayed ones are chosen with the node.

use super::cluster::NodeInfo;
use super::filter::{Reason, View, cause};
use super::pod::PodInfo;
use super::world::World;
use crate::selector::NodeSelector;
use crate::volumes::matcher::{self, Match};
use serde_json::Value;
use std::sync::Arc;
use sublet_machinery::ObjectExt;

/// What must happen to the claims once the node is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Bind this volume to the claim.
    Bind { volume: String, claim: String },
    /// Have a volume made for the claim on the node.
    Provision { claim: String },
}

#[derive(Debug, Default)]
pub(crate) struct Volumes {
    /// Why no node can help.
    pub(crate) error: Option<Reason>,
    bound: Vec<Arc<Value>>,
    delayed: Vec<Delayed>,
    candidates: Vec<Arc<Value>>,
    /// Claims that one pod alone may use.
    exclusive: Vec<String>,
}

#[derive(Debug)]
struct Delayed {
    claim: Arc<Value>,
    /// The topologies in which the class makes volumes; `None`: it makes none.
    topologies: Option<Vec<NodeSelector>>,
}

impl Volumes {
    pub(crate) fn new(pod: &PodInfo, world: &World<'_>) -> Self {
        let mut volumes = Self::default();
        for name in &pod.claims {
            if let Err(why) = volumes.add(pod, name, world) {
                volumes.error = Some(Reason::fixed(cause::VOLUMES, why));
                return volumes;
            }
        }
        if !volumes.delayed.is_empty() {
            volumes.candidates = (world.volumes)();
        }
        volumes
    }

    fn add(&mut self, pod: &PodInfo, name: &str, world: &World<'_>) -> Result<(), String> {
        let Some(claim) = (world.claim)(&pod.key.namespace, name) else {
            let ephemeral =
                !pod.object.array_at("/spec/volumes").iter().any(|v| v.str_at("/persistentVolumeClaim/claimName") == Some(name));
            return Err(if ephemeral {
                format!("waiting for ephemeral volume controller to create the persistentvolumeclaim \"{name}\"")
            } else {
                format!("persistentvolumeclaim \"{name}\" not found")
            });
        };
        let volume_name = claim.str_at("/spec/volumeName").unwrap_or_default();
        if claim.str_at("/status/phase") == Some("Lost") {
            return Err(format!("persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume_name}\""));
        }
        if claim.is_deleting() {
            return Err(format!("persistentvolumeclaim \"{name}\" is being deleted"));
        }
        if claim.array_at("/spec/accessModes").iter().any(|m| m == "ReadWriteOncePod") {
            self.exclusive.push(name.to_string());
        }
        if !volume_name.is_empty() && claim.annotation("pv.kubernetes.io/bind-completed").is_some() {
            let missing = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
            self.bound.push((world.volume)(volume_name).ok_or(missing)?);
            return Ok(());
        }
        let class = (world.class)(matcher::class(&claim));
        let delayed = class.as_ref().is_some_and(|c| c["volumeBindingMode"] == "WaitForFirstConsumer");
        if !delayed || !volume_name.is_empty() {
            return Err("pod has unbound immediate PersistentVolumeClaims".into());
        }
        let class = class.unwrap_or_default();
        let provisions = class["provisioner"].as_str().is_some_and(|p| p != "kubernetes.io/no-provisioner");
        self.delayed.push(Delayed { claim, topologies: provisions.then(|| topologies(&class)) });
        Ok(())
    }

    pub(crate) fn refuse(&self, pod: &PodInfo, node: &NodeInfo) -> Option<Reason> {
        if self.bound.is_empty() && self.delayed.is_empty() {
            return None;
        }
        let conflict = self.bound.iter().any(|v| !matcher::suits_node(v, node.name(), node.labels()));
        if conflict {
            return Some(Reason::fixed(cause::VOLUMES | cause::NODE, "node(s) didn't match PersistentVolume's node affinity"));
        }
        let choice = self.choose(pod, node, &|_| false);
        choice.is_none().then(|| Reason::fixed(cause::VOLUMES | cause::NODE, "node(s) didn't find available persistent volumes to bind"))
    }

    /// Whether a pod somewhere uses a claim that allows one pod only.
    pub(crate) fn in_use(&self, pod: &PodInfo, view: &View<'_>) -> bool {
        !self.exclusive.is_empty()
            && view.nodes.iter().flat_map(|n| n.pods.values()).any(|other| {
                other.key.namespace == pod.key.namespace && other.key != pod.key && self.exclusive.iter().any(|c| other.claims.contains(c))
            })
    }

    /// What to do for the delayed claims on this node; `None` when they cannot be had there.
    pub(crate) fn choose(&self, _pod: &PodInfo, node: &NodeInfo, taken: &dyn Fn(&str) -> bool) -> Option<Vec<Action>> {
        let mut actions: Vec<Action> = Vec::new();
        for delayed in &self.delayed {
            let claim = delayed.claim.name().to_string();
            let used = |name: &str| taken(name) || actions.iter().any(|a| matches!(a, Action::Bind { volume, .. } if volume == name));
            match matcher::find(&delayed.claim, &self.candidates, Match::OnNode(node.name(), node.labels()), &used) {
                Some(volume) => actions.push(Action::Bind { volume: volume.name().to_string(), claim }),
                None => {
                    let topologies = delayed.topologies.as_ref()?;
                    let allowed = topologies.is_empty() || topologies.iter().any(|t| t.matches(node.name(), node.labels()));
                    if !allowed {
                        return None;
                    }
                    actions.push(Action::Provision { claim });
                }
            }
        }
        Some(actions)
    }
}

/// `allowedTopologies` of a class, as node selectors.
fn topologies(class: &Value) -> Vec<NodeSelector> {
    let expression = |e: &Value| serde_json::json!({"key": e["key"], "operator": "In", "values": e["values"]});
    class
        .array_at("/allowedTopologies")
        .iter()
        .map(|term| {
            let expressions: Vec<Value> = term.array_at("/matchLabelExpressions").iter().map(expression).collect();
            NodeSelector::parse(&serde_json::json!({"nodeSelectorTerms": [{"matchExpressions": expressions}]}))
        })
        .collect()
}
