//! Pods that name their node themselves pass no scheduler: the node turns away what does not fit.

use crate::scheduler::{NodeInfo, PodInfo, fit};
use serde_json::Value;
use std::sync::Arc;
use sublet_machinery::ObjectExt;

/// Reason and message of a refusal, as the kubelet's admission words them.
pub(super) fn refuse(pod: &Value, node: &Arc<Value>, others: &[Arc<Value>]) -> Option<(&'static str, String)> {
    let info = PodInfo::parse(Arc::new(pod.clone()));
    let mut place = NodeInfo::new(node.clone());
    for other in others.iter().filter(|o| o.uid() != pod.uid() && !super::step::is_terminal(o)) {
        place.add(Arc::new(PodInfo::parse(other.clone())));
    }
    let wishes = info.wishes();
    if !wishes.matches_node(node.name(), node.labels()) {
        return Some((
            "NodeAffinity",
            "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector".into(),
        ));
    }
    if info.host_ports.iter().any(|p| place.port_in_use(p)) {
        return Some((
            "NodePorts",
            "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports".into(),
        ));
    }
    let lacks = fit(&info, &place);
    let (reason, resource) = match &*lacks.first()?.text {
        "Too many pods" => ("OutOfpods", "pods"),
        "Insufficient cpu" => ("OutOfcpu", "cpu"),
        "Insufficient memory" => ("OutOfmemory", "memory"),
        "Insufficient ephemeral-storage" => ("OutOfephemeral-storage", "ephemeral-storage"),
        // The kubelet lets unknown resources pass to their plugins.
        _ => return None,
    };
    let (requested, used, capacity) = match resource {
        "cpu" => (info.requests.cpu, place.requested.cpu, place.allocatable.cpu),
        "memory" => (info.requests.memory, place.requested.memory, place.allocatable.memory),
        "pods" => (1, i64::try_from(place.pods.len()).unwrap_or(i64::MAX), place.pods_max),
        _ => (info.requests.storage, place.requested.storage, place.allocatable.storage),
    };
    Some((
        reason,
        format!(
            "Pod was rejected: Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn refusals_name_what_is_lacking() {
        let node = Arc::new(
            json!({"metadata": {"name": "n", "labels": {"a": "b"}}, "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "3"}}}),
        );
        let pod = |name: &str, spec: Value| json!({"metadata": {"name": name, "uid": name}, "spec": spec});
        let cpu = |amount: &str| json!({"containers": [{"resources": {"requests": {"cpu": amount}}, "ports": [{"hostPort": 80}]}]});
        let others = [Arc::new(pod("other", cpu("1500m")))];
        let check = |spec: Value, expected: Option<&str>| {
            assert_eq!(
                refuse(&pod("p", spec), &node, &others).map(|(_, m)| m).as_deref().map(|m| m.trim_start_matches("Pod was rejected: ")),
                expected
            );
        };
        check(json!({"containers": [{}]}), None);
        check(
            json!({"containers": [{"resources": {"requests": {"cpu": "1"}}}]}),
            Some("Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000"),
        );
        check(
            json!({"containers": [], "nodeSelector": {"a": "c"}}),
            Some("Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"),
        );
        check(cpu("100m"), Some("Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"));
    }
}
