//! Steps of jobs over tables of pods.

use super::*;
use crate::job::indexes::Indexes;
use facts::INDEX;

const NOW: &str = "2026-01-01T01:00:00Z";

fn job(spec: Value, status: Value) -> Value {
    let mut job = json!({"metadata": {"name": "j", "namespace": "n", "uid": "job"}, "spec": {"parallelism": 2, "backoffLimit": 6, "template": {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}}, "status": status});
    for (key, value) in spec.as_object().into_iter().flatten() {
        job["spec"][key] = value.clone();
    }
    job
}

/// `phase`, with an ending `!` for being deleted and an ending `-` for a removed finalizer.
fn pod(uid: &str, phase: &str, index: Option<i64>) -> Arc<Value> {
    let name = phase.trim_end_matches(['!', '-']);
    let finished = json!({"name": "c", "state": {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:30:00Z"}}});
    let mut pod = json!({
        "metadata": {"name": uid, "namespace": "n", "uid": uid, "finalizers": [FINALIZER]},
        "status": {"phase": name, "containerStatuses": if matches!(name, "Succeeded" | "Failed") { json!([finished]) } else { json!([]) }},
    });
    if phase.contains('!') {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:30:00Z");
    }
    if phase.contains('-') {
        pod["metadata"]["finalizers"] = json!([]);
    }
    if let Some(index) = index {
        pod.set_annotation(INDEX, &index.to_string());
    }
    Arc::new(pod)
}

fn pods(phases: &[&str]) -> Vec<Arc<Value>> {
    phases.iter().enumerate().map(|(i, phase)| pod(&format!("p{i}"), phase, None)).collect()
}

fn facts<'a>(job: &'a Value, pods: &'a [Arc<Value>]) -> Facts<'a> {
    Facts::new(job, pods, NOW.parse().expect("a time"))
}

fn step(job: &Value, pods: &[Arc<Value>]) -> String {
    match manage::decide(&facts(job, pods)) {
        Step::Keep => "keep".into(),
        Step::Create(count) => format!("+{count}"),
        Step::CreateIndexes(indexes) => format!("+{indexes:?}"),
        Step::Delete(doomed) => format!("-{}", doomed.iter().map(|p| p.name().to_string()).collect::<Vec<_>>().join(",")),
        Step::Wait(_) => "wait".into(),
    }
}

#[test]
fn parallelism_and_completions_bound_the_pods() {
    let check = |spec: Value, phases: &[&str], expected: &str| {
        assert_eq!(step(&job(spec.clone(), json!({})), &pods(phases)), expected, "{spec} {phases:?}")
    };
    check(json!({"completions": 5}), &[], "+2");
    check(json!({"completions": 5}), &["Running"], "+1");
    check(json!({"completions": 5}), &["Running", "Pending"], "keep");
    check(json!({"completions": 5}), &["Succeeded", "Succeeded", "Succeeded", "Succeeded"], "+1");
    check(json!({"completions": 5, "parallelism": 1}), &["Running", "Pending"], "-p1");
    check(json!({}), &[], "+2");
    check(json!({}), &["Succeeded", "Running"], "keep");
    check(json!({"completions": 5, "suspend": true}), &["Running", "Pending"], "-p0,p1");
    check(json!({"completions": 2}), &["Running!"], "+2");
    check(json!({"completions": 2, "podReplacementPolicy": "Failed"}), &["Running!"], "+1");
}

#[test]
fn a_fresh_failure_is_followed_by_a_pause() {
    let mut failed = pod("p0", "Failed", None).as_ref().clone();
    failed["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = json!("2026-01-01T00:59:55Z");
    let job = job(json!({"completions": 1}), json!({}));
    assert_eq!(step(&job, &[Arc::new(failed)]), "wait");
    assert_eq!(step(&job, &[pod("p0", "Failed", None)]), "+1");
}

#[test]
fn missing_indexes_are_made_and_doubled_ones_given_up() {
    let indexed = job(json!({"completions": 4, "parallelism": 4, "completionMode": "Indexed"}), json!({"completedIndexes": "1"}));
    assert_eq!(step(&indexed, &[pod("a", "Running", Some(0))]), "+[2, 3]");
    assert_eq!(step(&indexed, &[pod("a", "Running", Some(0)), pod("b", "Running", Some(0))]).len(), 2);
    assert_eq!(step(&indexed, &[pod("a", "Running", Some(7))]), "-a");
}

#[test]
fn jobs_end_for_the_reason_that_comes_first() {
    let reason = |spec: Value, status: Value, all: &[Arc<Value>]| facts(&job(spec, status), all).target.map(|t| (t.interim(), t.reason));
    let some = |interim: &'static str, reason: &str| Some((interim, reason.to_string()));
    let check = |spec: Value, status: Value, phases: &[&str], expected| assert_eq!(reason(spec, status, &pods(phases)), expected);
    check(json!({"backoffLimit": 1}), json!({}), &["Failed"], None);
    check(json!({"backoffLimit": 1}), json!({}), &["Failed", "Failed"], some("FailureTarget", "BackoffLimitExceeded"));
    check(json!({"backoffLimit": 1}), json!({"failed": 1}), &["Failed", "Failed-"], some("FailureTarget", "BackoffLimitExceeded"));
    check(json!({"backoffLimit": 1}), json!({"uncountedTerminatedPods": {"failed": ["p0"]}}), &["Failed"], None);
    check(
        json!({"activeDeadlineSeconds": 3600}),
        json!({"startTime": "2026-01-01T00:00:00Z"}),
        &[],
        some("FailureTarget", "DeadlineExceeded"),
    );
    check(json!({"activeDeadlineSeconds": 3601}), json!({"startTime": "2026-01-01T00:00:00Z"}), &[], None);
    let fail_job = json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]});
    check(json!({"podFailurePolicy": fail_job}), json!({}), &["Failed"], some("FailureTarget", "PodFailurePolicy"));
    let announced = json!({"conditions": [{"type": "SuccessCriteriaMet", "status": "True", "reason": "SuccessPolicy"}]});
    check(json!({"backoffLimit": 0}), announced, &["Failed"], some("SuccessCriteriaMet", "SuccessPolicy"));
}

#[test]
fn indexes_fail_and_succeed_one_by_one() {
    let spec = json!({"completions": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 0});
    let one = job(spec.clone(), json!({}));
    let all = [pod("a", "Failed", Some(0)), pod("b", "Running", Some(1))];
    assert_eq!(facts(&one, &all).failed_indexes, Some(Indexes::of([0])));
    assert_eq!(facts(&one, &all).target, None);
    let all = [pod("a", "Failed", Some(0)), pod("b", "Succeeded", Some(1))];
    assert_eq!(facts(&one, &all).target.map(|t| t.reason), Some("FailedIndexes".into()));
    let limited = job(json!({"completions": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 1}), json!({}));
    let all = [pod("a", "Failed", Some(0))];
    let facts = facts(&limited, &all);
    let replacement = super::pods::indexed(&facts, 0);
    assert_eq!(replacement.annotation(facts::INDEX_FAILURES), Some("1"));
    assert_eq!(replacement["spec"]["containers"][0]["env"][0]["name"], "JOB_COMPLETION_INDEX");
}

fn tracked(job: &Value, all: &[Arc<Value>], target: Option<&Target>) -> track::Plan {
    let facts = facts(job, all);
    let counts = counts(&facts);
    track::plan(&facts, job["status"].clone(), &counts, target)
}

#[test]
fn finished_pods_are_listed_before_they_are_counted() {
    let job = job(json!({"completions": 3}), json!({"succeeded": 1, "uncountedTerminatedPods": {"failed": ["gone"]}}));
    let plan = tracked(&job, &pods(&["Succeeded", "Failed", "Running", "Succeeded-"]), None);
    let expected = json!({
        "active": 1, "ready": 0, "terminating": 0, "succeeded": 1, "failed": 1,
        "uncountedTerminatedPods": {"succeeded": ["p0"], "failed": ["p1"]},
    });
    assert_eq!(plan.status, expected);
    assert_eq!(plan.release.iter().map(|p| p.name().to_string()).collect::<Vec<_>>(), ["p0", "p1"]);
    let mut status = plan.status;
    track::settle(&mut status, |uid| uid == "p0");
    assert_eq!((status["succeeded"].as_i64(), &status["uncountedTerminatedPods"]), (Some(2), &json!({"failed": ["p1"]})));
}

#[test]
fn a_job_ends_when_all_pods_are_counted_and_gone() {
    let target = Target::completions_reached();
    let mut status = json!({"uncountedTerminatedPods": {"succeeded": ["a"]}});
    assert!(!track::finish(&mut status, &target, 0, NOW));
    track::settle(&mut status, |_| true);
    assert!(!track::finish(&mut status, &target, 1, NOW));
    assert!(track::finish(&mut status, &target, 0, NOW));
    assert_eq!((status["completionTime"].as_str(), status["conditions"][0]["type"].as_str()), (Some(NOW), Some("Complete")));
}

#[test]
fn a_failing_job_counts_what_still_runs_as_failed() {
    let failing = job(json!({"completions": 3, "backoffLimit": 0}), json!({}));
    let all = pods(&["Failed", "Running"]);
    let target = facts(&failing, &all).target.expect("exceeds the limit");
    let plan = tracked(&failing, &all, Some(&target));
    assert_eq!(plan.status["uncountedTerminatedPods"]["failed"], json!(["p0", "p1"]));
    assert_eq!(plan.status["conditions"][0]["type"], "FailureTarget");
}
