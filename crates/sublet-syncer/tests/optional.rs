//! Kinds that not every host serves, between two whole API servers.

mod support;

use serde_json::{Value, json};
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::resources::{
    CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, GATEWAY_CLASSES, GATEWAYS, HTTP_ROUTES, NAMESPACES, PERSISTENT_VOLUME_CLAIMS,
    REFERENCE_GRANTS, SECRETS, VOLUME_SNAPSHOT_CLASSES, VOLUME_SNAPSHOT_CONTENTS, VOLUME_SNAPSHOTS,
};
use sublet_runtime::{Client, DeleteOptions};
use support::clusters::{Clusters, HOST_NAMESPACE, Running, until};

const SNAPSHOTS: [(Gvr, &str, bool); 3] = [
    (VOLUME_SNAPSHOTS, "VolumeSnapshot", true),
    (VOLUME_SNAPSHOT_CLASSES, "VolumeSnapshotClass", false),
    (VOLUME_SNAPSHOT_CONTENTS, "VolumeSnapshotContent", false),
];
const GATEWAY_API: [(Gvr, &str, bool); 4] = [
    (GATEWAY_CLASSES, "GatewayClass", false),
    (GATEWAYS, "Gateway", true),
    (HTTP_ROUTES, "HTTPRoute", true),
    (REFERENCE_GRANTS, "ReferenceGrant", true),
];

