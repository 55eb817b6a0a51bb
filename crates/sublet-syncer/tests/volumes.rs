//! Claims and their volumes, between two whole API servers. The host's binder is the test.

mod support;

use serde_json::{Value, json};
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{EVENTS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES};
use sublet_runtime::{DeleteOptions, ListOptions, Patch, PatchOptions};
use support::clusters::{Clusters, HOST_NAMESPACE, Running, until};

async fn start() -> (Clusters, Running) {
    let clusters = Clusters::start().await;
    clusters.add_namespace(&clusters.tenant, "prod").await;
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "disk"}, "provisioner": "example.com/disk",
        "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true});
    clusters.host.create(&STORAGE_CLASSES, &class).await.expect("created");
    let running = clusters.sync("alpha", &clusters.tenant).await;
    until("the class", || async { clusters.tenant.get_opt(&STORAGE_CLASSES, "", "disk").await.expect("reads") }).await;
    (clusters, running)
}

fn claim(name: &str, spec: Value) -> Value {
    let mut claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "prod"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "disk", "resources": {"requests": {"storage": "1Gi"}}}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        claim["spec"][field] = value.clone();
    }
    claim
}

async fn created_copy(clusters: &Clusters, claim: Value) -> Value {
    clusters.tenant.create(&PERSISTENT_VOLUME_CLAIMS, &claim).await.expect("created");
    until("the copy", || async { clusters.copy(&PERSISTENT_VOLUME_CLAIMS, claim.name()).await }).await
}

/// A volume as the host's provisioner and binder make it for a claim.
async fn bind(clusters: &Clusters, copy: &Value, volume: &str) {
    let object = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "disk", "persistentVolumeReclaimPolicy": "Delete",
        "csi": {"driver": "example.com", "volumeHandle": volume},
        "claimRef": {"kind": "PersistentVolumeClaim", "namespace": copy.namespace(), "name": copy.name(), "uid": copy.uid()}}});
    clusters.host.create(&PERSISTENT_VOLUMES, &object).await.expect("created");
    phase(clusters, volume, "Bound").await;
    let bound = json!({"spec": {"volumeName": volume}});
    clusters.host.merge_patch(&PERSISTENT_VOLUME_CLAIMS, HOST_NAMESPACE, copy.name(), bound).await.expect("bound");
    let status = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}});
    clusters.host.patch_status(&PERSISTENT_VOLUME_CLAIMS, HOST_NAMESPACE, copy.name(), status).await.expect("reports");
}

async fn phase(clusters: &Clusters, volume: &str, phase: &str) {
    clusters.host.patch_status(&PERSISTENT_VOLUMES, "", volume, json!({"status": {"phase": phase}})).await.expect("reports");
}

/// The tenant's volume once it looks right.
async fn shown_with(clusters: &Clusters, volume: &str, pointer: &str, value: Value) -> Value {
    let found = || async {
        let found = clusters.tenant.get_opt(&PERSISTENT_VOLUMES, "", volume).await.expect("reads")?;
        (found.pointer(pointer).unwrap_or(&Value::Null) == &value).then_some(found)
    };
    until(pointer, found).await
}

async fn host_with(clusters: &Clusters, volume: &str, pointer: &str, value: Value) -> Value {
    let found = || async {
        let found = clusters.host.get(&PERSISTENT_VOLUMES, "", volume).await.expect("there");
        (found.pointer(pointer).unwrap_or(&Value::Null) == &value).then_some(found)
    };
    until(pointer, found).await
}

async fn phase_of(clusters: &Clusters, name: &str) -> Option<String> {
    let claim = clusters.tenant.get_opt(&PERSISTENT_VOLUME_CLAIMS, "prod", name).await.expect("reads")?;
    claim.str_at("/status/phase").map(str::to_string)
}

