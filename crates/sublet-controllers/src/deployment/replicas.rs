//! Arithmetic over replica sets and the bounds of a rolling update.

use crate::kit::{count_at, intstr, time};
use serde_json::Value;
use std::cmp::Ordering;
use sublet_machinery::ObjectExt;

pub(super) fn wanted(object: &Value) -> i64 {
    count_at(object, "/spec/replicas")
}

pub(super) fn sum<'a>(sets: impl IntoIterator<Item = &'a Value>, pointer: &str) -> i64 {
    sets.into_iter().map(|s| count_at(s, pointer)).sum()
}

pub(super) fn is_rolling(deployment: &Value) -> bool {
    deployment.str_at("/spec/strategy/type") != Some("Recreate")
}

/// (maxSurge, maxUnavailable) in pods. Both zero by rounding would never move: then one may be
/// unavailable, because surge may be held up by a quota.
fn fenceposts(deployment: &Value) -> (i64, i64) {
    let desired = wanted(deployment);
    let at = |name: &str| deployment.pointer(&format!("/spec/strategy/rollingUpdate/{name}"));
    let surge = intstr::scaled(at("maxSurge"), desired, true).unwrap_or(0);
    let unavailable = intstr::scaled(at("maxUnavailable"), desired, false).unwrap_or(0);
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

pub(super) fn max_surge(deployment: &Value) -> i64 {
    if is_rolling(deployment) { fenceposts(deployment).0 } else { 0 }
}

pub(super) fn max_unavailable(deployment: &Value) -> i64 {
    if !is_rolling(deployment) || wanted(deployment) == 0 {
        return 0;
    }
    fenceposts(deployment).1.min(wanted(deployment))
}

/// How large the newest set may be now, given the size of all sets.
pub(super) fn new_size(deployment: &Value, all: i64, current: i64) -> i64 {
    let desired = wanted(deployment);
    if !is_rolling(deployment) {
        return desired;
    }
    let room = desired + max_surge(deployment) - all;
    if room <= 0 { current } else { current + room.min(desired - current) }
}

pub(super) fn oldest_first(a: &Value, b: &Value) -> Ordering {
    time::created(a).cmp(&time::created(b)).then_with(|| a.name().cmp(b.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment(replicas: i64, surge: Value, unavailable: Value) -> Value {
        json!({"spec": {"replicas": replicas, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}})
    }

    #[test]
    fn fenceposts_round_towards_safety_but_never_both_to_zero() {
        let check = |replicas, surge: &str, unavailable: &str, expected| {
            assert_eq!(fenceposts(&deployment(replicas, json!(surge), json!(unavailable))), expected, "{replicas} {surge} {unavailable}");
        };
        check(2, "0%", "1%", (0, 1));
        check(1, "0%", "1%", (0, 1));
        check(2, "1%", "25%", (1, 0));
        check(1, "1%", "25%", (1, 0));
        check(10, "25%", "25%", (3, 2));
    }

    #[test]
    fn the_new_set_grows_within_the_surge() {
        let check = |replicas, surge, all, current, expected| {
            assert_eq!(new_size(&deployment(replicas, json!(surge), json!(0)), all, current), expected);
        };
        check(10, 0, 10, 0, 0);
        check(10, 2, 10, 0, 2);
        check(10, 2, 12, 2, 2);
        check(10, 5, 5, 0, 10);
        check(10, 3, 11, 6, 8);
    }
}
