//! From a changed dependent to the keys of the owners that care.

use super::selector::Selector;
use super::template::owner_key;
use serde_json::Value;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::manager::Mapping;
use sublet_runtime::{Change, Key};

/// How an owner of some kind selects its dependents.
pub(crate) type SelectorOf = fn(&Value) -> Selector;

/// `spec.selector` as a `LabelSelector`.
pub(crate) fn label_selector(owner: &Value) -> Selector {
    Selector::parse(owner.pointer("/spec/selector"))
}

/// `spec.selector` as a plain map.
pub(crate) fn map_selector(owner: &Value) -> Selector {
    Selector::of_map(owner.object_at("/spec/selector"))
}

/// The controllers of a dependent before and after the change. One without controller wakes every
/// owner whose selector matches, for it may be adopted.
pub(crate) fn dependents(
    kind: &'static str,
    owners: Gvr,
    selector: SelectorOf,
) -> impl Fn(&Change, &Mapping) -> Vec<Key> + Send + Sync + 'static {
    move |change, mapping| {
        let mut keys = Vec::new();
        for object in [&change.old, &change.new].into_iter().flatten() {
            if let Some(owner) = object.controller_owner()
                && owner["kind"] == kind
            {
                push(&mut keys, owner_key(object, owner));
            }
        }
        if let Some(object) = &change.new
            && object.controller_owner().is_none()
            && !object.is_deleting()
        {
            for owner in mapping.informer(&owners).list(Some(object.namespace())) {
                if selector(&owner).matches_object(object) {
                    push(&mut keys, Key::of(&owner));
                }
            }
        }
        keys
    }
}

fn push(keys: &mut Vec<Key>, key: Key) {
    if !keys.contains(&key) {
        keys.push(key);
    }
}
