//! Steps of rollouts, with cases and values of upstream's tables (deployment/rolling_test.go and sync_test.go).

use super::*;

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

fn deployment(replicas: i64, surge: i64, unavailable: i64) -> Value {
    json!({
        "metadata": {"name": "d", "namespace": "n", "uid": "d", "generation": 1, "annotations": {annotations::REVISION: "2"}},
        "spec": {
            "replicas": replicas, "template": template("new"), "selector": {"matchLabels": {"app": "x"}}, "revisionHistoryLimit": 1,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
        },
        "status": {},
    })
}

fn set(name: &str, image: &str, revision: i64, replicas: i64, available: i64, told: i64) -> Arc<Value> {
    let mut set = json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "creationTimestamp": format!("2026-01-01T00:0{revision}:00Z")},
        "spec": {"replicas": replicas, "template": template(image)},
        "status": {"replicas": replicas, "availableReplicas": available, "readyReplicas": available, "observedGeneration": 1, "terminatingReplicas": 0},
    });
    set.set_annotation(annotations::REVISION, &revision.to_string());
    set.set_annotation(DESIRED_REPLICAS, &told.to_string());
    Arc::new(set)
}

fn plan(deployment: &Value, sets: Vec<Arc<Value>>) -> Plan {
    Rollout::new(deployment, sets, "2026-01-01T01:00:00Z".parse().expect("a time")).plan(&|_| false)
}

/// (name, new size) of the sets that a plan resizes.
fn sizes(plan: &Plan) -> Vec<(String, i64)> {
    plan.writes
        .iter()
        .filter_map(|w| match w {
            Write::Create(set) | Write::Update(set) => Some((set.name().to_string(), wanted(set))),
            _ => None,
        })
        .collect()
}

fn events(plan: &Plan) -> Vec<&str> {
    plan.writes.iter().filter_map(|w| if let Write::Event { message, .. } = w { Some(message.as_str()) } else { None }).collect()
}

#[test]
fn a_first_step_makes_the_set_and_notes_the_revision() {
    let mut first = deployment(3, 1, 0);
    first["metadata"]["annotations"] = json!({});
    first["spec"]["progressDeadlineSeconds"] = json!(60);
    let plan = plan(&first, vec![]);
    let Some(Write::Create(set)) = plan.writes.first() else { panic!("{plan:?}") };
    let hash = set.label("pod-template-hash").expect("a hash");
    assert_eq!(set.name(), format!("d-{hash}"));
    assert_eq!(set["spec"]["selector"]["matchLabels"], json!({"app": "x", "pod-template-hash": hash}));
    assert_eq!((wanted(set), set.annotation(annotations::MAX_REPLICAS), set.annotation(annotations::REVISION)), (3, Some("4"), Some("1")));
    assert!(plan.writes.iter().any(|w| matches!(w, Write::Annotate(p) if p["metadata"]["annotations"][annotations::REVISION] == "1")));
    let status = plan.status.expect("a status");
    assert_eq!(conditions::find(&status, "Progressing").map(|c| c["reason"].clone()), Some(json!("NewReplicaSetCreated")));
}

#[test]
fn the_new_set_grows_before_old_ones_shrink() {
    let plan = plan(&deployment(10, 3, 2), vec![set("old", "old", 1, 10, 10, 10), set("new", "new", 2, 0, 0, 10)]);
    assert_eq!(sizes(&plan), [("new".to_string(), 3)]);
    assert_eq!(events(&plan), ["Scaled up replica set new from 0 to 3"]);
}

#[test]
fn old_sets_shrink_by_what_the_new_one_makes_up_for() {
    let check = |old: i64, old_available, new: i64, new_available, expected: Option<i64>| {
        let sets = vec![set("old", "old", 1, old, old_available, 10), set("new", "new", 2, new, new_available, 10)];
        let expected: Vec<_> = expected.into_iter().map(|size| ("old".to_string(), size)).collect();
        assert_eq!(sizes(&plan(&deployment(10, 0, 2), sets)), expected, "{old}/{old_available} {new}/{new_available}");
    };
    check(10, 10, 0, 0, Some(8));
    check(10, 8, 0, 0, Some(8));
    check(8, 8, 2, 0, None);
    check(8, 8, 2, 2, Some(6));
}

