//! From templates to objects: controller references, pods, names with a hash.

use serde_json::{Map, Value, json};
use sublet_machinery::{Gvk, NamespacedName, ObjectExt};

/// The letters of generated names: no vowels and nothing that reads like one.
const SAFE_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const NAME_BYTES_MAX: usize = 253;

/// The reference from a dependent to its managing owner.
pub(crate) fn controller_reference(owner: &Value, gvk: &Gvk) -> Value {
    json!({
        "apiVersion": gvk.api_version(), "kind": gvk.kind, "name": owner.name(), "uid": owner.uid(),
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// A pod from a pod template, owned by `owner` and with a name to be generated from the owner's.
pub(crate) fn pod(owner: &Value, gvk: &Gvk, template: &Value) -> Value {
    let mut metadata = Map::new();
    for key in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(key) {
            metadata.insert(key.to_string(), value.clone());
        }
    }
    metadata.insert("namespace".into(), json!(owner.namespace()));
    metadata.insert("generateName".into(), json!(generate_name(owner.name())));
    metadata.insert("ownerReferences".into(), json!([controller_reference(owner, gvk)]));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"].clone()})
}

/// `NAME-`, or the bare name when the dash would make it too long for a name of a pod.
fn generate_name(owner: &str) -> String {
    if owner.len() < NAME_BYTES_MAX { format!("{owner}-") } else { owner.to_string() }
}

/// A template without what the server adds in one place and leaves out in another: nulls, empty lists
/// and maps. Two templates mean the same when their plain forms are equal.
pub(crate) fn plain(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let entries = map.iter().map(|(k, v)| (k.clone(), plain(v))).filter(|(_, v)| !is_empty(v));
            Value::Object(entries.collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(plain).collect()),
        other => other.clone(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        // An empty `emptyDir` or `securityContext` chooses something, an absent one does not; but
        // the server writes both sides of a comparison the same way, so they are kept.
        _ => false,
    }
}

/// The short hash of a pod template in names and labels.
pub(crate) fn template_hash(template: &Value, collisions: Option<i64>) -> String {
    let mut hash = Fnv32::default();
    hash.write(plain(template).to_string().as_bytes());
    if let Some(collisions) = collisions {
        hash.write(&collisions.to_le_bytes());
    }
    safe_encode(&hash.finish().to_string())
}

/// Rewrites each byte as one of the letters that are safe in generated names.
pub(crate) fn safe_encode(text: &str) -> String {
    text.bytes().map(|b| char::from(SAFE_LETTERS[usize::from(b) % SAFE_LETTERS.len()])).collect()
}

/// `PREFIX-SUFFIX`, with the prefix cut to keep the whole within the limit of names.
pub(crate) fn joined_name(prefix: &str, suffix: &str) -> String {
    let room = NAME_BYTES_MAX - 1 - suffix.len();
    format!("{}-{suffix}", prefix.get(..room).unwrap_or(prefix))
}

/// The name that an owner reference points to.
pub(crate) fn owner_key(object: &Value, reference: &Value) -> NamespacedName {
    NamespacedName::new(object.namespace(), reference["name"].as_str().unwrap_or_default())
}

/// FNV-1a with 32 bits.
pub(crate) struct Fnv32(u32);

impl Default for Fnv32 {
    fn default() -> Self {
        Self(0x811c_9dc5)
    }
}

impl Fnv32 {
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }

    pub(crate) fn finish(&self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_ignores_nulls_and_sees_collisions() {
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}});
        let mut with_null = template.clone();
        with_null["metadata"]["creationTimestamp"] = Value::Null;
        assert_eq!(template_hash(&template, None), template_hash(&with_null, None));
        assert_ne!(template_hash(&template, None), template_hash(&template, Some(1)));
    }

    #[test]
    fn fnv_matches_its_published_vectors() {
        let hash = |text: &str| {
            let mut h = Fnv32::default();
            h.write(text.as_bytes());
            h.finish()
        };
        assert_eq!((hash(""), hash("a"), hash("foobar")), (0x811c_9dc5, 0xe40c_292c, 0xbf9c_f968));
    }

    #[test]
    fn long_names_are_cut_before_the_hash() {
        let name = joined_name(&"d".repeat(253), "abc");
        assert_eq!(name.len(), 253);
        assert!(name.ends_with("d-abc"));
    }
}
