//! What is watched on the host: a row per kind.

use super::{ownership, packed, plan};
use crate::resources::{KindId, pod};
use serde_json::Value;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::resources as gvr;

/// What is watched on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostKind {
    Pods,
    Services,
    EndpointSlices,
    ConfigMaps,
    /// Copies of Secrets, and Secrets with pods' tokens.
    Secrets,
    PersistentVolumeClaims,
    NetworkPolicies,
    PodDisruptionBudgets,
    Ingresses,
    VolumeSnapshots,
    Gateways,
    HttpRoutes,
    GrpcRoutes,
    ReferenceGrants,
    /// The rest belongs to the host and is shown to tenants.
    Nodes,
    NodeLeases,
    PersistentVolumes,
    StorageClasses,
    PriorityClasses,
    RuntimeClasses,
    IngressClasses,
    VolumeSnapshotContents,
    VolumeSnapshotClasses,
    GatewayClasses,
    /// Only to learn when a refusal may have lost its cause.
    ResourceQuotas,
}

/// A row: what is watched, where, and since when.
pub(super) struct Watched {
    pub kind: HostKind,
    pub gvr: Gvr,
    pub reach: Reach,
    pub slim: fn(&mut Value),
    pub when: When,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Copies, by their mark.
    Ours,
    /// All of a namespaced kind.
    Namespaced,
    /// Cluster-wide kinds, which the host may refuse to show.
    Cluster,
    /// One namespace that belongs to the host as a whole.
    Within(&'static str),
}

impl Reach {
    /// Whether it is the same for all tenants.
    pub(super) fn is_shared(self) -> bool {
        matches!(self, Self::Cluster | Self::Within(_))
    }
}

/// Since when a kind is watched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Always,
    /// A tenant asked for it.
    Asked,
    /// The host has a definition of it: not every host does.
    Defined,
}

const fn watched(kind: HostKind, gvr: Gvr, reach: Reach, slim: fn(&mut Value)) -> Watched {
    Watched { kind, gvr, reach, slim, when: When::Always }
}

const fn defined(kind: HostKind, gvr: Gvr, reach: Reach) -> Watched {
    let slim = if matches!(reach, Reach::Ours) { ownership::slim_managed_fields } else { drop_managed_fields };
    Watched { kind, gvr, reach, slim, when: When::Defined }
}

pub(super) static WATCHED: [Watched; 25] = [
    watched(HostKind::Pods, gvr::PODS, Reach::Ours, slim_pod),
    watched(HostKind::Services, gvr::SERVICES, Reach::Ours, ownership::slim_managed_fields),
    watched(HostKind::EndpointSlices, gvr::ENDPOINT_SLICES, Reach::Ours, ownership::slim_managed_fields),
    watched(HostKind::ConfigMaps, gvr::CONFIG_MAPS, Reach::Ours, slim_values),
    watched(HostKind::Secrets, gvr::SECRETS, Reach::Ours, slim_values),
    watched(HostKind::PersistentVolumeClaims, gvr::PERSISTENT_VOLUME_CLAIMS, Reach::Ours, ownership::slim_managed_fields),
    watched(HostKind::NetworkPolicies, gvr::NETWORK_POLICIES, Reach::Ours, ownership::slim_managed_fields),
    watched(HostKind::PodDisruptionBudgets, gvr::POD_DISRUPTION_BUDGETS, Reach::Ours, ownership::slim_managed_fields),
    watched(HostKind::Ingresses, gvr::INGRESSES, Reach::Ours, ownership::slim_managed_fields),
    defined(HostKind::VolumeSnapshots, gvr::VOLUME_SNAPSHOTS, Reach::Ours),
    defined(HostKind::Gateways, gvr::GATEWAYS, Reach::Ours),
    defined(HostKind::HttpRoutes, gvr::HTTP_ROUTES, Reach::Ours),
    defined(HostKind::GrpcRoutes, gvr::GRPC_ROUTES, Reach::Ours),
    defined(HostKind::ReferenceGrants, gvr::REFERENCE_GRANTS, Reach::Ours),
    watched(HostKind::Nodes, gvr::NODES, Reach::Cluster, slim_node),
    Watched {
        kind: HostKind::NodeLeases,
        gvr: gvr::LEASES,
        reach: Reach::Within(NODE_LEASES),
        slim: drop_managed_fields,
        when: When::Asked,
    },
    watched(HostKind::PersistentVolumes, gvr::PERSISTENT_VOLUMES, Reach::Cluster, drop_managed_fields),
    watched(HostKind::StorageClasses, gvr::STORAGE_CLASSES, Reach::Cluster, drop_managed_fields),
    watched(HostKind::PriorityClasses, gvr::PRIORITY_CLASSES, Reach::Cluster, drop_managed_fields),
    watched(HostKind::RuntimeClasses, gvr::RUNTIME_CLASSES, Reach::Cluster, drop_managed_fields),
    watched(HostKind::IngressClasses, gvr::INGRESS_CLASSES, Reach::Cluster, drop_managed_fields),
    defined(HostKind::VolumeSnapshotContents, gvr::VOLUME_SNAPSHOT_CONTENTS, Reach::Cluster),
    defined(HostKind::VolumeSnapshotClasses, gvr::VOLUME_SNAPSHOT_CLASSES, Reach::Cluster),
    defined(HostKind::GatewayClasses, gvr::GATEWAY_CLASSES, Reach::Cluster),
    watched(HostKind::ResourceQuotas, gvr::RESOURCE_QUOTAS, Reach::Namespaced, drop_managed_fields),
];

