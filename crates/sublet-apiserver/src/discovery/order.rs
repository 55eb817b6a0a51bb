//! The order of keys in discovery documents. Programs that read JSON do not care; scripts that compare texts do, and
//! upstream's texts follow the fields of its types.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

/// The keys of everything that is part of a document, in an order that suits all parts but those that
/// [`begins_with`] knows.
const KEYS: [&str; 24] = [
    "resource",
    "subresource",
    "responseKind",
    "scope",
    "singularResource",
    "name",
    "singularName",
    "namespaced",
    "group",
    "version",
    "kind",
    "metadata",
    "groups",
    "verbs",
    "shortNames",
    "categories",
    "storageVersionHash",
    "versions",
    "preferredVersion",
    "serverAddressByClientCIDRs",
    "clientCIDR",
    "resources",
    "subresources",
    "items",
];

/// A part of a document, written in upstream's order.
pub(super) struct Ordered<'a>(pub &'a Value);

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(map) => {
                let first = begins_with(map);
                let mut keys: Vec<&String> = map.keys().collect();
                keys.sort_by_key(|key| {
                    let place = |all: &[&str]| all.iter().position(|k| k == key);
                    (place(first).unwrap_or(usize::MAX), place(&KEYS).unwrap_or(usize::MAX))
                });
                let mut out = serializer.serialize_map(Some(map.len()))?;
                for key in keys {
                    out.serialize_entry(key, &Ordered(&map[key]))?;
                }
                out.end()
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(Ordered)),
            other => other.serialize(serializer),
        }
    }
}

fn begins_with(map: &Map<String, Value>) -> &'static [&'static str] {
    let is_document = map.contains_key("kind") && !map.contains_key("verbs") && !map.contains_key("group");
    if is_document || map.contains_key("groupVersion") { &["kind", "apiVersion", "groupVersion"] } else { &[] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_come_as_upstreams_types_have_them() {
        let check = |value: Value, expected: &str| assert_eq!(serde_json::to_string(&Ordered(&value)).unwrap(), expected);
        check(
            json!({"apiVersion": "v1", "groupVersion": "apps/v1", "kind": "APIResourceList", "resources": [
                {"categories": ["all"], "kind": "ReplicaSet", "name": "replicasets", "namespaced": true, "shortNames": ["rs"],
                 "singularName": "replicaset", "verbs": ["get"]},
                {"group": "autoscaling", "kind": "Scale", "name": "replicasets/scale", "version": "v1", "verbs": []}]}),
            r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[{"name":"replicasets","singularName":"replicaset","namespaced":true,"kind":"ReplicaSet","verbs":["get"],"shortNames":["rs"],"categories":["all"]},{"name":"replicasets/scale","group":"autoscaling","version":"v1","kind":"Scale","verbs":[]}]}"#,
        );
        check(
            json!({"apiVersion": "v1", "kind": "APIGroup", "name": "apps", "versions": [{"version": "v1", "groupVersion": "apps/v1"}]}),
            r#"{"kind":"APIGroup","apiVersion":"v1","name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}]}"#,
        );
        check(
            json!({"items": [{"versions": [{"freshness": "Current", "resources": [], "version": "v1"}], "metadata": {}}], "kind": "L"}),
            r#"{"kind":"L","items":[{"metadata":{},"versions":[{"version":"v1","resources":[],"freshness":"Current"}]}]}"#,
        );
    }
}
