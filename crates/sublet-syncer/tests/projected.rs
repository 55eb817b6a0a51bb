//! Files of a pod that a kubelet would ask its API server for, between two whole API servers.

mod support;

use base64::Engine as _;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{CLUSTER_TRUST_BUNDLES, NODES, POD_CERTIFICATE_REQUESTS, PODS, SECRETS};
use sublet_runtime::{Clock, DeleteOptions, ListOptions};
use support::clusters::{Clusters, HOST_NAMESPACE, until};

fn pod(source: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "prod"}, "spec": {
        "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "nginx"}],
        "volumes": [{"name": "files", "projected": {"sources": [source]}}],
    }})
}

fn certificate() -> String {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.self_signed(&key).expect("a certificate").pem()
}

/// A file of the Secret.
async fn file(clusters: &Clusters, key: &str) -> Option<String> {
    let secret = clusters.copy(&SECRETS, "web").await?;
    let bytes = base64::prelude::BASE64_STANDARD.decode(secret["data"][key].as_str()?).expect("base64");
    Some(String::from_utf8(bytes).expect("text"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_for_the_trust_bundle_of_its_tenant() {
    let clusters = Clusters::start().await;
    clusters.add_namespace(&clusters.tenant, "prod").await;
    let running = clusters.sync("alpha", &clusters.tenant).await;
    let source = json!({"clusterTrustBundle": {"name": "ours", "path": "ca.pem"}});
    clusters.tenant.create(&PODS, &pod(source)).await.expect("created");
    let copy = until("the copy", || async { clusters.copy(&PODS, "web").await }).await;
    let secret = until("the Secret", || async { clusters.copy(&SECRETS, "web").await }).await;
    assert!(secret["data"]["bundle-0"].is_null(), "a kubelet waits as long as the key is missing");
    let mounted = &copy["spec"]["volumes"][0]["projected"]["sources"][0]["secret"];
    assert_eq!(*mounted, json!({"name": secret.name(), "items": [{"key": "bundle-0", "path": "ca.pem"}]}));
    let anchor = certificate();
    let bundle = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle", "metadata": {"name": "ours"}, "spec": {"trustBundle": anchor}});
    clusters.tenant.create(&CLUSTER_TRUST_BUNDLES, &bundle).await.expect("created");
    let held = until("the bundle", || file(&clusters, "bundle-0")).await;
    assert_eq!(held.split_whitespace().collect::<String>(), anchor.split_whitespace().collect::<String>());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_asked_from_the_tenants_signer_and_renewed_when_it_says_so() {
    let clusters = Clusters::start().await;
    clusters.add_namespace(&clusters.tenant, "prod").await;
    clusters.host.create(&NODES, &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})).await.expect("created");
    let clock = Clock::manual(Clock::System.now().as_second());
    let running = clusters.sync_by("alpha", &clusters.tenant, clock.clone()).await;
    let source = json!({"podCertificate": {"signerName": "example.com/ca", "keyType": "ECDSAP256", "credentialBundlePath": "both.pem"}});
    let uid = clusters.tenant.create(&PODS, &pod(source)).await.expect("created").uid().to_string();
    let copy = until("the copy", || async { clusters.copy(&PODS, "web").await }).await;
    assert!(requests(&clusters).await.is_empty(), "a request names a node");
    clusters.run_pod(&copy, "node-1").await;

    let request = until("a request", || async { requests(&clusters).await.into_iter().next() }).await;
    let spec = &request["spec"];
    assert_eq!(
        (spec["podUID"].as_str(), spec["nodeName"].as_str(), spec["signerName"].as_str()),
        (Some(&*uid), Some("node-1"), Some("example.com/ca"))
    );
    let refresh_at = clock.now() + jiff::SignedDuration::from_hours(12);
    let chain = certificate();
    issue(&clusters, request.name(), &chain, refresh_at).await;
    let held = until("the certificate", || file(&clusters, "certificate-0-bundle")).await;
    assert!(held.starts_with("-----BEGIN PRIVATE KEY-----") && held.ends_with(&chain), "{held}");

    clock.advance(13 * 3600);
    let secret = clusters.copy(&SECRETS, "web").await.expect("is there");
    let touched = json!({"metadata": {"labels": {"host/touched": "yes"}}});
    clusters.host.merge_patch(&SECRETS, HOST_NAMESPACE, secret.name(), touched).await.expect("patched");
    let another = until("another request", || async { requests(&clusters).await.into_iter().find(|r| r.name() != request.name()) }).await;
    assert_eq!(file(&clusters, "certificate-0-bundle").await, Some(held.clone()), "the old one is good until the new one is there");
    issue(&clusters, another.name(), &certificate(), clock.now() + jiff::SignedDuration::from_hours(12)).await;
    until("another certificate", || async { file(&clusters, "certificate-0-bundle").await.filter(|new| *new != held) }).await;
    clusters.tenant.delete(&PODS, "prod", "web", &DeleteOptions::default()).await.expect("deleted");
    running.stop().await;
}

async fn requests(clusters: &Clusters) -> Vec<Value> {
    clusters.tenant.list(&POD_CERTIFICATE_REQUESTS, "prod", &ListOptions::default()).await.expect("lists").items
}

/// What a signer answers.
async fn issue(clusters: &Clusters, request: &str, chain: &str, refresh_at: jiff::Timestamp) {
    let at = |hours: i64| (refresh_at + jiff::SignedDuration::from_hours(hours)).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let status = json!({"status": {
        "conditions": [{"type": "Issued", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": at(-12)}],
        "certificateChain": chain, "notBefore": at(-12), "beginRefreshAt": at(0), "notAfter": at(12),
    }});
    clusters.tenant.patch_status(&POD_CERTIFICATE_REQUESTS, "prod", request, status).await.expect("issued");
}