/// Claims were said to be bound while the host's were pending or lost. [cluster-api-provider-nested PR 351; k3k 450, 574, PR 786]
#[tokio::test(flavor = "multi_thread")]
async fn the_phase_of_a_claim_is_the_hosts() {
    let (clusters, running) = start().await;
    let copy = created_copy(&clusters, claim("data", json!({"volumeMode": "Block"}))).await;
    assert_eq!((copy.str_at("/spec/volumeMode"), copy.str_at("/spec/storageClassName")), (Some("Block"), Some("disk")));
    // It waits for its first consumer.
    assert_eq!(phase_of(&clusters, "data").await.as_deref(), Some("Pending"));
    bind(&clusters, &copy, "pv-1").await;
    until("bound", || async { (phase_of(&clusters, "data").await? == "Bound").then_some(()) }).await;
    let shown = shown_with(&clusters, "pv-1", "/spec/claimRef/name", json!("data")).await;
    assert_eq!((shown.str_at("/spec/claimRef/namespace"), shown.str_at("/status/phase")), (Some("prod"), Some("Bound")));
    let lost = json!({"status": {"phase": "Lost"}});
    clusters.host.patch_status(&PERSISTENT_VOLUME_CLAIMS, HOST_NAMESPACE, copy.name(), lost).await.expect("reports");
    until("lost", || async { (phase_of(&clusters, "data").await? == "Lost").then_some(()) }).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_grows_on_the_host_and_is_told_how_far() {
    let (clusters, running) = start().await;
    let copy = created_copy(&clusters, claim("data", json!({}))).await;
    bind(&clusters, &copy, "pv-1").await;
    until("bound", || async { (phase_of(&clusters, "data").await? == "Bound").then_some(()) }).await;
    let grown = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    clusters.tenant.merge_patch(&PERSISTENT_VOLUME_CLAIMS, "prod", "data", grown).await.expect("grows");
    let asked = || async {
        let copy = clusters.copy(&PERSISTENT_VOLUME_CLAIMS, "data").await?;
        (copy.pointer("/spec/resources/requests/storage") == Some(&json!("2Gi"))).then_some(())
    };
    until("the wish", asked).await;
    let condition = json!({"type": "FileSystemResizePending", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({"status": {"capacity": {"storage": "2Gi"}, "conditions": [condition]}});
    clusters.host.patch_status(&PERSISTENT_VOLUME_CLAIMS, HOST_NAMESPACE, copy.name(), status).await.expect("reports");
    let told = || async {
        let claim = clusters.tenant.get(&PERSISTENT_VOLUME_CLAIMS, "prod", "data").await.expect("there");
        (claim.pointer("/status/capacity/storage") == Some(&json!("2Gi")) && claim.condition("FileSystemResizePending").is_some())
            .then_some(())
    };
    until("the size", told).await;
    running.stop().await;
}

/// The tenant's change was ignored, and the disk was deleted or stayed for ever. [vcluster 600]
#[tokio::test(flavor = "multi_thread")]
async fn a_reclaim_policy_is_what_was_last_said_on_either_side() {
    let (clusters, running) = start().await;
    let copy = created_copy(&clusters, claim("data", json!({}))).await;
    bind(&clusters, &copy, "pv-1").await;
    let pointer = "/spec/persistentVolumeReclaimPolicy";
    shown_with(&clusters, "pv-1", pointer, json!("Delete")).await;
    let policy = |policy: &str| json!({"spec": {"persistentVolumeReclaimPolicy": policy}});
    clusters.tenant.merge_patch(&PERSISTENT_VOLUMES, "", "pv-1", policy("Retain")).await.expect("changed");
    host_with(&clusters, "pv-1", pointer, json!("Retain")).await;
    shown_with(&clusters, "pv-1", "/metadata/annotations/sublet.dev~1agreed", json!("Retain")).await;
    clusters.host.merge_patch(&PERSISTENT_VOLUMES, "", "pv-1", policy("Delete")).await.expect("changed");
    shown_with(&clusters, "pv-1", pointer, json!("Delete")).await;
    assert_eq!(running.syncer.patrol().await, []);
    running.stop().await;
}

/// Whatever the tenant did, the old claim came back, so the volume could not be used again. [vcluster 1464]
#[tokio::test(flavor = "multi_thread")]
async fn a_released_volume_is_for_the_tenants_next_claim_and_for_nobody_else() {
    let (clusters, running) = start().await;
    let copy = created_copy(&clusters, claim("data", json!({}))).await;
    bind(&clusters, &copy, "pv-1").await;
    let first = shown_with(&clusters, "pv-1", "/spec/claimRef/name", json!("data")).await;
    clusters
        .tenant
        .merge_patch(&PERSISTENT_VOLUMES, "", "pv-1", json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}))
        .await
        .expect("kept");
    host_with(&clusters, "pv-1", "/spec/persistentVolumeReclaimPolicy", json!("Retain")).await;
    clusters.tenant.delete(&PERSISTENT_VOLUME_CLAIMS, "prod", "data", &DeleteOptions::default()).await.expect("deleted");
    until("no copy", || async { clusters.copy(&PERSISTENT_VOLUME_CLAIMS, "data").await.is_none().then_some(()) }).await;
    phase(&clusters, "pv-1", "Released").await;
    let released = shown_with(&clusters, "pv-1", "/status/phase", json!("Released")).await;
    assert_eq!(released["spec"]["claimRef"], first["spec"]["claimRef"]);
    // As everybody does it.
    let clear = Patch::Json(json!([{"op": "remove", "path": "/spec/claimRef"}]));
    clusters.tenant.patch(&PERSISTENT_VOLUMES, "", "pv-1", "", &clear, &PatchOptions::default()).await.expect("cleared");
    let reserved = host_with(&clusters, "pv-1", "/spec/claimRef/uid", Value::Null).await;
    let kept_for = reserved.str_at("/spec/claimRef/name").expect("never for nobody").to_string();
    assert_eq!(reserved.str_at("/spec/claimRef/namespace"), Some(HOST_NAMESPACE));
    assert_ne!(kept_for, copy.name());
    phase(&clusters, "pv-1", "Available").await;
    let free = shown_with(&clusters, "pv-1", "/status/phase", json!("Available")).await;
    assert!(free["spec"]["claimRef"].is_null());
    let next = created_copy(&clusters, claim("next", json!({"volumeName": "pv-1"}))).await;
    host_with(&clusters, "pv-1", "/spec/claimRef/name", json!(next.name())).await;
    running.stop().await;
}

/// Another habit: only the UID is taken out, and a claim of the same name made anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_the_same_name_gets_its_volume_back() {
    let (clusters, running) = start().await;
    let copy = created_copy(&clusters, claim("data", json!({}))).await;
    bind(&clusters, &copy, "pv-1").await;
    shown_with(&clusters, "pv-1", "/spec/claimRef/name", json!("data")).await;
    clusters.tenant.delete(&PERSISTENT_VOLUME_CLAIMS, "prod", "data", &DeleteOptions::default()).await.expect("deleted");
    until("no copy", || async { clusters.copy(&PERSISTENT_VOLUME_CLAIMS, "data").await.is_none().then_some(()) }).await;
    phase(&clusters, "pv-1", "Released").await;
    shown_with(&clusters, "pv-1", "/status/phase", json!("Released")).await;
    let unbind = Patch::Json(json!([{"op": "remove", "path": "/spec/claimRef/uid"}]));
    clusters.tenant.patch(&PERSISTENT_VOLUMES, "", "pv-1", "", &unbind, &PatchOptions::default()).await.expect("changed");
    let free = host_with(&clusters, "pv-1", "/spec/claimRef/uid", Value::Null).await;
    assert_eq!(free.str_at("/spec/claimRef/name"), Some(copy.name()));
    running.stop().await;
}

