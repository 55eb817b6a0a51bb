//! Who runs the control planes of tenants, as the operator sees it.

use async_trait::async_trait;
use sublet_pki::Pki;

/// A tenant, as its `VirtualCluster` describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Of the `VirtualCluster`: the identity of everything that belongs to the tenant.
    pub uid: String,
    pub name: String,
    /// The host namespace of the `VirtualCluster`.
    pub namespace: String,
    pub weight: u32,
    /// The API answers, but nothing is synced.
    pub paused: bool,
    /// What all its pods must hold to.
    pub pod_security: sublet_api::PodSecurity,
    /// Names that the serving certificate covers beside the usual ones.
    pub hosts: Vec<String>,
    /// The identity of the store that this tenant has always had; `None` before its first start.
    pub store_identity: Option<String>,
}

/// What is known of a control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaneStatus {
    /// The API server answers.
    pub serving: bool,
    /// The syncer has seen both sides and follows them.
    pub synced: bool,
    pub pods: usize,
    pub namespaces: usize,
    pub objects: usize,
    pub bytes: u64,
    /// What it waits for, when it is not ready.
    pub message: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ControlPlaneError {
    /// The store under this tenant is not the tenant's. It is refused, never used.
    #[error("{0}")]
    WrongStore(String),
    #[error("{0}")]
    Failed(String),
}

/// Runs control planes: in this process, in pods, or elsewhere.
#[async_trait]
pub trait ControlPlanes: Send + Sync + 'static {
    /// Makes the control plane run as wanted and returns the URL of its API server. Safe to repeat.
    async fn ensure(&self, tenant: &Tenant, pki: &Pki) -> Result<String, ControlPlaneError>;

    /// DNS names and addresses that its serving certificate must cover. What they depend on is made:
    /// the Service in front of the tenant has its address before there is a certificate.
    async fn names(&self, tenant: &Tenant) -> Result<Vec<String>, ControlPlaneError>;

    async fn status(&self, uid: &str) -> PlaneStatus;

    /// The identity of the store in use; remembered with the `VirtualCluster`.
    async fn store_identity(&self, uid: &str) -> Option<String>;

    /// Stops the syncer, so that a deletion is not undone; the API may go on.
    async fn stop(&self, uid: &str);

    /// Asks for the deletion of everything that the tenant has on the host; tells what is still there,
    /// or nothing when all is gone.
    async fn remove_host_objects(&self, tenant: &Tenant, keep_volumes: bool) -> Result<Option<String>, ControlPlaneError>;

    /// Deletes the state of a stopped control plane.
    async fn remove(&self, uid: &str) -> Result<(), ControlPlaneError>;
}