async fn define(client: &Client, (gvr, kind, namespaced): &(Gvr, &str, bool)) {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", gvr.resource, gvr.group), "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
        "spec": {
            "group": gvr.group, "scope": if *namespaced { "Namespaced" } else { "Cluster" },
            "names": {"kind": kind, "plural": gvr.resource, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{"name": gvr.version, "served": true, "storage": true, "subresources": {"status": {}}, "schema": {
                "openAPIV3Schema": {"type": "object", "description": "Prose.", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    client.create(&CUSTOM_RESOURCE_DEFINITIONS, &definition).await.expect("defined");
}

async fn start(kinds: &[(Gvr, &str, bool)]) -> (Clusters, Running) {
    let clusters = Clusters::start().await;
    clusters.add_namespace(&clusters.tenant, "prod").await;
    for kind in kinds {
        define(&clusters.host, kind).await;
    }
    let running = clusters.sync("alpha", &clusters.tenant).await;
    for (gvr, ..) in kinds {
        served(&clusters.tenant, gvr).await;
    }
    (clusters, running)
}

async fn served(client: &Client, gvr: &Gvr) {
    let listed = || async { client.list(gvr, "", &Default::default()).await.ok().map(drop) };
    until(&gvr.resource, listed).await;
}

async fn create(client: &Client, gvr: &Gvr, kind: &str, name: &str, rest: Value) -> Value {
    let mut object = json!({"apiVersion": gvr.api_version(), "kind": kind, "metadata": {"name": name, "namespace": "prod"}});
    for (field, value) in rest.as_object().into_iter().flatten() {
        object[field] = value.clone();
    }
    client.create(gvr, &object).await.expect("created")
}

fn snapshot() -> Value {
    json!({"spec": {"source": {"persistentVolumeClaimName": "data"}}})
}

/// A control plane crashed over and over on a host that lacked an API. [vcluster 2307]
#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_the_host_lacks_is_off_until_the_host_has_it() {
    let (clusters, running) = start(&[]).await;
    let off = || async {
        running.syncer.kinds_off().into_iter().find(|(kind, why)| kind == "volumesnapshots" && *why == "not served by the host")
    };
    until("what is off", off).await;
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf", "namespace": "prod"}});
    clusters.tenant.create(&CONFIG_MAPS, &config).await.expect("the rest goes on");
    define(&clusters.host, &SNAPSHOTS[0]).await;
    running.cache.look_again();
    served(&clusters.tenant, &VOLUME_SNAPSHOTS).await;
    create(&clusters.tenant, &VOLUME_SNAPSHOTS, "VolumeSnapshot", "nightly", snapshot()).await;
    until("the copy", || async { clusters.copy(&VOLUME_SNAPSHOTS, "nightly").await }).await;
    assert!(!running.syncer.kinds_off().iter().any(|(kind, _)| kind == "volumesnapshots"));
    let definition =
        clusters.tenant.get(&CUSTOM_RESOURCE_DEFINITIONS, "", "volumesnapshots.snapshot.storage.k8s.io").await.expect("defined");
    assert!(definition.pointer("/spec/versions/0/schema/openAPIV3Schema/description").is_none(), "prose of the host");
    running.stop().await;
}

/// Snapshots were taken, and nothing could be restored from them. [vcluster 3951]
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_taken_shown_and_restored_from() {
    let (clusters, running) = start(&SNAPSHOTS).await;
    let mut class = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": {"name": "csi"},
        "driver": "csi.example.com", "deletionPolicy": "Delete", "parameters": {"csi.storage.k8s.io/snapshotter-secret-name": "s"}});
    class.set_annotation("snapshot.storage.kubernetes.io/is-default-class", "true");
    clusters.host.create(&VOLUME_SNAPSHOT_CLASSES, &class).await.expect("created");
    let shown = until("the class", || async { clusters.tenant.get_opt(&VOLUME_SNAPSHOT_CLASSES, "", "csi").await.expect("reads") }).await;
    assert!(shown["parameters"].is_null() && shown.annotation("snapshot.storage.kubernetes.io/is-default-class") == Some("true"));
    create(&clusters.tenant, &VOLUME_SNAPSHOTS, "VolumeSnapshot", "nightly", snapshot()).await;
    let copy = until("the copy", || async { clusters.copy(&VOLUME_SNAPSHOTS, "nightly").await }).await;
    // As the host's snapshot controller does it.
    let content = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent", "metadata": {"name": "snapcontent-1"}, "spec": {
        "driver": "csi.example.com", "deletionPolicy": "Delete", "source": {"volumeHandle": "v"}, "volumeSnapshotClassName": "csi",
        "volumeSnapshotRef": {"kind": "VolumeSnapshot", "namespace": HOST_NAMESPACE, "name": copy.name(), "uid": copy.uid()}}});
    clusters.host.create(&VOLUME_SNAPSHOT_CONTENTS, &content).await.expect("created");
    let class = json!({"spec": {"volumeSnapshotClassName": "csi"}});
    clusters.host.merge_patch(&VOLUME_SNAPSHOTS, HOST_NAMESPACE, copy.name(), class).await.expect("patched");
    let status = json!({"status": {"readyToUse": true, "restoreSize": "1Gi", "boundVolumeSnapshotContentName": "snapcontent-1"}});
    clusters.host.patch_status(&VOLUME_SNAPSHOTS, HOST_NAMESPACE, copy.name(), status).await.expect("reports");
    let ready = || async {
        let snapshot = clusters.tenant.get(&VOLUME_SNAPSHOTS, "prod", "nightly").await.expect("there");
        (snapshot["status"]["readyToUse"] == true && snapshot["spec"]["volumeSnapshotClassName"] == "csi").then_some(snapshot)
    };
    let ready = until("the snapshot to be ready", ready).await;
    let content = || async { clusters.tenant.get_opt(&VOLUME_SNAPSHOT_CONTENTS, "", "snapcontent-1").await.expect("reads") };
    let content = until("its content", content).await;
    let about = &content["spec"]["volumeSnapshotRef"];
    assert_eq!(
        (about["namespace"].as_str(), about["name"].as_str(), about["uid"].as_str()),
        (Some("prod"), Some("nightly"), Some(ready.uid()))
    );
    let claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        "dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "nightly"}}});
    create(&clusters.tenant, &PERSISTENT_VOLUME_CLAIMS, "PersistentVolumeClaim", "restored", claim).await;
    let restored = until("the claim", || async { clusters.copy(&PERSISTENT_VOLUME_CLAIMS, "restored").await }).await;
    assert_eq!(restored.str_at("/spec/dataSource/name"), Some(copy.name()));
    clusters.tenant.delete(&VOLUME_SNAPSHOTS, "prod", "nightly", &DeleteOptions::default()).await.expect("deleted");
    until("no copy", || async { clusters.copy(&VOLUME_SNAPSHOTS, "nightly").await.is_none().then_some(()) }).await;
    running.stop().await;
}

