//! A virtual cluster in a virtual cluster: the tenant of one host is the host of another tenant.

mod support;

use serde_json::json;
use std::sync::Arc;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{PODS, SERVICES};
use sublet_runtime::{Client, Clock, ListOptions};
use sublet_syncer::{HostCache, HostHandle, HostScope, Layout, PodConfig, SyncRules, Syncer, SyncerConfig, SyncerStatus, TenantIdentity};
use support::clusters::{Clusters, until};
use tokio_util::sync::CancellationToken;

/// Marks of the inner cluster were taken for those of the outer one, and Services selected no pod. [vcluster 609]
#[tokio::test(flavor = "multi_thread")]
async fn a_service_selects_its_pods_through_two_levels() {
    let outer = Clusters::start().await;
    outer.add_namespace(&outer.tenant, "inner-home").await;
    let running = outer.sync("alpha", &outer.tenant).await;
    let inner = Clusters::start().await;
    inner.add_namespace(&inner.tenant, "prod").await;
    let cancel = CancellationToken::new();
    let (cache, syncer) = sync_inner(&outer.tenant, &inner.tenant);
    let watching = tokio::spawn(cache.run(cancel.clone()));
    let mut status = syncer.status();
    let syncing = tokio::spawn(syncer.run(cancel.clone()));
    status.wait_for(|s| *s == SyncerStatus::Running).await.expect("runs");

    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "prod"},
        "spec": {"clusterIP": "None", "selector": {"app": "web"}, "ports": [{"port": 80}]}});
    inner.tenant.create(&SERVICES, &service).await.expect("created");
    for (name, app) in [("web", "web"), ("other", "other")] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "prod", "labels": {"app": app}},
            "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
        inner.tenant.create(&PODS, &pod).await.expect("created");
    }
    let both = || async { (outer.host_copies(&PODS).await.len() == 2).then_some(()) };
    until("both pods", both).await;
    let service = until("the service", || async { outer.host_copies(&SERVICES).await.into_iter().next() }).await;
    let selector = service["spec"]["selector"].as_object().expect("a selector");
    let selector: Vec<String> = selector.iter().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
    let options = ListOptions { label_selector: selector.join(","), ..ListOptions::default() };
    let selected = outer.host.list(&PODS, "", &options).await.expect("lists").items;
    assert_eq!(selected.len(), 1, "{selector:?}");
    assert_eq!(selected[0].label("app"), Some("web"));
    cancel.cancel();
    for task in [watching, syncing] {
        task.await.expect("ends well");
    }
    running.stop().await;
}

fn sync_inner(host: &Client, tenant: &Client) -> (Arc<HostCache>, Syncer) {
    let cache = HostCache::new(host.clone(), HostScope::Cluster);
    let syncer = Syncer::new(SyncerConfig {
        tenant: TenantIdentity { name: "beta".into(), namespace: "inner-home".into(), uid: "uid-of-beta".into() },
        tenant_client: tenant.clone(),
        host: HostHandle(cache.clone()),
        host_namespace: "inner-home".into(),
        layout: Layout::Single,
        clock: Clock::System,
        pods: PodConfig::default(),
        weight: 1,
        rules: SyncRules::default(),
    });
    (cache, syncer)
}
