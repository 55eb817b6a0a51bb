//! When a node was last heard of, and what is written about one that fell silent.

use super::READY;
use crate::kit::time;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

/// How long a node may be silent, once it spoke and before it ever did.
const GRACE: SignedDuration = SignedDuration::from_secs(50);
const STARTUP_GRACE: SignedDuration = SignedDuration::from_secs(60);

/// What kubelets report; `NetworkUnavailable` is written by others.
const REPORTED: [&str; 4] = [READY, "MemoryPressure", "DiskPressure", "PIDPressure"];

/// What was heard of one node.
#[derive(Debug, PartialEq)]
pub(super) struct Health {
    /// When it was last heard of, by our clock.
    pub(super) heard: Timestamp,
    /// The heartbeat of its `Ready` condition, when there was one.
    beat: Option<Value>,
    renewed: Option<Timestamp>,
    /// Since when it waits to be tainted.
    pub(super) waits_since: Option<Timestamp>,
    /// Its pods could not all be marked.
    pub(super) pods_unmarked: bool,
}

impl Health {
    /// Takes in what node and lease say now.
    pub(super) fn observe(before: Option<Self>, node: &Value, lease: Option<&Value>, now: Timestamp) -> Self {
        let beat = node.condition(READY).map(|ready| ready["lastHeartbeatTime"].clone());
        let mut health = before.unwrap_or_else(|| {
            // One that never spoke is silent since it is there.
            let heard = if beat.is_some() { now } else { time::created(node).unwrap_or(now) };
            Self { heard, beat: beat.clone(), renewed: None, waits_since: None, pods_unmarked: false }
        });
        if health.beat != beat {
            health.heard = now;
            health.beat = beat;
        }
        let renewed = lease.and_then(|lease| time::at(lease, "/spec/renewTime"));
        if renewed.is_some_and(|at| health.renewed.is_none_or(|known| known < at)) {
            health.heard = now;
            health.renewed = renewed;
        }
        health
    }

    /// The status to write when the node has been silent for too long; `None`: nothing new is to be said.
    pub(super) fn silent_status(&self, node: &Value, now: Timestamp) -> Option<Value> {
        let grace = if node.condition(READY).is_some() { GRACE } else { STARTUP_GRACE };
        let is_known = node.condition(READY).is_some_and(|ready| ready["status"] == "Unknown");
        if now.duration_since(self.heard) <= grace || is_known {
            return None;
        }
        let written = sublet_runtime::clock::format_seconds(now);
        let mut status = node["status"].clone();
        let mut conditions = node.array_at("/status/conditions").to_vec();
        for kind in REPORTED {
            match conditions.iter_mut().find(|c| c["type"] == kind) {
                None => conditions.push(json!({
                    "type": kind, "status": "Unknown", "reason": "NodeStatusNeverUpdated", "message": "Kubelet never posted node status.",
                    "lastHeartbeatTime": node["metadata"]["creationTimestamp"], "lastTransitionTime": written,
                })),
                Some(condition) if condition["status"] != "Unknown" => {
                    condition["status"] = json!("Unknown");
                    condition["reason"] = json!("NodeStatusUnknown");
                    condition["message"] = json!("Kubelet stopped posting node status.");
                    condition["lastTransitionTime"] = json!(written);
                }
                Some(_) => {}
            }
        }
        status["conditions"] = json!(conditions);
        Some(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + seconds).expect("a time")
    }

    fn node(beat: Option<&str>) -> Value {
        let mut node = json!({"metadata": {"creationTimestamp": at(0).to_string()}, "status": {}});
        if let Some(beat) = beat {
            node["status"]["conditions"] = json!([
                {"type": "NetworkUnavailable", "status": "False"},
                {"type": READY, "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": beat},
            ]);
        }
        node
    }

    fn said(health: &Health, node: &Value, seconds: i64) -> Option<Vec<String>> {
        let status = health.silent_status(node, at(seconds))?;
        let conditions = status.array_at("/conditions").iter();
        Some(conditions.map(|c| format!("{} {} {}", c["type"], c["status"], c["reason"]).replace('"', "")).collect())
    }

    #[test]
    fn a_node_that_fell_silent_is_unknown_after_its_grace() {
        let speaking = node(Some("a"));
        // The first look counts: after a restart of ours every node has its grace again.
        let health = Health::observe(None, &speaking, None, at(100));
        assert_eq!(said(&health, &speaking, 150), None);
        let expected = [
            "NetworkUnavailable False null",
            "Ready Unknown NodeStatusUnknown",
            "MemoryPressure Unknown NodeStatusNeverUpdated",
            "DiskPressure Unknown NodeStatusNeverUpdated",
            "PIDPressure Unknown NodeStatusNeverUpdated",
        ];
        assert_eq!(said(&health, &speaking, 151).expect("news"), expected);
        let mut unknown = speaking.clone();
        unknown["status"] = health.silent_status(&speaking, at(151)).expect("news");
        assert_eq!(said(&health, &unknown, 200), None, "it was said");
    }

    #[test]
    fn a_node_that_never_spoke_has_a_longer_grace_since_it_is_there() {
        let mute = node(None);
        let health = Health::observe(None, &mute, None, at(30));
        assert_eq!(said(&health, &mute, 60), None);
        assert_eq!(said(&health, &mute, 61).expect("news")[0], "Ready Unknown NodeStatusNeverUpdated");
    }

    #[test]
    fn heartbeats_and_renewed_leases_are_signs_of_life() {
        let heard = |before, node: &Value, lease: Option<&Value>, seconds| Health::observe(Some(before), node, lease, at(seconds));
        let lease = |seconds| json!({"spec": {"renewTime": at(seconds).to_string()}});
        let health = Health::observe(None, &node(Some("a")), None, at(0));
        let health = heard(health, &node(Some("a")), None, 20);
        assert_eq!(health.heard, at(0));
        let health = heard(health, &node(Some("b")), None, 40);
        assert_eq!(health.heard, at(40));
        // The node's clock is ahead of ours: only that the lease moves counts.
        let health = heard(health, &node(Some("b")), Some(&lease(900)), 60);
        assert_eq!(health.heard, at(60));
        let health = heard(health, &node(Some("b")), Some(&lease(900)), 80);
        assert_eq!(health.heard, at(60));
    }
}
