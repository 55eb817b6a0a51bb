//! What a deployment notes on its replica sets: revision, history, sizes.

use serde_json::{Map, Value, json};
use sublet_machinery::ObjectExt;

pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
pub(super) const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub(super) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
pub(super) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const NOT_COPIED: [&str; 6] = [LAST_APPLIED, REVISION, REVISION_HISTORY, DESIRED_REPLICAS, MAX_REPLICAS, ROLLBACK_TO];

/// About a hundred revisions.
const HISTORY_BYTES_MAX: usize = 2000;

/// The revision of a replica set; without one it counts as zero, an unreadable one is `None`.
pub(super) fn revision(set: &Value) -> Option<i64> {
    set.annotation(REVISION).map_or(Some(0), |text| text.parse().ok())
}

/// Brings the annotations of the newest replica set up to date; answers whether one changed.
pub(super) fn bring_up_to_date(deployment: &Value, set: &mut Value, new_revision: i64) -> bool {
    let mut changed = copy(deployment, set);
    let old = set.annotation(REVISION).map(str::to_string);
    let Some(old_revision) = revision(set) else { return changed };
    // It may be greater when sets of later revisions are gone; it never goes back.
    if old_revision < new_revision {
        set.set_annotation(REVISION, &new_revision.to_string());
        changed = true;
        if let Some(old) = old {
            remember(set, &old);
        }
    }
    changed
}

fn copy(deployment: &Value, set: &mut Value) -> bool {
    let mut changed = false;
    for (key, value) in deployment.annotations().into_iter().flatten() {
        let Some(value) = value.as_str().filter(|v| !NOT_COPIED.contains(&key.as_str()) && set.annotation(key) != Some(*v)) else {
            continue;
        };
        set.set_annotation(key, value);
        changed = true;
    }
    changed
}

/// The set was of an older revision before: a rollback made it the newest again.
fn remember(set: &mut Value, old: &str) {
    let history = set.annotation(REVISION_HISTORY).unwrap_or_default().to_string();
    let mut revisions: Vec<&str> = history.split(',').filter(|r| !r.is_empty()).chain([old]).collect();
    while revisions.len() > 1 && revisions.iter().map(|r| r.len() + 1).sum::<usize>() - 1 > HISTORY_BYTES_MAX {
        revisions.remove(0);
    }
    set.set_annotation(REVISION_HISTORY, &revisions.join(","));
}

pub(super) fn set_sizes(set: &mut Value, desired: i64, max: i64) {
    set.set_annotation(DESIRED_REPLICAS, &desired.to_string());
    set.set_annotation(MAX_REPLICAS, &max.to_string());
}

pub(super) fn sizes_differ(set: &Value, desired: i64, max: i64) -> bool {
    set.annotation(DESIRED_REPLICAS) != Some(desired.to_string().as_str()) || set.annotation(MAX_REPLICAS) != Some(max.to_string().as_str())
}

/// A count noted on a replica set; one that is no count reads as absent.
pub(super) fn size(set: &Value, key: &str) -> Option<i64> {
    set.annotation(key)?.parse::<i32>().ok().filter(|n| *n >= 0).map(i64::from)
}

/// The annotations of a deployment that is rolled back to `set`.
pub(super) fn rolled_back(deployment: &Value, set: &Value) -> Map<String, Value> {
    let kept = deployment.annotations().into_iter().flatten().filter(|(k, _)| NOT_COPIED.contains(&k.as_str()) && *k != ROLLBACK_TO);
    let copied = set.annotations().into_iter().flatten().filter(|(k, _)| !NOT_COPIED.contains(&k.as_str()));
    kept.chain(copied).map(|(k, v)| (k.clone(), json!(v))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_follow_the_deployment_but_not_its_bookkeeping() {
        let deployment = json!({"metadata": {"annotations": {"a": "1", LAST_APPLIED: "x", REVISION: "9"}}});
        let mut set = json!({"metadata": {"annotations": {REVISION: "1"}}});
        assert!(bring_up_to_date(&deployment, &mut set, 3));
        assert_eq!(set["metadata"]["annotations"], json!({"a": "1", REVISION: "3", REVISION_HISTORY: "1"}));
        assert!(!bring_up_to_date(&deployment, &mut set, 2));
        assert!(bring_up_to_date(&deployment, &mut set, 5));
        assert_eq!(set.annotation(REVISION_HISTORY), Some("1,3"));
    }
}
