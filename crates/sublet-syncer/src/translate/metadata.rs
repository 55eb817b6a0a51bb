//! Labels and annotations on their way to the host.

use super::names::hash;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use sublet_api::marks;
use sublet_machinery::ObjectExt;

/// Annotations that stay in the tenant: they describe the tenant's writes, not the object.
const ANNOTATIONS_KEPT_BACK: [&str; 2] = ["kubectl.kubernetes.io/last-applied-configuration", "deployment.kubernetes.io/revision"];

/// A label or annotation key as the host carries it. Keys of the reserved domain are moved aside by
/// one level, so a tenant that is itself a host keeps its marks apart from ours, however deep.
pub fn host_meta_key(key: &str) -> Cow<'_, str> {
    if marks::is_reserved(key) { Cow::Owned(format!("n.{key}")) } else { Cow::Borrowed(key) }
}

/// The labels of a tenant object under their host keys.
pub fn host_labels(tenant: &Value) -> Map<String, Value> {
    tenant.labels().into_iter().flatten().map(|(k, v)| (host_meta_key(k).into_owned(), v.clone())).collect()
}

/// The annotations of a tenant object under their host keys.
pub fn host_annotations(tenant: &Value) -> Map<String, Value> {
    tenant
        .annotations()
        .into_iter()
        .flatten()
        .filter(|(k, _)| !ANNOTATIONS_KEPT_BACK.contains(&k.as_str()))
        .map(|(k, v)| (host_meta_key(k).into_owned(), v.clone()))
        .collect()
}

/// A name as a label value: itself, or its beginning with a hash where it is too long.
pub fn label_value(name: &str) -> String {
    if name.len() <= marks::LABEL_VALUE_BYTES_MAX {
        return name.to_string();
    }
    let hash = hash(&[name]);
    let start = name[..marks::LABEL_VALUE_BYTES_MAX - 1 - hash.len()].trim_end_matches(['-', '.', '_']);
    format!("{start}-{hash}")
}

/// The controller of a tenant object, as a host operator reads it: `ReplicaSet/web-5d4f`.
pub fn owner_text(tenant: &Value) -> Option<String> {
    let owner = tenant.controller_owner()?;
    Some(format!("{}/{}", owner["kind"].as_str()?, owner["name"].as_str()?))
}

/// Puts the marks on an object bound for the host. `kind` and `name` are those of the tenant object.
pub(crate) fn stamp(host: &mut Value, names: &super::Names, kind: &str, tenant: &Value) {
    let cluster = names.tenant();
    for (key, value) in [
        (marks::MANAGED_BY, marks::MANAGER.to_string()),
        (marks::VIRTUAL_CLUSTER, label_value(&cluster.name)),
        (marks::VIRTUAL_CLUSTER_UID, cluster.uid.clone()),
        (marks::NAMESPACE, tenant.namespace().to_string()),
        (marks::KIND, kind.to_string()),
        (marks::NAME, label_value(tenant.name())),
    ] {
        host.set_label(key, &value);
    }
    host.set_annotation(marks::NAME, tenant.name());
    host.set_annotation(marks::UID, tenant.uid());
    if let Some(owner) = owner_text(tenant) {
        host.metadata_mut()["annotations"][marks::OWNER] = json!(owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_keys_move_aside_at_every_level() {
        assert_eq!(host_meta_key("app"), "app");
        assert_eq!(host_meta_key("sublet.dev/name"), "n.sublet.dev/name");
        assert_eq!(host_meta_key("n.sublet.dev/name"), "n.n.sublet.dev/name");
    }

    #[test]
    fn long_names_become_valid_label_values() {
        assert_eq!(label_value("web"), "web");
        let long = format!("{}.-.{}", "a".repeat(49), "b".repeat(60));
        let value = label_value(&long);
        assert!(value.len() <= 63 && !value.contains("a.") && !value.ends_with('-'), "{value}");
    }
}
