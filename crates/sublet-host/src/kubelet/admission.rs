//! Pods that name their node themselves pass no scheduler: the node turns away what does not fit.

use crate::scheduler::{NodeInfo, PodInfo, fit};
use serde_json::Value;
use std::sync::Arc;
use sublet_machinery::ObjectExt;

/// Kernel settings that a pod may have on any node.
const SAFE_SYSCTLS: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

/// The node turns away kernel settings that reach beyond the pod, whoever sent it.
pub(super) fn refuse_sysctls(pod: &Value) -> Option<(&'static str, String)> {
    let asked = super::behaviour::sysctls(pod);
    let unsafe_one = asked.keys().find(|name| !SAFE_SYSCTLS.contains(&name.as_str()))?;
    Some(("SysctlForbidden", format!("Pod was rejected: forbidden sysctl: \"{unsafe_one}\" not allowlisted")))
}

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
    fn unsafe_kernel_settings_are_turned_away() {
        let pod = |name: &str| json!({"spec": {"securityContext": {"sysctls": [{"name": name, "value": "1"}]}}});
        assert_eq!(refuse_sysctls(&pod("kernel/shm_rmid_forced")), None);
        let (reason, message) = refuse_sysctls(&pod("kernel.msgmax")).unwrap();
        assert_eq!(
            (reason, message.as_str()),
            ("SysctlForbidden", "Pod was rejected: forbidden sysctl: \"kernel.msgmax\" not allowlisted")
        );
    }

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
