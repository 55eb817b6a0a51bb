//! Which persistent volume suits a claim (as in FindMatchingVolume of component-helpers, 1.37).

use crate::quantity::milli_of;
use crate::selector::{Labels, NodeSelector, Selector};
use serde_json::Value;
use std::sync::Arc;
use sublet_machinery::ObjectExt;

/// When the claim's class waits for a pod, the volume loop binds only what somebody bound before.
#[derive(Clone, Copy)]
pub(crate) enum Match<'a> {
    Immediate,
    Delayed,
    /// The scheduler asks for a node: name and labels.
    OnNode(&'a str, Option<&'a Labels>),
}

/// The smallest volume that suits, or the one that is reserved for the claim. `taken` volumes are passed over.
pub(crate) fn find<'v>(claim: &Value, volumes: &'v [Arc<Value>], mode: Match<'_>, taken: &dyn Fn(&str) -> bool) -> Option<&'v Arc<Value>> {
    let wanted = request(claim);
    let selector = claim.pointer("/spec/selector").filter(|s| s.is_object()).map(Selector::parse);
    let mut best: Option<(&Arc<Value>, i64)> = None;
    for volume in volumes.iter().filter(|v| !taken(v.name())) {
        let size = capacity(volume);
        if size < wanted || volume_mode(volume) != volume_mode(claim) || attributes_class(volume) != attributes_class(claim) {
            continue;
        }
        if let Match::OnNode(name, labels) = mode
            && !suits_node(volume, name, labels)
        {
            continue;
        }
        match volume.pointer("/spec/claimRef").filter(|r| r.is_object()) {
            Some(_) if is_reserved_for(volume, claim) => return (!volume.is_deleting()).then_some(volume),
            Some(_) => continue,
            None => {}
        }
        let available = volume.str_at("/status/phase") == Some("Available") && !volume.is_deleting();
        if !available || matches!(mode, Match::Delayed) || class(volume) != class(claim) || !allows_modes(volume, claim) {
            continue;
        }
        if selector.as_ref().is_some_and(|s| !s.matches(volume.labels())) {
            continue;
        }
        if best.is_none_or(|(_, s)| size < s) {
            best = Some((volume, size));
        }
    }
    best.map(|(volume, _)| volume)
}

/// Why a volume that the claim asks for by name cannot serve it.
pub(crate) fn mismatch(volume: &Value, claim: &Value) -> Option<&'static str> {
    if capacity(volume) < request(claim) {
        return Some("requested PV is too small");
    }
    if class(volume) != class(claim) {
        return Some("storageClassName does not match");
    }
    if volume_mode(volume) != volume_mode(claim) {
        return Some("incompatible volumeMode");
    }
    (!allows_modes(volume, claim)).then_some("incompatible accessMode")
}

/// Whether the volume's claimRef names the claim; a reference without uid waits for its claim.
pub(crate) fn is_reserved_for(volume: &Value, claim: &Value) -> bool {
    let reference = &volume["spec"]["claimRef"];
    reference["name"] == claim.name()
        && reference["namespace"] == claim.namespace()
        && reference["uid"].as_str().is_none_or(|uid| uid.is_empty() || uid == claim.uid())
}

pub(crate) fn suits_node(volume: &Value, name: &str, labels: Option<&Labels>) -> bool {
    let required = volume.pointer("/spec/nodeAffinity/required").filter(|r| r.is_object());
    required.is_none_or(|r| NodeSelector::parse(r).matches(name, labels))
}

pub(crate) fn request(claim: &Value) -> i64 {
    milli_of(&claim["spec"]["resources"]["requests"]["storage"])
}

pub(crate) fn capacity(volume: &Value) -> i64 {
    milli_of(&volume["spec"]["capacity"]["storage"])
}

/// The class of a claim or volume; the annotation is the form before 1.6.
pub(crate) fn class(object: &Value) -> &str {
    let annotation = object.annotation("volume.beta.kubernetes.io/storage-class");
    annotation.or_else(|| object.str_at("/spec/storageClassName")).unwrap_or_default()
}

fn volume_mode(object: &Value) -> &str {
    object.str_at("/spec/volumeMode").unwrap_or("Filesystem")
}

fn attributes_class(object: &Value) -> &str {
    object.str_at("/spec/volumeAttributesClassName").unwrap_or_default()
}

fn allows_modes(volume: &Value, claim: &Value) -> bool {
    let offered = volume.array_at("/spec/accessModes");
    claim.array_at("/spec/accessModes").iter().all(|m| offered.contains(m))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn volume(name: &str, size: &str, spec: Value) -> Arc<Value> {
        let mut volume = json!({"metadata": {"name": name, "labels": {"tier": name}}, "status": {"phase": "Available"},
            "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "c"}});
        for (key, value) in spec.as_object().unwrap() {
            volume["spec"][key] = value.clone();
        }
        Arc::new(volume)
    }

    #[test]
    fn the_smallest_that_suits_wins_unless_one_is_reserved() {
        let volumes = [
            volume("large", "10Gi", json!({})),
            volume("small", "2Gi", json!({})),
            volume("tiny", "1Mi", json!({})),
            volume("block", "1Gi", json!({"volumeMode": "Block"})),
            volume("class", "1Gi", json!({"storageClassName": "x"})),
            volume("foreign", "1Gi", json!({"claimRef": {"name": "other", "namespace": "n"}})),
            volume("reserved", "20Gi", json!({"claimRef": {"name": "r", "namespace": "n"}})),
            volume(
                "placed",
                "1Gi",
                json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}}}),
            ),
        ];
        let check = |claim: Value, mode: Match<'_>, expected: Option<&str>| {
            assert_eq!(find(&claim, &volumes, mode, &|n| n == "taken").map(|v| v.name()), expected, "{claim}");
        };
        let claim = |name: &str, spec: Value| {
            let mut claim = json!({"metadata": {"name": name, "namespace": "n", "uid": name}, "spec": {"storageClassName": "c",
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
            for (key, value) in spec.as_object().unwrap() {
                claim["spec"][key] = value.clone();
            }
            claim
        };
        check(claim("a", json!({})), Match::OnNode("n2", None), Some("small"));
        check(claim("a", json!({})), Match::OnNode("n1", None), Some("placed"));
        check(claim("a", json!({})), Match::Immediate, Some("placed"));
        check(claim("a", json!({})), Match::Delayed, None);
        check(claim("r", json!({})), Match::Delayed, Some("reserved"));
        check(claim("a", json!({"selector": {"matchLabels": {"tier": "large"}}})), Match::Immediate, Some("large"));
        check(claim("a", json!({"accessModes": ["ReadWriteMany"]})), Match::Immediate, None);
        check(claim("a", json!({"volumeMode": "Block"})), Match::Immediate, Some("block"));
    }
}
