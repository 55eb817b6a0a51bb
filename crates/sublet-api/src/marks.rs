//! Keys of labels and annotations on host objects, and the rules for their values.

/// The reserved domain. Tenant keys under it are moved aside, so a tenant can itself be a host.
pub const DOMAIN: &str = "sublet.dev";

/// Who manages the object; the value is [`MANAGER`]. Host watches select by it.
pub const MANAGED_BY: &str = "sublet.dev/managed-by";
/// The value of [`MANAGED_BY`], and the field manager of every host write.
pub const MANAGER: &str = "sublet";
/// Label: the name of the virtual cluster, as a label value.
pub const VIRTUAL_CLUSTER: &str = "sublet.dev/virtual-cluster";
/// Label: the UID of the virtual cluster, by which objects are routed.
pub const VIRTUAL_CLUSTER_UID: &str = "sublet.dev/virtual-cluster-uid";
/// Label: the namespace of the object in the tenant.
pub const NAMESPACE: &str = "sublet.dev/namespace";
/// Label: the kind of the object in the tenant.
pub const KIND: &str = "sublet.dev/kind";
/// Label (as a label value) and annotation (in full): the name of the object in the tenant.
pub const NAME: &str = "sublet.dev/name";
/// Annotation: the UID of the object in the tenant.
pub const UID: &str = "sublet.dev/uid";
/// Annotation: the controller of the object in the tenant, as `Kind/name`.
pub const OWNER: &str = "sublet.dev/owner";
/// Annotation: a digest of the fields that were last written; the merge base that survives restarts.
pub const APPLIED: &str = "sublet.dev/applied";
/// Annotation of an object in a tenant: the value of the field that both sides may change, as it was last
/// on both.
pub const AGREED: &str = "sublet.dev/agreed";
/// Annotation: the service account that a pod has in the tenant.
pub const SERVICE_ACCOUNT: &str = "sublet.dev/service-account";
/// Annotation: the tenant's labels in downward API form, for pods that read all of them.
pub const POD_LABELS: &str = "sublet.dev/labels";
/// Annotation: the tenant's annotations in downward API form, for pods that read all of them.
pub const POD_ANNOTATIONS: &str = "sublet.dev/annotations";
/// Annotation: when the tokens of the object are made anew.
pub const REFRESH_AT: &str = "sublet.dev/refresh-at";
/// Annotation: a digest of what the object holds beside tokens.
pub const PROJECTED: &str = "sublet.dev/projected";

/// Label of what runs or serves a control plane: the UID of the virtual cluster. It is no copy.
pub const CONTROL_PLANE_OF: &str = "sublet.dev/control-plane-of";

/// Annotation of a virtual cluster: the shard that is to run it, for admins who empty another one.
pub const SHARD: &str = "sublet.dev/shard";

/// The longest label value that Kubernetes accepts.
pub const LABEL_VALUE_BYTES_MAX: usize = 63;

/// Whether a label or annotation key belongs to the reserved domain or one below it.
pub fn is_reserved(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return false };
    domain == DOMAIN || domain.strip_suffix(DOMAIN).is_some_and(|rest| rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_domain_and_its_subdomains_are_reserved() {
        for key in [MANAGED_BY, "n.sublet.dev/name", "a.b.sublet.dev/x"] {
            assert!(is_reserved(key), "{key}");
        }
        for key in ["app", "mysublet.dev/x", "sublet.dev.example.com/x", "sublet.dev"] {
            assert!(!is_reserved(key), "{key}");
        }
    }
}
