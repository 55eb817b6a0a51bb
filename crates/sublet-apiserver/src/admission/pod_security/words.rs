//! How findings are worded.

use super::checks::{Finding, Pod};
use serde_json::Value;
use std::collections::BTreeSet;

/// Init containers, containers and ephemeral containers.
pub(super) fn all_containers(pod: Pod<'_>) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |key| pod.spec[key].as_array().into_iter().flatten())
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// `"a", "b"`
pub(super) fn quoted<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| format!("\"{}\"", item.as_ref())).collect::<Vec<_>>().join(", ")
}

pub(super) fn plural<'a>(one: &'a str, many: &'a str, count: usize) -> &'a str {
    if count == 1 { one } else { many }
}

/// `container "a"` or `containers "a", "b"`
pub(super) fn containers(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names))
}

/// What the pod and what containers set, apart.
pub(super) struct Setters<'a> {
    pub by_pod: bool,
    pub by_containers: Vec<&'a str>,
    pub values: BTreeSet<String>,
}

impl<'a> Setters<'a> {
    /// Looks at the security contexts of the pod and of its containers; a wrong value is told.
    pub fn find(pod: Pod<'a>, wrong: impl Fn(&'a Value) -> Option<Vec<String>>) -> Self {
        let mut found = Self { by_pod: false, by_containers: Vec::new(), values: BTreeSet::new() };
        if let Some(values) = wrong(&pod.spec["securityContext"]) {
            found.by_pod = true;
            found.values.extend(values);
        }
        for container in all_containers(pod) {
            if let Some(values) = wrong(&container["securityContext"]) {
                found.by_containers.push(text(&container["name"]));
                found.values.extend(values);
            }
        }
        found
    }

    pub fn is_empty(&self) -> bool {
        !self.by_pod && self.by_containers.is_empty()
    }

    /// `pod and containers "a", "b"`
    pub fn words(&self) -> String {
        let mut words = Vec::new();
        if self.by_pod {
            words.push("pod".to_string());
        }
        if !self.by_containers.is_empty() {
            words.push(containers(&self.by_containers));
        }
        words.join(" and ")
    }
}

pub(super) fn finding(reason: &str, detail: String) -> Option<Finding> {
    Some(Finding { reason: reason.into(), detail })
}

/// Windows pods have no Linux security context.
pub(super) fn is_windows(pod: Pod<'_>) -> bool {
    pod.spec["os"]["name"] == "windows"
}

/// Root in a user namespace of its own is nobody on the host.
pub(super) fn has_own_users(pod: Pod<'_>) -> bool {
    pod.spec["hostUsers"] == false
}
