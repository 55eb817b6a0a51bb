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
    // Entries begin with {"apiVersion":"...": see store/entry.rs.
    let rest = entry.json.strip_prefix(b"{\"apiVersion\":\"".as_slice());
    let version = resource.api_version();
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
