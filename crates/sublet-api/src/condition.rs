//! Condition types of a `VirtualCluster`, and how a condition list is changed.

use serde_json::{Value, json};

pub const NAMESPACE_CLAIMED: &str = "NamespaceClaimed";
pub const CERTIFICATES_READY: &str = "CertificatesReady";
pub const CONTROL_PLANE_READY: &str = "ControlPlaneReady";
pub const SYNCER_READY: &str = "SyncerReady";
pub const KUBECONFIG_PUBLISHED: &str = "KubeconfigPublished";
pub const READY: &str = "Ready";

/// The steps to a ready cluster, in the order in which they are taken. `Ready` is their conjunction.
pub const STEPS: [&str; 5] = [NAMESPACE_CLAIMED, CERTIFICATES_READY, CONTROL_PLANE_READY, SYNCER_READY, KUBECONFIG_PUBLISHED];

/// On objects inside a tenant: whether the host took the object. Set when the host refused it.
pub const SYNCED: &str = "sublet.dev/Synced";

/// One condition as a caller wants it to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition<'a> {
    pub type_: &'a str,
    pub status: bool,
    pub reason: &'a str,
    pub message: &'a str,
    pub observed_generation: i64,
}

/// Puts the condition into the list; the transition time moves only when the status does.
/// Says whether anything changed.
pub fn set(conditions: &mut Vec<Value>, wanted: &Condition<'_>, now: &str) -> bool {
    let status = if wanted.status { "True" } else { "False" };
    let mut fresh = json!({
        "type": wanted.type_, "status": status, "reason": wanted.reason, "message": wanted.message, "lastTransitionTime": now,
    });
    if wanted.observed_generation > 0 {
        fresh["observedGeneration"] = json!(wanted.observed_generation);
    }
    let Some(current) = conditions.iter_mut().find(|c| c["type"] == wanted.type_) else {
        conditions.push(fresh);
        return true;
    };
    if current["status"] == status && current["lastTransitionTime"].is_string() {
        fresh["lastTransitionTime"] = current["lastTransitionTime"].clone();
    }
    if *current == fresh {
        return false;
    }
    *current = fresh;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transition_time_moves_with_the_status_alone() {
        let mut all = Vec::new();
        let mut wanted = Condition { type_: READY, status: false, reason: "Starting", message: "", observed_generation: 1 };
        assert!(set(&mut all, &wanted, "t1"));
        assert!(!set(&mut all, &wanted, "t2"));
        wanted.message = "waits for the store";
        assert!(set(&mut all, &wanted, "t3"));
        assert_eq!(all[0]["lastTransitionTime"], "t1");
        wanted.status = true;
        assert!(set(&mut all, &wanted, "t4"));
        assert_eq!((all.len(), all[0]["lastTransitionTime"].as_str()), (1, Some("t4")));
    }
}
