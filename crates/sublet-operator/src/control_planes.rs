//! Who runs the control planes of tenants, as the operator sees it.

use async_trait::async_trait;
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;
use sublet_api::{Placement, Report, Source, State, VirtualCluster};
use sublet_machinery::ObjectExt;
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
    /// Where it was put, by an operator that runs elsewhere than the control plane.
    pub placement: Option<Placement>,
    /// What the process that runs it says.
    pub report: Option<Report>,
    /// The `VirtualCluster` as it is.
    pub object: Arc<Value>,
}

impl Tenant {
    pub fn of(cluster: &VirtualCluster<'_>) -> Self {
        Self {
            uid: cluster.uid().to_string(),
            name: cluster.name().to_string(),
            namespace: cluster.namespace().to_string(),
            weight: cluster.weight(),
            paused: cluster.state() == State::Paused,
            pod_security: cluster.pod_security(),
            hosts: cluster.hosts().into_iter().map(str::to_string).collect(),
            store_identity: cluster.object().str_at("/status/effective/storeIdentity").map(str::to_string),
            placement: cluster.placement(),
            report: cluster.report(),
            object: Arc::new(cluster.object().clone()),
        }
    }

    pub fn cluster(&self) -> VirtualCluster<'_> {
        VirtualCluster::new(&self.object)
    }
}

/// What the runner of control planes can do beyond running them packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// Pods of their own.
    pub dedicated: bool,
    /// A syncer alone, for an API server elsewhere.
    pub external: bool,
    /// Services of type NodePort and LoadBalancer, and Ingresses.
    pub exposure: bool,
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
    /// Kinds that this host does not offer, and why.
    pub off: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ControlPlaneError {
    /// The store under this tenant is not the tenant's. It is refused, never used.
    #[error("{0}")]
    WrongStore(String),
    /// Another virtual cluster has the name under which this one is to be reached.
    #[error("{0}")]
    HostTaken(String),
    #[error("{0}")]
    Failed(String),
}

/// Runs control planes: in this process, in pods, or elsewhere.
#[async_trait]
pub trait ControlPlanes: Send + Sync + 'static {
    fn offers(&self) -> Offers {
        Offers::default()
    }

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

    /// Ends the control plane here and holds its state for the process that is to run it.
    async fn offer(&self, _tenant: &Tenant, _pki: &Pki) -> Result<(), ControlPlaneError> {
        Err(ControlPlaneError::Failed("stores cannot be moved from here".into()))
    }

    /// Fetches the state from who holds it; done already is success.
    async fn fetch(&self, _tenant: &Tenant, _pki: &Pki, _from: &Source) -> Result<(), ControlPlaneError> {
        Err(ControlPlaneError::Failed("stores cannot be moved to here".into()))
    }

    /// Ends the control plane here and keeps its state.
    async fn leave(&self, _uid: &str) {}

    /// Notes durably that the state may be deleted once the `VirtualCluster` is gone.
    async fn condemn(&self, _uid: &str) {}

    /// Deletes state that an earlier life of this process left: condemned, of virtual clusters that are not
    /// `known`; and any that is in use `elsewhere`.
    async fn sweep(&self, _known: &HashSet<String>, _elsewhere: &HashSet<String>) {}
}
