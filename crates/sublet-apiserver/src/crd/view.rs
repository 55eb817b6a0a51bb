//! Reading a CustomResourceDefinition.

use serde_json::Value;
use sublet_machinery::ObjectExt;

pub(super) fn versions(crd: &Value) -> &[Value] {
    crd.array_at("/spec/versions")
}

pub(super) fn version_name(version: &Value) -> &str {
    version["name"].as_str().unwrap_or_default()
}

pub(super) fn storage_version(crd: &Value) -> Option<&str> {
    versions(crd).iter().find(|v| v["storage"] == true).map(version_name)
}

pub(super) fn group(crd: &Value) -> &str {
    crd.str_at("/spec/group").unwrap_or_default()
}

/// The schema of a version, if it has one.
pub(super) fn schema(version: &Value) -> Option<&Value> {
    version.pointer("/schema/openAPIV3Schema").filter(|s| s.is_object())
}

pub(super) fn condition<'a>(crd: &'a Value, kind: &str) -> Option<&'a Value> {
    crd.array_at("/status/conditions").iter().find(|c| c["type"] == kind)
}

/// Whether a condition is there and true.
pub fn is_condition_true(crd: &Value, kind: &str) -> bool {
    condition(crd, kind).is_some_and(|c| c["status"] == "True")
}

/// Whether the custom resources of the definition are served.
pub fn is_served(crd: &Value) -> bool {
    is_condition_true(crd, "NamesAccepted") || is_condition_true(crd, "Established")
}

pub fn is_terminating(crd: &Value) -> bool {
    crd.is_deleting() || is_condition_true(crd, "Terminating")
}

pub(super) fn strings(list: &Value) -> Vec<String> {
    list.as_array().map(|l| l.iter().filter_map(Value::as_str).map(str::to_string).collect()).unwrap_or_default()
}

pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}
