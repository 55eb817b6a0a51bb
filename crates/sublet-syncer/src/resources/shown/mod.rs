//! Kinds of the host that tenants are shown: nodes and their leases, volumes of their claims, classes.

mod classes;
mod node;
mod persistentvolume;
mod snapshot;

use super::{KindId, Translation};
use crate::engine::host::HostKind;
use serde_json::{Map, Value, json};
use sublet_api::marks;
use sublet_machinery::{Gvr, ObjectExt};

/// A kind whose objects come from the host, under the same name.
pub struct ShownKind {
    pub id: KindId,
    pub host: HostKind,
    pub gvr: Gvr,
    pub kind: &'static str,
    /// The namespace of the objects on both sides; empty for kinds that have none.
    pub namespace: &'static str,
    /// Whether the tenant sees the host object; `shown` is what it sees already.
    pub select: fn(&Value, Option<&Value>, &Translation<'_>) -> bool,
    /// The fields that the tenant sees, without metadata other than labels and annotations.
    pub to_tenant: fn(&Value, Option<&Value>, &Translation<'_>) -> Value,
    /// What of the tenant's changes goes to the host: operations of a JSON patch.
    pub edits: fn(&Value, &Value, &Translation<'_>) -> Option<Vec<Value>>,
    /// How long an object that is no longer wanted stays.
    pub linger_seconds: u64,
}

pub static SHOWN: [ShownKind; 10] = [
    node::NODE,
    node::NODE_LEASE,
    persistentvolume::PERSISTENT_VOLUME,
    classes::STORAGE_CLASS,
    classes::PRIORITY_CLASS,
    classes::RUNTIME_CLASS,
    classes::INGRESS_CLASS,
    classes::VOLUME_SNAPSHOT_CLASS,
    classes::GATEWAY_CLASS,
    snapshot::VOLUME_SNAPSHOT_CONTENT,
];

pub fn shown_kind(id: KindId) -> Option<&'static ShownKind> {
    SHOWN.iter().find(|k| k.id == id)
}

pub fn shown_by_host_kind(kind: HostKind) -> Option<&'static ShownKind> {
    SHOWN.iter().find(|k| k.host == kind)
}

/// Whether we put the object into the tenant. Objects that the tenant made itself are its own.
pub fn is_shown_by_us(tenant: &Value) -> bool {
    tenant.label(marks::MANAGED_BY) == Some(marks::MANAGER) && tenant.annotation(marks::UID).is_some()
}

/// The object for the tenant, complete. Null stands for what the tenant must not have.
pub fn shown(kind: &ShownKind, host: &Value, tenant: Option<&Value>, translation: &Translation<'_>) -> Value {
    let mut object = (kind.to_tenant)(host, tenant, translation);
    object["apiVersion"] = json!(kind.gvr.api_version());
    object["kind"] = json!(kind.kind);
    object.metadata_mut().insert("name".into(), json!(host.name()));
    if !kind.namespace.is_empty() {
        object.metadata_mut().insert("namespace".into(), json!(kind.namespace));
    }
    object.set_label(marks::MANAGED_BY, marks::MANAGER);
    object.set_annotation(marks::UID, host.uid());
    // Labels are shared with the tenant: only those that we put there are ours to take away.
    let keys: Vec<&str> = object.labels().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    let keys = keys.join(",");
    object.set_annotation(marks::APPLIED, &keys);
    object
}

/// The given top-level fields, where the host has them.
fn pick(host: &Value, fields: &[&str]) -> Value {
    let picked: Map<String, Value> = fields.iter().filter(|f| !host[**f].is_null()).map(|f| ((*f).to_string(), host[*f].clone())).collect();
    Value::Object(picked)
}

/// The host's labels without those of our own domain.
fn labels(host: &Value) -> Value {
    let kept: Map<String, Value> =
        host.labels().into_iter().flatten().filter(|(k, _)| !marks::is_reserved(k)).map(|(k, v)| (k.clone(), v.clone())).collect();
    Value::Object(kept)
}
