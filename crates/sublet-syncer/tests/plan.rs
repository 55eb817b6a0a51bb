//! The step of the engine: both sides in, what to do out.

mod support;

use serde_json::{Value, json};
use sublet_machinery::ObjectExt;
use sublet_syncer::SyncRules;
use sublet_syncer::engine::ownership::slim_managed_fields;
use sublet_syncer::engine::plan::{Action, Observed, finished, plan};
use sublet_syncer::resources::configmap::CONFIG_MAP;
use sublet_syncer::resources::pod::POD;
use sublet_syncer::resources::service::SERVICE;
use sublet_syncer::resources::{SyncedKind, Translation};
use support::{World, config, names};

fn with<R>(act: impl FnOnce(Translation<'_>) -> R) -> R {
    let (names, config, rules, world) = (names(), config(), SyncRules::default(), World::read());
    act(Translation { names: &names, config: &config, rules: &rules, view: &world })
}

fn actions(kind: &SyncedKind, tenant: Option<&Value>, host: Option<&Value>) -> Vec<Action> {
    with(|translation| {
        plan(&Observed {
            kind,
            on: true,
            tenant,
            host,
            refused: false,
            settled: false,
            dropped: Default::default(),
            unknown: Default::default(),
            translation,
        })
        .actions
    })
}

fn names_of(actions: &[Action]) -> Vec<&'static str> {
    actions.iter().map(Action::name).collect()
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "prod", "uid": "tenant-uid", "generation": 1, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]},
        "status": {"phase": "Pending"},
    })
}

/// The copy as the host holds it right after its creation.
fn copy_of(kind: &SyncedKind, tenant: &Value) -> Value {
    let mut host = with(|translation| finished(kind, tenant, &translation).expect("translates"));
    let mut fields = fields_of(&host);
    fields["f:metadata"] = fields_of(&json!({"labels": host["metadata"]["labels"], "annotations": host["metadata"]["annotations"]}));
    for unmanaged in ["f:apiVersion", "f:kind"] {
        fields.as_object_mut().expect("a map").remove(unmanaged);
    }
    host["metadata"]["uid"] = json!("host-uid");
    host["metadata"]["generation"] = json!(1);
    host["metadata"]["managedFields"] = json!([{"manager": "sublet", "operation": "Update", "fieldsV1": fields}]);
    slim_managed_fields(&mut host);
    host
}

/// The field set of a value, lists with names as keyed ones.
fn fields_of(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(map.iter().map(|(k, v)| (format!("f:{k}"), fields_of(v))).collect()),
        Value::Array(items) if items.iter().all(|i| i["name"].is_string()) && !items.is_empty() => {
            let keyed = items.iter().map(|i| (format!("k:{}", json!({"name": i["name"]})), fields_of(i)));
            Value::Object(keyed.collect())
        }
        _ => json!({}),
    }
}