/// Definitions of a tenant were overwritten with the host's.
#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_the_tenant_made_is_the_tenants() {
    let clusters = Clusters::start().await;
    clusters.add_namespace(&clusters.tenant, "prod").await;
    define(&clusters.host, &SNAPSHOTS[0]).await;
    define(&clusters.tenant, &SNAPSHOTS[0]).await;
    let running = clusters.sync("alpha", &clusters.tenant).await;
    served(&clusters.tenant, &VOLUME_SNAPSHOTS).await;
    create(&clusters.tenant, &VOLUME_SNAPSHOTS, "VolumeSnapshot", "nightly", snapshot()).await;
    until("the copy", || async { clusters.copy(&VOLUME_SNAPSHOTS, "nightly").await }).await;
    let definition =
        clusters.tenant.get(&CUSTOM_RESOURCE_DEFINITIONS, "", "volumesnapshots.snapshot.storage.k8s.io").await.expect("defined");
    assert!(definition.label("sublet.dev/managed-by").is_none());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_reaches_the_gateways_that_let_it_in() {
    let (clusters, running) = start(&GATEWAY_API).await;
    let class = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "public"}, "spec": {"controllerName": "example.com/gw"}});
    clusters.host.create(&GATEWAY_CLASSES, &class).await.expect("created");
    until("the class", || async { clusters.tenant.get_opt(&GATEWAY_CLASSES, "", "public").await.expect("reads") }).await;
    clusters.add_namespace(&clusters.tenant, "edge").await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls", "namespace": "edge"}, "stringData": {"a": "b"}});
    clusters.tenant.create(&SECRETS, &secret).await.expect("created");
    let gateway = json!({"metadata": {"name": "shared", "namespace": "edge"}, "spec": {"gatewayClassName": "public", "listeners": [{
        "name": "https", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "tls"}]},
        "allowedRoutes": {"namespaces": {"from": "Selector", "selector": {"matchLabels": {"shop": "yes"}}}}}]}});
    create(&clusters.tenant, &GATEWAYS, "Gateway", "shared", gateway).await;
    let gateway = until("the gateway", || async { clusters.copy(&GATEWAYS, "shared").await }).await;
    let certificate = until("its certificate", || async { clusters.copy(&SECRETS, "tls").await }).await;
    assert_eq!(gateway.str_at("/spec/listeners/0/tls/certificateRefs/0/name"), Some(certificate.name()));
    let route = json!({"spec": {"parentRefs": [{"name": "shared", "namespace": "edge"}],
        "rules": [{"backendRefs": [{"name": "web", "port": 80}, {"name": "db", "namespace": "edge", "port": 80}]}]}});
    create(&clusters.tenant, &HTTP_ROUTES, "HTTPRoute", "shop", route).await;
    let route_with = async |what: &str, pointer: &str, value: Value| {
        until(what, || async { clusters.copy(&HTTP_ROUTES, "shop").await.filter(|r| r.pointer(pointer).unwrap_or(&Value::Null) == &value) })
            .await
    };
    route_with("nobody to let it in", "/spec/parentRefs", Value::Null).await;
    let shut_out = || async {
        let route = clusters.tenant.get(&HTTP_ROUTES, "prod", "shop").await.expect("there");
        (route.str_at("/status/parents/0/conditions/0/reason") == Some("NotAllowedByListeners")).then_some(())
    };
    until("to be told", shut_out).await;
    clusters.tenant.merge_patch(&NAMESPACES, "", "prod", json!({"metadata": {"labels": {"shop": "yes"}}})).await.expect("labelled");
    let attached = route_with("to be let in", "/spec/parentRefs", json!([{"name": gateway.name()}])).await;
    // What nobody granted leads nowhere, until somebody does.
    let ungranted = attached.str_at("/spec/rules/0/backendRefs/1/name").expect("a name").to_string();
    let grant = json!({"metadata": {"name": "shops", "namespace": "edge"}, "spec": {
        "from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "prod"}], "to": [{"group": "", "kind": "Service"}]}});
    create(&clusters.tenant, &REFERENCE_GRANTS, "ReferenceGrant", "shops", grant).await;
    until("the grant to count", || async {
        let route = clusters.copy(&HTTP_ROUTES, "shop").await.expect("there");
        (route.str_at("/spec/rules/0/backendRefs/1/name") != Some(&ungranted)).then_some(())
    })
    .await;
    let status = json!({"status": {"parents": [{"parentRef": {"name": gateway.name()}, "controllerName": "example.com/gw",
        "conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}]}});
    clusters.host.patch_status(&HTTP_ROUTES, HOST_NAMESPACE, attached.name(), status).await.expect("reports");
    let accepted = || async {
        let route = clusters.tenant.get(&HTTP_ROUTES, "prod", "shop").await.expect("there");
        (route.str_at("/status/parents/0/controllerName") == Some("example.com/gw")).then_some(route)
    };
    let accepted = until("the host's word", accepted).await;
    assert_eq!(accepted.pointer("/status/parents/0/parentRef"), Some(&json!({"name": "shared", "namespace": "edge"})));
    running.stop().await;
}
