//! Host names of tenant objects: readable, injective, and valid for their kind.

use super::{HostKey, TenantKey};
use serde_json::Value;
use sha2::{Digest, Sha256};
use sublet_api::marks;
use sublet_machinery::ObjectExt;

/// Names of services, and everything else that must be a DNS label.
pub const NAME_BYTES_MAX_LABEL: usize = 63;
/// Kubelets name log folders `namespace_name_uid`, and file names end at 255 bytes.
pub const NAME_BYTES_MAX_POD: usize = 150;
pub const NAME_BYTES_MAX_SUBDOMAIN: usize = 253;

/// Characters of the hash: 55 bits, five for each character.
const HASH_CHARS: usize = 11;
const HASH_ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Which virtual cluster this is, on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantIdentity {
    pub name: String,
    /// The host namespace of the `VirtualCluster` object.
    pub namespace: String,
    /// Two clusters of the same name, one after the other, differ here.
    pub uid: String,
}

/// Translates keys of one tenant. Needs no state: the same question always gets the same answer.
#[derive(Clone, Debug)]
pub struct Names {
    tenant: TenantIdentity,
    host_namespace: String,
}

impl Names {
    pub fn new(tenant: TenantIdentity, host_namespace: impl Into<String>) -> Self {
        Self { tenant, host_namespace: host_namespace.into() }
    }

    pub fn tenant(&self) -> &TenantIdentity {
        &self.tenant
    }

    /// The host namespace of objects in a tenant namespace. Layout `Single`: the same for all.
    pub fn host_namespace(&self, _tenant_namespace: &str) -> &str {
        &self.host_namespace
    }

    /// The key of the host copy; `bytes_max` is the length that the kind allows.
    pub fn host_key(&self, key: &TenantKey, bytes_max: usize) -> HostKey {
        HostKey::new(self.host_namespace(&key.namespace), self.host_name(&key.namespace, &key.name, bytes_max))
    }

    /// `NAME-NAMESPACE-HASH`, shortened before the hash where it would be too long.
    pub fn host_name(&self, namespace: &str, name: &str, bytes_max: usize) -> String {
        self.joined(namespace, name, name, bytes_max)
    }

    /// The name of an object that exists only on the host, for the sake of a tenant object: `purpose`
    /// can be no part of a tenant name, so these names never meet those of copies.
    pub fn derived_name(&self, purpose: &str, key: &TenantKey, bytes_max: usize) -> String {
        self.joined(&key.namespace, &key.name, &format!("{purpose}:{}", key.name), bytes_max)
    }

    fn joined(&self, namespace: &str, shown: &str, hashed: &str, bytes_max: usize) -> String {
        let hash = hash(&[&self.tenant.uid, namespace, hashed]);
        let room = bytes_max - HASH_CHARS - 1;
        let text = if namespace.is_empty() { shown.to_string() } else { readable(shown, namespace, room) };
        let text = cut(&text, room);
        if text.is_empty() { format!("x{hash}") } else { format!("{text}-{hash}") }
    }

    /// Whether a host object carries the marks of this tenant and stands under the name that its marks
    /// claim; then the key of its tenant object. Marks alone prove nothing.
    pub fn tenant_key(&self, host: &Value, bytes_max: usize) -> Option<TenantKey> {
        let key = self.marked_key(host)?;
        (self.host_key(&key, bytes_max) == HostKey::of(host)).then_some(key)
    }

    /// As [`Self::tenant_key`], for objects named by [`Self::derived_name`].
    pub fn derived_from(&self, purpose: &str, host: &Value, bytes_max: usize) -> Option<TenantKey> {
        let key = self.marked_key(host)?;
        let name = self.derived_name(purpose, &key, bytes_max);
        (name == host.name() && self.host_namespace(&key.namespace) == host.namespace()).then_some(key)
    }

    fn marked_key(&self, host: &Value) -> Option<TenantKey> {
        if host.label(marks::MANAGED_BY) != Some(marks::MANAGER) || host.label(marks::VIRTUAL_CLUSTER_UID) != Some(&self.tenant.uid) {
            return None;
        }
        Some(TenantKey::new(host.label(marks::NAMESPACE)?, host.annotation(marks::NAME)?))
    }
}

