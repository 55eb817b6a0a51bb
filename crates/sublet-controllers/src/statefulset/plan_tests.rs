//! Steps of stateful sets, one line of members at a time.

use super::*;

const NOW: &str = "2026-01-01T01:00:00Z";

fn set(replicas: i64, policy: &str) -> Value {
    json!({
        "metadata": {"name": "s", "namespace": "n", "uid": "set", "generation": 2},
        "spec": {"replicas": replicas, "podManagementPolicy": policy, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}},
    })
}

fn revision(name: &str) -> Arc<Value> {
    Arc::new(json!({"metadata": {"name": name}, "data": {"spec": {"template": {"metadata": {"labels": {"rev": name}}, "spec": {}}}}}))
}

fn pod(ordinal: i64, revision: &str, state: &str) -> Arc<Value> {
    let mut pod = identity::new_pod(&set(0, ""), &json!({"metadata": {}, "spec": {}}), revision, ordinal);
    pod["metadata"]["uid"] = json!(format!("p{ordinal}"));
    let ready = |status: &str| json!([{"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    pod["status"] = match state {
        "pending" => json!({"phase": "Pending"}),
        "failed" => json!({"phase": "Failed"}),
        "unready" => json!({"phase": "Running", "conditions": ready("False")}),
        _ => json!({"phase": "Running", "conditions": ready("True")}),
    };
    if state == "deleting" {
        pod["metadata"]["deletionTimestamp"] = json!(NOW);
    }
    Arc::new(pod)
}

/// The acts of a step in short: `+name` for made, `-name` for deleted, `~name` for changed.
fn acts(set: &Value, pods: &[Arc<Value>]) -> Vec<String> {
    let (current, update) = (revision("old"), revision("new"));
    let observed = Observed { set, current: &current, update: &update, collisions: 0, pods };
    let plan = observed.plan(&|_| None, NOW.parse().expect("a time"));
    plan.acts
        .iter()
        .map(|act| match act {
            Act::CreateClaim { claim, .. } => format!("+{}", claim.name()),
            Act::UpdateClaim(object) | Act::UpdatePod(object) => format!("~{}", object.name()),
            Act::CreatePod(pod) => format!("+{}", pod.name()),
            Act::DeletePod(pod) => format!("-{}", pod.name()),
            Act::Warn { reason, .. } => (*reason).to_string(),
        })
        .collect()
}

fn check(set: &Value, pods: &[(i64, &str, &str)], expected: &[&str]) {
    let pods: Vec<Arc<Value>> = pods.iter().map(|(o, r, s)| pod(*o, r, s)).collect();
    assert_eq!(acts(set, &pods), expected);
}

#[test]
fn ordered_sets_make_one_member_after_the_other() {
    let set = set(3, "OrderedReady");
    check(&set, &[], &["+s-0"]);
    check(&set, &[(0, "new", "pending")], &[]);
    check(&set, &[(0, "new", "unready")], &[]);
    check(&set, &[(0, "new", "ready")], &["+s-1"]);
    check(&set, &[(0, "new", "ready"), (2, "new", "ready")], &["+s-1"]);
    check(&set, &[(0, "new", "failed"), (1, "new", "ready")], &["-s-0"]);
    check(&set, &[(0, "new", "deleting")], &[]);
}

#[test]
fn parallel_sets_make_all_members_at_once() {
    let set = set(3, "Parallel");
    check(&set, &[], &["+s-0", "+s-1", "+s-2"]);
    check(&set, &[(1, "new", "pending")], &["+s-0", "+s-2"]);
}

#[test]
fn ordered_sets_shrink_from_the_end() {
    let set = set(1, "OrderedReady");
    check(&set, &[(0, "new", "ready"), (1, "new", "ready"), (2, "new", "ready")], &["-s-2"]);
    check(&set, &[(0, "new", "ready"), (1, "new", "ready"), (2, "new", "deleting")], &[]);
    check(&set, &[(0, "new", "unready"), (1, "new", "ready")], &[]);
    check(&set, &[(0, "new", "ready"), (1, "new", "ready"), (2, "new", "unready")], &["-s-2"]);
    check(&set, &[(0, "new", "ready"), (1, "new", "unready"), (2, "new", "unready")], &[]);
}

#[test]
fn updates_go_from_the_last_member_down_to_the_partition() {
    let mut set = set(3, "OrderedReady");
    check(&set, &[(0, "old", "ready"), (1, "old", "ready"), (2, "old", "ready")], &["-s-2"]);
    check(&set, &[(0, "old", "ready"), (1, "old", "ready"), (2, "new", "ready")], &["-s-1"]);
    check(&set, &[(0, "old", "ready"), (1, "old", "ready"), (2, "new", "unready")], &[]);
    set["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = json!(2);
    check(&set, &[(0, "old", "ready"), (1, "old", "ready"), (2, "new", "ready")], &[]);
    set["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    check(&set, &[(0, "old", "ready"), (1, "old", "ready"), (2, "old", "ready")], &[]);
}

#[test]
fn more_members_may_be_unavailable_when_the_set_says_so() {
    let mut set = set(4, "OrderedReady");
    set["spec"]["updateStrategy"]["rollingUpdate"] = json!({"partition": 0, "maxUnavailable": 2});
    let ready = [(0, "old", "ready"), (1, "old", "ready"), (2, "old", "ready"), (3, "old", "ready")];
    check(&set, &ready, &["-s-3", "-s-2"]);
}

#[test]
fn parallel_updates_take_what_is_unavailable_first() {
    let set = set(3, "Parallel");
    check(&set, &[(0, "old", "unready"), (1, "old", "ready"), (2, "old", "ready")], &["-s-0"]);
}

#[test]
fn members_below_the_partition_are_made_at_the_current_revision() {
    let mut set = set(2, "Parallel");
    set["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = json!(1);
    let (current, update) = (revision("old"), revision("new"));
    let observed = Observed { set: &set, current: &current, update: &update, collisions: 0, pods: &[] };
    let plan = observed.plan(&|_| None, NOW.parse().expect("a time"));
    let revisions: Vec<&str> =
        plan.acts.iter().filter_map(|a| if let Act::CreatePod(p) = a { p.label(history::POD_LABEL) } else { None }).collect();
    assert_eq!(revisions, ["old", "new"]);
}

#[test]
fn lines_may_start_anywhere() {
    let mut set = set(2, "Parallel");
    set["spec"]["ordinals"] = json!({"start": 5});
    check(&set, &[(0, "new", "ready")], &["+s-5", "+s-6", "-s-0"]);
}

#[test]
fn the_status_completes_when_every_member_is_new_and_ready() {
    let set = set(2, "OrderedReady");
    let (current, update) = (revision("old"), revision("new"));
    let status = |pods: &[Arc<Value>]| {
        Observed { set: &set, current: &current, update: &update, collisions: 0, pods }.status(NOW.parse().expect("a time"))
    };
    let half = status(&[pod(0, "old", "ready"), pod(1, "new", "ready")]);
    let expected = json!({
        "observedGeneration": 2, "replicas": 2, "readyReplicas": 2, "availableReplicas": 2, "currentReplicas": 1, "updatedReplicas": 1,
        "currentRevision": "old", "updateRevision": "new", "collisionCount": 0,
    });
    assert_eq!(half, expected);
    let whole = status(&[pod(0, "new", "ready"), pod(1, "new", "ready")]);
    assert_eq!((whole["currentRevision"].as_str(), whole["currentReplicas"].as_i64()), (Some("new"), Some(2)));
}

/// A set of two billion members was two billion pods in memory before the first of them was made.
#[test]
fn of_a_line_without_end_only_the_next_places_are_filled() {
    let made =
        acts(&set(i64::from(i32::MAX), "Parallel"), &[pod(0, "new", "ready"), pod(2, "new", "ready"), pod(1_000_000, "new", "ready")]);
    assert_eq!(made.len(), 500);
    assert_eq!((made[0].as_str(), made[1].as_str(), made[499].as_str()), ("+s-1", "+s-3", "+s-501"));
    check(&set(i64::from(i32::MAX), "OrderedReady"), &[(0, "new", "ready")], &["+s-1"]);
}
