//! Cases and numbers of upstream's tests of its replica calculator.

use super::*;
use serde_json::json;

const TENTH: Tolerances = Tolerances { down: 0.1, up: 0.1 };

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().expect("a time")
}

/// Pods of two containers by letters: `T`rue and `F`alse of their readiness, `f`ailed, `d`eleted, `p`ending; small
/// `h` is ready and has just started.
fn pods(states: &str, requests: &[&str]) -> Vec<Arc<Value>> {
    let pod = |(index, state): (usize, char)| {
        let started = if state == 'h' { now().to_string() } else { "1970-01-01T00:00:00Z".into() };
        let ready = if matches!(state, 'T' | 'h') { "True" } else { "False" };
        let phase = match state {
            'f' => "Failed",
            'p' => "Pending",
            _ => "Running",
        };
        let resources = requests.get(index).map_or(json!({}), |cpu| json!({"requests": {"cpu": cpu}}));
        let mut pod = json!({
            "metadata": {"name": format!("pod-{index}")},
            "spec": {"containers": [{"name": "container1", "resources": resources}, {"name": "container2", "resources": resources}]},
            "status": {"phase": phase, "startTime": started, "conditions": [{"type": "Ready", "status": ready}]},
        });
        if state == 'd' {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Arc::new(pod)
    };
    states.chars().enumerate().map(pod).collect()
}

fn samples(levels: &[i64]) -> Samples {
    let sample =
        |(index, level): (usize, &i64)| (format!("pod-{index}"), Sample { value: *level, at: None, window: SignedDuration::from_mins(1) });
    levels.iter().enumerate().map(sample).collect()
}

fn subject(pods: &[Arc<Value>], current: i64, tolerances: Tolerances) -> Subject<'_> {
    let (initialization, readiness_delay) = (SignedDuration::from_mins(2), SignedDuration::from_secs(10));
    Subject { pods, current, tolerances, now: now(), initialization, readiness_delay }
}

/// Each level is what one of the two containers uses.
fn check_utilization(
    current: i64,
    states: &str,
    requested: &[&str],
    levels: &[i64],
    percent: i64,
    tolerances: Tolerances,
    expected: (i64, i64, i64),
) {
    let pods = pods(states, requested);
    let requests = requests(&pods, "", "cpu").expect("requests");
    let levels: Vec<i64> = levels.iter().map(|level| level * 2).collect();
    let target = Target::Utilization { percent, requests: &requests };
    let found = subject(&pods, current, tolerances).of_pods(samples(&levels), &target, "cpu").expect("a proposal");
    assert_eq!(
        (found.replicas, found.utilization, found.usage),
        (expected.0, Some(expected.1), expected.2),
        "{states} {levels:?} {percent}"
    );
}

const ONE: [&str; 7] = ["1.0"; 7];

#[test]
fn utilization_scales() {
    let check =
        |current, states, levels: &[i64], percent, expected| check_utilization(current, states, &ONE, levels, percent, TENTH, expected);
    check(3, "TTT", &[300, 500, 700], 30, (5, 50, 1000));
    check(3, "FTT", &[300, 500, 700], 30, (4, 60, 1200));
    check(3, "hTT", &[300, 500, 700], 30, (4, 60, 1200));
    check(3, "TFF", &[400, 500, 700], 30, (3, 40, 800));
    check(2, "TTff", &[500, 700], 30, (4, 60, 1200));
    check(2, "TTdd", &[500, 700], 30, (4, 60, 1200));
    check(5, "TTTTT", &[100, 300, 500, 250, 250], 50, (3, 28, 560));
    check(5, "TTTFF", &[100, 300, 500, 250, 250], 50, (2, 30, 600));
    check(5, "Tpppp", &[100], 50, (1, 10, 200));
    check(5, "TTThh", &[100, 300, 500, 250, 250], 50, (2, 30, 600));
    check(5, "TTTTTff", &[100, 300, 500, 250, 250], 50, (3, 28, 560));
    check(5, "TTTTTdd", &[100, 300, 500, 250, 250], 50, (3, 28, 560));
}

#[test]
fn tolerance_keeps_the_count() {
    let check = |levels: &[i64], down, up, expected| {
        check_utilization(3, "TTT", &["0.9", "1.0", "1.1"], levels, 100, Tolerances { down, up }, expected);
    };
    check(&[1010, 1030, 1020], 0.1, 0.1, (3, 102, 2040));
    check(&[909, 1010, 1111], 0.0, 0.0, (4, 101, 2020));
    check(&[1890, 1910, 1900], 0.1, 2.0, (3, 190, 3800));
    check(&[1100, 1080, 1090], 2.0, 0.08, (4, 109, 2180));
    check(&[660, 640, 650], 0.36, 0.1, (3, 65, 1300));
    check(&[660, 640, 650], 0.34, 0.1, (2, 65, 1300));
}

#[test]
fn what_is_missing_speaks_against_the_change() {
    let check =
        |current, states, levels: &[i64], percent, expected| check_utilization(current, states, &ONE, levels, percent, TENTH, expected);
    check(4, "TTTT", &[400, 95], 100, (3, 24, 495));
    check(2, "TT", &[1000], 100, (2, 100, 2000));
    check(2, "TT", &[1900], 100, (2, 190, 3800));
    check(2, "TT", &[600], 100, (2, 60, 1200));
    check(3, "FTT", &[100, 450], 50, (3, 45, 900));
    check(3, "hTT", &[100, 450], 50, (3, 45, 900));
    check(3, "FTT", &[100, 2000], 50, (4, 200, 4000));
    check(4, "FTTT", &[100, 100, 100], 50, (3, 10, 200));
    check(2, "TTT", &[100, 100], 50, (2, 10, 200));
    check_utilization(4, "FTTT", &["1.0", "1.0", "2.0", "2.0"], &[200, 100, 100], 300, TENTH, (2, 6, 200));
}

