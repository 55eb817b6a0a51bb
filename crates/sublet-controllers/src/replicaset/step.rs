//! How many pods to make, or which to give up.

use super::{count_at, pods, rank};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use sublet_machinery::ObjectExt;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Keep,
    Create(usize),
    Delete(usize),
}

/// A set on its way out neither makes nor deletes pods.
pub(super) fn decide(set: &Value, active: usize, burst: usize) -> Step {
    if set.is_deleting() {
        return Step::Keep;
    }
    let wanted = usize::try_from(count_at(set, "/spec/replicas")).unwrap_or(0);
    match wanted.cmp(&active) {
        std::cmp::Ordering::Equal => Step::Keep,
        std::cmp::Ordering::Greater => Step::Create((wanted - active).min(burst)),
        std::cmp::Ordering::Less => Step::Delete((active - wanted).min(burst)),
    }
}

/// `related` are the active pods whose crowding counts.
pub(super) fn choose(active: &[Arc<Value>], related: &[Arc<Value>], count: usize, now: Timestamp) -> Vec<Arc<Value>> {
    if count >= active.len() {
        return active.to_vec();
    }
    let mut on_node: HashMap<&str, usize> = HashMap::new();
    for pod in related {
        *on_node.entry(pods::node(pod)).or_default() += 1;
    }
    let neighbours = |p: &Value| on_node.get(pods::node(p)).copied().unwrap_or(0);
    let mut ranked: Vec<rank::Ranked> = active.iter().map(|pod| rank::Ranked { pod: pod.clone(), neighbours: neighbours(pod) }).collect();
    rank::sort_for_deletion(&mut ranked, now);
    ranked.into_iter().take(count).map(|r| r.pod).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_difference_is_made_up_within_the_burst() {
        let check = |replicas, active, expected| {
            assert_eq!(decide(&json!({"spec": {"replicas": replicas}}), active, 3), expected, "{replicas} of {active}");
        };
        check(2, 2, Step::Keep);
        check(2, 0, Step::Create(2));
        check(9, 1, Step::Create(3));
        check(0, 2, Step::Delete(2));
        check(0, 9, Step::Delete(3));
    }

    #[test]
    fn a_set_on_its_way_out_does_nothing() {
        let set = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"replicas": 2}});
        assert_eq!(decide(&set, 0, 3), Step::Keep);
    }
}
