//! What other virtual clusters were seen to get wrong, between two whole API servers. Each test is
//! named after what is right; brackets name public reports of the fault.

mod support;

use serde_json::{Value, json};
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::resources::{
    CONFIG_MAPS, ENDPOINT_SLICES, INGRESSES, NAMESPACES, NETWORK_POLICIES, NODES, POD_DISRUPTION_BUDGETS, PODS, SECRETS, SERVICE_ACCOUNTS,
    SERVICES, STORAGE_CLASSES,
};
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

/// Deleted copies took the originals along while the syncer ran, and came back when it had not run. [vcluster 2958]
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

/// With long names the slice was never synced: its joined label was too long. [vcluster 4142]
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

/// A type that has no load balancer kept the old address and could not be changed. [vcluster 2248, 438; k3k 365]
#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancers_address_comes_and_goes() {
    let (clusters, running) = start().await;
    let spec = json!({"type": "LoadBalancer", "clusterIP": "10.96.3.3", "loadBalancerIP": "192.0.2.9", "ports": [{"port": 80}]});
    let copy = create(&clusters, &SERVICES, service("web", spec)).await;
    assert_eq!(copy.pointer("/spec/loadBalancerIP"), Some(&json!("192.0.2.9")));
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}});
    clusters.host.patch_status(&SERVICES, HOST_NAMESPACE, copy.name(), status).await.expect("reports");
    let address =
        async || clusters.tenant.get(&SERVICES, "prod", "web").await.expect("reads").pointer("/status/loadBalancer/ingress/0/ip").cloned();
    until("the address", || async { (address().await == Some(json!("192.0.2.9"))).then_some(()) }).await;
    clusters.tenant.merge_patch(&SERVICES, "prod", "web", json!({"spec": {"loadBalancerIP": "192.0.2.8"}})).await.expect("patched");
    copy_with(&clusters, &SERVICES, "web", "/spec/loadBalancerIP", json!("192.0.2.8")).await;
    let change = json!({"spec": {"type": "ClusterIP", "loadBalancerIP": null}});
    clusters.tenant.merge_patch(&SERVICES, "prod", "web", change).await.expect("patched");
    copy_with(&clusters, &SERVICES, "web", "/spec/type", json!("ClusterIP")).await;
    until("no address", || async { address().await.is_none().then_some(()) }).await;
    running.stop().await;
}

fn plain_pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "prod"}, "spec": {
        "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "nginx"}]}})
}

/// The first debugging container worked, the next one never came. [vcluster 2197, 585]
#[tokio::test(flavor = "multi_thread")]
async fn every_ephemeral_container_reaches_the_host() {
    let (clusters, running) = start().await;
    create(&clusters, &PODS, plain_pod("web")).await;
    for count in 1..=2 {
        let containers: Vec<Value> =
            (0..count).map(|n| json!({"name": format!("debug-{n}"), "image": "busybox", "targetContainerName": "c"})).collect();
        let change = Patch::Strategic(json!({"spec": {"ephemeralContainers": containers}}));
        clusters.tenant.patch(&PODS, "prod", "web", "ephemeralcontainers", &change, &PatchOptions::default()).await.expect("added");
        let copied = || async { clusters.copy(&PODS, "web").await.filter(|c| c.array_at("/spec/ephemeralContainers").len() == count) };
        let copy = until("the containers", copied).await;
        assert_eq!(copy.str_at("/spec/ephemeralContainers/0/name"), Some("debug-0"));
    }
    running.stop().await;
}

/// Deletion looked up what creation had needed, and hung. [vcluster 119]
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_goes_though_what_it_refers_to_is_gone() {
    let (clusters, running) = start().await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": "prod"}});
    clusters.tenant.create(&SERVICE_ACCOUNTS, &account).await.expect("created");
    clusters
        .tenant
        .create(&CONFIG_MAPS, &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf", "namespace": "prod"}}))
        .await
        .expect("created");
    let mut pod = plain_pod("web");
    pod["spec"]["serviceAccountName"] = json!("robot");
    pod["spec"]["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "conf"}}]);
    create(&clusters, &PODS, pod).await;
    clusters.tenant.delete(&SERVICE_ACCOUNTS, "prod", "robot", &DeleteOptions::default()).await.expect("deleted");
    clusters.tenant.delete(&CONFIG_MAPS, "prod", "conf", &DeleteOptions::default()).await.expect("deleted");
    clusters.tenant.delete(&PODS, "prod", "web", &DeleteOptions::default()).await.expect("deleted");
    until("no copy", || async { clusters.copy(&PODS, "web").await.is_none().then_some(()) }).await;
    until("no original", || async { clusters.tenant.get_opt(&PODS, "prod", "web").await.expect("reads").is_none().then_some(()) }).await;
    running.stop().await;
}

/// The patrol took what it did not know for an orphan. [cluster-api-provider-nested 176]
#[tokio::test(flavor = "multi_thread")]
async fn a_class_that_the_tenant_made_is_the_tenants() {
    let (clusters, running) = start().await;
    let class = |name: &str| json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}, "provisioner": "example.com/disk"});
    clusters.tenant.create(&STORAGE_CLASSES, &class("own")).await.expect("created");
    clusters.host.create(&STORAGE_CLASSES, &class("hosts")).await.expect("created");
    until("the host's class", || async { clusters.tenant.get_opt(&STORAGE_CLASSES, "", "hosts").await.expect("reads") }).await;
    assert_eq!(running.syncer.patrol().await, []);
    clusters.host.delete(&STORAGE_CLASSES, "", "hosts", &DeleteOptions::default()).await.expect("deleted");
    until("only the own one", || async {
        clusters.tenant.get_opt(&STORAGE_CLASSES, "", "hosts").await.expect("reads").is_none().then_some(())
    })
    .await;
    assert!(clusters.tenant.get_opt(&STORAGE_CLASSES, "", "own").await.expect("reads").is_some());
    running.stop().await;
}

