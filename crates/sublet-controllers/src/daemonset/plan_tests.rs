//! Steps of daemon sets over tables of nodes and pods.

use super::*;

const NOW: &str = "2026-01-01T01:00:00Z";

fn set(rolling: Value) -> Value {
    json!({
        "metadata": {"name": "d", "namespace": "n", "uid": "set", "generation": 2},
        "spec": {"template": {"metadata": {}, "spec": {"nodeSelector": {"os": "linux"}}}, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}},
    })
}

fn node(name: &str, os: &str, taint: Option<&str>) -> Arc<Value> {
    let taints: Vec<Value> = taint.map(|effect| json!({"key": "t", "effect": effect})).into_iter().collect();
    Arc::new(json!({"metadata": {"name": name, "labels": {"os": os}}, "spec": {"taints": taints}}))
}

/// `state`: ready, unready, failed, deleting or waiting (for its node).
fn pod(name: &str, node: &str, hash: &str, state: &str) -> Arc<Value> {
    let mut pod = new_pod(&set(json!({})), hash, &[], node);
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["uid"] = json!(name);
    pod["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    if state != "waiting" {
        pod["spec"]["nodeName"] = json!(node);
    }
    let ready = if state == "ready" || state == "deleting" { "True" } else { "False" };
    pod["status"] = json!({
        "phase": if state == "failed" { "Failed" } else { "Running" },
        "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    });
    if state == "deleting" {
        pod["metadata"]["deletionTimestamp"] = json!(NOW);
    }
    Arc::new(pod)
}

/// (nodes that get a pod, pods that go), from managing and from rolling.
fn steps(set: &Value, nodes: &[Arc<Value>], all: &[Arc<Value>]) -> [(Vec<String>, Vec<String>); 2] {
    let revision = Arc::new(json!({"metadata": {"labels": {POD_LABEL: "new"}}}));
    let history = History { all: vec![], update: revision, collisions: 0 };
    let observed = Observed::new(set, &history, nodes, all, NOW.parse().expect("a time"));
    let short = |changes: Changes| {
        let mut deleted: Vec<String> = changes.delete.iter().map(|p| p.name().to_string()).collect();
        deleted.sort();
        (changes.create, deleted)
    };
    [short(observed.manage()), short(observed.roll())]
}

fn manage(nodes: &[Arc<Value>], all: &[Arc<Value>], create: &[&str], delete: &[&str]) {
    let [(created, deleted), _] = steps(&set(json!({"maxUnavailable": 1})), nodes, all);
    assert_eq!((created, deleted), (create.iter().map(|s| (*s).into()).collect(), delete.iter().map(|s| (*s).into()).collect()));
}

fn roll(rolling: Value, all: &[Arc<Value>], create: &[&str], delete: &[&str]) {
    let nodes = [node("a", "linux", None), node("b", "linux", None), node("c", "linux", None)];
    let [_, (created, deleted)] = steps(&set(rolling), &nodes, all);
    assert_eq!((created, deleted), (create.iter().map(|s| (*s).into()).collect(), delete.iter().map(|s| (*s).into()).collect()));
}

#[test]
fn fitting_nodes_get_one_pod_each() {
    let nodes = [
        node("a", "linux", None),
        node("b", "windows", None),
        node("c", "linux", Some("NoSchedule")),
        node("d", "linux", Some("NoExecute")),
    ];
    manage(&nodes, &[], &["a"], &[]);
    let on = |name: &str, node: &str| pod(name, node, "new", "ready");
    manage(&nodes, &[on("pa", "a"), on("pb", "b"), on("pc", "c"), on("pd", "d")], &[], &["pb", "pd"]);
    manage(&nodes, &[on("p1", "a"), on("p2", "a")], &[], &["p2"]);
    manage(&nodes, &[pod("p1", "a", "new", "failed")], &[], &["p1"]);
    manage(&nodes, &[pod("p1", "gone", "new", "waiting")], &["a"], &["p1"]);
    manage(&nodes, &[pod("p1", "gone", "new", "ready")], &["a"], &[]);
}

#[test]
fn updates_replace_within_what_may_be_unavailable() {
    let old = |name: &str, node: &str, state: &str| pod(name, node, "old", state);
    let one = json!({"maxUnavailable": 1});
    roll(one.clone(), &[old("pa", "a", "ready"), old("pb", "b", "ready"), old("pc", "c", "ready")], &[], &["pa"]);
    roll(one.clone(), &[old("pa", "a", "ready"), old("pb", "b", "unready"), old("pc", "c", "ready")], &[], &["pb"]);
    roll(one.clone(), &[pod("pa", "a", "new", "unready"), old("pb", "b", "ready"), old("pc", "c", "ready")], &[], &[]);
    roll(one.clone(), &[pod("pa", "a", "new", "ready"), old("pb", "b", "ready"), old("pc", "c", "ready")], &[], &["pb"]);
    roll(
        json!({"maxUnavailable": "100%"}),
        &[old("pa", "a", "ready"), old("pb", "b", "ready"), old("pc", "c", "ready")],
        &[],
        &["pa", "pb", "pc"],
    );
}

#[test]
fn surging_makes_new_pods_before_old_ones_go() {
    let old = |name: &str, node: &str, state: &str| pod(name, node, "old", state);
    let one = json!({"maxSurge": 1, "maxUnavailable": 0});
    let three = [old("pa", "a", "ready"), old("pb", "b", "ready"), old("pc", "c", "ready")];
    roll(one.clone(), &three, &["a"], &[]);
    roll(one.clone(), &[three.to_vec(), vec![pod("na", "a", "new", "unready")]].concat(), &[], &[]);
    roll(one.clone(), &[three.to_vec(), vec![pod("na", "a", "new", "ready")]].concat(), &["b"], &["pa"]);
    roll(one, &[old("pa", "a", "unready"), old("pb", "b", "ready"), old("pc", "c", "ready")], &["a", "b"], &[]);
}

#[test]
fn the_status_counts_nodes() {
    let nodes = [node("a", "linux", None), node("b", "windows", None), node("c", "linux", None)];
    let revision = Arc::new(json!({"metadata": {"labels": {POD_LABEL: "new"}}}));
    let history = History { all: vec![], update: revision, collisions: 0 };
    let all = [pod("pa", "a", "new", "ready"), pod("pb", "b", "old", "ready")];
    let set = set(json!({}));
    let status = Observed::new(&set, &history, &nodes, &all, NOW.parse().expect("a time")).status();
    let expected = json!({
        "currentNumberScheduled": 1, "desiredNumberScheduled": 2, "numberMisscheduled": 1, "numberReady": 1,
        "observedGeneration": 2, "updatedNumberScheduled": 1, "numberAvailable": 1, "numberUnavailable": 1,
    });
    assert_eq!(status, expected);
}
