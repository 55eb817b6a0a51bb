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

/// Whether the custom resources of the definition are served.
pub fn is_served(crd: &Value) -> bool {
    crd.is_condition_true("NamesAccepted") || crd.is_condition_true("Established")
}

pub fn is_terminating(crd: &Value) -> bool {
    crd.is_deleting() || crd.is_condition_true("Terminating")
}

pub(super) fn strings(list: &Value) -> Vec<String> {
    list.as_array().map(|l| l.iter().filter_map(Value::as_str).map(str::to_string).collect()).unwrap_or_default()
}

pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}
