//! Merging of lists, by key or by value, and the order of the result.

use super::{DIRECTIVE, bad_directive, bad_type, merge_key, merge_map, merges, no_merge_key, rejected, server_error};
use crate::error::ApiError;
use crate::patch::go_text;
use crate::schema::SchemaNode;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// Merges or replaces a list, as its type says; with `deletes` the patch lists scalars to remove.
pub(super) fn merge_list(
    original: Vec<Value>,
    patch: Vec<Value>,
    field: Option<SchemaNode<'_>>,
    deletes: bool,
) -> Result<Vec<Value>, ApiError> {
    if !merges(field) && !deletes {
        return Ok(patch);
    }
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    if !is_list_of_maps(&original, &patch)? {
        return Ok(if deletes { remove_values(original, &patch) } else { merge_scalars(original, patch) });
    }
    let key = merge_key(field);
    if key.is_empty() {
        let name = if field.is_some_and(|f| f.get().items.is_some()) { "struct" } else { "map" };
        return Err(server_error(format!("cannot merge lists without merge key for {name}")));
    }
    let (original, patch) = apply_directives(original, patch, key)?;
    let order_of_original = keys(&original, key)?;
    let order_of_patch = keys(&patch, key)?;
    let merged = merge_items(original, patch, key, field.and_then(SchemaNode::items))?;
    arrange(merged, key, &order_of_patch, &order_of_original)
}

/// All elements are maps, or all are scalars of one type.
pub(super) fn is_list_of_maps(original: &[Value], patch: &[Value]) -> Result<bool, ApiError> {
    let mut all = original.iter().chain(patch);
    let Some(first) = all.next() else { return Ok(false) };
    if first.is_array() {
        return Err(rejected());
    }
    if all.any(|v| std::mem::discriminant(v) != std::mem::discriminant(first)) {
        let lists = [original, patch].map(|l| go_text(&Value::Array(l.to_vec())));
        return Err(server_error(format!("list element types are not identical: [{} {}]", lists[0], lists[1])));
    }
    Ok(first.is_object())
}

fn remove_values(mut original: Vec<Value>, unwanted: &[Value]) -> Vec<Value> {
    let unwanted: HashSet<&Value> = unwanted.iter().collect();
    original.retain(|v| !unwanted.contains(v));
    original
}

fn merge_scalars(original: Vec<Value>, patch: Vec<Value>) -> Vec<Value> {
    let (original_order, patch_order) = (original.clone(), patch.clone());
    let mut seen = HashSet::new();
    let mut merged: Vec<Value> = original.into_iter().chain(patch).collect();
    merged.retain(|v| seen.insert(v.clone()));
    arrange(merged, "", &patch_order, &original_order).expect("scalars need no merge key")
}

/// Handles the elements with a `$patch` directive; returns what is left of both lists.
fn apply_directives(mut original: Vec<Value>, patch: Vec<Value>, key: &str) -> Result<(Vec<Value>, Vec<Value>), ApiError> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut replaces = false;
    for item in patch {
        match &item[DIRECTIVE] {
            _ if item.get(DIRECTIVE).is_none() => plain.push(item),
            directive if directive == "delete" => {
                let unwanted = item.get(key).ok_or_else(|| no_merge_key(&item, key))?;
                original.retain(|o| o.get(key) != Some(unwanted));
            }
            directive if directive == "replace" => replaces = true,
            directive if directive == "merge" => {
                return Err(server_error("merging lists cannot yet be specified in the patch".into()));
            }
            directive => return Err(bad_directive(directive, item.as_object().expect("elements with directives are maps"))),
        }
    }
    Ok(if replaces { (plain, Vec::new()) } else { (original, plain) })
}

fn merge_items(mut original: Vec<Value>, patch: Vec<Value>, key: &str, item: Option<SchemaNode<'_>>) -> Result<Vec<Value>, ApiError> {
    let mut places: HashMap<Value, usize> = HashMap::with_capacity(original.len());
    for (place, value) in original.iter().enumerate().filter_map(|(i, o)| Some((i, o.get(key)?))) {
        places.entry(value.clone()).or_insert(place);
    }
    for new in patch {
        let value = new.get(key).ok_or_else(|| no_merge_key(&new, key))?;
        match places.get(value) {
            Some(place) => {
                let (Value::Object(old), Value::Object(new)) = (original[*place].take(), new) else {
                    return Err(server_error(format!("value for key {place} is not a map")));
                };
                original[*place] = Value::Object(merge_map(old, new, item)?);
            }
            None => {
                places.insert(value.clone(), original.len());
                original.push(new);
            }
        }
    }
    Ok(original)
}

/// The values by which the elements are told apart: those of the merge key, or themselves.
pub(super) fn keys(list: &[Value], key: &str) -> Result<Vec<Value>, ApiError> {
    list.iter().map(|item| key_of(item, key).cloned()).collect()
}

fn key_of<'a>(item: &'a Value, key: &str) -> Result<&'a Value, ApiError> {
    if key.is_empty() {
        return Ok(item);
    }
    let map = item.as_object().ok_or_else(|| bad_type("map[string]interface {}", item))?;
    map.get(key).ok_or_else(|| no_merge_key(item, key))
}

/// Orders a merged list. Elements named in `wanted` come in that order, the others in that of `live`; both
/// are then interleaved so that the order of `live` is kept where that is possible.
pub(super) fn arrange(merged: Vec<Value>, key: &str, wanted: &[Value], live: &[Value]) -> Result<Vec<Value>, ApiError> {
    let (wanted, live) = (positions(wanted), positions(live));
    let mut named: Vec<(usize, Option<usize>, Value)> = Vec::new();
    let mut others: Vec<(usize, Option<usize>, Value)> = Vec::new();
    for item in merged {
        let id = key_of(&item, key)?;
        let in_live = live.get(id).copied();
        match wanted.get(id) {
            Some(place) => named.push((*place, in_live, item)),
            None => others.push((in_live.unwrap_or(usize::MAX), in_live, item)),
        }
    }
    named.sort_by_key(|(place, ..)| *place);
    others.sort_by_key(|(place, ..)| *place);
    let mut arranged = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, place, item) in named {
        while let Some(other) = others.next_if(|(_, other, _)| matches!((other, place), (Some(o), Some(p)) if *o < p)) {
            arranged.push(other.2);
        }
        arranged.push(item);
    }
    arranged.extend(others.map(|(_, _, item)| item));
    Ok(arranged)
}

/// The first place of every value.
fn positions(list: &[Value]) -> HashMap<&Value, usize> {
    let mut places = HashMap::with_capacity(list.len());
    for (place, value) in list.iter().enumerate() {
        places.entry(value).or_insert(place);
    }
    places
}
