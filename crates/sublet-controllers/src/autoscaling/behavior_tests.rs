//! Cases and numbers of upstream's tests of its horizontal controller.

use super::*;
use serde_json::json;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + seconds).expect("a time")
}

/// Rules of one direction: pods in a period, percent in a period, and the window. Nothing given is no policy.
fn rules(pods: i64, pods_period: i64, percent: i64, percent_period: i64, window: i64) -> Value {
    let mut policies = Vec::new();
    if pods > 0 {
        policies.push(json!({"type": "Pods", "value": pods, "periodSeconds": pods_period}));
    }
    if percent > 0 {
        policies.push(json!({"type": "Percent", "value": percent, "periodSeconds": percent_period}));
    }
    json!({"selectPolicy": "Max", "policies": policies, "stabilizationWindowSeconds": window})
}

fn up_default() -> Value {
    rules(4, 15, 100, 15, 0)
}

fn down_default() -> Value {
    rules(0, 0, 100, 15, 300)
}

/// Changes at even distances over a period that ends now.
fn events(changes: &[i64], period: i64) -> Vec<(i64, Timestamp)> {
    let step = period / i64::try_from(changes.len() + 1).expect("few");
    changes.iter().enumerate().map(|(i, change)| (*change, at(-period + step * i64::try_from(i + 1).expect("few")))).collect()
}

struct Case<'a> {
    ups: &'a [i64],
    downs: &'a [i64],
    bounds: (i64, i64),
    up: Option<Value>,
    down: Option<Value>,
    current: i64,
    desired: i64,
    expected: (i64, &'a str),
}

const NONE: Case<'static> =
    Case { ups: &[], downs: &[], bounds: (1, 1000), up: None, down: None, current: 0, desired: 0, expected: (0, "") };

fn check(case: Case<'_>) {
    let history = History { recommendations: Vec::new(), ups: events(case.ups, 120), downs: events(case.downs, 120) };
    let behavior = json!({"scaleUp": case.up.unwrap_or_else(up_default), "scaleDown": case.down.unwrap_or_else(down_default)});
    let wish = Wish { current: case.current, desired: case.desired, min: case.bounds.0, max: case.bounds.1 };
    let (replicas, (reason, _)) = history.limit_by(wish, &behavior, at(0));
    assert_eq!((replicas, reason), case.expected, "{wish:?} {behavior} {:?} {:?}", case.ups, case.downs);
}

#[test]
fn counts_stay_in_bounds() {
    check(Case { bounds: (3, 8), current: 5, desired: 7, expected: (7, "DesiredWithinRange"), ..NONE });
    check(Case { bounds: (2, 8), current: 3, desired: 1, expected: (2, "TooFewReplicas"), ..NONE });
    check(Case { bounds: (0, 10), current: 1, desired: 0, expected: (0, "DesiredWithinRange"), ..NONE });
    check(Case { bounds: (1, 10), current: 20, desired: 1000, expected: (10, "TooManyReplicas"), ..NONE });
    check(Case { bounds: (100, 150), current: 100, desired: 1000, expected: (150, "TooManyReplicas"), ..NONE });
    check(Case { current: 10, desired: 50, expected: (20, "ScaleUpLimit"), ..NONE });
}

#[test]
fn counts_rise_by_the_largest_policy() {
    let check =
        |up, current, desired, replicas, reason| check(Case { up: Some(up), current, desired, expected: (replicas, reason), ..NONE });
    check(rules(0, 0, 1, 60, 0), 3, 1000, 4, "ScaleUpLimit");
    check(rules(100, 60, 100, 60, 0), 10, 500, 110, "ScaleUpLimit");
    check(rules(2, 60, 100, 60, 0), 10, 500, 20, "ScaleUpLimit");
    check(rules(100, 60, 0, 0, 0), 10, 50, 50, "DesiredWithinRange");
    check(rules(30, 60, 0, 0, 0), 10, 50, 40, "ScaleUpLimit");
    check(rules(0, 0, 200, 60, 0), 10, 50, 30, "ScaleUpLimit");
}

