//! Volume claims of members and who owns them, by the retention policy.

use super::{STATEFUL_SET, identity};
use crate::kit::template;
use serde_json::{Value, json};
use sublet_machinery::{Gvk, ObjectExt};

const POD: Gvk = Gvk::new("", "v1", "Pod");

/// What happens to the claims of a member that goes: by scaling down, or with its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Retention {
    delete_when_scaled: bool,
    delete_when_deleted: bool,
}

fn retention(set: &Value) -> Retention {
    let deletes = |key: &str| set.str_at(&format!("/spec/persistentVolumeClaimRetentionPolicy/{key}")) == Some("Delete");
    Retention { delete_when_scaled: deletes("whenScaled"), delete_when_deleted: deletes("whenDeleted") }
}

/// A claim of a member in the line, made from its template.
pub(super) fn new_claim(set: &Value, claim_template: &Value, ordinal: i64) -> Value {
    let mut claim = claim_template.clone();
    claim.remove_at("/status");
    claim["apiVersion"] = json!("v1");
    claim["kind"] = json!("PersistentVolumeClaim");
    claim["metadata"]["name"] = json!(identity::claim_name(set, claim_template, ordinal));
    claim["metadata"]["namespace"] = json!(set.namespace());
    for (key, value) in set.object_at("/spec/selector/matchLabels").into_iter().flatten() {
        claim.set_label(key, value.as_str().unwrap_or_default());
    }
    if retention(set).delete_when_deleted {
        claim["metadata"]["ownerReferences"] = json!([template::controller_reference(set, &STATEFUL_SET)]);
    }
    claim
}

fn points_to(reference: &Value, object: &Value, gvk: &Gvk) -> bool {
    reference["apiVersion"] == gvk.api_version() && reference["kind"] == *gvk.kind && reference["name"] == object.name()
}

/// Refers to a former object of the same kind and name.
fn is_stale(claim: &Value, object: &Value, gvk: &Gvk) -> bool {
    claim.owner_references().iter().find(|r| points_to(r, object, gvk)).is_some_and(|r| r["uid"] != object.uid())
}

/// A claim that still belongs to a former pod of this name and is about to go with it: the new pod
/// must not use it.
pub(super) fn blocks_creation(set: &Value, claim: &Value, pod: &Value) -> bool {
    retention(set).delete_when_scaled && is_stale(claim, pod, &POD)
}

/// Somebody else controls the claim although the policy wants to.
pub(super) fn has_other_controller(claim: &Value, set: &Value, pod: &Value) -> bool {
    let policy = retention(set);
    if !policy.delete_when_scaled && !policy.delete_when_deleted {
        return false;
    }
    claim.owner_references().iter().any(|r| {
        if points_to(r, set, &STATEFUL_SET) {
            r["uid"] != set.uid()
        } else if points_to(r, pod, &POD) {
            r["uid"] != pod.uid()
        } else {
            r["controller"] == true
        }
    })
}

/// The references that a claim should have; `None` when it is right or not ours to touch.
pub(super) fn wanted_owners(claim: &Value, set: &Value, pod: &Value, in_line: bool) -> Option<Vec<Value>> {
    if is_stale(claim, set, &STATEFUL_SET) || is_stale(claim, pod, &POD) {
        return None;
    }
    let policy = retention(set);
    let other = has_other_controller(claim, set, pod);
    let set_owns = !other && policy.delete_when_deleted && (in_line || !policy.delete_when_scaled);
    let pod_owns = !other && policy.delete_when_scaled && !in_line;
    let references = claim.owner_references();
    let is_right = |owner: &Value, wanted: bool| match references.iter().find(|r| r["uid"] == owner.uid()) {
        Some(reference) => wanted && reference["controller"] == true,
        None => !wanted,
    };
    if is_right(set, set_owns) && is_right(pod, pod_owns) {
        return None;
    }
    let is_ours = |r: &&Value| points_to(r, set, &STATEFUL_SET) || points_to(r, pod, &POD);
    let mut wanted: Vec<Value> = references.iter().filter(|r| !is_ours(r)).cloned().collect();
    if set_owns {
        wanted.push(template::controller_reference(set, &STATEFUL_SET));
    }
    if pod_owns {
        wanted.push(template::controller_reference(pod, &POD));
    }
    Some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(scaled: &str, deleted: &str) -> Value {
        json!({"metadata": {"name": "s", "uid": "set"}, "spec": {"persistentVolumeClaimRetentionPolicy": {"whenScaled": scaled, "whenDeleted": deleted}}})
    }

    fn pod() -> Value {
        json!({"metadata": {"name": "s-1", "uid": "pod"}})
    }

    fn owners(scaled: &str, deleted: &str, in_line: bool) -> Option<Vec<String>> {
        let references = wanted_owners(&json!({}), &set(scaled, deleted), &pod(), in_line)?;
        Some(references.iter().map(|r| r["kind"].as_str().unwrap_or_default().to_string()).collect())
    }

    #[test]
    fn the_policy_chooses_the_owner() {
        let check = |scaled, deleted, in_line, expected: Option<&str>| {
            assert_eq!(owners(scaled, deleted, in_line), expected.map(|e| vec![e.to_string()]), "{scaled} {deleted} {in_line}");
        };
        check("Retain", "Retain", true, None);
        check("Retain", "Delete", true, Some("StatefulSet"));
        check("Retain", "Delete", false, Some("StatefulSet"));
        check("Delete", "Retain", true, None);
        check("Delete", "Retain", false, Some("Pod"));
        check("Delete", "Delete", true, Some("StatefulSet"));
        check("Delete", "Delete", false, Some("Pod"));
    }

    #[test]
    fn claims_of_others_and_of_the_past_are_left_alone() {
        let claim = |reference: Value| json!({"metadata": {"ownerReferences": [reference]}});
        let stale = claim(json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "former", "controller": true}));
        assert_eq!(wanted_owners(&stale, &set("Delete", "Delete"), &pod(), true), None);
        let other = claim(json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x", "controller": true}));
        assert!(has_other_controller(&other, &set("Delete", "Delete"), &pod()));
        assert_eq!(wanted_owners(&other, &set("Delete", "Delete"), &pod(), true), None);
    }
}
