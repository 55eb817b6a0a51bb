//! Pods that name their node themselves. A kubelet fails such a pod at once when it does not fit; the
//! host's scheduler, which decides here, would let it wait for ever, and nobody would replace it.

use serde_json::Value;
use sublet_machinery::ObjectExt;

const NO_FREE_PORTS: &str = "didn't have free ports";
const TOO_MANY_PODS: &str = "Too many pods";
const INSUFFICIENT: &str = "Insufficient ";

/// Reason and message of the pod's failure, in a kubelet's words. `None` for a pod that may wait:
/// a taint of the node is no matter of room.
pub(super) fn rejection(tenant: &Value, host: &Value) -> Option<(String, String)> {
    let named = tenant.str_at("/spec/nodeName").is_some_and(|node| !node.is_empty());
    if !named || host.str_at("/spec/nodeName").is_some_and(|node| !node.is_empty()) {
        return None;
    }
    let condition = host.condition("PodScheduled").filter(|c| c["status"] == "False" && c["reason"] == "Unschedulable")?;
    let why = condition["message"].as_str().unwrap_or_default();
    if why.contains(NO_FREE_PORTS) {
        return Some(("NodePorts".into(), "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports".into()));
    }
    let resource = match why.split_once(INSUFFICIENT) {
        Some((_, rest)) => rest.split([',', ' ']).next().unwrap_or_default().trim_end_matches('.'),
        None if why.contains(TOO_MANY_PODS) => "pods",
        None => return None,
    };
    Some((format!("OutOf{resource}"), format!("Pod was rejected: Node didn't have enough resource: {resource}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_does_not_fit_where_it_has_to_be_is_rejected() {
        let check = |node: &str, why: &str, expected: Option<&str>| {
            let tenant = json!({"spec": {"nodeName": node}});
            let scheduled = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why});
            let host = json!({"spec": {}, "status": {"conditions": [scheduled]}});
            assert_eq!(rejection(&tenant, &host).map(|(reason, _)| reason).as_deref(), expected, "{why}");
        };
        check("n", "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.", Some("NodePorts"));
        check("n", "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't satisfy plugin(s) [NodeAffinity].", Some("OutOfcpu"));
        check("n", "0/1 nodes are available: 1 Insufficient example.com/gpu.", Some("OutOfexample.com/gpu"));
        check("n", "0/1 nodes are available: 1 Too many pods.", Some("OutOfpods"));
        check("n", "0/1 nodes are available: 1 node(s) had untolerated taint(s).", None);
        check("", "0/1 nodes are available: 1 Insufficient cpu.", None);
    }
}
