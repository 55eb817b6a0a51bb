//! What Sublet's own API consists of: the `VirtualCluster` kind, its conditions, and the marks that
//! host objects carry.
//!
//! Entry points: [`virtual_cluster_crd`] (the manifest), [`VirtualCluster`] (a checked reader of one
//! object), [`condition`] (condition types), [`marks`] (label and annotation keys).
//!
//! Invariants: marks are hints for people and policy engines, no proof of ownership; every field of
//! `spec` has a default, so an empty spec is a good cluster.

pub mod condition;
mod crd;
pub mod marks;
mod nodes;
mod settings;
mod virtual_cluster;

pub use crd::virtual_cluster_crd;
pub use nodes::{NodeAddresses, NodeRules, ShowNodes};
pub use settings::{AuditRules, AuditTarget};
pub use virtual_cluster::{
    Expose, KindRule, Layout, Mode, Phase, Placement, PodSecurity, Report, Source, State, Store, VirtualCluster, WantedKubeconfig,
};

pub const GROUP: &str = "sublet.dev";
pub const VERSION: &str = "v1alpha1";
/// Held by the operator until the last host object of a virtual cluster is gone.
pub const FINALIZER: &str = "sublet.dev/virtual-cluster";
