//! NetworkPolicies. All namespaces of the tenant are one namespace of the host, so every selector is
//! narrowed by marks: to the policy's own namespace, or to those that its peers name.

use super::manifest::{Field, copied, parts, translated};
use super::peers::namespaces_of;
use super::{KindId, Refusal, SyncedKind, Translation};
use crate::translate::{Namespaces, scoped_selector};
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

pub const NETWORK_POLICY: SyncedKind = SyncedKind {
    group: "networking.k8s.io",
    fields: &[&FIELDS],
    hook: to_host,
    ..SyncedKind::core_v1(KindId::NetworkPolicy, "NetworkPolicy", "networkpolicies")
};

const FIELDS: [Field; 5] =
    [parts("/spec"), copied("/spec/policyTypes"), translated("/spec/podSelector"), translated("/spec/ingress"), translated("/spec/egress")];

/// Whether a change of a namespace can change what the policy says.
pub fn names_namespaces(policy: &Value) -> bool {
    let peers = |rules: &str, peers: &str| {
        policy.array_at(rules).iter().any(|rule| rule.array_at(peers).iter().any(|p| p["namespaceSelector"].is_object()))
    };
    peers("/spec/ingress", "/from") || peers("/spec/egress", "/to")
}

fn to_host(host: &mut Value, tenant: &Value, translation: &Translation<'_>) -> Result<(), Refusal> {
    let own = Namespaces::These(vec![tenant.namespace().to_string()]);
    // An absent selector means all pods, as an empty one does.
    let selector = Some(&tenant["spec"]["podSelector"]).filter(|s| s.is_object()).cloned().unwrap_or_else(|| json!({}));
    host["spec"]["podSelector"] = scoped_selector(&selector, &own, translation.names);
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        let Some(list) = tenant["spec"][rules].as_array() else { continue };
        let mut list = list.clone();
        for peer in list.iter_mut().filter_map(|rule| rule.get_mut(peers)?.as_array_mut()).flatten() {
            translate_peer(peer, tenant.namespace(), translation);
        }
        host["spec"][rules] = Value::Array(list);
    }
    Ok(())
}

/// A peer is a block of addresses, or pods: those of the namespaces that it names.
fn translate_peer(peer: &mut Value, own: &str, translation: &Translation<'_>) {
    if !peer["ipBlock"].is_null() {
        return;
    }
    let namespaces = namespaces_of(&peer["namespaceSelector"], Vec::new(), own, translation.view);
    let pods = Some(&peer["podSelector"]).filter(|s| s.is_object()).cloned().unwrap_or_else(|| json!({}));
    *peer = json!({"podSelector": scoped_selector(&pods, &namespaces, translation.names)});
}