#[test]
fn what_cannot_be_computed_is_told() {
    let pods = pods("T", &ONE);
    let requests_of = requests(&pods, "", "cpu").expect("requests");
    let target = Target::Utilization { percent: 100, requests: &requests_of };
    let older = Samples::from([("an-older-pod-name".to_string(), Sample { value: 100, ..Sample::default() })]);
    let error = |samples| subject(&pods, 1, TENTH).of_pods(samples, &target, "cpu").expect_err("nothing to compute");
    assert_eq!(error(older), "no metrics returned matched known pods");
    assert_eq!(error(Samples::new()), "did not receive metrics for targeted pods (pods might be unready)");
    let without = super::tests::pods("T", &[]);
    assert_eq!(requests(&without, "", "cpu").expect_err("none"), "missing request for cpu in container container1 of Pod pod-0");
    assert_eq!(requests(&without, "other", "cpu").expect_err("none"), "container other not found in Pod pod-0");
}

#[test]
fn requests_are_of_the_pod_a_container_or_all_of_them() {
    let container = |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
    let mut sidecar = container("s", "50m");
    sidecar["restartPolicy"] = json!("Always");
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {
        "containers": [container("a", "100m"), container("b", "200m")], "initContainers": [container("i", "5"), sidecar],
    }});
    let check = |pod: &Value, container, expected| assert_eq!(request(pod, container, "cpu"), expected);
    check(&pod, "", Ok(350));
    check(&pod, "b", Ok(200));
    check(&pod, "s", Ok(50));
    pod["spec"]["resources"] = json!({"requests": {"cpu": "1"}});
    check(&pod, "", Ok(1000));
    check(&pod, "b", Ok(200));
    assert_eq!(request(&pod, "", "memory"), Err("missing pod-level request for memory in Pod p".into()));
}

#[test]
fn metrics_of_pods_have_an_average() {
    let check = |current, states: &str, levels: &[i64], target, tolerances, expected: (i64, i64)| {
        let pods = pods(states, &[]);
        let found = subject(&pods, current, tolerances).of_pods(samples(levels), &Target::Average(target), "").expect("a proposal");
        assert_eq!((found.replicas, found.usage), expected, "{states} {levels:?}");
    };
    check(3, "TTT", &[20000, 10000, 30000], 15000, TENTH, (4, 20000));
    check(3, "TTF", &[50000, 10000, 30000], 15000, TENTH, (6, 30000));
    check(3, "FTF", &[50000, 15000, 30000], 15000, TENTH, (7, 31666));
    check(5, "TTTTT", &[12000; 5], 20000, TENTH, (3, 12000));
    check(3, "TTT", &[20000, 21000, 21000], 20000, TENTH, (3, 20666));
    check(3, "TTT", &[20000, 21000, 21000], 20000, Tolerances { down: 0.1, up: 0.01 }, (4, 20666));
    check(5, "TTTTT", &[20000, 19000, 21000], 20000, TENTH, (5, 20000));
    check(2, "TTT", &[10000, 10000], 17000, TENTH, (2, 10000));
}

#[test]
fn a_number_about_the_whole_counts_ready_pods() {
    let check = |current, states: &str, usage, target, tolerances, expected| {
        let pods = pods(states, &[]);
        assert_eq!(subject(&pods, current, tolerances).of_whole(usage, target).replicas, expected, "{states} {usage} {target}");
    };
    check(3, "TTT", 20000, 15000, TENTH, 4);
    check(3, "TTT", i64::MAX, 1, TENTH, i64::from(i32::MAX));
    check(3, "FTF", 50000, 10000, TENTH, 5);
    check(5, "TTTTT", 12000, 20000, TENTH, 3);
    check(3, "TTT", 20666, 20000, TENTH, 3);
    check(3, "TTT", 20666, 20000, Tolerances { down: 0.1, up: 0.01 }, 4);
    check(3, "FTF", 8600, 4400, TENTH, 2);
    check(5, "TTTTT", 8600, 14334, TENTH, 3);
    check(0, "", 8600, 4400, TENTH, 2);
    check(0, "", 0, 4400, TENTH, 0);
}

#[test]
fn a_number_about_the_whole_is_shared_out() {
    let check = |replicas, usage, target, tolerances, expected: (i64, i64)| {
        let found = subject(&[], replicas, tolerances).of_shares(usage, target, replicas);
        assert_eq!((found.replicas, found.usage), expected, "{replicas} {usage} {target}");
    };
    check(1, i64::MAX, 1, TENTH, (i64::from(i32::MAX), i64::MAX));
    check(1, i64::MAX, i64::MAX, TENTH, (1, i64::MAX));
    check(3, 8600, 2150, TENTH, (4, 2867));
    check(5, 8600, 2867, TENTH, (3, 1720));
    check(3, 8600, 2900, TENTH, (3, 2867));
    check(3, 8600, 2800, Tolerances { down: 0.1, up: 0.01 }, (4, 2867));
    check(3, 20000, 5000, TENTH, (4, 6667));
    check(5, 6000, 2000, TENTH, (3, 1200));
    check(4, 20166, 5000, TENTH, (4, 5042));
    check(4, 20208, 5000, Tolerances { down: 0.1, up: 0.01 }, (5, 5052));
}
