//! What other virtual clusters were seen to get wrong, between two whole API servers. Each test is
//! named after what is right.

mod support;

use serde_json::{Value, json};
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::resources::{CONFIG_MAPS, ENDPOINT_SLICES, NAMESPACES, PODS, SERVICES};
use sublet_runtime::{Client, DeleteOptions, Patch, PatchOptions};
use support::clusters::{Clusters, HOST_NAMESPACE, Running, until};

async fn start() -> (Clusters, Running) {
    let clusters = Clusters::start().await;
    clusters.add_namespace(&clusters.tenant, "prod").await;
    let running = clusters.sync("alpha", &clusters.tenant).await;
    (clusters, running)
}

async fn create(clusters: &Clusters, gvr: &Gvr, object: Value) -> Value {
    clusters.tenant.create(gvr, &object).await.expect("created");
    until("the copy", || clusters.copy(gvr, object.name())).await
}

/// The copy once it looks right.
async fn copy_with(clusters: &Clusters, gvr: &Gvr, name: &str, pointer: &str, value: Value) -> Value {
    until(pointer, || async { clusters.copy(gvr, name).await.filter(|c| c.pointer(pointer) == Some(&value)) }).await
}

async fn json_patch(client: &Client, gvr: &Gvr, namespace: &str, name: &str, change: Value) {
    client.patch(gvr, namespace, name, "", &Patch::Json(change), &PatchOptions::default()).await.expect("patched");
}

fn service(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "prod"}, "spec": spec})
}

/// Deleted copies took the originals along while the syncer ran, and came back when it had not run.
#[tokio::test(flavor = "multi_thread")]
async fn copies_deleted_while_nobody_looks_come_back() {
    let (clusters, running) = start().await;
    let copy = create(&clusters, &SERVICES, service("web", json!({"clusterIP": "None", "ports": [{"port": 80}]}))).await;
    running.stop().await;
    clusters.host.delete(&SERVICES, HOST_NAMESPACE, copy.name(), &DeleteOptions::default()).await.expect("deleted");
    let running = clusters.sync("alpha", &clusters.tenant).await;
    until("another copy", || async { clusters.copy(&SERVICES, "web").await.filter(|c| c.uid() != copy.uid()) }).await;
    assert!(clusters.tenant.get_opt(&SERVICES, "prod", "web").await.expect("reads").is_some());
    running.stop().await;
}

/// With long names the slice was never synced: its joined label was too long.
#[tokio::test(flavor = "multi_thread")]
async fn a_slice_by_hand_follows_its_service_however_long_the_names() {
    let (clusters, running) = start().await;
    let name = "s".repeat(63);
    let host_service = create(&clusters, &SERVICES, service(&name, json!({"clusterIP": "None", "ports": [{"port": 80}]}))).await;
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "by-hand", "namespace": "prod", "labels": {"kubernetes.io/service-name": name}},
        "endpoints": [{"addresses": ["10.9.0.1"]}], "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    });
    let copy = create(&clusters, &ENDPOINT_SLICES, slice).await;
    assert_eq!(copy.label("kubernetes.io/service-name"), Some(host_service.name()));
    running.stop().await;
}

/// The address followed, the port stayed.
#[tokio::test(flavor = "multi_thread")]
async fn a_slice_by_hand_is_followed_in_addresses_and_ports() {
    let (clusters, running) = start().await;
    create(&clusters, &SERVICES, service("outside", json!({"clusterIP": "None", "ports": [{"port": 80}]}))).await;
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "outside-1", "namespace": "prod", "labels": {"kubernetes.io/service-name": "outside"}},
        "endpoints": [{"addresses": ["10.9.0.1"]}], "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    });
    create(&clusters, &ENDPOINT_SLICES, slice).await;
    let change = json!({"endpoints": [{"addresses": ["10.9.0.2"]}], "ports": [{"name": "http", "port": 9090, "protocol": "TCP"}]});
    clusters.tenant.merge_patch(&ENDPOINT_SLICES, "prod", "outside-1", change).await.expect("patched");
    let copy = copy_with(&clusters, &ENDPOINT_SLICES, "outside-1", "/ports/0/port", json!(9090)).await;
    assert_eq!(copy.pointer("/endpoints/0/addresses"), Some(&json!(["10.9.0.2"])));
    running.stop().await;
}

