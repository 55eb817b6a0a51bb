//! Between the version of a request and the version that is stored.
//!
//! Custom resources with conversion `None` differ in `apiVersion` alone. Of the built-in kinds only
//! HorizontalPodAutoscaler and Event are served in more than one form.

mod event;
mod hpa;

use crate::registry::Resource;
use crate::store::entry::Entry;
use bytes::Bytes;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

/// The bucket that the resource is stored in: both Event APIs share one.
pub fn storage_resource(resource: &Resource) -> String {
    if resource.group == "events.k8s.io" { "events".into() } else { resource.group_resource() }
}

/// `apiVersion` of the stored form.
pub fn storage_api_version(resource: &Resource) -> String {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("events.k8s.io", "events") => "v1".into(),
        ("autoscaling", "horizontalpodautoscalers") => "autoscaling/v2".into(),
        ("", _) => resource.storage_version.clone(),
        (group, _) => format!("{group}/{}", resource.storage_version),
    }
}

/// From the form of the request to the stored form.
pub fn to_storage(resource: &Resource, object: &mut Value) {
    let target = storage_api_version(resource);
    if object.api_version() != target {
        convert(object, &target);
    }
}

/// From the stored form to the form of the request.
pub fn from_storage(resource: &Resource, object: &mut Value) {
    let target = resource.api_version();
    if object.api_version() != target {
        convert(object, &target);
    }
    if resource.custom.as_ref().is_some_and(|c| c.complete_after > 0) {
        crate::crd::default_object(resource, object);
    }
}

/// The bytes of an entry in the form of the request; shared when that is the stored form.
pub fn entry_json(resource: &Resource, entry: &Entry) -> Bytes {
    if is_stored_form(resource, entry) {
        return entry.json.clone();
    }
    let mut object = entry.value();
    from_storage(resource, &mut object);
    serde_json::to_vec(&object).expect("a Value is always writable").into()
}

pub fn is_stored_form(resource: &Resource, entry: &Entry) -> bool {
    if resource.custom.as_ref().is_some_and(|c| entry.revision <= c.complete_after) {
        return false;
    }
    is_of_version(entry, &resource.api_version())
}

/// Whether the entry is as a write would store it now: in the version that is stored, with all defaults. One that is not is
/// written anew even by a write that changes nothing.
pub fn is_current(resource: &Resource, entry: &Entry) -> bool {
    resource.custom.as_ref().is_none_or(|c| entry.revision > c.complete_after) && is_of_version(entry, &storage_api_version(resource))
}

/// Entries begin with `{"apiVersion":"...`: see store/entry.rs.
fn is_of_version(entry: &Entry, version: &str) -> bool {
    let rest = entry.json.strip_prefix(b"{\"apiVersion\":\"".as_slice());
    rest.is_some_and(|r| r.starts_with(version.as_bytes()) && r.get(version.len()) == Some(&b'"'))
}

fn convert(object: &mut Value, target: &str) {
    match (object.kind(), object.api_version(), target) {
        ("Event", "v1", "events.k8s.io/v1") => event::to_events_v1(object),
        ("Event", "events.k8s.io/v1", "v1") => event::to_core_v1(object),
        ("HorizontalPodAutoscaler", "autoscaling/v2", "autoscaling/v1") => hpa::to_v1(object),
        ("HorizontalPodAutoscaler", "autoscaling/v1", "autoscaling/v2") => hpa::to_v2(object),
        _ => {}
    }
    object["apiVersion"] = json!(target);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::entry::Encoded;

    /// The rows of a definition at revision 7, whose second version is served or not there.
    fn rows(versions: &[&str]) -> Vec<std::sync::Arc<Resource>> {
        let version = |name: &&str| {
            json!({"name": name, "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"a": {"type": "string", "default": "A"}}}}})
        };
        crate::crd::rows(&json!({
            "metadata": {"name": "foos.example.com", "resourceVersion": "7"},
            "spec": {"group": "example.com", "scope": "Cluster", "versions": versions.iter().map(version).collect::<Vec<_>>()},
            "status": {"conditions": [{"type": "Established", "status": "True"}, {"type": "NamesAccepted", "status": "True"}],
                "acceptedNames": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"}},
        }))
    }

    fn read(row: &Resource, revision: u64) -> Value {
        let encoded = Encoded::new(&json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "x"}}), &[]);
        let entry = Entry::compose("foos.example.com//x".into(), revision, &encoded.stored).unwrap();
        serde_json::from_slice(&entry_json(row, &entry)).unwrap()
    }

    #[test]
    fn defaults_that_came_later_are_read_all_the_same() {
        let one = rows(&["v1"]);
        assert_eq!(read(&one[0], 5)["a"], "A");
        // Writers have filled it in by then.
        assert_eq!(read(&one[0], 8)["a"], Value::Null);
        let two = rows(&["v1", "v2"]);
        assert_eq!(
            read(&two[1], 8),
            json!({"apiVersion": "example.com/v2", "kind": "Foo", "metadata": {"name": "x", "resourceVersion": "8"}, "a": "A"})
        );
        assert_eq!(read(&two[0], 8)["a"], "A");
    }
}
