//! Hosts that add to what is written there, and hosts of another version than the tenant's. The host's
//! webhooks and versions are plugins of its API server.

mod support;

use serde_json::{Value, json};
use std::sync::Arc;
use sublet_apiserver::admission::{Attributes, Operation, Plugin};
use sublet_apiserver::reader::Writer;
use sublet_machinery::{ApiError, ObjectExt};
use sublet_runtime::resources::{NODES, PODS, SERVICES};
use sublet_runtime::{Patch, PatchOptions};
use support::clusters::{Clusters, HOST_NAMESPACE, Running, until};

/// Changes what is written to the host.
struct Host {
    resource: &'static str,
    change: fn(&mut Value, Operation, &str),
}

#[async_trait::async_trait]
impl Plugin for Host {
    fn name(&self) -> &'static str {
        "Host"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update) && attributes.resource.plural == self.resource
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>, _: &Arc<dyn Writer>) -> Result<(), ApiError> {
        let (operation, subresource) = (attributes.operation, attributes.subresource);
        if let Some(object) = attributes.object.as_mut() {
            (self.change)(object, operation, subresource);
        }
        Ok(())
    }
}

async fn start(resource: &'static str, change: fn(&mut Value, Operation, &str)) -> (Clusters, Running) {
    let clusters = Clusters::start_with(vec![Box::new(Host { resource, change })]).await;
    clusters.add_namespace(&clusters.tenant, "prod").await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}});
    clusters.host.create(&NODES, &node).await.expect("created");
    let room = json!({"cpu": "8", "memory": "8Gi", "pods": "99"});
    clusters.host.patch_status(&NODES, "", "node-1", json!({"status": {"capacity": room, "allocatable": room}})).await.expect("reports");
    let running = clusters.sync("alpha", &clusters.tenant).await;
    (clusters, running)
}

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "prod"}, "spec": {
        "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "nginx:1", "resources": {"requests": {"cpu": "1"}}}]}})
}

/// Nothing is out of step, and nobody writes any more.
async fn quiet(clusters: &Clusters, running: &Running) {
    let rest = || async {
        let before = clusters.revisions();
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        (running.syncer.backlog() == 0 && running.syncer.patrol().await.is_empty() && clusters.revisions() == before).then_some(())
    };
    until("rest", rest).await;
    let before = clusters.revisions();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(running.syncer.patrol().await, []);
    assert_eq!(clusters.revisions(), before, "somebody writes");
}

/// As a service mesh, a policy engine and a newer host would do it.
fn inject(pod: &mut Value, operation: Operation, subresource: &str) {
    if operation != Operation::Create || !subresource.is_empty() {
        return;
    }
    pod.set_label("mesh.example.com/injected", "yes");
    pod.set_annotation("mesh.example.com/status", "{}");
    let spec = &mut pod["spec"];
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        if !container["env"].is_array() {
            container["env"] = json!([]);
        }
        container["env"].as_array_mut().expect("a list").push(json!({"name": "MESH", "value": "on"}));
    }
    let proxy = |name: &str| json!({"name": name, "image": "proxy:1", "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "Always"});
    spec["containers"].as_array_mut().expect("a list").insert(0, proxy("proxy"));
    spec["initContainers"] = json!([proxy("proxy-init")]);
    let tolerations = json!([{"key": "mesh", "operator": "Exists", "effect": "NoSchedule"}]);
    match spec["tolerations"].as_array_mut() {
        Some(list) => list.extend(tolerations.as_array().expect("a list").iter().cloned()),
        None => spec["tolerations"] = tolerations,
    }
}

/// Mutating admission on the host broke the sync of pods. [vcluster 394, 2726]
#[tokio::test(flavor = "multi_thread")]
async fn what_host_webhooks_add_is_neither_fought_nor_shown() {
    let (clusters, running) = start("pods", inject).await;
    clusters.tenant.create(&PODS, &pod()).await.expect("created");
    let copy = until("the copy", || async { clusters.copy(&PODS, "web").await }).await;
    assert_eq!((copy.array_at("/spec/containers").len(), copy.array_at("/spec/initContainers").len()), (2, 1));
    clusters.run_pod(&copy, "node-1").await;
    let state = |name: &str| json!({"name": name, "image": "i", "imageID": "", "ready": true, "restartCount": 0, "resources": {"requests": {"cpu": "1"}}, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}});
    let status = json!({"status": {"containerStatuses": [state("proxy"), state("c")], "initContainerStatuses": [state("proxy-init")]}});
    clusters.host.patch_status(&PODS, HOST_NAMESPACE, copy.name(), status).await.expect("reports");
    let told = || async {
        Some(clusters.tenant.get(&PODS, "prod", "web").await.expect("there"))
            .filter(|p| !p.array_at("/status/containerStatuses").is_empty())
    };
    let told = until("the status", told).await;
    let names: Vec<&str> = told.array_at("/status/containerStatuses").iter().filter_map(|s| s["name"].as_str()).collect();
    assert_eq!(names, ["c"]);
    assert!(told.array_at("/status/initContainerStatuses").is_empty());
    assert!(told.label("mesh.example.com/injected").is_none() && told.array_at("/spec/containers").len() == 1);
    quiet(&clusters, &running).await;
    // The tenant goes on with its pod as if nothing had been added.
    let debug = Patch::Strategic(json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox"}]}}));
    clusters.tenant.patch(&PODS, "prod", "web", "ephemeralcontainers", &debug, &PatchOptions::default()).await.expect("added");
    let bigger = Patch::Strategic(json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}));
    clusters.tenant.patch(&PODS, "prod", "web", "resize", &bigger, &PatchOptions::default()).await.expect("resized");
    clusters.tenant.merge_patch(&PODS, "prod", "web", json!({"metadata": {"labels": {"own": "yes"}}})).await.expect("labelled");
    let followed = || async {
        let copy = clusters.copy(&PODS, "web").await?;
        let own = copy.array_at("/spec/containers").iter().find(|c| c["name"] == "c")?;
        let all = own["resources"]["requests"]["cpu"] == "2"
            && copy.array_at("/spec/ephemeralContainers").len() == 1
            && copy.label("own").is_some();
        all.then(|| copy.clone())
    };
    let copy = until("the changes", followed).await;
    assert_eq!((copy.array_at("/spec/containers").len(), copy.label("mesh.example.com/injected")), (2, Some("yes")));
    quiet(&clusters, &running).await;
    running.stop().await;
}