/// Some fields were copied, some only at creation.
#[tokio::test(flavor = "multi_thread")]
async fn every_field_of_a_service_follows_its_original() {
    let (clusters, running) = start().await;
    create(&clusters, &SERVICES, service("web", json!({"clusterIP": "None", "selector": {"app": "web"}, "ports": [{"port": 80}]}))).await;
    let changes = [
        ("/spec/internalTrafficPolicy", json!("Local")),
        ("/spec/trafficDistribution", json!("PreferSameZone")),
        ("/spec/sessionAffinity", json!("ClientIP")),
        ("/spec/publishNotReadyAddresses", json!(true)),
        ("/spec/selector/app", json!("other")),
        ("/spec/ports/0/port", json!(81)),
    ];
    for (pointer, value) in changes {
        let change = json!([{"op": "add", "path": pointer, "value": value}]);
        json_patch(&clusters.tenant, &SERVICES, "prod", "web", change).await;
        copy_with(&clusters, &SERVICES, "web", pointer, value).await;
    }
    // And what is taken away goes.
    let change = json!([{"op": "remove", "path": "/spec/trafficDistribution"}]);
    json_patch(&clusters.tenant, &SERVICES, "prod", "web", change).await;
    until("the removal", || async { clusters.copy(&SERVICES, "web").await.filter(|c| c["spec"]["trafficDistribution"].is_null()) }).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_changed_on_the_host_is_changed_back() {
    let (clusters, running) = start().await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "prod"},
        "spec": {"containers": [{"name": "c", "image": "nginx:1"}]},
    });
    let copy = create(&clusters, &PODS, pod).await;
    let change = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "miner"}]);
    json_patch(&clusters.host, &PODS, HOST_NAMESPACE, copy.name(), change).await;
    let copy = copy_with(&clusters, &PODS, "web", "/spec/containers/0/image", json!("nginx:1")).await;
    assert_eq!(
        clusters.tenant.get(&PODS, "prod", "web").await.expect("there").pointer("/spec/containers/0/image"),
        Some(&json!("nginx:1"))
    );
    // And a change of the tenant's is taken over in place.
    let change = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "nginx:2"}]);
    json_patch(&clusters.tenant, &PODS, "prod", "web", change).await;
    let changed = copy_with(&clusters, &PODS, "web", "/spec/containers/0/image", json!("nginx:2")).await;
    assert_eq!(changed.uid(), copy.uid());
    running.stop().await;
}

/// What a tenant deletes with its namespace leaves the host, one namespace and no more.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_namespace_held_leaves_the_host_with_it() {
    let (clusters, running) = start().await;
    clusters.add_namespace(&clusters.tenant, "stays").await;
    for namespace in ["prod", "stays"] {
        let mut web = service("web", json!({"clusterIP": "None", "ports": [{"port": 80}]}));
        web["metadata"]["namespace"] = json!(namespace);
        clusters.tenant.create(&SERVICES, &web).await.expect("created");
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": namespace}, "spec": {
            "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "nginx", "envFrom": [{"configMapRef": {"name": "conf"}}]}]}});
        let conf = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf", "namespace": namespace}});
        clusters.tenant.create(&CONFIG_MAPS, &conf).await.expect("created");
        clusters.tenant.create(&PODS, &pod).await.expect("created");
    }
    let kinds = [PODS, SERVICES, CONFIG_MAPS];
    for gvr in &kinds {
        until("both copies", || async { (clusters.host_copies(gvr).await.len() >= 2).then_some(()) }).await;
    }
    // As the namespace controller of the tenant does it.
    clusters.tenant.delete(&NAMESPACES, "", "prod", &DeleteOptions::default()).await.expect("deleted");
    for gvr in &kinds {
        let name = if *gvr == CONFIG_MAPS { "conf" } else { "web" };
        clusters.tenant.delete(gvr, "prod", name, &DeleteOptions::default()).await.expect("deleted");
    }
    for gvr in &kinds {
        let left = || async {
            let copies = clusters.host_copies(gvr).await;
            copies.iter().all(|c| c.label("sublet.dev/namespace") == Some("stays")).then_some(copies.len())
        };
        assert!(until("nothing of prod", left).await >= 1);
    }
    running.stop().await;
}
