//! Pods with all that they may ask for, between two whole API servers.

mod support;

use serde_json::{Value, json};
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{
    ENDPOINT_SLICES, INGRESS_CLASSES, NODES, PODS, PRIORITY_CLASSES, RUNTIME_CLASSES, SECRETS, SERVICE_ACCOUNTS,
};
use sublet_runtime::{Patch, PatchOptions};
use support::clusters::{Clusters, HOST_NAMESPACE, Running, until};

async fn start() -> (Clusters, Running) {
    let clusters = Clusters::start().await;
    clusters.add_namespace(&clusters.tenant, "prod").await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "labels": {"zone": "a"}}});
    clusters.host.create(&NODES, &node).await.expect("created");
    let running = clusters.sync("alpha", &clusters.tenant).await;
    (clusters, running)
}

async fn created_copy(clusters: &Clusters, spec: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "prod", "labels": {"app": "web", "pod-template-hash": "abc"}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "nginx"}]}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    clusters.tenant.create(&PODS, &pod).await.expect("created");
    until("the copy", || async { clusters.copy(&PODS, "web").await }).await
}

/// The name of a pull secret stayed the tenant's, and nothing could be pulled. [vcluster 1912]
#[tokio::test(flavor = "multi_thread")]
async fn pull_secrets_of_a_service_account_come_with_the_pod() {
    let (clusters, running) = start().await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": "prod"}, "imagePullSecrets": [{"name": "registry"}]});
    clusters.tenant.create(&SERVICE_ACCOUNTS, &account).await.expect("created");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "registry", "namespace": "prod"},
        "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{\"auths\":{}}"}});
    clusters.tenant.create(&SECRETS, &secret).await.expect("created");
    let copy = created_copy(&clusters, json!({"serviceAccountName": "robot"})).await;
    let secret = until("the secret", || async { clusters.copy(&SECRETS, "registry").await }).await;
    assert_eq!(copy.pointer("/spec/imagePullSecrets"), Some(&json!([{"name": secret.name()}])));
    assert_eq!(secret.str_at("/type"), Some("kubernetes.io/dockerconfigjson"));
    assert_eq!(copy.str_at("/spec/serviceAccountName"), Some("default"), "a host account of that name would be somebody else's");
    running.stop().await;
}

/// Tenants lifted themselves over the host's own pods, or had no classes at all. [k3k 340, 183]
#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_priority_stays_below_what_the_host_offers() {
    let (clusters, running) = start().await;
    let class = |name: &str, value: i64| json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value});
    clusters.host.create(&PRIORITY_CLASSES, &class("tenants", 100)).await.expect("created");
    until("the class", || async { clusters.tenant.get_opt(&PRIORITY_CLASSES, "", "tenants").await.expect("reads") }).await;
    clusters.tenant.create(&PRIORITY_CLASSES, &class("above-all", 1_000_000)).await.expect("created");
    let copy = created_copy(&clusters, json!({"priorityClassName": "above-all"})).await;
    assert_eq!((copy.str_at("/spec/priorityClassName"), copy.i64_at("/spec/priority")), (Some("tenants"), Some(100)));
    running.stop().await;
}