/// The namespace in which kubelets keep the leases of their nodes.
pub const NODE_LEASES: &str = "kube-node-lease";

impl HostKind {
    /// The watch that holds the copies of a row.
    pub fn of(id: KindId) -> Self {
        match id {
            KindId::Pod => Self::Pods,
            KindId::Service => Self::Services,
            KindId::EndpointSlice => Self::EndpointSlices,
            KindId::ConfigMap => Self::ConfigMaps,
            KindId::Secret | KindId::PodToken => Self::Secrets,
            KindId::PersistentVolumeClaim => Self::PersistentVolumeClaims,
            KindId::NetworkPolicy => Self::NetworkPolicies,
            KindId::PodDisruptionBudget => Self::PodDisruptionBudgets,
            KindId::Ingress => Self::Ingresses,
            KindId::VolumeSnapshot => Self::VolumeSnapshots,
            KindId::Gateway => Self::Gateways,
            KindId::HttpRoute => Self::HttpRoutes,
            KindId::GrpcRoute => Self::GrpcRoutes,
            KindId::ReferenceGrant => Self::ReferenceGrants,
            KindId::VolumeSnapshotContent => Self::VolumeSnapshotContents,
            KindId::VolumeSnapshotClass => Self::VolumeSnapshotClasses,
            KindId::GatewayClass => Self::GatewayClasses,
            KindId::Node => Self::Nodes,
            KindId::NodeLease => Self::NodeLeases,
            KindId::PersistentVolume => Self::PersistentVolumes,
            KindId::StorageClass => Self::StorageClasses,
            KindId::PriorityClass => Self::PriorityClasses,
            KindId::RuntimeClass => Self::RuntimeClasses,
            KindId::IngressClass => Self::IngressClasses,
        }
    }

    /// The copies of a kind about which the host may write Events.
    pub(super) fn by_name(kind: &str) -> Option<Self> {
        match kind {
            "Pod" => Some(Self::Pods),
            "Service" => Some(Self::Services),
            "PersistentVolumeClaim" => Some(Self::PersistentVolumeClaims),
            "Ingress" => Some(Self::Ingresses),
            "VolumeSnapshot" => Some(Self::VolumeSnapshots),
            "Gateway" => Some(Self::Gateways),
            "HTTPRoute" => Some(Self::HttpRoutes),
            "GRPCRoute" => Some(Self::GrpcRoutes),
            _ => None,
        }
    }

    /// The host's definition of a kind that not every host serves.
    pub fn definition(self) -> Option<String> {
        let row = self.row();
        (row.when == When::Defined).then(|| format!("{}.{}", row.gvr.resource, row.gvr.group))
    }

    pub(super) fn gvr(self) -> &'static Gvr {
        &self.row().gvr
    }

    fn row(self) -> &'static Watched {
        WATCHED.iter().find(|w| w.kind == self).expect("every kind has a row")
    }

    pub fn is_copies(self) -> bool {
        self.row().reach == Reach::Ours
    }

    /// Whether it is watched whatever the host serves and tenants want.
    pub fn is_required(self) -> bool {
        self.row().when == When::Always
    }
}

fn slim_pod(object: &mut Value) {
    ownership::slim_managed_fields(object);
    pod::slim_host_pod(object);
    packed::pack(object);
}

fn slim_values(object: &mut Value) {
    ownership::slim_managed_fields(object);
    plan::slim_data(object);
}

pub(super) fn drop_managed_fields(object: &mut Value) {
    object.remove_at("/metadata/managedFields");
}

/// Images of a node are long lists that no tenant needs.
fn slim_node(object: &mut Value) {
    drop_managed_fields(object);
    object.remove_at("/status/images");
}