/// Marks in a tenant are the tenant's to write: they open no view of, and no way to, another's volume.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_of_another_namespace_is_neither_shown_nor_changed() {
    let (clusters, running) = start().await;
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv-x"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": {"driver": "example.com", "volumeHandle": "secret"},
        "claimRef": {"namespace": "team-b", "name": "theirs", "uid": "1-2"}}});
    let theirs = clusters.host.create(&PERSISTENT_VOLUMES, &volume).await.expect("created");
    let mut forged = volume.clone();
    forged["spec"] = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": {"driver": "none", "volumeHandle": "none"},
        "persistentVolumeReclaimPolicy": "Delete"});
    forged.set_label("sublet.dev/managed-by", "sublet");
    forged.set_annotation("sublet.dev/uid", theirs.uid());
    forged.set_annotation("sublet.dev/agreed", "Retain");
    clusters.tenant.create(&PERSISTENT_VOLUMES, &forged).await.expect("created");
    let gone = || async { clusters.tenant.get_opt(&PERSISTENT_VOLUMES, "", "pv-x").await.expect("reads").is_none().then_some(()) };
    until("the forgery to go", gone).await;
    let after = clusters.host.get(&PERSISTENT_VOLUMES, "", "pv-x").await.expect("there");
    assert_eq!(after["spec"], theirs["spec"]);
    running.stop().await;
}

/// A host that lets nobody change volumes says so to the tenant, which sees what is true.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_the_host_does_not_take_is_undone_and_told() {
    let (clusters, running) = start().await;
    let copy = created_copy(&clusters, claim("data", json!({}))).await;
    bind(&clusters, &copy, "pv-1").await;
    let pointer = "/spec/persistentVolumeReclaimPolicy";
    shown_with(&clusters, "pv-1", pointer, json!("Delete")).await;
    clusters.refuses_volume_edits.store(true, std::sync::atomic::Ordering::Relaxed);
    let policy = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
    clusters.tenant.merge_patch(&PERSISTENT_VOLUMES, "", "pv-1", policy).await.expect("changed");
    let told = || async {
        let events = clusters.tenant.list(&EVENTS, "", &ListOptions::default()).await.expect("lists").items;
        events.into_iter().find(|e| e["reason"] == "HostRefused" && e["message"].as_str().is_some_and(|m| m.contains("volume-edits")))
    };
    until("to be told", told).await;
    shown_with(&clusters, "pv-1", pointer, json!("Delete")).await;
    running.stop().await;
}
