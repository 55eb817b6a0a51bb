//! The kinds that are synced: a row for each, and the rules of the row in its file.

pub mod configmap;
pub mod endpointslice;
pub mod gateway;
pub mod ingress;
pub mod manifest;
pub mod networkpolicy;
mod peers;
pub mod persistentvolumeclaim;
pub mod pod;
pub mod poddisruptionbudget;
pub mod secret;
pub mod service;
pub mod shown;
pub mod volumesnapshot;

use crate::engine::SyncRules;
use crate::translate::{Names, TenantKey};
use manifest::Field;
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::Gvr;

/// Which row. Small, so that queue keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KindId {
    Pod,
    Service,
    EndpointSlice,
    ConfigMap,
    Secret,
    PersistentVolumeClaim,
    NetworkPolicy,
    PodDisruptionBudget,
    Ingress,
    VolumeSnapshot,
    Gateway,
    HttpRoute,
    GrpcRoute,
    ReferenceGrant,
    /// The host Secret with the service account tokens of one pod.
    PodToken,
    Node,
    NodeLease,
    PersistentVolume,
    StorageClass,
    PriorityClass,
    RuntimeClass,
    IngressClass,
    VolumeSnapshotContent,
    VolumeSnapshotClass,
    GatewayClass,
}

/// A kind whose objects go to the host.
pub struct SyncedKind {
    pub id: KindId,
    pub group: &'static str,
    pub version: &'static str,
    pub resource: &'static str,
    pub kind: &'static str,
    /// The longest host name.
    pub name_bytes_max: usize,
    /// Which side owns each field. A test holds it against the published schema.
    pub fields: &'static [&'static [Field]],
    /// Whether a tenant object goes to the host at all.
    pub select: fn(&Value, &dyn TenantView) -> bool,
    /// Fills in what is more than a copy. Gets the host object with names, marks and copied fields.
    pub hook: fn(&mut Value, &Value, &Translation<'_>) -> Result<(), Refusal>,
    /// What of the host object may be applied later; the rest is written once, at creation.
    pub update_view: fn(Value) -> Value,
    /// The wanted status of the tenant object and changes of its other fields.
    pub to_tenant: fn(&Value, &Value, &Translation<'_>) -> Upward,
    /// Local copies hold data values as a digest; the live object is read before a write.
    pub slim: bool,
}

/// What a host object means for its tenant object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Upward {
    /// The whole wanted status.
    pub status: Option<Value>,
    /// A merge patch for the rest, holding only what differs.
    pub main: Option<Value>,
}

/// Why an object cannot go to the host, in words for its owner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Refusal {
    pub field: String,
    pub message: String,
}

impl Refusal {
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

/// What translation may look up in the tenant and on the host. Reads of local copies only.
pub trait TenantView: Send + Sync {
    fn services(&self, namespace: &str) -> Vec<Arc<Value>>;
    fn namespaces(&self) -> Vec<Arc<Value>>;
    /// A PriorityClass of the tenant.
    fn priority_class(&self, name: &str) -> Option<Arc<Value>>;
    /// The PriorityClasses that the host lets tenants use.
    fn host_priority_classes(&self) -> Vec<Arc<Value>>;
    /// Whether the tenant sees a node, by our doing.
    fn is_node_shown(&self, name: &str) -> bool;
    /// Whether the host has a node of this name; nothing is known when it does not let us look.
    fn host_has_node(&self, name: &str) -> Option<bool>;
    /// Pods of the tenant on a node.
    fn pods_on(&self, node: &str) -> Vec<Arc<Value>>;
    /// An object of the tenant, of a kind that is synced.
    fn object(&self, kind: KindId, key: &TenantKey) -> Option<Arc<Value>>;
    /// All of them in a namespace.
    fn objects(&self, kind: KindId, namespace: &str) -> Vec<Arc<Value>>;
    /// The claim of the tenant that asks for a volume by name and has none yet.
    fn claim_for(&self, volume: &str) -> Option<Arc<Value>>;
    /// Whether a kind is synced that not every host serves.
    fn is_up(&self, kind: KindId) -> bool;
    /// Whether a pod of the tenant names the object; `resource` is `configmaps` or `secrets`.
    fn is_used(&self, resource: &str, key: &TenantKey) -> bool;
    /// The tenant object behind a host name of the kind, if it is one of this tenant.
    fn tenant_key(&self, kind: KindId, host_name: &str) -> Option<TenantKey>;
    /// The host copy of a tenant object.
    fn host_copy(&self, kind: KindId, key: &TenantKey) -> Option<Arc<Value>>;
}

/// What pods of the tenant are told about their cluster.
#[derive(Clone, Debug)]
pub struct PodConfig {
    /// Where pods reach the tenant's API server.
    pub api_host: String,
    pub api_port: u16,
    pub cluster_domain: String,
    /// The tenant's name server. `None`: pods keep the host's.
    pub dns_server: Option<String>,
    /// What the host's resolvers append to short names, after the cluster's own domains.
    pub searches: Vec<String>,
    /// Whether cluster IPs and node ports of the tenant come from the host (see `HostServiceAllocator`).
    pub host_allocates_addresses: bool,
    /// Whether Services may claim addresses of the host's network by `externalIPs`.
    pub allow_external_ips: bool,
}

impl Default for PodConfig {
    fn default() -> Self {
        Self {
            api_host: "kubernetes.default.svc".into(),
            api_port: 443,
            cluster_domain: "cluster.local".into(),
            dns_server: None,
            searches: Vec::new(),
            host_allocates_addresses: true,
            allow_external_ips: false,
        }
    }
}

/// All that a translation depends on, beside the object.
#[derive(Clone, Copy)]
pub struct Translation<'a> {
    pub names: &'a Names,
    pub config: &'a PodConfig,
    pub rules: &'a SyncRules,
    pub view: &'a dyn TenantView,
}

