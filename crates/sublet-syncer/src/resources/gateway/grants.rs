//! References from one namespace of the tenant into another: only where a ReferenceGrant allows them.

use super::GROUP;
use crate::resources::{KindId, TenantView};
use crate::translate::TenantKey;
use serde_json::Value;
use sublet_machinery::ObjectExt;

/// What is referred to.
pub(super) struct Target<'a> {
    pub group: &'static str,
    pub kind: &'static str,
    pub key: &'a TenantKey,
}

/// Whether an object of `kind` in `namespace` may refer to the target.
pub(super) fn allow(kind: &str, namespace: &str, to: &Target<'_>, view: &dyn TenantView) -> bool {
    if namespace == to.key.namespace {
        return true;
    }
    view.objects(KindId::ReferenceGrant, &to.key.namespace).iter().any(|grant| grants(grant, kind, namespace, to))
}

fn grants(grant: &Value, kind: &str, namespace: &str, to: &Target<'_>) -> bool {
    let from = |f: &Value| f["group"] == GROUP && f["kind"] == kind && f["namespace"] == namespace;
    let target = |t: &Value| t["group"] == to.group && t["kind"] == to.kind && (t["name"].is_null() || t["name"] == *to.key.name);
    grant.array_at("/spec/from").iter().any(from) && grant.array_at("/spec/to").iter().any(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_grant_is_for_those_it_names() {
        let grant = json!({"spec": {"from": [{"group": GROUP, "kind": "HTTPRoute", "namespace": "shop"}], "to": [{"group": "", "kind": "Service", "name": "db"}]}});
        let allowed = |kind: &str, namespace: &str, name: &str| {
            grants(&grant, kind, namespace, &Target { group: "", kind: "Service", key: &TenantKey::new("data", name) })
        };
        assert!(allowed("HTTPRoute", "shop", "db"));
        assert!(!allowed("GRPCRoute", "shop", "db") && !allowed("HTTPRoute", "prod", "db") && !allowed("HTTPRoute", "shop", "other"));
    }
}
