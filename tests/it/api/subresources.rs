//! Status, scale, binding, eviction and other subresources.

use super::{config_map, deployment, pod};
use crate::harness::{Request, Transcript};
use serde_json::json;

#[tokio::test]
async fn status() {
    let mut t = Transcript::start("status");
    t.namespace("status").await;
    let deployments = "/apis/apps/v1/namespaces/status/deployments";
    let web = &format!("{deployments}/web");
    let created = t.given(deployments, deployment("web", 2)).await.json();
    let shown = ["/spec/replicas", "/status", "/metadata/generation", "/metadata/labels", "/metadata/annotations"];
    let mut both = created.clone();
    both["spec"]["replicas"] = json!(9);
    both["status"]["replicas"] = json!(2);
    both["metadata"]["labels"] = json!({"x": "y"});
    both["metadata"]["annotations"] = json!({"x": "y"});
    t.send_for(Request::put(format!("{web}/status"), &both), &shown).await;
    t.send_for(
        Request::put(web.as_str(), &{
            let mut both = both.clone();
            both["metadata"].as_object_mut().unwrap().remove("resourceVersion");
            both["status"] = json!({});
            both
        }),
        &shown,
    )
    .await;
    t.send_for(Request::patch("merge", format!("{web}/status"), &json!({"status": {"readyReplicas": 1}, "spec": {"replicas": 1}})), &shown)
        .await;
    t.send_for(Request::get(format!("{web}/status")), &shown).await;
    t.note("Refused");
    t.patch("merge", &format!("{web}/status"), json!({"status": {"readyReplicas": -1}})).await;
    t.patch("merge", &format!("{web}/status"), json!({"status": {"conditions": "none"}})).await;
    t.send(Request::post(format!("{web}/status"), &both)).await;
    t.delete(&format!("{web}/status")).await;
    t.get("/api/v1/namespaces/status/configmaps/a/status").await;
    t.get(&format!("{web}/nothing")).await;
    t.get(&format!("{deployments}/absent/status")).await;
    t.finish();
}

#[tokio::test]
async fn scale() {
    let mut t = Transcript::start("scale");
    t.namespace("scale").await;
    let deployments = "/apis/apps/v1/namespaces/scale/deployments";
    let scale = &format!("{deployments}/web/scale");
    t.given(deployments, deployment("web", 2)).await;
    let live = t.get(scale).await.json();
    let mut more = live.clone();
    more["spec"]["replicas"] = json!(5);
    t.put(scale, more.clone()).await;
    t.put(scale, more).await;
    t.put(scale, json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"}, "spec": {"replicas": 3}})).await;
    t.patch("merge", scale, json!({"spec": {"replicas": 4}})).await;
    t.patch("json", scale, json!([{"op": "replace", "path": "/spec/replicas", "value": 1}])).await;
    t.patch("strategic", scale, json!({"spec": {"replicas": 6}})).await;
    t.send_for(Request::get(format!("{deployments}/web")), &["/spec/replicas", "/metadata/generation"]).await;
    t.note("Refused");
    t.patch("merge", scale, json!({"spec": {"replicas": -1}})).await;
    t.patch("merge", scale, json!({"spec": {"replicas": "many"}})).await;
    t.put(scale, json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "other"}, "spec": {"replicas": 3}})).await;
    t.put(scale, json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}})).await;
    t.put(scale, json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web", "resourceVersion": "1"}, "spec": {"replicas": 3}})).await;
    t.get(&format!("{deployments}/absent/scale")).await;
    t.patch("merge", &format!("{deployments}/absent/scale"), json!({})).await;
    t.delete(scale).await;
    t.finish();
}

