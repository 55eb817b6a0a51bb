//! Two whole API servers with a syncer between them.

mod support;

use base64::Engine as _;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::Duration;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{CONFIG_MAPS, EVENTS, NODES, PODS, SECRETS, SERVICES};
use sublet_runtime::{Client, Clock, DeleteOptions, ListOptions};
use sublet_syncer::remove_copies;
use support::clusters::{Clusters, HOST_NAMESPACE, until};

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "prod", "labels": {"app": "web"}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "nginx", "envFrom": [{"configMapRef": {"name": "conf"}}]}]},
    })
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "prod"}, "data": {"a": "1"}})
}

/// A tenant with namespace `prod` and its ConfigMap, a node on the host, and a syncer.
async fn start() -> (Clusters, support::clusters::Running) {
    let clusters = Clusters::start().await;
    clusters.add_namespace(&clusters.tenant, "prod").await;
    clusters.tenant.create(&CONFIG_MAPS, &config_map("conf")).await.expect("created");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "labels": {"zone": "a"}}});
    clusters.host.create(&NODES, &node).await.expect("created");
    let running = clusters.sync("alpha", &clusters.tenant).await;
    (clusters, running)
}

async fn running_pod(clusters: &Clusters, name: &str) -> Value {
    clusters.tenant.create(&PODS, &pod(name)).await.expect("created");
    let copy = until("the copy", || async { clusters.copy(&PODS, name).await }).await;
    clusters.run_pod(&copy, "node-1").await;
    until("the status", || async { get(&clusters.tenant, name).await.filter(|p| p.str_at("/status/phase") == Some("Running")) }).await
}

async fn get(tenant: &Client, pod: &str) -> Option<Value> {
    tenant.get_opt(&PODS, "prod", pod).await.expect("reads")
}