fn rewrite(pod: &mut Value, _: Operation, subresource: &str) {
    if !subresource.is_empty() {
        return;
    }
    for container in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
        let image = container["image"].as_str().unwrap_or_default();
        if !image.starts_with("mirror.example.com/") {
            container["image"] = json!(format!("mirror.example.com/{image}"));
        }
    }
}

/// Syncer and webhook took turns. [vcluster 394]
#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_the_host_rewrites_is_left_to_it() {
    let (clusters, running) = start("pods", rewrite).await;
    clusters.tenant.create(&PODS, &pod()).await.expect("created");
    until("the copy", || async { clusters.copy(&PODS, "web").await }).await;
    quiet(&clusters, &running).await;
    let image = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "nginx:2"}]);
    clusters.tenant.patch(&PODS, "prod", "web", "", &Patch::Json(image), &PatchOptions::default()).await.expect("changed");
    until("the image", || async {
        let copy = clusters.copy(&PODS, "web").await?;
        (copy.str_at("/spec/containers/0/image") == Some("mirror.example.com/nginx:2")).then_some(())
    })
    .await;
    quiet(&clusters, &running).await;
    running.stop().await;
}

/// A host that does not know a field: it is in none of its objects, and in nobody's ownership.
fn forget(service: &mut Value, _: Operation, _: &str) {
    service.remove_at("/spec/trafficDistribution");
    for entry in service["metadata"]["managedFields"].as_array_mut().into_iter().flatten() {
        entry.remove_at("/fieldsV1/f:spec/f:trafficDistribution");
    }
}

/// Every look at the object was another write. [k3k 974]
#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_an_older_host_drops_is_not_written_for_ever() {
    let (clusters, running) = start("services", forget).await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "prod"},
        "spec": {"clusterIP": "None", "trafficDistribution": "PreferSameZone", "selector": {"app": "web"}, "ports": [{"port": 80}]}});
    clusters.tenant.create(&SERVICES, &service).await.expect("created");
    until("the copy", || async { clusters.copy(&SERVICES, "web").await }).await;
    quiet(&clusters, &running).await;
    // All else of the object is still looked after.
    clusters.tenant.merge_patch(&SERVICES, "prod", "web", json!({"spec": {"selector": {"app": "other"}}})).await.expect("changed");
    let with = async |app: &str| {
        until(app, || async { clusters.copy(&SERVICES, "web").await.filter(|c| c.str_at("/spec/selector/app") == Some(app)) }).await
    };
    let copy = with("other").await;
    quiet(&clusters, &running).await;
    let meddled = json!({"spec": {"selector": {"app": "meddled"}}});
    clusters.host.merge_patch(&SERVICES, HOST_NAMESPACE, copy.name(), meddled).await.expect("changed");
    with("other").await;
    running.stop().await;
}

/// A kubelet of a later version says more than the tenant's API server can keep.
fn say_more(pod: &mut Value, _: Operation, subresource: &str) {
    if subresource == "status" {
        pod["status"]["comesLater"] = json!({"since": "1.99"});
        for container in pod["status"]["containerStatuses"].as_array_mut().into_iter().flatten() {
            container["comesLater"] = json!("x");
        }
    }
}

/// Pods were not ready for ever: the comparison never came to rest. [vcluster 3578]
#[tokio::test(flavor = "multi_thread")]
async fn what_a_newer_host_says_is_kept_as_far_as_the_tenant_knows_it() {
    let (clusters, running) = start("pods", say_more).await;
    clusters.tenant.create(&PODS, &pod()).await.expect("created");
    let copy = until("the copy", || async { clusters.copy(&PODS, "web").await }).await;
    clusters.run_pod(&copy, "node-1").await;
    let state = json!({"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0});
    clusters
        .host
        .patch_status(&PODS, HOST_NAMESPACE, copy.name(), json!({"status": {"containerStatuses": [state]}}))
        .await
        .expect("reports");
    let ready = || async {
        let pod = clusters.tenant.get(&PODS, "prod", "web").await.expect("there");
        (pod.is_condition_true("Ready") && pod.pointer("/status/containerStatuses/0/ready") == Some(&json!(true))).then_some(pod)
    };
    let pod = until("the status", ready).await;
    assert!(clusters.copy(&PODS, "web").await.expect("there")["status"]["comesLater"].is_object(), "the host says more");
    assert!(pod["status"]["comesLater"].is_null());
    quiet(&clusters, &running).await;
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "True"}]}});
    clusters.host.patch_status(&PODS, HOST_NAMESPACE, copy.name(), status).await.expect("reports");
    until("more news", || async {
        (!clusters.tenant.get(&PODS, "prod", "web").await.expect("there").is_condition_true("Ready")).then_some(())
    })
    .await;
    quiet(&clusters, &running).await;
    running.stop().await;
}
