//! The two processes of an installation in a cluster: the operator that leads, and a shard that runs what
//! the operator placed in it.

use super::health::{self, Health, sample};
use super::packed::{Packed, PackedConfig};
use super::placed::Placed;
use crate::install::OPERATOR;
use anyhow::{Context as _, Result, bail};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use sublet_api::VirtualCluster;
use sublet_machinery::ObjectExt;
use sublet_operator::shard_controller;
use sublet_runtime::leader::{LeaderConfig, Led, lead};
use sublet_runtime::resources::{CUSTOM_RESOURCE_DEFINITIONS, VIRTUAL_CLUSTERS};
use sublet_runtime::{Client, Clock, Informer, ListOptions, Manager, Scope};
use tokio_util::sync::CancellationToken;

/// How often a start asks for what it needs of the host.
const RETRY: Duration = Duration::from_secs(2);

/// What both processes need to know.
pub struct Identity {
    /// The name of this pod.
    pub pod: String,
    /// The namespace of the installation.
    pub namespace: String,
    pub health: SocketAddr,
}

/// Follows the `VirtualCluster` objects that `selector` selects while it leads; returns when cancelled.
pub async fn run_operator(host: Client, identity: Identity, selector: String, cancel: CancellationToken) -> Result<()> {
    let leads = Arc::new(AtomicBool::new(false));
    let mut manager = Manager::new(host.with_field_manager(OPERATOR), Clock::System);
    manager.informers().limit(VIRTUAL_CLUSTERS, Scope { label_selector: selector, ..Scope::default() });
    let clusters = manager.informers().informer(&VIRTUAL_CLUSTERS, &Scope::default()).0;
    let health = Health::new({
        let (clusters, leads) = (clusters.clone(), leads.clone());
        move || operator_metrics(&clusters, leads.load(Ordering::Relaxed))
    });
    let placed = Arc::new(Placed::new(host.with_field_manager(OPERATOR), &identity.namespace, clusters));
    manager.add(sublet_operator::controller(placed.clone()));

    let serving = tokio::spawn(health::serve(health.clone(), identity.health, cancel.clone()));
    wait_for_definition(&host, &cancel).await;
    // A standby is as ready as a leader: it takes over when it must.
    health.set_ready(true);
    let config = LeaderConfig::new(&identity.namespace, OPERATOR, &identity.pod);
    let led = lead(&host, &Clock::System, &config, cancel.clone(), |stop| async move {
        leads.store(true, Ordering::Relaxed);
        let sweep = async {
            if let Err(error) = placed.sweep().await {
                tracing::warn!(%error, "what earlier virtual clusters left was not looked for");
            }
        };
        tokio::join!(manager.run(stop.clone()), async {
            tokio::select! {
                () = sweep => {}
                () = stop.cancelled() => {}
            }
        });
        leads.store(false, Ordering::Relaxed);
    })
    .await;
    cancel.cancel();
    serving.await??;
    match led {
        Led::Released => Ok(()),
        // A process that begins anew carries nothing over from its time as leader.
        Led::Lost => bail!("the lead was lost; another operator takes over"),
    }
}

/// Runs the control planes that are placed in this pod; returns when cancelled.
pub async fn run_shard(host: Client, config: PackedConfig, identity: Identity, cancel: CancellationToken) -> Result<()> {
    std::fs::create_dir_all(&config.dir).with_context(|| format!("cannot create {}", config.dir.display()))?;
    let mut manager = Manager::new(host.with_field_manager("sublet-shard"), Clock::System);
    let clusters = manager.informers().informer(&VIRTUAL_CLUSTERS, &Scope::default()).0;
    let health = Health::new({
        let (clusters, pod) = (clusters.clone(), identity.pod.clone());
        move || shard_metrics(&clusters, &pod)
    });
    let serving = tokio::spawn(health::serve(health.clone(), identity.health, cancel.clone()));
    wait_for_definition(&host, &cancel).await;
    let (packed, watching) = Packed::in_cluster(config, &host, &cancel).await?;
    let packed = Arc::new(packed);
    manager.add(shard_controller(packed.clone(), &identity.pod));
    let ready = tokio::spawn(async move {
        clusters.wait_synced().await;
        health.set_ready(true);
    });
    manager.run(cancel).await;
    ready.abort();
    packed.stop_all().await;
    watching.await?;
    serving.await??;
    Ok(())
}

/// The kind comes with the installation; pods may be there a moment earlier.
async fn wait_for_definition(host: &Client, cancel: &CancellationToken) {
    let name = format!("{}.{}", VIRTUAL_CLUSTERS.resource, VIRTUAL_CLUSTERS.group);
    loop {
        let one = ListOptions { limit: Some(1), ..ListOptions::default() };
        let served = match host.list(&VIRTUAL_CLUSTERS, "", &one).await {
            Ok(_) => true,
            Err(error) if error.is_not_found() => false,
            Err(error) => {
                tracing::warn!(%error, "virtual clusters cannot be read yet");
                false
            }
        };
        if served || cancel.is_cancelled() {
            return;
        }
        tracing::info!("waits for {} `{name}`", CUSTOM_RESOURCE_DEFINITIONS.resource);
        tokio::select! {
            () = tokio::time::sleep(RETRY) => {}
            () = cancel.cancelled() => return,
        }
    }
}

fn operator_metrics(clusters: &Informer, leads: bool) -> String {
    let mut out = String::from("# HELP sublet_operator_leader Whether this process leads.\n# TYPE sublet_operator_leader gauge\n");
    sample(&mut out, "sublet_operator_leader", &[], f64::from(u8::from(leads)));
    if !leads {
        return out;
    }
    out.push_str(
        "# HELP sublet_virtual_cluster_ready Whether the virtual cluster answers and syncs.\n# TYPE sublet_virtual_cluster_ready gauge\n",
    );
    for object in clusters.list(None) {
        let ready = object.is_condition_true("Ready");
        sample(
            &mut out,
            "sublet_virtual_cluster_ready",
            &[("namespace", object.namespace()), ("name", object.name())],
            f64::from(u8::from(ready)),
        );
    }
    out
}

/// One figure of a tenant: its name without prefix, what it is, and how it is read.
type Figure = (&'static str, &'static str, fn(&sublet_api::Report) -> u64);

const FIGURES: [Figure; 5] = [
    ("synced", "Whether host and tenant are in step.", |r| u64::from(r.synced)),
    ("pods", "Pods on the host.", |r| r.pods),
    ("namespaces", "Namespaces in the tenant.", |r| r.namespaces),
    ("objects", "Objects in the store.", |r| r.objects),
    ("store_bytes", "Bytes of the store.", |r| r.bytes),
];

fn shard_metrics(clusters: &Informer, pod: &str) -> String {
    let all = clusters.list(None);
    let mut out = String::new();
    for (name, help, read) in FIGURES {
        let name = format!("sublet_tenant_{name}");
        out.push_str(&format!("# HELP {name} {help}\n# TYPE {name} gauge\n"));
        for object in &all {
            let cluster = VirtualCluster::new(object);
            if let Some(report) = cluster.report().filter(|_| cluster.placement().is_some_and(|p| p.pod == pod)) {
                #[expect(clippy::cast_precision_loss, reason = "a gauge of this size needs no last digit")]
                sample(&mut out, &name, &[("namespace", cluster.namespace()), ("name", cluster.name())], read(&report) as f64);
            }
        }
    }
    out
}
