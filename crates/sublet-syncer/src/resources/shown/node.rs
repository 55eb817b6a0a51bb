//! Nodes in use: one for each real node that runs a pod of the tenant, with its true state.

use super::{ShownKind, labels, pick};
use crate::engine::host::HostKind;
use crate::resources::{KindId, Translation, pod};
use serde_json::json;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources as gvr;

pub(super) const NODE: ShownKind = ShownKind {
    id: KindId::Node,
    host: HostKind::Nodes,
    gvr: gvr::NODES,
    kind: "Node",
    select: |host, _, translation| is_used(host.name(), translation),
    to_tenant: |host, _, _| {
        // Null where the host has none: API servers taint new nodes until they hear better.
        let spec = json!({"taints": host["spec"]["taints"], "unschedulable": host["spec"]["unschedulable"]});
        let status = pick(
            &host["status"],
            &["addresses", "allocatable", "capacity", "conditions", "nodeInfo", "features", "declaredFeatures", "runtimeHandlers"],
        );
        json!({"metadata": {"labels": labels(host)}, "spec": spec, "status": status})
    },
    // A pod that is replaced by the next one need not make its node come and go.
    linger_seconds: 30,
};

/// Pods of a DaemonSet run because the node is there, and so are no reason for it to stay.
fn is_used(node: &str, translation: &Translation<'_>) -> bool {
    translation.view.pods_on(node).iter().any(|pod| {
        let of_daemon_set = pod.controller_owner().is_some_and(|owner| owner["kind"] == "DaemonSet");
        !of_daemon_set && !pod::is_terminal(pod)
    })
}
