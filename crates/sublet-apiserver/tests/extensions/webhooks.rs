//! Admission webhooks over real connections.

use crate::support::{Cluster, Webhooks, patch, reviewed};
use serde_json::{Value, json};
use std::time::Instant;

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

fn rule(operation: &str, group: &str, version: &str, resource: &str) -> Value {
    json!({"operations": [operation], "apiGroups": [group], "apiVersions": [version], "resources": [resource]})
}

fn hook(name: &str, client: Value, rule: Value) -> Value {
    json!({
        "name": format!("{name}.example.com"), "clientConfig": client, "rules": [rule],
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 2,
    })
}

async fn configure(cluster: &Cluster, kind: &str, name: &str, hooks: Value) {
    let path = format!("{REGISTRATION}/{}webhookconfigurations", kind);
    cluster.create(&path, json!({"metadata": {"name": name}, "webhooks": hooks})).await.ok();
}

#[tokio::test]
async fn a_webhook_refuses_and_says_why() {
    let cluster = Cluster::start().await;
    let hooks = Webhooks::start(|path, review| match path {
        "/deny" => reviewed(
            review,
            json!({"allowed": false, "warnings": ["hopeless"], "status": {"message": "not today", "code": 403, "reason": "Forbidden"}}),
        ),
        "/mute" => reviewed(review, json!({"allowed": false})),
        _ => reviewed(review, json!({"allowed": true, "warnings": ["careful"]})),
    })
    .await;
    let on_create = rule("CREATE", "", "v1", "configmaps");
    let mut matched = hook("deny", hooks.client("/deny"), on_create.clone());
    matched["objectSelector"] = json!({"matchLabels": {"deny": "yes"}});
    let mut conditional = hook("mute", hooks.client("/mute"), on_create.clone());
    conditional["matchConditions"] = json!([{"name": "named", "expression": "object.metadata.name.startsWith('mute')"}]);
    configure(&cluster, "validating", "a", json!([matched, conditional, hook("warn", hooks.client("/warn"), on_create)])).await;
    let made = cluster.config_map("fine", json!({"a": "b"})).await;
    assert_eq!(made.warnings, ["careful"]);
    made.ok();
    let labelled = json!({"metadata": {"name": "x", "labels": {"deny": "yes"}}});
    let refused = cluster.create("/api/v1/namespaces/default/configmaps", labelled).await;
    assert_eq!((refused.code.as_u16(), &refused.body["reason"]), (403, &json!("Forbidden")));
    assert!(refused.warnings.contains(&"hopeless".to_string()), "{:?}", refused.warnings);
    assert_eq!(refused.message(), "admission webhook \"deny.example.com\" denied the request: not today");
    let mute = cluster.config_map("mute-1", json!({})).await;
    mute.refused(400, "admission webhook \"mute.example.com\" denied the request without explanation");
    let (_, review) = hooks.asked().into_iter().find(|(path, _)| path == "/warn").expect("was asked");
    let request = &review["request"];
    assert_eq!(request["kind"], json!({"group": "", "version": "v1", "kind": "ConfigMap"}));
    assert_eq!(request["requestResource"], json!({"group": "", "version": "v1", "resource": "configmaps"}));
    assert_eq!((&request["operation"], &request["name"], &request["namespace"]), (&json!("CREATE"), &json!("fine"), &json!("default")));
    assert_eq!((&request["object"]["data"], &request["oldObject"], &request["dryRun"]), (&json!({"a": "b"}), &Value::Null, &json!(false)));
    assert_eq!(request["options"]["kind"], "CreateOptions");
    assert_eq!(request["userInfo"]["username"], "admin");
}

#[tokio::test]
async fn webhooks_change_objects_one_after_the_other_and_again() {
    let cluster = Cluster::start().await;
    let hooks = Webhooks::start(|path, review| {
        let data = &review["request"]["object"]["data"];
        match path {
            // Wants to see what others add.
            "/first" if data["second"] == "yes" => reviewed(review, patch(&json!([{"op": "add", "path": "/data/again", "value": "yes"}]))),
            "/first" => reviewed(review, patch(&json!([{"op": "add", "path": "/data/first", "value": "yes"}]))),
            _ => reviewed(review, patch(&json!([{"op": "add", "path": "/data/second", "value": "yes"}]))),
        }
    })
    .await;
    let on_create = rule("CREATE", "", "v1", "configmaps");
    let mut first = hook("first", hooks.client("/first"), on_create.clone());
    first["reinvocationPolicy"] = json!("IfNeeded");
    configure(&cluster, "mutating", "a", json!([first, hook("second", hooks.client("/second"), on_create)])).await;
    let made = cluster.config_map("x", json!({"own": "yes"})).await.ok();
    assert_eq!(made["data"], json!({"own": "yes", "first": "yes", "second": "yes", "again": "yes"}));
    assert_eq!(hooks.asked().len(), 3);
}