/// Name and namespace within `room` bytes; both lose their ends when they do not fit.
fn readable(name: &str, namespace: &str, room: usize) -> String {
    if name.len() + 1 + namespace.len() <= room {
        return format!("{name}-{namespace}");
    }
    // The namespace keeps up to a third, the name gets the rest.
    let namespace = cut(namespace, (room / 3).max(room.saturating_sub(name.len() + 1)));
    let name = cut(name, room - namespace.len() - 1);
    format!("{name}-{namespace}")
}

/// The first `bytes_max` bytes, without a separator at the end, so that what follows stays valid.
fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].trim_end_matches(['-', '.', '_'])
}

/// The first 55 bits of SHA-256 over the parts, each led by its length, so that no two lists of parts
/// give the same bytes.
pub(super) fn hash(parts: &[&str]) -> String {
    let mut sha = Sha256::new();
    for part in parts {
        sha.update((part.len() as u64).to_be_bytes());
        sha.update(part.as_bytes());
    }
    let digest = sha.finalize();
    let bits = digest[..8].iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    (0..HASH_CHARS).map(|i| char::from(HASH_ALPHABET[(bits >> (59 - 5 * i) & 31) as usize])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let tenant = TenantIdentity { name: "alpha".into(), namespace: "team-a".into(), uid: "2f9c".into() };
        Names::new(tenant, "team-a")
    }

    fn is_label(name: &str) -> bool {
        let inner = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        let ends = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        inner && name.len() <= 63 && ends(name.as_bytes().first()) && ends(name.as_bytes().last())
    }

    #[test]
    fn names_stay_readable() {
        let name = names().host_name("prod", "web-0", 63);
        assert!(name.starts_with("web-0-prod-"), "{name}");
        assert_eq!(name.len(), "web-0-prod-".len() + HASH_CHARS);
    }

    /// The naive join gives `web-x-team-x-a-...` for both.
    #[test]
    fn naive_joins_that_collide_stay_apart() {
        let names = names();
        assert_ne!(names.host_name("team-a", "web-x-team", 63), names.host_name("team-x-team-a", "web", 63));
        assert_ne!(names.host_name("b-c", "a", 63), names.host_name("c", "a-b", 63));
        let key = TenantKey::new("prod", "web");
        assert_ne!(names.derived_name("token", &key, 253), names.host_name("prod", "web", 253));
    }

    #[test]
    fn the_longest_names_fit() {
        let (name, namespace) = ("a".repeat(63), "b".repeat(63));
        let host = names().host_name(&namespace, &name, 63);
        assert!(is_label(&host), "{host}");
        let host = names().host_name(&namespace, &"p".repeat(253), NAME_BYTES_MAX_POD);
        assert_eq!(host.len(), NAME_BYTES_MAX_POD);
        // A cut that falls behind a dash leaves no double end.
        let dashed = format!("{}-{}", "a".repeat(30), "-b".repeat(15));
        assert!(is_label(&names().host_name("n", &dashed, 63)));
    }

    #[test]
    fn a_moved_or_foreign_object_has_no_tenant_key() {
        let names = names();
        let key = TenantKey::new("prod", "web");
        let mut host = serde_json::json!({"metadata": {
            "name": names.host_name("prod", "web", 63), "namespace": "team-a",
            "labels": {marks::MANAGED_BY: "sublet", marks::VIRTUAL_CLUSTER_UID: "2f9c", marks::NAMESPACE: "prod"},
            "annotations": {marks::NAME: "web"},
        }});
        assert_eq!(names.tenant_key(&host, 63), Some(key));
        host["metadata"]["name"] = "copied".into();
        assert_eq!(names.tenant_key(&host, 63), None);
        host["metadata"]["name"] = names.host_name("prod", "web", 63).into();
        host["metadata"]["labels"][marks::VIRTUAL_CLUSTER_UID] = "other".into();
        assert_eq!(names.tenant_key(&host, 63), None);
    }
}
