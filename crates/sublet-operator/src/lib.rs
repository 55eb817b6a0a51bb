//! Turns `VirtualCluster` objects into running tenant control planes.
//!
//! Entry points: [`controller`] (add it to a manager of the host), [`ControlPlanes`] (who runs the
//! control planes), [`shard_controller`] (runs those that an operator elsewhere placed in this process),
//! [`ensure_definition`] (installs the CRD).
//!
//! Invariants: every step is safe to repeat; a step that cannot go on says why in a condition; a
//! deleted virtual cluster keeps its finalizer until nothing of it is left on the host.

mod control_planes;
mod definition;
mod kubeconfig;
mod lifecycle;
mod pki_secret;
mod secrets;
mod shard;
pub mod tenant_service;

pub use control_planes::{ControlPlaneError, ControlPlanes, Offers, PlaneStatus, Tenant};
pub use definition::ensure_definition;
pub use lifecycle::controller;
pub use pki_secret::digest as keys_digest;
pub use shard::shard_controller;

use sublet_runtime::ClientError;

/// Why a step did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the keys of the cluster cannot be made or read: {0}")]
    Pki(#[from] sublet_pki::PkiError),
    #[error("{0}")]
    ControlPlane(#[from] ControlPlaneError),
    /// Nothing to retry until an object changes: reason and message of the condition.
    #[error("{message}")]
    Stuck { reason: &'static str, message: String },
    /// Progress, but not there yet.
    #[error("{message}")]
    Waiting { reason: &'static str, message: String },
}
