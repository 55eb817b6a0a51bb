//! The end of a definition: its custom resources go first.

use super::names::{condition, set_condition};
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

/// Holds a definition until its custom resources are gone.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The definition after a client asked to delete it: marked, held by [`CLEANUP_FINALIZER`], and saying
/// so. Deleting it again is an ordinary delete. The grace period is none.
pub fn begin_delete(crd: &Value, now: &str) -> Value {
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    let mut crd = with_condition(crd, condition("Terminating", true, PENDING, message), now);
    let mut finalizers = crd.array_at("/metadata/finalizers").to_vec();
    if !crd.has_finalizer(CLEANUP_FINALIZER) {
        finalizers.push(json!(CLEANUP_FINALIZER));
    }
    let metadata = crd.metadata_mut();
    metadata.insert("finalizers".into(), Value::Array(finalizers));
    metadata.entry("deletionTimestamp").or_insert_with(|| json!(now));
    crd
}

const PENDING: &str = "InstanceDeletionPending";

/// What to do next with a definition that is being deleted.
#[derive(Clone, Debug, PartialEq)]
pub enum Cleanup {
    /// Not being deleted, or not held by [`CLEANUP_FINALIZER`].
    Nothing,
    /// Write this object (it says that the deletion is in progress); then ask again.
    Announce(Value),
    /// Delete all custom resources through the usual way of deletion (finalizers of theirs are
    /// honoured), wait until none is left, then ask again.
    DeleteInstances,
    /// Write this object: the finalizer is off it, so the deletion completes.
    Finish(Value),
}

/// Decides the next step from the definition and the number of its custom resources.
pub fn cleanup_plan(crd: &Value, instances: usize, now: &str) -> Cleanup {
    if !crd.is_deleting() || !crd.has_finalizer(CLEANUP_FINALIZER) {
        return Cleanup::Nothing;
    }
    if crd.condition("Terminating").is_none_or(|c| c["reason"] == PENDING) {
        let terminating = condition("Terminating", true, "InstanceDeletionInProgress", "CustomResource deletion is in progress");
        return Cleanup::Announce(with_condition(crd, terminating, now));
    }
    let done = if !crd.is_condition_true("Established") {
        condition("Terminating", false, "NeverEstablished", "resource was never established")
    } else if instances > 0 {
        return Cleanup::DeleteInstances;
    } else {
        condition("Terminating", false, "InstanceDeletionCompleted", "removed all instances")
    };
    let mut finished = with_condition(crd, done, now);
    let finalizers: Vec<Value> = crd.array_at("/metadata/finalizers").iter().filter(|f| *f != CLEANUP_FINALIZER).cloned().collect();
    if finalizers.is_empty() {
        finished.metadata_mut().remove("finalizers");
    } else {
        finished.metadata_mut().insert("finalizers".into(), json!(finalizers));
    }
    Cleanup::Finish(finished)
}

/// The definition after its custom resources could not all be deleted.
pub fn cleanup_failed(crd: &Value, why: &str, now: &str) -> Value {
    let failed = condition("Terminating", true, "InstanceDeletionFailed", &format!("could not issue all deletes: {why}"));
    with_condition(crd, failed, now)
}

fn with_condition(crd: &Value, condition: Value, now: &str) -> Value {
    let mut crd = crd.clone();
    let mut status = crd.get("status").cloned().unwrap_or_else(|| json!({}));
    set_condition(&mut status, condition, now);
    crd["status"] = status;
    crd
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_go_before_the_definition() {
        let crd = json!({"metadata": {"finalizers": ["x/y"]}, "status": {"conditions": [{"type": "Established", "status": "True"}]}});
        assert_eq!(cleanup_plan(&crd, 1, "t"), Cleanup::Nothing);
        let crd = begin_delete(&crd, "t");
        assert!(crd.is_deleting() && crd.has_finalizer(CLEANUP_FINALIZER));
        let Cleanup::Announce(crd) = cleanup_plan(&crd, 1, "t") else { panic!("the deletion is announced first") };
        assert!(crd.is_condition_true("Terminating"));
        assert_eq!(cleanup_plan(&crd, 1, "t"), Cleanup::DeleteInstances);
        let Cleanup::Finish(crd) = cleanup_plan(&crd, 0, "t") else { panic!("nothing is left to delete") };
        assert_eq!(crd["metadata"]["finalizers"], json!(["x/y"]));
        assert_eq!(crd["status"]["conditions"][1]["reason"], "InstanceDeletionCompleted");
    }

    #[test]
    fn what_was_never_served_has_no_instances() {
        let crd = json!({"metadata": {"finalizers": [CLEANUP_FINALIZER], "deletionTimestamp": "t"},
            "status": {"conditions": [{"type": "Terminating", "status": "True"}]}});
        let Cleanup::Finish(crd) = cleanup_plan(&crd, 5, "t") else { panic!("nothing is left to delete") };
        assert_eq!(crd["status"]["conditions"][0]["reason"], "NeverEstablished");
        assert!(crd["metadata"].get("finalizers").is_none());
    }
}