fn running(mut host: Value) -> Value {
    host["spec"]["nodeName"] = json!("node-1");
    host["status"] = json!({"phase": "Running", "podIP": "10.1.1.1", "startTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]});
    host
}

#[test]
fn a_new_object_is_created_and_an_unchanged_one_left_alone() {
    let tenant = pod();
    assert_eq!(names_of(&actions(&POD, Some(&tenant), None)), ["create_host"]);
    let mut host = copy_of(&POD, &tenant);
    host["status"] = tenant["status"].clone();
    assert_eq!(actions(&POD, Some(&tenant), Some(&host)), []);
}

#[test]
fn the_nodes_news_reach_the_tenant_once() {
    let mut tenant = pod();
    let host = running(copy_of(&POD, &tenant));
    let up = actions(&POD, Some(&tenant), Some(&host));
    assert_eq!(names_of(&up), ["bind_tenant", "patch_tenant_status"]);
    tenant["spec"]["nodeName"] = json!("node-1");
    tenant["status"] = host["status"].clone();
    assert_eq!(actions(&POD, Some(&tenant), Some(&host)), []);
}

/// A host's labels and annotations appeared in the tenant's pod.
#[test]
fn what_the_host_adds_is_neither_fought_nor_shown() {
    let tenant = pod();
    let mut host = copy_of(&POD, &tenant);
    host["status"] = tenant["status"].clone();
    host.set_label("host/added", "x");
    host.set_annotation("host/added", "x");
    assert_eq!(actions(&POD, Some(&tenant), Some(&host)), []);
}

#[test]
fn a_field_that_the_host_takes_over_is_taken_back() {
    let tenant = pod();
    let mut host = copy_of(&POD, &tenant);
    let fields = host["metadata"]["managedFields"][0]["fieldsV1"].as_str().expect("slim").replace("\"f:image\":{},", "");
    host["metadata"]["managedFields"][0]["fieldsV1"] = json!(fields);
    let down = actions(&POD, Some(&tenant), Some(&host));
    assert!(matches!(&down[0], Action::ApplyHost { uid, adopt: true, .. } if uid == "host-uid"), "{down:?}");
}

#[test]
fn changes_of_a_pod_take_their_own_ways() {
    let before = pod();
    let mut host = copy_of(&POD, &before);
    host["status"] = before["status"].clone();
    let mut tenant = before.clone();
    tenant.set_label("more", "x");
    assert_eq!(names_of(&actions(&POD, Some(&tenant), Some(&host))), ["apply_host"]);
    let mut tenant = before.clone();
    tenant["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "2"}});
    assert_eq!(names_of(&actions(&POD, Some(&tenant), Some(&host))), ["patch_host", "apply_host"]);
    let mut tenant = before.clone();
    tenant["spec"]["ephemeralContainers"] = json!([{"name": "debug", "image": "busybox"}]);
    let down = actions(&POD, Some(&tenant), Some(&host));
    assert!(matches!(&down[..], [Action::PatchHost { subresource: "ephemeralcontainers", .. }]), "{down:?}");
}

#[test]
fn services_of_later_days_leave_running_pods_alone() {
    // The environment holds the services of the pod's first day; the digest must not depend on them.
    let tenant = pod();
    let mut host = copy_of(&POD, &tenant);
    host["status"] = tenant["status"].clone();
    let (names, config, rules, world) = (names(), config(), SyncRules::default(), World::without_services());
    let translation = Translation { names: &names, config: &config, rules: &rules, view: &world };
    let observed = Observed {
        kind: &POD,
        on: true,
        tenant: Some(&tenant),
        host: Some(&host),
        refused: false,
        settled: false,
        dropped: Default::default(),
        unknown: Default::default(),
        translation,
    };
    assert_eq!(plan(&observed).actions, []);
}

/// Host copies of Services, ConfigMaps and Pods that were deleted took the tenant's originals along.
#[test]
fn a_vanished_copy_is_made_again_unless_it_was_a_running_pod() {
    let service = json!({"metadata": {"name": "web", "namespace": "prod", "uid": "u"}, "spec": {"ports": [{"port": 80}]}});
    assert_eq!(names_of(&actions(&SERVICE, Some(&service), None)), ["create_host"]);
    let config = json!({"metadata": {"name": "c", "namespace": "prod", "uid": "u"}, "data": {"a": "b"}});
    assert_eq!(names_of(&actions(&CONFIG_MAP, Some(&config), None)), ["create_host"]);
    let mut tenant = pod();
    tenant["spec"]["nodeName"] = json!("node-1");
    assert_eq!(names_of(&actions(&POD, Some(&tenant), None)), ["create_host"], "named by its owner, never run");
    tenant["status"] = running(json!({}))["status"].clone();
    let gone = actions(&POD, Some(&tenant), None);
    assert!(matches!(&gone[..], [Action::DeleteTenant { vanished: true, .. }]), "{gone:?}");
    tenant["status"]["phase"] = json!("Succeeded");
    assert_eq!(actions(&POD, Some(&tenant), None), [], "a finished pod stays as a record");
}

/// A kubelet fails a pod that was put on its node and does not fit; ours waited for ever, and no controller replaced it.
#[test]
fn a_pod_that_does_not_fit_the_node_it_names_fails_and_leaves_no_copy() {
    let mut tenant = pod();
    tenant["spec"]["nodeName"] = json!("node-1");
    let mut host = copy_of(&POD, &tenant);
    let unfit = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient cpu."});
    host["status"] = json!({"phase": "Pending", "conditions": [unfit]});
    let up = actions(&POD, Some(&tenant), Some(&host));
    let [Action::PatchTenantStatus { patch }] = &up[..] else { panic!("{up:?}") };
    assert_eq!((patch.str_at("/status/phase"), patch.str_at("/status/reason")), (Some("Failed"), Some("OutOfcpu")));
    tenant["status"] = json!({"phase": "Failed"});
    let down = actions(&POD, Some(&tenant), Some(&host));
    assert!(matches!(&down[..], [Action::DeleteHost { confirmed: true, .. }]), "{down:?}");
    host["metadata"]["deletionTimestamp"] = json!("t");
    assert_eq!(actions(&POD, Some(&tenant), Some(&host)), [], "the pod stays to be read");
}

/// A pod that somebody called failed was running again a moment later, before its controller had seen it.
#[test]
fn a_pod_that_the_tenant_calls_over_is_stopped_and_stays_over() {
    let mut tenant = pod();
    let mut host = running(copy_of(&POD, &tenant));
    tenant["spec"]["nodeName"] = json!("node-1");
    tenant["status"] = host["status"].clone();
    tenant["status"]["phase"] = json!("Failed");
    let down = actions(&POD, Some(&tenant), Some(&host));
    assert!(matches!(&down[..], [Action::DeleteHost { confirmed: true, .. }]), "{down:?}");
    host["metadata"]["deletionTimestamp"] = json!("t");
    assert_eq!(actions(&POD, Some(&tenant), Some(&host)), []);
    host["status"]["phase"] = json!("Succeeded");
    assert!(!names_of(&actions(&POD, Some(&tenant), Some(&host))).contains(&"delete_tenant"), "the record stays");
}

#[test]
fn deletions_meet_in_the_middle() {
    let mut tenant = pod();
    let mut host = running(copy_of(&POD, &tenant));
    tenant["spec"]["nodeName"] = json!("node-1");
    tenant["status"] = host["status"].clone();
    let quiet = (tenant.clone(), host.clone());
    tenant["metadata"]["deletionTimestamp"] = json!("t");
    tenant["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    let down = actions(&POD, Some(&tenant), Some(&host));
    assert!(matches!(&down[..], [Action::DeleteHost { grace_seconds: Some(30), confirmed: true, .. }]), "{down:?}");
    host["metadata"]["deletionTimestamp"] = json!("t");
    host["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    assert_eq!(actions(&POD, Some(&tenant), Some(&host)), []);
    // A shorter grace later on.
    tenant["metadata"]["deletionGracePeriodSeconds"] = json!(1);
    assert_eq!(names_of(&actions(&POD, Some(&tenant), Some(&host))), ["delete_host"]);
    // The copy is gone: the deletion is complete, and said once.
    let done = actions(&POD, Some(&tenant), None);
    assert!(matches!(&done[..], [Action::DeleteTenant { grace_seconds: Some(0), vanished: false, .. }]), "{done:?}");
    tenant["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    assert_eq!(actions(&POD, Some(&tenant), None), [], "it is as good as gone");
    // A pod with a finalizer seemed to run, and to be ready, when it was long gone.
    tenant["metadata"]["finalizers"] = json!(["example.com/hold"]);
    tenant["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    let told = actions(&POD, Some(&tenant), None);
    let [Action::PatchTenantStatus { patch }] = &told[..] else { panic!("{told:?}") };
    assert_eq!((patch.str_at("/status/phase"), patch.str_at("/status/conditions/0/status")), (Some("Failed"), Some("False")));
    tenant["status"]["phase"] = json!("Failed");
    assert_eq!(actions(&POD, Some(&tenant), None), []);
    // An eviction on the host.
    let (tenant, _) = quiet;
    let up = actions(&POD, Some(&tenant), Some(&host));
    assert!(matches!(&up[..], [Action::DeleteTenant { grace_seconds: Some(30), vanished: false, .. }]), "{up:?}");
}

#[test]
fn the_copy_of_an_earlier_object_goes_first() {
    let tenant = pod();
    let mut host = copy_of(&POD, &tenant);
    host.set_annotation("sublet.dev/uid", "an-earlier-one");
    let down = actions(&POD, Some(&tenant), Some(&host));
    assert!(matches!(&down[..], [Action::DeleteHost { confirmed: true, .. }]), "{down:?}");
}

#[test]
fn a_copy_without_original_goes_after_a_live_read() {
    let host = copy_of(&POD, &pod());
    let down = actions(&POD, None, Some(&host));
    assert!(matches!(&down[..], [Action::DeleteHost { confirmed: false, .. }]), "{down:?}");
}

#[test]
fn a_refusal_of_the_change_does_not_hold_back_the_status() {
    let before = pod();
    let host = running(copy_of(&POD, &before));
    let mut tenant = before;
    tenant["spec"]["resourceClaims"] = json!([{"name": "gpu"}]);
    let plan = with(|translation| {
        plan(&Observed {
            kind: &POD,
            on: true,
            tenant: Some(&tenant),
            host: Some(&host),
            refused: false,
            settled: false,
            dropped: Default::default(),
            unknown: Default::default(),
            translation,
        })
    });
    assert_eq!(names_of(&plan.actions), ["bind_tenant", "patch_tenant_status"]);
    assert_eq!(plan.refusal.expect("dynamic resources").field, "spec.resourceClaims");
}

#[test]
fn a_complaint_stays_while_it_holds() {
    let mut tenant = pod();
    let complaint = json!({"type": "sublet.dev/Synced", "status": "False", "message": "quota"});
    tenant["status"]["conditions"] = json!([complaint]);
    let mut host = copy_of(&POD, &tenant);
    host["status"] = json!({"phase": "Pending"});
    let patch = |refused| {
        with(|translation| {
            let observed = Observed {
                kind: &POD,
                on: true,
                tenant: Some(&tenant),
                host: Some(&host),
                refused,
                settled: false,
                dropped: Default::default(),
                unknown: Default::default(),
                translation,
            };
            plan(&observed).actions
        })
    };
    assert_eq!(patch(true), []);
    assert_eq!(names_of(&patch(false)), ["patch_tenant_status"]);
}

#[test]
fn service_addresses_come_from_the_host_and_edits_from_the_tenant() {
    let mut tenant = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "prod", "uid": "u"},
        "spec": {"type": "NodePort", "ports": [{"name": "http", "port": 80}]}, "status": {"loadBalancer": {}}});
    let mut host = copy_of(&SERVICE, &tenant);
    host["spec"]["clusterIP"] = json!("10.0.0.1");
    host["spec"]["ports"][0]["nodePort"] = json!(30001);
    let up = actions(&SERVICE, Some(&tenant), Some(&host));
    let [Action::PatchTenant { patch }] = &up[..] else { panic!("{up:?}") };
    assert_eq!(*patch, json!({"spec": {"clusterIP": "10.0.0.1", "ports": [{"name": "http", "port": 80, "nodePort": 30001}]}}));
    tenant["spec"]["clusterIP"] = json!("10.0.0.1");
    tenant["spec"]["ports"][0]["nodePort"] = json!(30001);
    assert_eq!(actions(&SERVICE, Some(&tenant), Some(&host)), [], "agreement costs no write");
    tenant["spec"]["ports"][0]["nodePort"] = json!(30002);
    assert_eq!(names_of(&actions(&SERVICE, Some(&tenant), Some(&host))), ["apply_host"]);
}

#[test]
fn a_stale_load_balancer_address_is_cleared_with_the_type() {
    let tenant = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "prod", "uid": "u"},
        "spec": {"type": "ClusterIP", "ports": [{"name": "http", "port": 80}]}, "status": {"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}}});
    let mut host = copy_of(&SERVICE, &tenant);
    host["status"] = tenant["status"].clone();
    let up = actions(&SERVICE, Some(&tenant), Some(&host));
    let [Action::PatchTenantStatus { patch }] = &up[..] else { panic!("{up:?}") };
    assert_eq!(patch["status"], json!({"loadBalancer": {"ingress": null}}));
}
