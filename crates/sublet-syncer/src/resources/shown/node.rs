//! Nodes: those that run a pod of the tenant, or all, with their true state; and the leases by which
//! node controllers know that kubelets live.

use super::{ShownKind, labels, pick};
use crate::engine::host::HostKind;
use crate::engine::{NODE_LEASES, has_labels};
use crate::resources::{KindId, Translation, pod};
use serde_json::{Value, json};
use sublet_api::{NodeAddresses, ShowNodes};
use sublet_machinery::ObjectExt;
use sublet_runtime::resources as gvr;

pub(super) const NODE: ShownKind = ShownKind {
    id: KindId::Node,
    host: HostKind::Nodes,
    gvr: gvr::NODES,
    kind: "Node",
    namespace: "",
    select: |host, _, translation| match translation.rules.nodes.show {
        ShowNodes::None => false,
        ShowNodes::Used => is_used(host.name(), translation),
        ShowNodes::All => has_labels(host, &translation.rules.nodes.labels) || is_used(host.name(), translation),
    },
    to_tenant: |host, _, translation| {
        // API servers taint new nodes, so that there are none has to be said.
        let spec = json!({"taints": host["spec"]["taints"], "unschedulable": host["spec"]["unschedulable"]});
        json!({"metadata": {"labels": labels(host)}, "spec": spec, "status": status(&host["status"], translation.rules.nodes.addresses)})
    },
    edits: |_, _, _| None,
    // A pod that is replaced by the next one need not make its node come and go.
    linger_seconds: 30,
};

pub(super) const NODE_LEASE: ShownKind = ShownKind {
    id: KindId::NodeLease,
    host: HostKind::NodeLeases,
    gvr: gvr::LEASES,
    kind: "Lease",
    namespace: NODE_LEASES,
    select: |host, _, translation| translation.rules.nodes.leases && translation.view.is_node_shown(host.name()),
    to_tenant: |host, _, _| json!({"spec": pick(&host["spec"], &["holderIdentity", "leaseDurationSeconds", "renewTime"])}),
    edits: |_, _, _| None,
    linger_seconds: 0,
};

/// Pods of a DaemonSet run because the node is there, and so are no reason for it to stay.
fn is_used(node: &str, translation: &Translation<'_>) -> bool {
    translation.view.pods_on(node).iter().any(|pod| {
        let of_daemon_set = pod.controller_owner().is_some_and(|owner| owner["kind"] == "DaemonSet");
        !of_daemon_set && !pod::is_terminal(pod)
    })
}

/// Types of addresses that pods on the node see anyhow.
const INTERNAL: [&str; 3] = ["Hostname", "InternalIP", "InternalDNS"];
/// What tells a machine apart from all others; the fields have to be there.
const IDENTITIES: [&str; 3] = ["machineID", "systemUUID", "bootID"];

fn status(host: &Value, addresses: NodeAddresses) -> Value {
    let shown = ["allocatable", "capacity", "conditions", "nodeInfo", "features", "declaredFeatures", "runtimeHandlers"];
    let mut status = pick(host, &shown);
    let visible = |address: &&Value| match addresses {
        NodeAddresses::None => address["type"] == "Hostname",
        NodeAddresses::Internal => INTERNAL.iter().any(|t| address["type"] == *t),
        NodeAddresses::All => true,
    };
    let visible: Vec<Value> = host.array_at("/addresses").iter().filter(visible).cloned().collect();
    if !host["addresses"].is_null() {
        status["addresses"] = Value::Array(visible);
    }
    if addresses != NodeAddresses::All && status["nodeInfo"].is_object() {
        for field in IDENTITIES {
            status["nodeInfo"][field] = json!("");
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_tell_what_the_policy_allows_and_no_more() {
        let host = json!({
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "ExternalIP", "address": "192.0.2.1"}, {"type": "Hostname", "address": "a"}],
            "nodeInfo": {"machineID": "m", "kubeletVersion": "v1"}, "images": [],
        });
        let shown = |policy| {
            let status = status(&host, policy);
            let types: Vec<&str> = status.array_at("/addresses").iter().filter_map(|a| a["type"].as_str()).collect();
            (types.join(" "), status["nodeInfo"]["machineID"].clone(), status["nodeInfo"]["kubeletVersion"].clone())
        };
        assert_eq!(shown(NodeAddresses::None), ("Hostname".into(), json!(""), json!("v1")));
        assert_eq!(shown(NodeAddresses::Internal), ("InternalIP Hostname".into(), json!(""), json!("v1")));
        assert_eq!(shown(NodeAddresses::All), ("InternalIP ExternalIP Hostname".into(), json!("m"), json!("v1")));
    }
}