#[test]
fn a_change_of_size_in_a_rollout_is_spread() {
    let plan = plan(&deployment(20, 0, 0), vec![set("old", "old", 1, 5, 5, 10), set("new", "new", 2, 5, 5, 10)]);
    let mut sizes = sizes(&plan);
    sizes.sort();
    assert_eq!(sizes.iter().map(|s| s.1).sum::<i64>(), 20);
}

#[test]
fn the_only_active_set_takes_the_whole_size() {
    let plan = plan(&deployment(5, 1, 0), vec![set("new", "new", 2, 3, 3, 3)]);
    assert_eq!(sizes(&plan), [("new".to_string(), 5)]);
}

#[test]
fn recreation_empties_old_sets_and_waits_for_their_pods() {
    let mut recreate = deployment(2, 0, 0);
    recreate["spec"]["strategy"] = json!({"type": "Recreate"});
    let step =
        |old: Arc<Value>, runs: bool| Rollout::new(&recreate, vec![old], "2026-01-01T01:00:00Z".parse().expect("a time")).plan(&|_| runs);
    assert_eq!(sizes(&step(set("old", "old", 1, 2, 2, 2), true)), [("old".to_string(), 0)]);
    assert_eq!(sizes(&step(set("old", "old", 1, 0, 0, 2), true)), []);
    assert_eq!(sizes(&step(set("old", "old", 1, 0, 0, 2), false)).len(), 1);
}

#[test]
fn history_beyond_the_limit_goes_when_the_rollout_is_complete() {
    let mut complete = deployment(1, 1, 0);
    complete["status"] = json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1});
    let sets = vec![set("a", "a", 1, 0, 0, 1), set("b", "b", 2, 0, 0, 1), set("c", "c", 3, 0, 0, 1), set("new", "new", 4, 1, 1, 1)];
    let plan = plan(&complete, sets);
    let deleted: Vec<&str> = plan.writes.iter().filter_map(|w| if let Write::Delete(s) = w { Some(s.name()) } else { None }).collect();
    assert_eq!(deleted, ["a", "b"]);
}

#[test]
fn a_return_to_an_old_template_raises_its_revision() {
    let plan = plan(&deployment(1, 1, 0), vec![set("new", "new", 1, 0, 0, 1), set("other", "other", 2, 1, 1, 1)]);
    let Some(Write::Update(set)) = plan.writes.first() else { panic!("{plan:?}") };
    assert_eq!(
        (set.name(), set.annotation(annotations::REVISION), set.annotation(annotations::REVISION_HISTORY)),
        ("new", Some("3"), Some("1"))
    );
    assert_eq!(wanted(set), 1, "both changes travel in one request");
}

#[test]
fn a_paused_deployment_scales_but_does_not_roll() {
    let mut paused = deployment(5, 1, 0);
    paused["spec"]["paused"] = json!(true);
    paused["spec"]["progressDeadlineSeconds"] = json!(60);
    let plan = plan(&paused, vec![set("old", "old", 2, 3, 3, 3)]);
    assert_eq!(sizes(&plan), [("old".to_string(), 5)]);
    let status = plan.status.expect("a status");
    assert_eq!(conditions::find(&status, "Progressing").map(|c| c["reason"].clone()), Some(json!("DeploymentPaused")));
}

#[test]
fn rollback_by_annotation_takes_the_template_of_the_revision() {
    let mut rolled = deployment(1, 1, 0);
    rolled.set_annotation(ROLLBACK_TO, "1");
    let plan = plan(&rolled, vec![set("old", "old", 1, 0, 0, 1), set("new", "new", 2, 1, 1, 1)]);
    let Some(Write::Rollback(changed)) = plan.writes.first() else { panic!("{plan:?}") };
    assert_eq!(changed["spec"]["template"], template("old"));
    assert!(changed.annotation(ROLLBACK_TO).is_none());
    assert_eq!(events(&plan), ["Rolled back deployment \"d\" to revision 1"]);
}