#[tokio::test]
async fn binding() {
    let mut t = Transcript::start("binding");
    t.namespace_for_pods("binding").await;
    let pods = "/api/v1/namespaces/binding/pods";
    for name in ["a", "b", "gated"] {
        let mut object = pod(name);
        if name == "gated" {
            object["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
        }
        t.given(pods, object).await;
    }
    let bind = |name: &str, node: &str| json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
    t.post(&format!("{pods}/a/binding"), bind("a", "node-1")).await;
    t.send_for(Request::get(format!("{pods}/a")), &["/spec/nodeName", "/status", "/metadata/generation"]).await;
    t.post(&format!("{pods}/a/binding"), bind("a", "node-2")).await;
    t.post("/api/v1/namespaces/binding/bindings", bind("b", "node-1")).await;
    t.note("Refused");
    t.post(&format!("{pods}/gated/binding"), bind("gated", "node-1")).await;
    t.post(&format!("{pods}/absent/binding"), bind("absent", "node-1")).await;
    t.post(&format!("{pods}/gated/binding"), bind("other", "node-1")).await;
    t.refuse(Request::post(format!("{pods}/gated/binding"), &bind("gated", "")), "target.name: Required value").await;
    let mut to_mars = bind("gated", "x");
    to_mars["target"]["kind"] = json!("Mars");
    t.refuse(Request::post(format!("{pods}/gated/binding"), &to_mars), r#"target.kind: Unsupported value: "Mars""#).await;
    t.post(&format!("{pods}/gated/binding"), pod("gated")).await;
    t.get(&format!("{pods}/a/binding")).await;
    t.finish();
}

#[tokio::test]
async fn eviction() {
    let mut t = Transcript::start("eviction");
    t.namespace_for_pods("eviction").await;
    let pods = "/api/v1/namespaces/eviction/pods";
    let budgets = "/apis/policy/v1/namespaces/eviction/poddisruptionbudgets";
    for name in ["free", "a", "b"] {
        t.given(pods, pod(name)).await;
        let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        t.client.send(&Request::patch("merge", format!("{pods}/{name}/status"), &status)).await;
    }
    let evict = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    t.note("No budget");
    t.post(&format!("{pods}/free/eviction?dryRun=All"), evict("free")).await;
    t.post(&format!("{pods}/free/eviction"), evict("free")).await;
    t.get(&format!("{pods}/free")).await;
    t.note("A budget that the controller has not seen");
    t.given(budgets, json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "budget"}, "spec": {"minAvailable": 1, "selector": {}}})).await;
    t.post(&format!("{pods}/a/eviction"), evict("a")).await;
    t.note("A budget with nothing left, then one");
    let allow = |n: i64| json!({"status": {"observedGeneration": 1, "disruptionsAllowed": n, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}});
    t.client.send(&Request::patch("merge", format!("{budgets}/budget/status"), &allow(0))).await;
    t.post(&format!("{pods}/a/eviction"), evict("a")).await;
    t.client.send(&Request::patch("merge", format!("{budgets}/budget/status"), &allow(1))).await;
    t.post(&format!("{pods}/a/eviction"), evict("a")).await;
    t.post(&format!("{pods}/b/eviction"), evict("b")).await;
    t.send_for(Request::get(format!("{budgets}/budget")), &["/status/disruptionsAllowed"]).await;
    t.note("Refused");
    t.post(&format!("{pods}/absent/eviction"), evict("absent")).await;
    t.post(&format!("{pods}/b/eviction"), evict("other")).await;
    t.post(&format!("{pods}/b/eviction"), config_map("b", json!({}))).await;
    let mut wrong = evict("b");
    wrong["deleteOptions"] = json!({"preconditions": {"uid": "6f1a2b3c-0000-4000-8000-000000000000"}});
    t.client.send(&Request::patch("merge", format!("{budgets}/budget/status"), &allow(1))).await;
    t.post(&format!("{pods}/b/eviction"), wrong).await;
    t.note("A second budget");
    t.given(budgets, json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "second"}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "b"}}}})).await;
    t.post(&format!("{pods}/b/eviction"), evict("b")).await;
    t.finish();
}

#[tokio::test]
async fn pod_subresources() {
    let mut t = Transcript::start("pod_subresources");
    // What exactly differs is told in upstream's way there, by the paths of the fields here.
    t.mask.pattern(r"(?s)\n.*", "");
    t.namespace_for_pods("pod-parts").await;
    let pods = "/api/v1/namespaces/pod-parts/pods";
    let mut object = pod("p");
    object["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    t.given(pods, object).await;
    let shown = ["/spec/ephemeralContainers", "/spec/containers/0/resources", "/metadata/generation"];
    t.send_for(
        Request::patch(
            "strategic",
            format!("{pods}/p/ephemeralcontainers"),
            &json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox"}]}}),
        ),
        &shown,
    )
    .await;
    t.send_for(
        Request::patch(
            "strategic",
            format!("{pods}/p/ephemeralcontainers"),
            &json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "other"}]}}),
        ),
        &shown,
    )
    .await;
    t.send_for(
        Request::patch(
            "strategic",
            format!("{pods}/p/resize"),
            &json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "200m"}}}]}}),
        ),
        &shown,
    )
    .await;
    t.send_for(
        Request::patch(
            "strategic",
            format!("{pods}/p"),
            &json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "300m"}}}]}}),
        ),
        &[],
    )
    .await;
    t.send_for(
        Request::patch("strategic", format!("{pods}/p"), &json!({"spec": {"containers": [{"name": "main", "image": "busybox:2"}]}})),
        &["/spec/containers/0/image", "/metadata/generation"],
    )
    .await;
    t.send_for(Request::get(format!("{pods}/p/log")), &[]).await;
    t.send_for(Request::get(format!("{pods}/absent/log")), &[]).await;
    t.finish();
}
