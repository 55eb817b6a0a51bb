//! What a tenant sees of the host's nodes, between two whole API servers.

mod support;

use serde_json::{Value, json};
use std::collections::BTreeMap;
use sublet_api::{NodeAddresses, NodeRules, ShowNodes};
use sublet_machinery::ObjectExt;
use sublet_runtime::DeleteOptions;
use sublet_runtime::resources::{LEASES, NODES, PODS};
use sublet_syncer::SyncRules;
use support::clusters::{Clusters, Running, until};

async fn start(nodes: NodeRules) -> (Clusters, Running) {
    let clusters = Clusters::start().await;
    clusters.add_namespace(&clusters.tenant, "prod").await;
    for (name, pool) in [("node-1", "a"), ("node-2", "b")] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"pool": pool}}});
        clusters.host.create(&NODES, &node).await.expect("created");
        let status = json!({"status": {
            "conditions": [{"type": "Ready", "status": "True", "reason": "Test"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "ExternalIP", "address": "192.0.2.1"}],
        }});
        clusters.host.patch_status(&NODES, "", name, status).await.expect("reports");
    }
    let running = clusters.sync_under("alpha", SyncRules { nodes, ..SyncRules::default() }).await;
    (clusters, running)
}

async fn node(clusters: &Clusters, name: &str) -> Option<Value> {
    clusters.tenant.get_opt(&NODES, "", name).await.expect("reads")
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "prod"}, "spec": {
        "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "nginx"}]}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

/// A DaemonSet had no nodes to run on until something else ran there. [vcluster 252, 132]
#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_are_shown_on_request_with_their_taints() {
    let (clusters, running) = start(NodeRules { show: ShowNodes::All, ..NodeRules::default() }).await;
    for name in ["node-1", "node-2"] {
        until(name, || node(&clusters, name)).await;
    }
    let taint = json!({"key": "gpu", "effect": "NoSchedule"});
    clusters.host.merge_patch(&NODES, "", "node-2", json!({"spec": {"taints": [taint]}})).await.expect("tainted");
    until("the taint", || async { node(&clusters, "node-2").await.filter(|n| n.str_at("/spec/taints/0/key") == Some("gpu")) }).await;
    let added = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-3"}});
    clusters.host.create(&NODES, &added).await.expect("created");
    until("a new node", || node(&clusters, "node-3")).await;
    clusters.host.delete(&NODES, "", "node-1", &DeleteOptions::default()).await.expect("deleted");
    assert_eq!(running.syncer.patrol().await.iter().filter(|k| k.key.name == "node-2").count(), 0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_all_nodes_those_that_match_are_shown_and_no_outside_addresses() {
    let labels = BTreeMap::from([("pool".to_string(), "b".to_string())]);
    let (clusters, running) = start(NodeRules { show: ShowNodes::All, labels, ..NodeRules::default() }).await;
    let shown = until("node-2", || async { node(&clusters, "node-2").await.filter(|n| !n.array_at("/status/addresses").is_empty()) }).await;
    let types: Vec<&str> = shown.array_at("/status/addresses").iter().filter_map(|a| a["type"].as_str()).collect();
    assert_eq!(types, ["InternalIP"]);
    assert!(node(&clusters, "node-1").await.is_none());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_run_though_no_node_is_shown() {
    let nodes = NodeRules { show: ShowNodes::None, addresses: NodeAddresses::None, ..NodeRules::default() };
    let (clusters, running) = start(nodes).await;
    clusters.tenant.create(&PODS, &pod("web", json!({}))).await.expect("created");
    let copy = until("the copy", || async { clusters.copy(&PODS, "web").await }).await;
    clusters.run_pod(&copy, "node-1").await;
    let is_running = || async {
        let pod = clusters.tenant.get(&PODS, "prod", "web").await.expect("there");
        (pod.str_at("/status/phase") == Some("Running")).then_some(pod)
    };
    assert_eq!(until("the status", is_running).await.str_at("/spec/nodeName"), Some("node-1"));
    assert!(node(&clusters, "node-1").await.is_none());
    running.stop().await;
}

/// Node controllers of the tenant took every node for dead.
#[tokio::test(flavor = "multi_thread")]
async fn leases_of_shown_nodes_follow_those_of_the_host() {
    let labels = BTreeMap::from([("pool".to_string(), "a".to_string())]);
    let (clusters, running) = start(NodeRules { show: ShowNodes::All, labels, leases: true, ..NodeRules::default() }).await;
    let lease = |name: &str| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"}})
    };
    for name in ["node-1", "node-2"] {
        clusters.host.create(&LEASES, &lease(name)).await.expect("created");
    }
    let renewed = async |at: &str| {
        let found = || async {
            let lease = clusters.tenant.get_opt(&LEASES, "kube-node-lease", "node-1").await.expect("reads")?;
            (lease.str_at("/spec/renewTime") == Some(at)).then_some(lease)
        };
        until(at, found).await
    };
    assert_eq!(renewed("2026-01-01T00:00:00.000000Z").await.str_at("/spec/holderIdentity"), Some("node-1"));
    let renewal = json!({"spec": {"renewTime": "2026-01-01T00:00:10.000000Z"}});
    clusters.host.merge_patch(&LEASES, "kube-node-lease", "node-1", renewal).await.expect("renewed");
    renewed("2026-01-01T00:00:10.000000Z").await;
    assert!(clusters.tenant.get_opt(&LEASES, "kube-node-lease", "node-2").await.expect("reads").is_none());
    running.stop().await;
}

/// Such a pod was pending for ever, and nobody said why.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_for_a_node_is_asked_for_there_and_refused_where_there_is_none() {
    let (clusters, running) = start(NodeRules::default()).await;
    clusters.tenant.create(&PODS, &pod("here", json!({"nodeName": "node-1"}))).await.expect("created");
    let copy = until("the copy", || async { clusters.copy(&PODS, "here").await }).await;
    let terms = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values";
    assert_eq!(copy.pointer(terms), Some(&json!(["node-1"])));
    clusters.tenant.create(&PODS, &pod("nowhere", json!({"nodeName": "node-9"}))).await.expect("created");
    let refused = || async {
        let pod = clusters.tenant.get(&PODS, "prod", "nowhere").await.expect("there");
        pod.condition("sublet.dev/Synced").and_then(|c| c["message"].as_str()).map(str::to_string)
    };
    let message = until("a refusal", refused).await;
    assert!(message.starts_with("spec.nodeName: there is no node \"node-9\""), "{message}");
    assert!(clusters.copy(&PODS, "nowhere").await.is_none());
    running.stop().await;
}
