//! Spreading a change of size over the replica sets of a rollout in proportion.

use super::annotations::{self, MAX_REPLICAS};
use super::replicas::{max_surge, oldest_first, wanted};
use crate::kit::count_at;
use serde_json::Value;
use std::cmp::Ordering;

/// The sizes that active sets should have so that together they fill what the deployment allows.
pub(super) fn proportional(deployment: &Value, mut active: Vec<&Value>) -> Vec<(usize, i64)> {
    let desired = wanted(deployment);
    let allowed = if desired > 0 { desired + max_surge(deployment) } else { 0 };
    let to_add = allowed - active.iter().map(|s| wanted(s)).sum::<i64>();
    let originals = active.clone();
    let larger_first = |a: &Value, b: &Value| wanted(b).cmp(&wanted(a));
    match to_add.cmp(&0) {
        // Of equal sets, growing favours the newer and shrinking hits the older.
        Ordering::Greater => active.sort_by(|a, b| larger_first(a, b).then_with(|| oldest_first(b, a))),
        Ordering::Less => active.sort_by(|a, b| larger_first(a, b).then_with(|| oldest_first(a, b))),
        Ordering::Equal => {}
    }
    let mut added = 0;
    let mut sizes: Vec<i64> = Vec::with_capacity(active.len());
    for set in &active {
        let share = share(deployment, set, to_add, added);
        added += share;
        sizes.push(wanted(set) + share);
    }
    if let Some(first) = sizes.first_mut() {
        *first = (*first + to_add - added).max(0);
    }
    let position = |set: &Value| originals.iter().position(|o| std::ptr::eq(*o, set)).expect("sorted from the same list");
    active.iter().zip(sizes).map(|(set, size)| (position(set), size)).collect()
}

/// The part of `to_add` for one set, never more than what is left of it.
fn share(deployment: &Value, set: &Value, to_add: i64, added: i64) -> i64 {
    if wanted(set) == 0 || to_add == 0 || to_add == added {
        return 0;
    }
    let fraction = fraction(deployment, set);
    let left = to_add - added;
    if to_add > 0 { fraction.min(left) } else { fraction.max(left) }
}

fn fraction(deployment: &Value, set: &Value) -> i64 {
    let size = wanted(set);
    if wanted(deployment) == 0 {
        return -size;
    }
    // Without a usable note of the size before, the current size of the whole comes close.
    let before = annotations::size(set, MAX_REPLICAS).filter(|max| *max > 0).unwrap_or_else(|| count_at(deployment, "/status/replicas"));
    if before == 0 {
        return 0;
    }
    let max = wanted(deployment) + max_surge(deployment);
    (size as f64 * max as f64 / before as f64).round() as i64 - size
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sublet_machinery::ObjectExt;

    /// Cases and values of upstream's TestScale: (replicas and surge now and before, sizes, expected sizes).
    fn check(desired: i64, surge: i64, max_before: i64, sizes: &[i64], expected: &[i64]) {
        let deployment = json!({"spec": {"replicas": desired, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": 0}}}});
        // Newest first, as in the table.
        let sets: Vec<Value> = sizes
            .iter()
            .enumerate()
            .map(|(i, size)| {
                let mut set = json!({"metadata": {"name": format!("s{i}"), "creationTimestamp": format!("2026-01-01T00:0{}:00Z", 9 - i)}, "spec": {"replicas": size}});
                set.set_annotation(MAX_REPLICAS, &max_before.to_string());
                set
            })
            .collect();
        let mut result = vec![0; sets.len()];
        for (at, size) in proportional(&deployment, sets.iter().collect()) {
            result[at] = size;
        }
        assert_eq!(result, expected, "{desired}+{surge} from {max_before}: {sizes:?}");
    }

    #[test]
    fn sizes_change_in_proportion() {
        check(10, 0, 5, &[2, 3], &[4, 6]);
        check(3, 0, 5, &[2, 3], &[1, 2]);
        check(4, 0, 9, &[8, 1], &[4, 0]);
        check(10, 0, 7, &[2, 3, 2], &[3, 4, 3]);
        check(8, 0, 13, &[2, 8, 3], &[1, 5, 2]);
        check(4, 0, 3, &[1, 1, 1], &[2, 1, 1]);
        check(2, 0, 3, &[1, 1, 1], &[1, 1, 0]);
        check(5, 0, 4, &[2, 2], &[3, 2]);
        check(20, 2, 12, &[6, 6], &[11, 11]);
        check(50, 6, 13, &[5, 8], &[22, 34]);
    }

    #[test]
    fn scaling_to_zero_takes_everything() {
        check(0, 0, 6, &[3, 2, 1], &[0, 0, 0]);
    }
}
