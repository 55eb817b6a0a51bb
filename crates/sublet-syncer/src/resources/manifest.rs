//! Which side owns each field of a kind, and the copying that follows from it.

use serde_json::Value;
use sublet_machinery::ObjectExt;

/// A field by its JSON pointer; `*` stands for the items of a list.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub path: &'static str,
    pub owner: Owner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The tenant's, copied to the host as it is.
    Copied,
    /// The tenant's; the kind's hook writes it in the host's terms.
    Translated,
    /// The host's, copied or translated to the tenant.
    ToTenant,
    /// Given by the host once, then part of what both sides hold.
    Allocated,
    /// Stays on its side, for the reason given.
    Kept(&'static str),
    /// Its fields have entries of their own.
    Parts,
}

pub const fn copied(path: &'static str) -> Field {
    Field { path, owner: Owner::Copied }
}

pub const fn translated(path: &'static str) -> Field {
    Field { path, owner: Owner::Translated }
}

pub const fn to_tenant(path: &'static str) -> Field {
    Field { path, owner: Owner::ToTenant }
}

pub const fn allocated(path: &'static str) -> Field {
    Field { path, owner: Owner::Allocated }
}

pub const fn kept(path: &'static str, reason: &'static str) -> Field {
    Field { path, owner: Owner::Kept(reason) }
}

pub const fn parts(path: &'static str) -> Field {
    Field { path, owner: Owner::Parts }
}

/// Copies the fields that need no translation. Fields inside lists are the hook's business: it copies
/// the list and rewrites in place.
pub fn copy_fields(fields: &[&[Field]], tenant: &Value, host: &mut Value) {
    for field in fields.iter().copied().flatten().filter(|f| f.owner == Owner::Copied && !f.path.contains('*')) {
        if let Some(value) = tenant.pointer(field.path).filter(|v| !v.is_null()) {
            host.set_at(field.path, value.clone());
        }
    }
}

fn allocated_paths<'a>(fields: &'a [&'a [Field]]) -> impl Iterator<Item = &'static str> + 'a {
    fields.iter().copied().flatten().filter(|f| f.owner == Owner::Allocated).map(|f| f.path)
}

/// An object without the fields that the host gives: they count as written when both sides agree.
pub fn without_allocated(fields: &[&[Field]], mut object: Value) -> Value {
    for path in allocated_paths(fields) {
        remove_all(&mut object, path);
    }
    object
}

fn remove_all(object: &mut Value, path: &str) {
    match path.split_once("/*") {
        None => {
            object.remove_at(path);
        }
        Some((list, rest)) => {
            for item in object.pointer_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                remove_all(item, rest);
            }
        }
    }
}

/// Whether the host object has every allocated value that `desired` asks for.
pub fn has_allocated(fields: &[&[Field]], desired: &Value, host: &Value) -> bool {
    allocated_paths(fields).all(|path| agrees(desired, host, path))
}

fn agrees(desired: &Value, host: &Value, path: &str) -> bool {
    match path.split_once("/*") {
        None => desired.pointer(path).is_none_or(|wanted| host.pointer(path) == Some(wanted)),
        Some((list, rest)) => {
            let theirs = host.array_at(list);
            desired.array_at(list).iter().enumerate().all(|(i, item)| theirs.get(i).is_some_and(|h| agrees(item, h, rest)))
        }
    }
}

/// The owner of a path: that of the longest entry that is the path or lies above it.
pub fn owner_of(fields: &[&[Field]], path: &str) -> Option<Owner> {
    fields
        .iter()
        .copied()
        .flatten()
        .filter(|f| path == f.path || path.strip_prefix(f.path).is_some_and(|rest| rest.starts_with('/')))
        .max_by_key(|f| f.path.len())
        .map(|f| f.owner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_longest_entry_decides() {
        let fields: [&[Field]; 1] = [&[parts("/spec"), copied("/spec/a"), kept("/spec/a/b", "why")]];
        assert_eq!(owner_of(&fields, "/spec/a/c"), Some(Owner::Copied));
        assert_eq!(owner_of(&fields, "/spec/a/b/d"), Some(Owner::Kept("why")));
        assert_eq!(owner_of(&fields, "/spec/ab"), Some(Owner::Parts));
        assert_eq!(owner_of(&fields, "/status"), None);
    }

    #[test]
    fn allocated_values_count_when_both_sides_agree() {
        let fields: [&[Field]; 1] = [&[allocated("/spec/ip"), allocated("/spec/ports/*/nodePort")]];
        let object = json!({"spec": {"ip": "1", "ports": [{"port": 80, "nodePort": 30000}]}});
        assert_eq!(without_allocated(&fields, object.clone()), json!({"spec": {"ports": [{"port": 80}]}}));
        assert!(has_allocated(&fields, &json!({"spec": {"ports": [{"port": 80}]}}), &object));
        assert!(!has_allocated(&fields, &json!({"spec": {"ip": "2"}}), &object));
    }

    #[test]
    fn only_copied_fields_are_copied() {
        let mut host = json!({});
        copy_fields(
            &[&[copied("/spec/a"), translated("/spec/b"), copied("/spec/c")]],
            &json!({"spec": {"a": 1, "b": 2, "c": null}}),
            &mut host,
        );
        assert_eq!(host, json!({"spec": {"a": 1}}));
    }
}