#[test]
fn counts_fall_by_the_largest_policy() {
    let check = |down, min, current, desired, replicas, reason| {
        check(Case { down: Some(down), bounds: (min, 1000), current, desired, expected: (replicas, reason), ..NONE });
    };
    check(rules(20, 60, 1, 60, 300), 1, 100, 2, 80, "ScaleDownLimit");
    check(rules(2, 60, 1, 60, 300), 1, 100, 2, 98, "ScaleDownLimit");
    check(rules(100, 60, 0, 0, 300), 1, 10, 0, 1, "TooFewReplicas");
    check(rules(0, 0, 100, 60, 300), 5, 10, 2, 5, "TooFewReplicas");
    check(rules(5, 60, 0, 0, 300), 1, 10, 2, 5, "ScaleDownLimit");
    check(rules(0, 0, 50, 60, 300), 1, 10, 5, 5, "DesiredWithinRange");
}

#[test]
fn earlier_changes_of_the_period_count() {
    let up = |ups: &[i64], downs: &[i64], up, max, current, desired, replicas, reason| {
        check(Case { ups, downs, up: Some(up), bounds: (1, max), current, desired, expected: (replicas, reason), ..NONE });
    };
    up(&[1, 5, 9], &[], rules(300, 60, 0, 0, 0), 200, 100, 500, 200, "TooManyReplicas");
    up(&[1, 5, 9], &[], rules(5, 120, 0, 0, 0), 1000, 100, 500, 100, "ScaleUpLimit");
    up(&[1, 5, 9], &[], rules(150, 120, 0, 0, 0), 1000, 100, 500, 235, "ScaleUpLimit");
    up(&[1, 5, 9], &[], rules(0, 0, 200, 120, 0), 1000, 100, 500, 255, "ScaleUpLimit");
    up(&[4], &[2], rules(0, 0, 300, 300, 0), 1000, 6, 24, 16, "ScaleUpLimit");
    let down = |ups: &[i64], downs: &[i64], down, min, current, desired, replicas, reason| {
        check(Case { ups, downs, down: Some(down), bounds: (min, 1000), current, desired, expected: (replicas, reason), ..NONE });
    };
    down(&[], &[1, 5, 9], down_default(), 1, 10, 5, 5, "DesiredWithinRange");
    down(&[], &[1, 5, 9], rules(115, 120, 0, 0, 300), 1, 100, 0, 1, "TooFewReplicas");
    down(&[], &[1, 5, 9], rules(130, 120, 0, 0, 300), 5, 100, 0, 5, "TooFewReplicas");
    down(&[], &[1, 5, 9], rules(0, 0, 100, 120, 300), 5, 100, 2, 5, "TooFewReplicas");
    down(&[], &[1, 5, 9], rules(5, 120, 0, 0, 300), 1, 100, 2, 100, "ScaleDownLimit");
    down(&[], &[2, 4, 6], rules(0, 0, 50, 120, 300), 1, 100, 0, 56, "ScaleDownLimit");
    down(&[2], &[4], rules(0, 0, 50, 180, 0), 1, 10, 1, 6, "ScaleDownLimit");
    down(&[], &[10, 10, 10], rules(0, 0, 10, 120, 300), 1, 100, 0, 100, "ScaleDownLimit");
    down(&[], &[10, 10, 10], rules(0, 0, 1000, 120, 300), 1, 10, 5, 5, "DesiredWithinRange");
}