impl Translation<'_> {
    /// The host name of a tenant object that is referred to from `namespace`.
    pub fn refer(&self, kind: &SyncedKind, namespace: &str, name: &str) -> String {
        self.names.host_name(namespace, name, kind.name_bytes_max)
    }
}

impl SyncedKind {
    pub fn gvr(&self) -> Gvr {
        Gvr::new(self.group, self.version, self.resource)
    }

    /// The host object for a tenant object, complete but for the digest.
    pub fn to_host(&self, tenant: &Value, translation: &Translation<'_>) -> Result<Value, Refusal> {
        let names = translation.names;
        let key = names.host_key(&TenantKey::of(tenant), self.name_bytes_max);
        let mut host = json!({
            "apiVersion": self.gvr().api_version(), "kind": self.kind,
            "metadata": {"name": key.name, "namespace": key.namespace},
        });
        host["metadata"]["labels"] = Value::Object(crate::translate::host_labels(tenant));
        host["metadata"]["annotations"] = Value::Object(crate::translate::host_annotations(tenant));
        crate::translate::stamp(&mut host, names, self.kind, tenant);
        manifest::copy_fields(self.fields, tenant, &mut host);
        if !tenant["dataDigest"].is_null() {
            host["dataDigest"] = tenant["dataDigest"].clone();
        }
        (self.hook)(&mut host, tenant, translation)?;
        Ok(host)
    }

    const BASE: Self = Self {
        id: KindId::Pod,
        group: "",
        version: "v1",
        resource: "",
        kind: "",
        name_bytes_max: crate::translate::NAME_BYTES_MAX_SUBDOMAIN,
        fields: &[],
        select: |_, _| true,
        hook: |_, _, _| Ok(()),
        update_view: |desired| desired,
        to_tenant: |_, _, _| Upward::default(),
        slim: false,
    };

    /// A row of the core group, to be completed.
    pub const fn core_v1(id: KindId, kind: &'static str, resource: &'static str) -> Self {
        Self { id, kind, resource, ..Self::BASE }
    }
}

/// The rows, in the order in which a start works through them: what pods need comes first.
pub const TO_HOST: [&SyncedKind; 14] = [
    &configmap::CONFIG_MAP,
    &secret::SECRET,
    &persistentvolumeclaim::PERSISTENT_VOLUME_CLAIM,
    &service::SERVICE,
    &endpointslice::ENDPOINT_SLICE,
    &ingress::INGRESS,
    &volumesnapshot::VOLUME_SNAPSHOT,
    &gateway::REFERENCE_GRANT,
    &gateway::GATEWAY,
    &gateway::HTTP_ROUTE,
    &gateway::GRPC_ROUTE,
    &networkpolicy::NETWORK_POLICY,
    &poddisruptionbudget::POD_DISRUPTION_BUDGET,
    &pod::POD,
];

/// The row of a kind that goes to the host.
pub fn to_host_kind(id: KindId) -> Option<&'static SyncedKind> {
    TO_HOST.into_iter().find(|k| k.id == id)
}
