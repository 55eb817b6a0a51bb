//! What the audit log says about requests, as upstream's says it.

use crate::support::{Cluster, Webhooks, reviewed};
use serde_json::{Value, json};
use std::path::PathBuf;
use sublet_apiserver::audit::{AuditConfig, LogConfig, LogMode, LogTarget, Policy};

/// A log of all requests but those of the server itself.
struct AuditLog {
    cluster: Cluster,
    path: PathBuf,
}

impl AuditLog {
    async fn start(rules: &str) -> Self {
        let cluster = Cluster::start().await;
        let path = std::env::temp_dir().join(format!("sublet-audit-{}.log", uuid::Uuid::new_v4()));
        let policy = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{{level: None, users: ['system:apiserver']}}, {rules}]");
        let target = LogTarget::File(path.clone());
        let log = LogConfig { target, mode: LogMode::Blocking, bytes_max: u64::MAX, backups_max: 0, age_max: None };
        let policy = Policy::parse(&policy).expect("a policy");
        cluster.server.set_audit(Some(AuditConfig { policy, log, annotations: Vec::new() })).await.expect("a file");
        Self { cluster, path }
    }

    /// What was written; nothing is after that.
    async fn end(self) -> Vec<Value> {
        self.cluster.server.set_audit(None).await.expect("nothing to open");
        let text = std::fs::read_to_string(&self.path).expect("a log");
        std::fs::remove_file(self.path).expect("a log");
        text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
    }
}

#[tokio::test]
async fn a_request_is_told_at_its_begin_and_its_end() {
    let log = AuditLog::start("{level: RequestResponse, omitManagedFields: true}").await;
    log.cluster.config_map("a", json!({"x": "y"})).await.ok();
    let events = log.end().await;
    assert_eq!(events.iter().map(|e| e["stage"].as_str().unwrap()).collect::<Vec<_>>(), ["RequestReceived", "ResponseComplete"]);
    assert_eq!(events[0]["auditID"], events[1]["auditID"]);
    assert_eq!(events[0]["responseStatus"], Value::Null);
    let end = &events[1];
    assert_eq!(end["objectRef"], json!({"resource": "configmaps", "namespace": "default", "name": "a", "apiVersion": "v1"}));
    assert_eq!(end["responseStatus"], json!({"metadata": {}, "code": 201}));
    assert_eq!(end["requestObject"]["data"], json!({"x": "y"}));
    assert_eq!(end["responseObject"]["metadata"]["managedFields"], Value::Null);
    assert_eq!(end["responseObject"]["metadata"]["namespace"], "default");
    assert_eq!(end["annotations"], json!({"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""}));
    assert_eq!((end["verb"].as_str(), end["user"]["username"].as_str()), (Some("create"), Some("admin")));
}

#[tokio::test]
async fn levels_decide_what_is_told() {
    let rules = "{level: Metadata, resources: [{group: '', resources: [secrets]}]}, {level: Request}";
    let log = AuditLog::start(rules).await;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"password": "hunter2"}});
    log.cluster.create("/api/v1/namespaces/default/secrets", secret).await.ok();
    log.cluster.config_map("a", json!({"x": "y"})).await.ok();
    let patch = json!({"data": {"z": "1"}});
    log.cluster.send("PATCH", "/api/v1/namespaces/default/configmaps/a", Some(patch.clone())).await.ok();
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
    log.cluster.send("DELETE", "/api/v1/namespaces/default/configmaps/a", Some(options)).await.ok();
    let events: Vec<Value> = log.end().await.into_iter().filter(|e| e["stage"] == "ResponseComplete").collect();
    assert!(!events[0].to_string().contains("hunter2"));
    assert_eq!(events[0]["objectRef"]["name"], "s");
    assert!(events.iter().all(|e| e["responseObject"].is_null()));
    assert_eq!((&events[1]["requestObject"]["data"], &events[2]["requestObject"]), (&json!({"x": "y"}), &patch));
    assert_eq!(events[3]["requestObject"]["propagationPolicy"], "Background");
    let status = &events[3]["responseStatus"];
    assert_eq!((&status["status"], &status["code"], &status["details"]["name"]), (&json!("Success"), &json!(200), &json!("a")));
}

#[tokio::test]
async fn refusals_are_told_with_their_reason() {
    let log = AuditLog::start("{level: Metadata, omitStages: [RequestReceived]}").await;
    log.cluster.send("GET", "/api/v1/namespaces/default/configmaps/nope", None).await;
    log.cluster.send("GET", "/api/v1/pods?timeout=soon", None).await;
    let events = log.end().await;
    assert_eq!(
        events[0]["responseStatus"],
        json!({
            "metadata": {}, "status": "Failure", "reason": "NotFound", "code": 404,
            "message": "configmaps \"nope\" not found", "details": {"name": "nope", "kind": "configmaps"},
        })
    );
    // What is refused before anybody is known is told at once.
    assert_eq!((&events[1]["stage"], &events[1]["user"]), (&json!("ResponseStarted"), &json!({})));
    assert_eq!(events.len(), 2);
}

#[tokio::test]
async fn a_watch_is_told_when_it_starts_and_when_it_ends() {
    let log = AuditLog::start("{level: Metadata, omitStages: [RequestReceived]}").await;
    let watch = log.cluster.open("/api/v1/configmaps?watch=1").await;
    log.cluster.config_map("between", json!({})).await.ok();
    drop(watch);
    let events = log.end().await;
    let told: Vec<_> = events.iter().map(|e| (e["verb"].as_str().unwrap(), e["stage"].as_str().unwrap())).collect();
    assert_eq!(told, [("watch", "ResponseStarted"), ("create", "ResponseComplete"), ("watch", "ResponseComplete")]);
    assert_eq!(events[2]["responseStatus"], json!({"metadata": {}, "code": 200}));
}

#[tokio::test]
async fn admission_notes_what_it_did() {
    let log = AuditLog::start("{level: Metadata, omitStages: [RequestReceived]}").await;
    let hooks = Webhooks::start(|_, review| reviewed(review, json!({"allowed": true, "auditAnnotations": {"seen": "yes"}}))).await;
    let configuration = json!({"metadata": {"name": "notes"}, "webhooks": [{
        "name": "notes.example.com", "clientConfig": hooks.client("/"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
    }]});
    log.cluster.create("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", configuration).await.ok();
    log.cluster.config_map("a", json!({})).await.ok();
    let namespace = json!({"metadata": {"name": "strict", "labels": {"pod-security.kubernetes.io/audit": "restricted"}}});
    log.cluster.create("/api/v1/namespaces", namespace).await.ok();
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
        "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
    }}});
    log.cluster.create("/apis/apps/v1/namespaces/strict/deployments", deployment).await.ok();
    let events = log.end().await;
    assert_eq!(events[1]["annotations"]["notes.example.com/seen"], "yes");
    let violations = events[3]["annotations"]["pod-security.kubernetes.io/audit-violations"].as_str().unwrap();
    assert!(violations.starts_with("would violate PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false"), "{violations}");
}