#[test]
fn the_smallest_policy_counts_where_that_is_said_and_none_where_it_is_off() {
    let with = |mut rules: Value, select: &str| {
        rules["selectPolicy"] = json!(select);
        Some(rules)
    };
    check(Case { up: with(rules(2, 60, 100, 60, 0), "Min"), current: 10, desired: 500, expected: (12, "ScaleUpLimit"), ..NONE });
    check(Case { up: with(up_default(), "Disabled"), current: 10, desired: 500, expected: (10, "ScaleUpLimit"), ..NONE });
    check(Case { down: with(rules(20, 60, 1, 60, 0), "Min"), current: 100, desired: 2, expected: (99, "ScaleDownLimit"), ..NONE });
    check(Case { down: with(down_default(), "Disabled"), current: 10, desired: 2, expected: (10, "ScaleDownLimit"), ..NONE });
}

#[test]
fn recent_recommendations_stabilize() {
    let check = |recommendations: &[(i64, i64)], windows: (i64, i64), current, desired, expected| {
        let recommendations = recommendations.iter().map(|(replicas, minutes)| (*replicas, at(-60 * minutes))).collect();
        let history = History { recommendations, ..History::default() };
        let behavior =
            json!({"scaleUp": {"stabilizationWindowSeconds": windows.0}, "scaleDown": {"stabilizationWindowSeconds": windows.1}});
        let wish = Wish { current, desired, min: 0, max: 1000 };
        assert_eq!(history.stabilize_by(wish, &behavior, at(0)), expected, "{wish:?} {windows:?}");
    };
    check(&[], (0, 0), 100, 5, 5);
    check(&[(4, 2), (5, 1)], (0, 180), 100, 3, 5);
    check(&[(4, 2), (5, 1)], (300, 0), 1, 7, 4);
    check(&[(1, 2), (2, 1)], (300, 0), 100, 3, 3);
    check(&[(4, 2), (5, 1)], (0, 300), 1, 3, 3);
    check(&[(10, 10), (9, 9)], (0, 0), 100, 3, 3);
    check(&[(10, 10), (4, 1), (5, 2), (9, 9)], (0, 180), 100, 3, 5);
    check(&[(10, 100), (6, 1), (5, 2), (9, 3)], (300, 0), 1, 100, 5);
    check(&[(2, 100), (3, 3)], (300, 300), 2, 1, 2);
    check(&[(2, 100), (1, 3)], (300, 300), 2, 3, 2);
}

#[test]
fn without_rules_counts_double_and_fall_after_five_minutes() {
    let check = |current, desired, bounds: (i64, i64), expected: (i64, &str)| {
        let (replicas, (reason, _)) = limit(Wish { current, desired, min: bounds.0, max: bounds.1 });
        assert_eq!((replicas, reason), expected);
    };
    check(5, 7, (3, 8), (7, "DesiredWithinRange"));
    check(3, 1, (2, 8), (2, "TooFewReplicas"));
    check(1, 0, (0, 10), (0, "DesiredWithinRange"));
    check(20, 1000, (1, 10), (10, "TooManyReplicas"));
    check(3, 1000, (1, 2000), (6, "ScaleUpLimit"));
    check(1, 1000, (1, 2000), (4, "ScaleUpLimit"));

    let mut history = History::default();
    history.begin(5, at(0));
    let verdict = |history: &mut History, seconds| history.normalize(Wish { current: 5, desired: 2, min: 1, max: 10 }, None, at(seconds));
    let kept = verdict(&mut history, 60);
    assert_eq!((kept.replicas, kept.able.0, kept.is_limited, kept.limited.0), (5, "ScaleDownStabilized", false, "DesiredWithinRange"));
    assert_eq!(verdict(&mut history, 300).replicas, 5);
    let free = verdict(&mut history, 301);
    assert_eq!((free.replicas, free.able.0), (2, "ReadyForNewScale"));
}

#[test]
fn memory_is_bounded() {
    let mut history = History::default();
    for seconds in (0..50_000).step_by(100) {
        history.normalize(Wish { current: 1, desired: 1, min: 1, max: 10 }, None, at(seconds));
        history.scaled(Some(&json!({})), 1, 2, at(seconds));
    }
    assert!(history.recommendations.len() <= 38 && history.ups.len() <= 38);
}