/// A node that died kept looking alive in the tenant. [vcluster 3756, 252]
#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_as_ill_as_the_hosts() {
    let (clusters, running) = start().await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}});
    clusters.host.create(&NODES, &node).await.expect("created");
    let report = async |ready: &str| {
        let status = json!({"status": {"conditions": [{"type": "Ready", "status": ready, "reason": "Test"}]}});
        clusters.host.patch_status(&NODES, "", "node-1", status).await.expect("reports");
    };
    report("True").await;
    let copy = create(&clusters, &PODS, plain_pod("web")).await;
    clusters.run_pod(&copy, "node-1").await;
    let node_with = async |pointer: &str, value: Value| {
        until(pointer, || async {
            clusters.tenant.get_opt(&NODES, "", "node-1").await.expect("reads").filter(|n| n.pointer(pointer) == Some(&value))
        })
        .await
    };
    node_with("/status/conditions/0/status", json!("True")).await;
    report("Unknown").await;
    node_with("/status/conditions/0/status", json!("Unknown")).await;
    let taint = json!({"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"});
    clusters.host.merge_patch(&NODES, "", "node-1", json!({"spec": {"taints": [taint]}})).await.expect("tainted");
    node_with("/spec/taints/0/key", json!("node.kubernetes.io/unreachable")).await;
    // The taint that API servers give to new nodes has to go in the tenant as well, or no client takes the node for ready.
    clusters.host.merge_patch(&NODES, "", "node-1", json!({"spec": {"taints": null}})).await.expect("untainted");
    until("no taint", || async {
        clusters.tenant.get_opt(&NODES, "", "node-1").await.expect("reads").filter(|n| n.array_at("/spec/taints").is_empty())
    })
    .await;
    running.stop().await;
}

/// A budget counted the pods of all namespaces with the same labels, and one in percent counted none. [vcluster 4151]
#[tokio::test(flavor = "multi_thread")]
async fn a_budget_protects_as_many_pods_as_the_tenant_wants_and_its_own() {
    let (clusters, running) = start().await;
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "prod"},
        "spec": {"maxUnavailable": "30%", "selector": {"matchLabels": {"app": "web"}}}});
    clusters.tenant.create(&POD_DISRUPTION_BUDGETS, &budget).await.expect("created");
    let counted = async |desired: u32| {
        // As the tenant's disruption controller reports it.
        let status = json!({"status": {"observedGeneration": 1, "desiredHealthy": desired, "currentHealthy": desired, "expectedPods": 5, "disruptionsAllowed": 0}});
        clusters.tenant.patch_status(&POD_DISRUPTION_BUDGETS, "prod", "web", status).await.expect("reports");
        copy_with(&clusters, &POD_DISRUPTION_BUDGETS, "web", "/spec/minAvailable", json!(desired)).await
    };
    let copy = counted(3).await;
    assert_eq!(copy.pointer("/spec/selector/matchLabels/sublet.dev~1namespace"), Some(&json!("prod")));
    assert!(copy["spec"]["maxUnavailable"].is_null());
    counted(7).await;
    running.stop().await;
}

/// Policies without effect, or with that of another namespace. [k3k 142]
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_follows_the_labels_of_namespaces() {
    let (clusters, running) = start().await;
    clusters.add_namespace(&clusters.tenant, "shop").await;
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "db", "namespace": "prod"},
        "spec": {"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "shop"}}}]}]}});
    create(&clusters, &NETWORK_POLICIES, policy).await;
    let peer = "/spec/ingress/0/from/0/podSelector/matchLabels/sublet.dev~1namespace";
    let nobody = "/spec/ingress/0/from/0/podSelector/matchExpressions/0/values";
    copy_with(&clusters, &NETWORK_POLICIES, "db", nobody, json!([""])).await;
    clusters.tenant.merge_patch(&NAMESPACES, "", "shop", json!({"metadata": {"labels": {"team": "shop"}}})).await.expect("labelled");
    copy_with(&clusters, &NETWORK_POLICIES, "db", peer, json!("shop")).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ingress_brings_its_certificates_and_gets_its_address() {
    let (clusters, running) = start().await;
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "shop-tls", "namespace": "prod"}, "stringData": {"a": "b"}});
    clusters.tenant.create(&SECRETS, &secret).await.expect("created");
    let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "shop", "namespace": "prod"}, "spec": {
        "tls": [{"secretName": "shop-tls"}], "defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}});
    let copy = create(&clusters, &INGRESSES, ingress).await;
    let secret = until("the certificate", || async { clusters.copy(&SECRETS, "shop-tls").await }).await;
    assert_eq!(copy.str_at("/spec/tls/0/secretName"), Some(secret.name()));
    assert_eq!(copy.str_at("/spec/defaultBackend/service/name"), Some(&*running.service_name_of("web")));
    let status = json!({"status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}]}}});
    clusters.host.patch_status(&INGRESSES, HOST_NAMESPACE, copy.name(), status).await.expect("reports");
    until("the address", || async {
        let tenant = clusters.tenant.get(&INGRESSES, "prod", "shop").await.expect("there");
        (tenant.str_at("/status/loadBalancer/ingress/0/hostname") == Some("lb.example.com")).then_some(())
    })
    .await;
    clusters.tenant.delete(&INGRESSES, "prod", "shop", &DeleteOptions::default()).await.expect("deleted");
    until("no certificate", || async { clusters.copy(&SECRETS, "shop-tls").await.is_none().then_some(()) }).await;
    running.stop().await;
}