/// A host of 1.34 and later found the keys merged, and there a second time. [vcluster 3684]
#[tokio::test(flavor = "multi_thread")]
async fn spread_constraints_with_label_keys_are_taken_by_the_host() {
    let (clusters, running) = start().await;
    let spread = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["pod-template-hash"]}]);
    let copy = created_copy(&clusters, json!({"topologySpreadConstraints": spread})).await;
    let selector = &copy["spec"]["topologySpreadConstraints"][0]["labelSelector"];
    assert_eq!(selector["matchExpressions"], json!([{"key": "pod-template-hash", "operator": "In", "values": ["abc"]}]));
    assert_eq!(selector.pointer("/matchLabels/sublet.dev~1namespace"), Some(&json!("prod")));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_the_tenant_opens_opens_on_the_host() {
    let (clusters, running) = start().await;
    let copy = created_copy(&clusters, json!({"schedulingGates": [{"name": "example.com/quota"}, {"name": "example.com/disk"}]})).await;
    assert_eq!(copy.array_at("/spec/schedulingGates").len(), 2);
    for left in [1, 0] {
        let open = Patch::Json(json!([{"op": "remove", "path": "/spec/schedulingGates/0"}]));
        clusters.tenant.patch(&PODS, "prod", "web", "", &open, &PatchOptions::default()).await.expect("opened");
        let opened = || async { clusters.copy(&PODS, "web").await.filter(|c| c.array_at("/spec/schedulingGates").len() == left) };
        until("the gate", opened).await;
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn init_and_sidecar_containers_run_and_are_told_of() {
    let (clusters, running) = start().await;
    let init = json!([{"name": "setup", "image": "busybox"}, {"name": "side", "image": "busybox", "restartPolicy": "Always"}]);
    let copy = created_copy(&clusters, json!({"initContainers": init})).await;
    assert_eq!(copy.pointer("/spec/initContainers/1/restartPolicy"), Some(&json!("Always")));
    clusters.run_pod(&copy, "node-1").await;
    let state = |name: &str, started: bool| json!({"name": name, "image": "i", "imageID": "", "ready": true, "started": started, "restartCount": 0});
    let status = json!({"status": {"initContainerStatuses": [state("setup", false), state("side", true)]}});
    clusters.host.patch_status(&PODS, HOST_NAMESPACE, copy.name(), status).await.expect("reports");
    let told = || async {
        let pod = clusters.tenant.get(&PODS, "prod", "web").await.expect("there");
        (pod.array_at("/status/initContainerStatuses").len() == 2).then_some(())
    };
    until("both", told).await;
    running.stop().await;
}

/// Devices were asked for, and the pod was pending for ever.
#[tokio::test(flavor = "multi_thread")]
async fn resource_claims_are_refused_with_the_reason() {
    let (clusters, running) = start().await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gpu", "namespace": "prod"}, "spec": {
        "containers": [{"name": "c", "image": "nginx"}], "resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]}});
    clusters.tenant.create(&PODS, &pod).await.expect("created");
    let refused = || async {
        let pod = clusters.tenant.get(&PODS, "prod", "gpu").await.expect("there");
        pod.condition("sublet.dev/Synced").and_then(|c| c["message"].as_str()).map(str::to_string)
    };
    assert!(until("a refusal", refused).await.starts_with("spec.resourceClaims: "));
    running.stop().await;
}

/// Classes were there on the host, and invisible in the tenant. [vcluster 663]
#[tokio::test(flavor = "multi_thread")]
async fn classes_of_the_host_are_there_from_the_start() {
    let clusters = Clusters::start().await;
    let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "nginx"}, "spec": {"controller": "k8s.io/nginx"}});
    clusters.host.create(&INGRESS_CLASSES, &ingress).await.expect("created");
    let runtime = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "sandboxed"}, "handler": "runsc"});
    clusters.host.create(&RUNTIME_CLASSES, &runtime).await.expect("created");
    let running = clusters.sync("alpha", &clusters.tenant).await;
    for (gvr, name) in [(INGRESS_CLASSES, "nginx"), (RUNTIME_CLASSES, "sandboxed")] {
        until(name, || async { clusters.tenant.get_opt(&gvr, "", name).await.expect("reads") }).await;
    }
    clusters.add_namespace(&clusters.tenant, "prod").await;
    let copy = created_copy(&clusters, json!({"runtimeClassName": "sandboxed"})).await;
    assert_eq!(copy.str_at("/spec/runtimeClassName"), Some("sandboxed"));
    running.stop().await;
}

/// Nodes came without their labels when one of them could not be taken. [vcluster 214, 1288]
#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_a_long_name_has_its_labels() {
    let (clusters, running) = start().await;
    let name = format!("{}.{}", "n".repeat(60), "example.com");
    let node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"zone": "a", "kubernetes.io/hostname": "short"}}});
    clusters.host.create(&NODES, &node).await.expect("created");
    let copy = created_copy(&clusters, json!({})).await;
    clusters.run_pod(&copy, &name).await;
    let node = until("the node", || async { clusters.tenant.get_opt(&NODES, "", &name).await.expect("reads") }).await;
    assert_eq!((node.label("zone"), node.label("kubernetes.io/hostname")), (Some("a"), Some("short")));
    running.stop().await;
}

/// Two controllers wrote the slices of one Service, and its endpoints came and went. [vcluster 1979, 1401]
#[tokio::test(flavor = "multi_thread")]
async fn slices_that_the_host_makes_itself_have_no_second_owner() {
    let (clusters, running) = start().await;
    let slice = |name: &str, owner: &str| {
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": [{"addresses": ["10.9.0.1"]}],
            "metadata": {"name": name, "namespace": "prod", "labels": {"kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": owner}}})
    };
    clusters.tenant.create(&ENDPOINT_SLICES, &slice("made", "endpointslice-controller.k8s.io")).await.expect("created");
    clusters.tenant.create(&ENDPOINT_SLICES, &slice("mirrored", "endpointslicemirroring-controller.k8s.io")).await.expect("created");
    let copy = until("the mirrored one", || async { clusters.copy(&ENDPOINT_SLICES, "mirrored").await }).await;
    assert_eq!(copy.label("endpointslice.kubernetes.io/managed-by"), Some("sublet.dev"));
    assert!(clusters.copy(&ENDPOINT_SLICES, "made").await.is_none());
    running.stop().await;
}
