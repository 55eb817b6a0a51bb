//! Which nodes of the host a tenant sees, and how much of each: `spec.nodes`.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Which nodes are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShowNodes {
    None,
    /// Those that run a pod of the tenant which is not there for the node's sake.
    #[default]
    Used,
    /// Those in use, and all that the selector matches: what a DaemonSet needs.
    All,
}

/// Which addresses of a node are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeAddresses {
    None,
    /// Names and addresses inside of the host's network, which pods see anyhow.
    #[default]
    Internal,
    /// Addresses on the outside too, and what identifies the machine.
    All,
}

/// `spec.nodes`, with its defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRules {
    pub show: ShowNodes,
    /// Labels that a node must have to be shown without being used.
    pub labels: BTreeMap<String, String>,
    pub addresses: NodeAddresses,
    /// Whether the tenant has the leases by which node controllers know that kubelets live.
    pub leases: bool,
}

impl NodeRules {
    /// Reads `spec.nodes`; `leases` where it says nothing of them.
    pub(crate) fn of(nodes: &Value, leases: bool) -> Self {
        let show = match nodes["show"].as_str() {
            Some("None") => ShowNodes::None,
            Some("All") => ShowNodes::All,
            _ => ShowNodes::Used,
        };
        let addresses = match nodes["addresses"].as_str() {
            Some("None") => NodeAddresses::None,
            Some("All") => NodeAddresses::All,
            _ => NodeAddresses::Internal,
        };
        let leases = nodes["leases"].as_bool().unwrap_or(leases) && show != ShowNodes::None;
        Self { show, labels: labels(&nodes["selector"]), addresses, leases }
    }
}

/// The labels that a selector of ours asks for.
pub(crate) fn labels(selector: &Value) -> BTreeMap<String, String> {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_string()))).collect()
}

/// The schema of `spec.nodes`.
pub(crate) fn schema(selector: &Value) -> Value {
    json!({
        "type": "object",
        "description": "Which nodes of the host the tenant sees.",
        "properties": {
            "show": {"type": "string", "default": "Used", "enum": ["None", "Used", "All"],
                "description": "Used: nodes that run pods of the tenant, DaemonSets apart; All: those, and all that the selector matches, so that DaemonSets run."},
            "selector": selector,
            "addresses": {"type": "string", "default": "Internal", "enum": ["None", "Internal", "All"],
                "description": "Internal: no addresses on the outside, and nothing that identifies the machine."},
            "leases": {"type": "boolean",
                "description": "Whether leases of nodes are kept in kube-node-lease: a write for each node every ten seconds. Unset: for external control planes, whose node controllers need them."},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_the_default() {
        assert_eq!(NodeRules::of(&Value::Null, false), NodeRules::default());
        let all =
            NodeRules::of(&json!({"show": "All", "selector": {"matchLabels": {"pool": "a"}}, "addresses": "None", "leases": true}), false);
        assert_eq!((all.show, all.addresses, all.leases), (ShowNodes::All, NodeAddresses::None, true));
        assert_eq!(all.labels.get("pool").map(String::as_str), Some("a"));
        assert!(!NodeRules::of(&json!({"show": "None"}), true).leases, "leases of nodes that are not there");
    }
}
