//! What admission makes of objects, and how it refuses them.

use super::{deployment, pod};
use crate::harness::{Request, Transcript};
use serde_json::{Value, json};

fn with(mut pod: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    pod.pointer_mut(parent).unwrap()[key] = value;
    pod
}

#[tokio::test]
async fn accounts_and_classes() {
    let mut t = Transcript::start("accounts_and_classes");
    t.namespace("accounts").await;
    let pods = "/api/v1/namespaces/accounts/pods";
    t.note("Without the default account, or with one that is not there");
    t.post(pods, pod("early")).await;
    t.post(pods, with(pod("early"), "/spec/serviceAccountName", json!("absent"))).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}},
        "imagePullSecrets": [{"name": "pull"}], "automountServiceAccountToken": false});
    t.given("/api/v1/namespaces/accounts/serviceaccounts", account).await;
    let mut plain = pod("plain");
    plain["spec"].as_object_mut().unwrap().remove("automountServiceAccountToken");
    t.send_for(
        Request::post(pods, &plain),
        &["/spec/serviceAccountName", "/spec/imagePullSecrets", "/spec/volumes", "/spec/automountServiceAccountToken"],
    )
    .await;
    t.note("Classes");
    t.post(pods, with(pod("p"), "/spec/priorityClassName", json!("absent"))).await;
    t.post(pods, with(pod("p"), "/spec/runtimeClassName", json!("absent"))).await;
    let priority = ["/spec/priority", "/spec/priorityClassName", "/spec/preemptionPolicy"];
    t.send_for(Request::post(pods, &with(pod("critical"), "/spec/priorityClassName", json!("system-cluster-critical"))), &priority).await;
    t.send_for(Request::post(pods, &with(pod("number"), "/spec/priority", json!(5))), &priority).await;
    t.note("Mirror pods are for nodes");
    t.post(pods, with(pod("mirror"), "/metadata/annotations", json!({"kubernetes.io/config.mirror": "x"}))).await;
    t.finish();
}

#[tokio::test]
async fn limits() {
    let mut t = Transcript::start("limits");
    t.namespace_for_pods("limits").await;
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "range"}, "spec": {"limits": [
        {"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "100m"}, "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "200m"}, "maxLimitRequestRatio": {"cpu": "4"}},
        {"type": "Pod", "max": {"cpu": "1500m"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]}});
    t.given("/api/v1/namespaces/limits/limitranges", range).await;
    let pods = "/api/v1/namespaces/limits/pods";
    let resources = |resources: Value| with(pod("p"), "/spec/containers/0/resources", resources);
    t.send_for(Request::post(format!("{pods}?dryRun=All"), &pod("p")), &["/spec/containers/0/resources", "/metadata/annotations"]).await;
    t.post(pods, resources(json!({"limits": {"cpu": "2"}}))).await;
    t.post(pods, resources(json!({"requests": {"cpu": "50m"}, "limits": {"cpu": "60m"}}))).await;
    t.post(pods, resources(json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}}))).await;
    let mut two = resources(json!({"requests": {"cpu": "900m"}, "limits": {"cpu": "1"}}));
    let second = json!({"name": "second", "image": "x", "resources": {"limits": {"cpu": "900m"}}});
    two["spec"]["containers"].as_array_mut().unwrap().push(second);
    t.post(pods, two).await;
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}});
    t.post("/api/v1/namespaces/limits/persistentvolumeclaims", claim).await;
    t.finish();
}

#[tokio::test]
async fn quotas() {
    let mut t = Transcript::start("quotas");
    t.namespace_for_pods("quotas").await;
    let quotas = "/api/v1/namespaces/quotas/resourcequotas";
    let hard = json!({"pods": "1", "requests.cpu": "1", "count/deployments.apps": "1", "services.nodeports": "0"});
    t.given(quotas, json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}})).await;
    let pods = "/api/v1/namespaces/quotas/pods";
    t.note("Before anybody counted");
    t.post(pods, pod("early")).await;
    let used = json!({"status": {"hard": hard, "used": {"pods": "0", "requests.cpu": "0", "count/deployments.apps": "0", "services.nodeports": "0"}}});
    t.client.send(&Request::patch("merge", format!("{quotas}/q/status"), &used)).await;
    t.note("Requests must be told");
    t.post(pods, pod("silent")).await;
    let asking = |name: &str, cpu: &str| with(pod(name), "/spec/containers/0/resources", json!({"requests": {"cpu": cpu}}));
    t.post(pods, asking("greedy", "2")).await;
    t.send_for(Request::post(pods, &asking("first", "500m")), &["/metadata/name"]).await;
    t.send_for(Request::get(format!("{quotas}/q")), &["/status"]).await;
    t.post(pods, asking("second", "100m")).await;
    let deployments = "/apis/apps/v1/namespaces/quotas/deployments";
    t.send_for(Request::post(deployments, &deployment("one", 1)), &["/metadata/name"]).await;
    t.post(deployments, deployment("two", 1)).await;
    let service =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    t.post("/api/v1/namespaces/quotas/services", service).await;
    t.finish();
}

