//! A node and its own object.

use super::{Checked, refuse};
use crate::admission::Operation;
use serde_json::Value;
use std::collections::BTreeSet;

/// Labels of Kubernetes' own that kubelets know of themselves.
const KUBELET_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
/// Prefixes of labels that are theirs.
const KUBELET_PREFIXES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// By these admins keep pods from nodes that were taken over.
const RESTRICTED_PREFIX: &str = "node-restriction.kubernetes.io";

pub(super) fn check(node: &str, name: &str, operation: Operation, (new, old): (&Value, &Value)) -> Checked {
    let name = if operation == Operation::Create && name.is_empty() { new["metadata"]["name"].as_str().unwrap_or_default() } else { name };
    if name != node {
        return refuse(format!("node {node:?} is not allowed to modify node {name:?}"));
    }
    let listed = |labels: BTreeSet<&str>| labels.into_iter().collect::<Vec<_>>().join(", ");
    match operation {
        Operation::Create => {
            if !new["spec"]["configSource"].is_null() {
                return refuse(format!("node {node:?} is not allowed to create pods with a non-nil configSource"));
            }
            let labels = forbidden_labels(new, &Value::Null);
            if labels.is_empty() {
                Ok(())
            } else {
                refuse(format!("node {node:?} is not allowed to set the following labels: {}", listed(labels)))
            }
        }
        Operation::Update => {
            let source = &new["spec"]["configSource"];
            if !source.is_null() && *source != old["spec"]["configSource"] {
                return refuse(format!("node {node:?} is not allowed to update configSource to a new non-nil configSource"));
            }
            if is_other(&new["spec"]["taints"], &old["spec"]["taints"]) {
                return refuse(format!("node {node:?} is not allowed to modify taints"));
            }
            if is_other(&new["metadata"]["ownerReferences"], &old["metadata"]["ownerReferences"]) {
                return refuse(format!("node {node:?} is not allowed to modify ownerReferences"));
            }
            let labels = forbidden_labels(new, old);
            if labels.is_empty() { Ok(()) } else { refuse(format!("is not allowed to modify labels: {}", listed(labels))) }
        }
        Operation::Delete | Operation::Connect => Ok(()),
    }
}

/// Whether two lists differ; none and an empty one are alike.
fn is_other(a: &Value, b: &Value) -> bool {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    list(a) != list(b)
}

/// Labels that differ and are not a node's to say.
fn forbidden_labels<'a>(new: &'a Value, old: &'a Value) -> BTreeSet<&'a str> {
    let labels = |object: &'a Value| object["metadata"]["labels"].as_object().into_iter().flatten();
    let differs = |(key, _): &(&'a String, &'a Value)| new["metadata"]["labels"][key.as_str()] != old["metadata"]["labels"][key.as_str()];
    labels(new).chain(labels(old)).filter(differs).map(|(key, _)| key.as_str()).filter(|key| is_forbidden(key)).collect()
}

fn is_forbidden(label: &str) -> bool {
    let prefix = label.split_once('/').map_or("", |(prefix, _)| prefix);
    let below = |domain: &str| prefix == domain || prefix.strip_suffix(domain).is_some_and(|p| p.ends_with('.'));
    let is_kubelets = KUBELET_LABELS.contains(&label) || KUBELET_PREFIXES.iter().any(|domain| below(domain));
    below(RESTRICTED_PREFIX) || ((below("kubernetes.io") || below("k8s.io")) && !is_kubelets)
}
