//! The metadata that the system owns, on create and update.

use crate::registry::Resource;
use serde_json::{Map, Value, json};
use sublet_machinery::ObjectExt;

/// Names made from `generateName` are cut so that the random end fits.
const GENERATED_NAME_PREFIX_MAX: usize = 63 - RANDOM_LENGTH;
const RANDOM_LENGTH: usize = 5;
/// No vowels and no look-alikes, as upstream's utilrand.
const RANDOM_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Fills the system's fields of a new object.
pub fn prepare_create(resource: &Resource, object: &mut Value, now: &str) {
    let generate = object.name().is_empty();
    let prefix = object.str_at("/metadata/generateName").unwrap_or_default().to_string();
    let metadata = object.metadata_mut();
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"] {
        metadata.remove(field);
    }
    metadata.insert("uid".into(), json!(uuid::Uuid::new_v4().to_string()));
    metadata.insert("creationTimestamp".into(), json!(now));
    if generate && !prefix.is_empty() {
        metadata.insert("name".into(), json!(generate_name(&prefix)));
    }
    if resource.strategy.generation {
        metadata.insert("generation".into(), json!(1));
    }
    drop_empty(metadata);
}

pub fn generate_name(prefix: &str) -> String {
    let mut end = prefix.len().min(GENERATED_NAME_PREFIX_MAX);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = prefix[..end].to_string();
    name.extend((0..RANDOM_LENGTH).map(|_| char::from(RANDOM_LETTERS[rand::random_range(0..RANDOM_LETTERS.len())])));
    name
}

/// Empty maps and lists are not kept, as Go's omitempty leaves them out.
pub fn drop_empty(metadata: &mut Map<String, Value>) {
    metadata.retain(|_, value| match value {
        Value::Null => false,
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    });
}

/// Carries over what an update cannot change.
pub fn prepare_update(resource: &Resource, new: &mut Value, old: &Value) {
    let name = old.name().to_string();
    // Another uid is left for validation to refuse.
    if new.uid().is_empty() {
        new.metadata_mut().insert("uid".into(), json!(old.uid()));
    }
    let metadata = new.metadata_mut();
    metadata.insert("name".into(), json!(name));
    for field in ["creationTimestamp", "generation", "selfLink"] {
        match old["metadata"].get(field) {
            Some(value) => metadata.insert(field.into(), value.clone()),
            None => metadata.remove(field),
        };
    }
    // A deletion is not taken back; one that nobody asked for is left for validation to refuse.
    if let Some(time) = old["metadata"].get("deletionTimestamp") {
        metadata.insert("deletionTimestamp".into(), time.clone());
    }
    if let Some(grace) = old["metadata"].get("deletionGracePeriodSeconds") {
        metadata.entry("deletionGracePeriodSeconds").or_insert_with(|| grace.clone());
    }
    if resource.namespaced {
        metadata.insert("namespace".into(), old["metadata"]["namespace"].clone());
    }
    drop_empty(metadata);
}

/// Raises the generation when anything outside metadata and status changed.
pub fn bump_generation(resource: &Resource, new: &mut Value, old: &Value) {
    if !resource.strategy.generation {
        return;
    }
    let differs = (resource.strategy.changes_generation)(new, old);
    if differs {
        new["metadata"]["generation"] = json!(old.generation() + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_fit_a_label() {
        let name = generate_name(&"x".repeat(100));
        assert_eq!(name.len(), 63);
        assert!(generate_name("web-").starts_with("web-"));
    }
}