#[tokio::test]
async fn pod_security() {
    let mut t = Transcript::start("pod_security");
    for level in ["baseline", "restricted"] {
        let labels = json!({"pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/warn": "restricted"});
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("security-{level}"), "labels": labels}});
        t.given("/api/v1/namespaces", namespace).await;
        let accounts = format!("/api/v1/namespaces/security-{level}/serviceaccounts");
        t.given(&accounts, json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})).await;
        let pods = &format!("/api/v1/namespaces/security-{level}/pods");
        t.send_for(Request::post(pods, &pod("plain")), &["/metadata/name"]).await;
        t.send_for(Request::post(pods, &with(pod("host"), "/spec/hostNetwork", json!(true))), &["/metadata/name"]).await;
        let privileged = with(
            pod("privileged"),
            "/spec/containers/0/securityContext",
            json!({"privileged": true, "capabilities": {"add": ["SYS_ADMIN"]}}),
        );
        t.send_for(Request::post(pods, &privileged), &["/metadata/name"]).await;
        let volume = with(pod("volume"), "/spec/volumes", json!([{"name": "v", "hostPath": {"path": "/"}}]));
        t.send_for(Request::post(pods, &volume), &["/metadata/name"]).await;
        let mut safe =
            with(pod("safe"), "/spec/securityContext", json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}));
        safe["spec"]["containers"][0]["securityContext"] = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
        t.send_for(Request::post(pods, &safe), &["/metadata/name"]).await;
        t.note("Templates are warned about");
        let deployments = format!("/apis/apps/v1/namespaces/security-{level}/deployments");
        t.send_for(Request::post(deployments, &deployment("web", 1)), &["/metadata/name"]).await;
    }
    t.note("Labels that mean nothing");
    let labels = json!({"pod-security.kubernetes.io/enforce": "tight", "pod-security.kubernetes.io/enforce-version": "v9"});
    t.post(
        "/api/v1/namespaces",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "security-unknown", "labels": labels}}),
    )
    .await;
    t.finish();
}

#[tokio::test]
async fn updates() {
    let mut t = Transcript::start("updates");
    t.namespace_for_pods("updates").await;
    let pods = "/api/v1/namespaces/updates/pods";
    t.mask.pattern(r"(?s)\n.*", "");
    t.given(pods, pod("p")).await;
    t.send_for(Request::patch("merge", format!("{pods}/p"), &json!({"spec": {"nodeName": "n"}})), &[]).await;
    t.send_for(
        Request::patch("merge", format!("{pods}/p"), &json!({"spec": {"tolerations": [{"operator": "Exists"}]}})),
        &["/spec/tolerations"],
    )
    .await;
    t.send_for(
        Request::patch("merge", format!("{pods}/p"), &json!({"spec": {"activeDeadlineSeconds": 60}})),
        &["/spec/activeDeadlineSeconds"],
    )
    .await;
    t.send_for(Request::patch("merge", format!("{pods}/p"), &json!({"spec": {"containers": []}})), &[]).await;
    t.note("Claims");
    let claims = "/api/v1/namespaces/updates/persistentvolumeclaims";
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {"storageClassName": "x", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}});
    t.given(claims, claim).await;
    t.send_for(Request::patch("merge", format!("{claims}/c"), &json!({"spec": {"resources": {"requests": {"storage": "3Gi"}}}})), &[])
        .await;
    t.send_for(Request::patch("merge", format!("{claims}/c"), &json!({"spec": {"accessModes": ["ReadWriteMany"]}})), &[]).await;
    t.note("Services");
    let services = "/api/v1/namespaces/updates/services";
    t.given(services, json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"clusterIP": "10.96.9.9", "ports": [{"port": 80}]}})).await;
    t.send_for(Request::patch("merge", format!("{services}/s"), &json!({"spec": {"clusterIP": "10.96.9.10"}})), &[]).await;
    t.send_for(Request::patch("merge", format!("{services}/s"), &json!({"spec": {"clusterIP": null}})), &["/spec/clusterIP"]).await;
    t.send_for(Request::patch("merge", format!("{services}/s"), &json!({"spec": {"ports": [{"port": 80}, {"port": 81}]}})), &[]).await;
    let external = json!({"spec": {"type": "ExternalName", "externalName": "example.com"}});
    t.send_for(Request::patch("merge", format!("{services}/s"), &external), &["/spec/type", "/spec/clusterIP", "/spec/clusterIPs"]).await;
    t.note("Secrets, jobs, sets");
    let secrets = "/api/v1/namespaces/updates/secrets";
    t.given(secrets, json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "type": "Opaque", "immutable": true})).await;
    t.send_for(Request::patch("merge", format!("{secrets}/s"), &json!({"data": {"a": "YQ=="}})), &[]).await;
    t.send_for(Request::patch("merge", format!("{secrets}/s"), &json!({"type": "other", "immutable": false})), &[]).await;
    t.post(secrets, json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls"}, "type": "kubernetes.io/tls"})).await;
    let template =
        json!({"metadata": {"labels": {"app": "x"}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}});
    let jobs = "/apis/batch/v1/namespaces/updates/jobs";
    t.given(jobs, json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}})).await;
    t.send_for(Request::patch("merge", format!("{jobs}/j"), &json!({"spec": {"completions": 2}})), &[]).await;
    t.send_for(Request::patch("merge", format!("{jobs}/j"), &json!({"spec": {"parallelism": 2}})), &["/spec/parallelism"]).await;
    let mut always = template.clone();
    always["spec"]["restartPolicy"] = json!("Always");
    let sets = "/apis/apps/v1/namespaces/updates/statefulsets";
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}, "spec": {"serviceName": "s", "selector": {"matchLabels": {"app": "x"}}, "template": always}});
    t.given(sets, set).await;
    t.send_for(Request::patch("merge", format!("{sets}/s"), &json!({"spec": {"serviceName": "other"}})), &[]).await;
    t.send_for(Request::patch("merge", format!("{sets}/s"), &json!({"spec": {"podManagementPolicy": "Parallel", "replicas": 4}})), &[])
        .await;
    t.finish();
}