#[tokio::test]
async fn what_a_webhook_adds_is_of_the_kind_and_has_defaults() {
    let cluster = Cluster::start().await;
    let hooks = Webhooks::start(|_, review| {
        let container = json!({"name": "side", "image": "side", "ports": [{"containerPort": 80}], "unknown": 1});
        reviewed(review, patch(&json!([{"op": "add", "path": "/spec/containers/-", "value": container}])))
    })
    .await;
    configure(&cluster, "mutating", "a", json!([hook("side", hooks.client("/"), rule("CREATE", "", "v1", "pods"))])).await;
    let account = json!({"metadata": {"name": "default"}});
    cluster.create("/api/v1/namespaces/default/serviceaccounts", account).await.ok();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let made = cluster.create("/api/v1/namespaces/default/pods", pod).await.ok();
    let side = &made["spec"]["containers"][1];
    assert_eq!((&side["ports"][0]["protocol"], &side["terminationMessagePath"]), (&json!("TCP"), &json!("/dev/termination-log")));
    assert_eq!(side["unknown"], Value::Null);
    assert!(side["volumeMounts"].is_array(), "plugins of the server run again: {side}");
}

#[tokio::test]
async fn a_webhook_that_does_not_answer_fails_as_its_policy_says() {
    let cluster = Cluster::start().await;
    let hooks = Webhooks::start(|path, review| match path {
        "/slow" => (0, Value::Null),
        "/broken" => (500, json!("boom")),
        "/wrong" => {
            (200, json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {"uid": "1", "allowed": true}}))
        }
        _ => reviewed(review, json!({"allowed": true})),
    })
    .await;
    let base = format!("https://127.0.0.1:{}", hooks.port);
    let resources = ["secrets", "services", "serviceaccounts", "limitranges"];
    for (path, resource) in ["/slow", "/broken", "/wrong"].into_iter().zip(resources) {
        let mut stated = hook("hook", hooks.client(path), rule("CREATE", "", "v1", resource));
        stated["timeoutSeconds"] = json!(1);
        configure(&cluster, "validating", resource, json!([stated])).await;
    }
    let started = Instant::now();
    let create = |resource: &str, extra: Value| {
        let mut object = json!({"metadata": {"name": "x"}});
        object.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
        let path = format!("/api/v1/namespaces/default/{resource}");
        let cluster = &cluster;
        async move { cluster.create(&path, object).await }
    };
    let failed = |why: &str| format!("Internal error occurred: failed calling webhook \"hook.example.com\": {why}");
    let slow = create("secrets", json!({})).await;
    slow.refused(500, &failed(&format!("failed to call webhook: Post \"{base}/slow?timeout=1s\": context deadline exceeded")));
    assert!(started.elapsed().as_secs() < 3);
    let broken = create("services", json!({"spec": {"ports": [{"port": 80}]}})).await;
    broken.refused(500, &failed("failed to call webhook: an error on the server (\"boom\") has prevented the request from succeeding"));
    let wrong = create("serviceaccounts", json!({})).await;
    assert!(wrong.message().starts_with(&failed("received invalid webhook response: expected response.uid=")), "{}", wrong.message());
    // Nobody listens, and nobody minds.
    let nobody = json!({"url": "https://127.0.0.1:1/x", "caBundle": hooks.ca_bundle});
    let mut open = hook("open", nobody.clone(), rule("CREATE", "", "v1", "limitranges"));
    open["failurePolicy"] = json!("Ignore");
    configure(&cluster, "mutating", "open", json!([open])).await;
    create("limitranges", json!({"spec": {"limits": []}})).await.ok();
    configure(&cluster, "mutating", "closed", json!([hook("closed", nobody, rule("CREATE", "", "v1", "configmaps"))])).await;
    let refused = cluster.config_map("x", json!({})).await;
    refused.refused(
        500,
        "Internal error occurred: failed calling webhook \"closed.example.com\": failed to call webhook: Post \"https://127.0.0.1:1/x?timeout=2s\": \
         dial tcp 127.0.0.1:1: connect: connection refused",
    );
    // The system itself writes what the host says, and leases, whatever webhooks say.
    configure(&cluster, "validating", "all", json!([hook("all", hooks.client("/broken"), rule("*", "*", "*", "*/*"))])).await;
    let lease = json!({"metadata": {"name": "x"}, "spec": {}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    assert_eq!(cluster.create(path, lease.clone()).await.code.as_u16(), 500);
    cluster.send_as("system:apiserver", "POST", path, Some(lease)).await.ok();
    // What a tenant cannot have refused: where traffic goes, the end of a namespace and of what controllers clear away.
    let slice = json!({"metadata": {"name": "x"}, "addressType": "IPv4", "endpoints": []});
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    cluster.send_as("system:apiserver", "POST", path, Some(slice)).await.ok();
    assert_eq!(cluster.send("DELETE", &format!("{path}/x"), None).await.code.as_u16(), 500);
    cluster.send_as("system:apiserver", "DELETE", &format!("{path}/x"), None).await.ok();
    cluster.send_as("system:apiserver", "DELETE", "/api/v1/namespaces/default/limitranges/x", None).await.ok();
    // And nobody is locked out of the configurations.
    cluster.send("DELETE", &format!("{REGISTRATION}/validatingwebhookconfigurations/all"), None).await.ok();
}

#[tokio::test]
async fn a_service_leads_to_its_endpoints_and_old_versions_are_shown_to_whom_knows_them() {
    let cluster = Cluster::start().await;
    let hooks = Webhooks::start(|_, review| {
        reviewed(review, patch(&json!([{"op": "replace", "path": "/spec/targetCPUUtilizationPercentage", "value": 42}])))
    })
    .await;
    hooks.as_service(&cluster).await;
    let client = json!({"service": {"namespace": "default", "name": "hook", "path": "/x"}, "caBundle": hooks.ca_bundle});
    let hook = hook("hook", client, rule("CREATE", "autoscaling", "v1", "horizontalpodautoscalers"));
    configure(&cluster, "mutating", "a", json!([hook])).await;
    let scaler = json!({"metadata": {"name": "x"}, "spec": {
        "maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}],
    }});
    let made = cluster.create("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", scaler).await.ok();
    assert_eq!(made["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 42);
    let request = hooks.asked()[0].1["request"].clone();
    assert_eq!((&request["resource"]["version"], &request["requestResource"]["version"]), (&json!("v1"), &json!("v2")));
    assert_eq!(request["object"]["apiVersion"], "autoscaling/v1");
}

#[tokio::test]
async fn deletes_and_scales_are_shown_too() {
    let cluster = Cluster::start().await;
    let hooks = Webhooks::start(|_, review| {
        let request = &review["request"];
        let too_many = request["object"]["spec"]["replicas"].as_i64().unwrap_or_default() > 5;
        let kept = request["oldObject"]["metadata"]["labels"]["keep"] == "yes" && request["operation"] == "DELETE";
        reviewed(review, json!({"allowed": !too_many && !kept}))
    })
    .await;
    let rules = [rule("*", "apps", "v1", "deployments/scale"), rule("DELETE", "", "v1", "configmaps")];
    let hooks_stated: Vec<Value> = rules.into_iter().enumerate().map(|(i, r)| hook(&format!("h{i}"), hooks.client("/"), r)).collect();
    configure(&cluster, "validating", "a", json!(hooks_stated)).await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    cluster.create("/apis/apps/v1/namespaces/default/deployments", deployment).await.ok();
    let path = "/apis/apps/v1/namespaces/default/deployments/d/scale";
    let refused = cluster.send("PATCH", path, Some(json!({"spec": {"replicas": 9}}))).await;
    refused.refused(400, "admission webhook \"h0.example.com\" denied the request without explanation");
    cluster.send("PATCH", path, Some(json!({"spec": {"replicas": 2}}))).await.ok();
    assert_eq!(hooks.asked()[0].1["request"]["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
    let labelled = json!({"metadata": {"name": "x", "labels": {"keep": "yes"}}});
    cluster.create("/api/v1/namespaces/default/configmaps", labelled).await.ok();
    let refused = cluster.send("DELETE", "/api/v1/namespaces/default/configmaps/x", None).await;
    refused.refused(400, "admission webhook \"h1.example.com\" denied the request without explanation");
    cluster.config_map("y", json!({})).await.ok();
    cluster.send("DELETE", "/api/v1/namespaces/default/configmaps/y", None).await.ok();
}

#[tokio::test]
async fn requests_of_tokens_are_shown_too() {
    let cluster = Cluster::start().await;
    let hooks = Webhooks::start(|_, review| {
        let seconds = review["request"]["object"]["spec"]["expirationSeconds"].as_i64().unwrap_or_default();
        reviewed(review, json!({"allowed": seconds <= 3600}))
    })
    .await;
    configure(&cluster, "validating", "a", json!([hook("short", hooks.client("/"), rule("CREATE", "", "v1", "serviceaccounts/token"))]))
        .await;
    let path = "/api/v1/namespaces/default/serviceaccounts";
    cluster.create(path, json!({"metadata": {"name": "robot"}})).await.ok();
    let token_path = format!("{path}/robot/token");
    let request = |seconds: u32| {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": seconds}});
        cluster.create(&token_path, body)
    };
    request(3600).await.ok();
    request(7200).await.refused(400, "admission webhook \"short.example.com\" denied the request without explanation");
    let asked = hooks.asked()[0].1["request"].clone();
    assert_eq!(asked["kind"], json!({"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"}));
    assert_eq!((&asked["subResource"], &asked["name"]), (&json!("token"), &json!("robot")));
}