async fn settled(clusters: &Clusters, running: &support::clusters::Running) {
    until("quiet", || async {
        let before = clusters.revisions();
        tokio::time::sleep(Duration::from_millis(150)).await;
        (running.syncer.backlog() == 0 && clusters.revisions() == before).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pods_way_to_the_host_and_its_status_back() {
    let (clusters, running) = start().await;
    let tenant_pod = running_pod(&clusters, "web").await;
    assert_eq!(tenant_pod.str_at("/spec/nodeName"), Some("node-1"));
    assert_eq!(tenant_pod.str_at("/status/podIP"), Some("10.1.0.7"));
    let copy = clusters.copy(&PODS, "web").await.expect("there");
    assert!(copy.name().starts_with("web-prod-"), "{}", copy.name());
    // What it uses came along, and its token.
    assert!(clusters.copy(&CONFIG_MAPS, "conf").await.is_some());
    let secret = clusters.copy(&SECRETS, "web").await.expect("the token");
    assert_eq!(secret.label("sublet.dev/kind"), Some("PodToken"));
    // The node that it runs on is there, with its labels.
    let node = until("the node", || async { clusters.tenant.get_opt(&NODES, "", "node-1").await.expect("reads") }).await;
    assert_eq!(node.label("zone"), Some("a"));
    // All of it goes with the pod.
    clusters.tenant.delete(&PODS, "prod", "web", &DeleteOptions::default()).await.expect("deleted");
    for gvr in [PODS, CONFIG_MAPS, SECRETS] {
        until("nothing left", || async { clusters.host_copies(&gvr).await.is_empty().then_some(()) }).await;
    }
    running.stop().await;
}

/// A kubelet that has a pod and finds none of its Secret looks again half a second later, and then less and less often.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_goes_to_the_host_when_its_tokens_are_on_their_way() {
    let (clusters, running) = start().await;
    clusters.slow_tokens.store(true, Ordering::Relaxed);
    clusters.tenant.create(&PODS, &pod("web")).await.expect("created");
    until("the copy", || async { clusters.copy(&PODS, "web").await }).await;
    assert_eq!(running.syncer.stats().tokens_issued, 1);
    running.stop().await;
}

/// Tokens lived ten years whatever was asked, and lay in annotations.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_as_asked_and_made_anew_in_place_before_they_end() {
    let clusters = Clusters::start().await;
    clusters.add_namespace(&clusters.tenant, "prod").await;
    clusters.tenant.create(&CONFIG_MAPS, &config_map("conf")).await.expect("created");
    let clock = Clock::manual(Clock::System.now().as_second());
    let running = clusters.sync_by("alpha", &clusters.tenant, clock.clone()).await;
    let mut asking = pod("web");
    let source = json!({"serviceAccountToken": {"path": "vault", "audience": "vault", "expirationSeconds": 600}});
    asking["spec"]["volumes"] = json!([{"name": "vault", "projected": {"sources": [source]}}]);
    asking["spec"]["automountServiceAccountToken"] = json!(false);
    let uid = clusters.tenant.create(&PODS, &asking).await.expect("created").uid().to_string();
    let copy = until("the copy", || async { clusters.copy(&PODS, "web").await }).await;
    let first = until("the token", || async { clusters.copy(&SECRETS, "web").await }).await;
    let token = token_of(&first);
    let claims = claims(&token);
    assert_eq!(claims["aud"], json!(["vault"]));
    assert_eq!(claims["exp"].as_i64().expect("ends") - claims["iat"].as_i64().expect("begins"), 600);
    assert_eq!(claims["kubernetes.io"]["pod"]["uid"], *uid);
    // The mounted file is the token, and the token is nowhere else.
    let item = &copy["spec"]["volumes"][0]["projected"]["sources"][0]["secret"];
    assert_eq!((item["name"].as_str(), &item["items"][0]["path"]), (Some(first.name()), &json!("vault")));
    assert!(!copy.to_string().contains(&token) && !first["metadata"].to_string().contains(&token));
    clock.advance(400);
    touch(&clusters, &first, "early").await;
    settled(&clusters, &running).await;
    assert_eq!(clusters.copy(&SECRETS, "web").await.map(|s| token_of(&s)), Some(token.clone()), "it is good for a while");
    clock.advance(100);
    touch(&clusters, &first, "late").await;
    let second = until("another token", || async { clusters.copy(&SECRETS, "web").await.filter(|s| token_of(s) != token) }).await;
    assert_eq!(second.uid(), first.uid(), "kubelets see new data of the Secret that they mounted");
    clusters.tenant.delete(&PODS, "prod", "web", &DeleteOptions::default()).await.expect("deleted");
    until("no token left", || async { clusters.host_copies(&SECRETS).await.is_empty().then_some(()) }).await;
    running.stop().await;
}

/// Makes the syncer look at the token: its own timer runs by the real clock.
async fn touch(clusters: &Clusters, secret: &Value, label: &str) {
    let touched = json!({"metadata": {"labels": {"host/touched": label}}});
    clusters.host.merge_patch(&SECRETS, HOST_NAMESPACE, secret.name(), touched).await.expect("patched");
}

fn token_of(secret: &Value) -> String {
    let bytes = base64::prelude::BASE64_STANDARD.decode(secret.str_at("/data/token-0").expect("a token")).expect("base64");
    String::from_utf8(bytes).expect("text")
}

fn claims(token: &str) -> Value {
    let body = token.split('.').nth(1).expect("three parts");
    serde_json::from_slice(&base64::prelude::BASE64_URL_SAFE_NO_PAD.decode(body).expect("base64")).expect("JSON")
}

/// Labels that the host added appeared in the tenant; changes of ours by the host must not stay.
#[tokio::test(flavor = "multi_thread")]
async fn the_hosts_additions_stay_there_and_its_changes_are_undone() {
    let (clusters, running) = start().await;
    running_pod(&clusters, "web").await;
    let copy = clusters.copy(&PODS, "web").await.expect("there");
    let meddled = json!({"metadata": {"labels": {"host/added": "x", "app": "other"}}});
    clusters.host.merge_patch(&PODS, HOST_NAMESPACE, copy.name(), meddled).await.expect("patched");
    let repaired = until("the repair", || async { clusters.copy(&PODS, "web").await.filter(|c| c.label("app") == Some("web")) }).await;
    assert_eq!(repaired.label("host/added"), Some("x"));
    // And a label that the tenant takes away leaves the host.
    clusters.tenant.merge_patch(&PODS, "prod", "web", json!({"metadata": {"labels": {"app": null}}})).await.expect("patched");
    until("the removal", || async { clusters.copy(&PODS, "web").await.filter(|c| c.label("app").is_none()) }).await;
    settled(&clusters, &running).await;
    let tenant_pod = get(&clusters.tenant, "web").await.expect("there");
    assert_eq!(tenant_pod.label("host/added"), None);
    running.stop().await;
}

/// All four originals of deleted copies vanished within seconds.
#[tokio::test(flavor = "multi_thread")]
async fn originals_outlive_their_copies_and_pods_follow_an_eviction() {
    let (clusters, running) = start().await;
    running_pod(&clusters, "web").await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "prod"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}});
    clusters.tenant.create(&SERVICES, &service).await.expect("created");
    for (gvr, name) in [(SERVICES, "web"), (CONFIG_MAPS, "conf")] {
        let copy = until("the copy", || clusters.copy(&gvr, name)).await;
        clusters.host.delete(&gvr, HOST_NAMESPACE, copy.name(), &DeleteOptions::default()).await.expect("deleted");
        let again = until("another copy", || async { clusters.copy(&gvr, name).await.filter(|c| c.uid() != copy.uid()) }).await;
        assert_eq!(again.name(), copy.name());
        assert!(clusters.tenant.get_opt(&gvr, "prod", name).await.expect("reads").is_some());
    }
    let copy = clusters.copy(&PODS, "web").await.expect("there");
    clusters.host.delete(&PODS, HOST_NAMESPACE, copy.name(), &DeleteOptions::now()).await.expect("evicted");
    until("the eviction", || async { get(&clusters.tenant, "web").await.is_none().then_some(()) }).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_objects_are_neither_touched_nor_adopted() {
    let (clusters, running) = start().await;
    let mut foreign = pod("foreign");
    foreign["metadata"]["namespace"] = json!(HOST_NAMESPACE);
    foreign["spec"]["containers"][0]["envFrom"] = json!([]);
    clusters.host.create(&PODS, &foreign).await.expect("created");
    // Under the very name that a copy needs.
    let name = running.name_of("conf-2");
    let squatter =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": HOST_NAMESPACE}, "data": {"mine": "1"}});
    let squatter = clusters.host.create(&CONFIG_MAPS, &squatter).await.expect("created");
    clusters.tenant.create(&CONFIG_MAPS, &config_map("conf-2")).await.expect("created");
    let mut user = pod("user");
    user["spec"]["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "conf-2"}}]);
    clusters.tenant.create(&PODS, &user).await.expect("created");
    until("the complaint", || async { event_about(&clusters.tenant, "conf-2").await }).await;
    let after = clusters.host.get(&CONFIG_MAPS, HOST_NAMESPACE, &name).await.expect("there");
    assert_eq!(after.resource_version(), squatter.resource_version());
    // It goes, and all is well.
    clusters.host.delete(&CONFIG_MAPS, HOST_NAMESPACE, &name, &DeleteOptions::default()).await.expect("deleted");
    until("the copy", || async { clusters.copy(&CONFIG_MAPS, "conf-2").await }).await;
    let foreign = clusters.host.get(&PODS, HOST_NAMESPACE, "foreign").await.expect("still there");
    assert!(!foreign.is_deleting() && foreign.label("sublet.dev/managed-by").is_none());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_told_in_the_tenants_names_and_ends_with_its_cause() {
    let (clusters, running) = start().await;
    clusters.refuses_pods.store(true, Ordering::Relaxed);
    clusters.tenant.create(&PODS, &pod("web")).await.expect("created");
    let refused = |p: &Value| p.array_at("/status/conditions").iter().find(|c| c["type"] == "sublet.dev/Synced").cloned();
    let condition = until("the condition", || async { refused(&get(&clusters.tenant, "web").await?) }).await;
    assert_eq!(condition["message"], "pods \"web\" is forbidden: exceeded quota: small");
    let event = until("the event", || async { event_about(&clusters.tenant, "web").await }).await;
    assert_eq!((event["reason"].as_str(), event["type"].as_str()), (Some("HostRefused"), Some("Warning")));
    clusters.refuses_pods.store(false, Ordering::Relaxed);
    let copy = until("the copy", || async { clusters.copy(&PODS, "web").await }).await;
    clusters.run_pod(&copy, "node-1").await;
    until("no complaint", || async { get(&clusters.tenant, "web").await.filter(|p| refused(p).is_none()) }).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_writes_nothing_and_a_patrol_finds_nothing() {
    let (clusters, running) = start().await;
    for name in ["a", "b", "c"] {
        running_pod(&clusters, name).await;
    }
    settled(&clusters, &running).await;
    assert_eq!(running.syncer.patrol().await, []);
    running.stop().await;
    let before = clusters.revisions();
    let running = clusters.sync("alpha", &clusters.tenant).await;
    settled(&clusters, &running).await;
    assert_eq!(running.syncer.patrol().await, []);
    assert_eq!(clusters.revisions(), before);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_are_the_hosts_and_are_given_back() {
    let (clusters, running) = start().await;
    let allocator = running.syncer.service_allocator();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "prod", "uid": "u-1"},
        "spec": {"type": "ClusterIP", "ports": [{"port": 80}]}});
    let allocation = allocator.allocate_create(&service, false).await.expect("allocated");
    assert!(clusters.copy(&SERVICES, "web").await.is_some());
    // The engine leaves it alone while the tenant's write is under way.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(clusters.copy(&SERVICES, "web").await.is_some());
    allocator.undo(allocation).await;
    until("given back", || async { clusters.copy(&SERVICES, "web").await.is_none().then_some(()) }).await;
    // A stranger in its place is a refusal.
    let mut squatter = service.clone();
    squatter["metadata"] = json!({"name": running.service_name_of("web"), "namespace": HOST_NAMESPACE});
    clusters.host.create(&SERVICES, &squatter).await.expect("created");
    let refusal = allocator.allocate_create(&service, false).await.expect_err("refused");
    assert!(refusal.message.contains("services \"web\" is forbidden"), "{refusal}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn teardown_leaves_nothing_of_the_tenant_and_all_of_the_others() {
    let (clusters, running) = start().await;
    running_pod(&clusters, "web").await;
    let tenant = running.identity();
    running.stop().await;
    let mut foreign = config_map("foreign");
    foreign["metadata"]["namespace"] = json!(HOST_NAMESPACE);
    clusters.host.create(&CONFIG_MAPS, &foreign).await.expect("created");
    let removed =
        || async { remove_copies(&clusters.host, HOST_NAMESPACE, &tenant, false).await.expect("removes").is_empty().then_some(()) };
    until("nothing left", removed).await;
    for gvr in [PODS, CONFIG_MAPS, SECRETS] {
        assert_eq!(clusters.host_copies(&gvr).await.len(), 0);
    }
    assert!(clusters.host.get_opt(&CONFIG_MAPS, HOST_NAMESPACE, "foreign").await.expect("reads").is_some());
}

async fn event_about(tenant: &Client, name: &str) -> Option<Value> {
    let all = tenant.list(&EVENTS, "prod", &ListOptions::default()).await.expect("lists").items;
    all.into_iter().find(|e| e.str_at("/involvedObject/name") == Some(name) && e["reason"] == "HostRefused")
}
