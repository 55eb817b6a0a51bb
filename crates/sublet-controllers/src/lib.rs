//! The built-in controllers: what `kube-controller-manager` is to a Kubernetes cluster.
//!
//! Entry: [`add_all`] adds every controller that [`ControllersConfig`] does not leave out to a
//! [`Manager`]. Each controller is a pure step (what is there, what is to be written) and a thin
//! reconciler that feeds it from informers and applies its plan through one executor.
//!
//! Invariants: steps are level-triggered and safe to repeat; a controller holds no state that the
//! objects do not tell; a quiet cluster causes no requests.

mod autoscaling;
mod certificates;
mod cluster_role_aggregation;
mod cronjob;
mod daemonset;
mod deployment;
mod disruption;
mod endpoints;
mod garbage_collector;
mod identity_lease;
mod job;
mod kit;
mod namespace;
mod node_lifecycle;
mod pod_gc;
mod replicaset;
mod resource_claims;
mod resource_quota;
mod root_ca;
mod secret_tokens;
mod service_account;
mod statefulset;
mod storage_migration;
mod trust_bundle;
mod ttl_after_finished;
mod volume;
mod webhook_availability;

pub use secret_tokens::TokenMaker;

use std::collections::BTreeSet;
use sublet_machinery::Gvr;
use sublet_pki::Authority;
use sublet_runtime::resources::{
    CONTROLLER_REVISIONS, ENDPOINT_SLICES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, REPLICA_SETS, SECRETS,
};
use sublet_runtime::{Controller, Manager, Scope};

/// What the controllers need to know about the cluster.
#[derive(Clone, Debug, Default)]
pub struct ControllersConfig {
    /// The CA certificates that pods are to trust, in PEM; empty: none are published.
    pub root_ca_pem: String,
    /// Signs the certificates of the cluster's clients and kubelets; `None`: nothing is signed.
    pub authority: Option<Authority>,
    /// Makes the tokens that live in Secrets; `None`: such Secrets stay as they are.
    pub token_maker: Option<TokenMaker>,
    /// Names this API server among those of the cluster; empty: it has no lease.
    pub host_name: String,
    /// A pod may name a node whose object comes later, as in a cluster that sees the nodes of another:
    /// a missing node then says nothing about its pods, and the health of nodes is told by others.
    pub nodes_follow_pods: bool,
    /// Names from [`names`] of controllers that are not to run.
    pub without: BTreeSet<String>,
}

type Make = fn(&ControllersConfig) -> Controller;

const ALL: &[(&str, Make)] = &[
    ("namespace", |_| namespace::controller()),
    ("serviceaccount", |_| service_account::controller()),
    ("root-ca-certificate-publisher", |config| root_ca::controller(config.root_ca_pem.clone())),
    ("kube-apiserver-serving-clustertrustbundle-publisher", |config| trust_bundle::controller(config.root_ca_pem.clone())),
    ("apiserver-identity-lease", |config| identity_lease::controller(config.host_name.clone())),
    ("replicaset", |_| replicaset::replica_sets()),
    ("replicationcontroller", |_| replicaset::replication_controllers()),
    ("job", |_| job::controller()),
    ("job-orphaned-pods", |_| job::orphaned_pods()),
    ("cronjob", |_| cronjob::controller()),
    ("daemonset", |_| daemonset::controller()),
    ("statefulset", |_| statefulset::controller()),
    ("endpoints", |_| endpoints::endpoints()),
    ("endpointslice", |_| endpoints::endpoint_slices()),
    ("endpointslicemirroring", |_| endpoints::endpoint_slice_mirroring()),
    ("resourcequota", |_| resource_quota::controller()),
    ("disruption", |_| disruption::controller()),
    ("disruption-stale-marks", |_| disruption::stale_marks()),
    ("clusterrole-aggregation", |_| cluster_role_aggregation::controller()),
    ("persistentvolumeclaim-protection", |_| volume::claim_protection()),
    ("persistentvolume-protection", |_| volume::volume_protection()),
    ("volumeattributesclass-protection", |_| volume::class_protection()),
    ("ephemeral-volume", |_| volume::ephemeral_volumes()),
    ("pod-garbage-collector", |config| pod_gc::controller(config.nodes_follow_pods)),
    ("ttl-after-finished", |_| ttl_after_finished::controller()),
    ("garbagecollector", |_| garbage_collector::controller()),
    ("deployment", |_| deployment::controller()),
    ("webhook-availability", |_| webhook_availability::controller()),
    ("certificatesigningrequest-approving", |_| certificates::approving()),
    ("certificatesigningrequest-signing", |config| {
        certificates::signing(config.authority.clone().expect("without it there is no such controller"))
    }),
    ("certificatesigningrequest-cleaner", |_| certificates::cleaning()),
    ("podcertificaterequest-cleaner", |_| certificates::cleaning_pod_requests()),
    ("node-lifecycle", |_| node_lifecycle::controller()),
    ("taint-eviction", |_| node_lifecycle::taint_eviction()),
    ("horizontal-pod-autoscaler", |_| autoscaling::controller()),
    ("serviceaccount-token", |config| {
        let maker = config.token_maker.clone().expect("without it there is no such controller");
        secret_tokens::controller(maker, config.root_ca_pem.clone())
    }),
    ("legacy-serviceaccount-token-cleaner", |_| secret_tokens::cleaner()),
    ("resourceclaim", |_| resource_claims::controller()),
    ("storage-version-migrator", |_| storage_migration::controller()),
];

/// The name of every controller, for [`ControllersConfig::without`].
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name)
}

/// Adds the controllers to a manager that is not running yet.
pub fn add_all(manager: &mut Manager, config: &ControllersConfig) {
    let informers = manager.informers();
    let informer = |gvr: &Gvr| informers.informer(gvr, &Scope::default()).0;
    cluster_role_aggregation::keep_stubs(&informers);
    if config.token_maker.is_some() {
        secret_tokens::index_by_account(&informers.informer_with(&SECRETS, &Scope::default(), secret_tokens::without_foreign_data).0);
    }
    for gvr in [&PODS, &REPLICA_SETS, &CONTROLLER_REVISIONS] {
        kit::claim::index_orphans(&informer(gvr));
    }
    kit::pods::index_by_node(&informer(&PODS));
    volume::index_by_claim(&informer(&PODS));
    resource_claims::index_by_named(&informer(&PODS));
    for gvr in [&PERSISTENT_VOLUMES, &PERSISTENT_VOLUME_CLAIMS] {
        volume::index_by_class(&informer(gvr));
    }
    endpoints::index_slices(&informer(&ENDPOINT_SLICES));
    for (name, make) in ALL {
        let lacks_input = match *name {
            "root-ca-certificate-publisher" | "kube-apiserver-serving-clustertrustbundle-publisher" => config.root_ca_pem.is_empty(),
            "apiserver-identity-lease" => config.host_name.is_empty(),
            "certificatesigningrequest-signing" => config.authority.is_none(),
            "serviceaccount-token" | "legacy-serviceaccount-token-cleaner" => config.token_maker.is_none(),
            "node-lifecycle" | "taint-eviction" => config.nodes_follow_pods,
            _ => false,
        };
        if !config.without.contains(*name) && !lacks_input {
            manager.add(make(config));
        }
    }
}
