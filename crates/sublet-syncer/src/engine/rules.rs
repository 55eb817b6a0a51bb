//! What the owner of a virtual cluster wants synced: `spec.sync` and `spec.nodes`.

use serde_json::Value;
use std::collections::BTreeMap;
use sublet_api::{KindRule, NodeRules, VirtualCluster};
use sublet_machinery::ObjectExt;

/// Rules by plural resource name; what has none is synced. Nodes have rules of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncRules {
    pub to_host: BTreeMap<String, KindRule>,
    pub to_tenant: BTreeMap<String, KindRule>,
    pub nodes: NodeRules,
}

impl SyncRules {
    pub fn of(cluster: &VirtualCluster<'_>) -> Self {
        Self { to_host: cluster.to_host_rules(), to_tenant: cluster.to_tenant_rules(), nodes: cluster.nodes() }
    }

    /// Whether a tenant object may go to the host.
    pub(super) fn goes_down(&self, resource: &str, tenant: &Value) -> bool {
        self.to_host.get(resource).is_none_or(|rule| !rule.off && has_labels(tenant, &rule.labels))
    }

    /// Whether the host's objects of a kind are nothing that the tenant hears of.
    pub(super) fn is_off_to_tenant(&self, resource: &str) -> bool {
        self.to_tenant.get(resource).is_some_and(|rule| rule.off)
    }

    /// Whether the rules have nothing against showing a host object.
    pub(super) fn may_show(&self, resource: &str, host: &Value) -> bool {
        self.to_tenant.get(resource).is_none_or(|rule| has_labels(host, &rule.labels))
    }
}

/// Whether an object has all of the labels.
pub(crate) fn has_labels(object: &Value, labels: &BTreeMap<String, String>) -> bool {
    labels.iter().all(|(key, value)| object.label(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_named_is_synced() {
        let object = json!({"spec": {"sync": {
            "toHost": {"ingresses": {"enabled": false}, "services": {"selector": {"matchLabels": {"public": "yes"}}}},
            "toTenant": {"storageclasses": {"selector": {"matchLabels": {"tenants": "yes"}}}},
        }}});
        let rules = SyncRules::of(&VirtualCluster::new(&object));
        let labelled = |key: &str| json!({"metadata": {"labels": {key: "yes"}}});
        assert!(rules.goes_down("pods", &json!({})) && !rules.goes_down("ingresses", &json!({})));
        assert!(rules.goes_down("services", &labelled("public")) && !rules.goes_down("services", &json!({})));
        assert!(rules.may_show("storageclasses", &labelled("tenants")) && !rules.may_show("storageclasses", &json!({})));
        assert!(!rules.is_off_to_tenant("storageclasses"));
    }
}
