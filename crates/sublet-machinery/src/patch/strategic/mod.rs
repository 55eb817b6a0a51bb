//! Strategic merge patch: a merge patch that knows which lists merge and by which key, and has directives.
//!
//! Follows `StrategicMergeMapPatch` of apimachinery (1.37), including what it does with patches that no
//! tool makes.

mod list;
mod order;

use super::{go_text, go_type, rejected};
use crate::error::{ApiError, Reason};
use crate::schema::{PatchStrategy, SchemaNode};
use serde_json::{Map, Value};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";

/// Applies `patch` to `current`. `schema` is the type of the object; lists that it does not know are replaced.
pub fn merge(current: &Value, patch: &Value, schema: SchemaNode<'_>) -> Result<Value, ApiError> {
    let Value::Object(patch) = patch else {
        let kind = super::merge_patch::json_kind(patch);
        return Err(ApiError::bad_request(format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}")));
    };
    let current = current.as_object().cloned().unwrap_or_default();
    Ok(Value::Object(merge_map(current, patch.clone(), Some(schema))?))
}

fn merge_map(
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
    schema: Option<SchemaNode<'_>>,
) -> Result<Map<String, Value>, ApiError> {
    match patch.get(DIRECTIVE) {
        None => {}
        Some(directive) if directive == "replace" => {
            patch.remove(DIRECTIVE);
            return Ok(patch);
        }
        Some(directive) if directive == "delete" => return Ok(Map::new()),
        Some(directive) => return Err(bad_directive(directive, &patch)),
    }
    retain_keys(&mut original, &mut patch)?;
    order::merge_ordered_lists(&mut original, &mut patch, schema)?;
    for (key, value) in patch {
        merge_field(&mut original, &key, value, schema)?;
    }
    Ok(original)
}

fn merge_field(original: &mut Map<String, Value>, key: &str, value: Value, schema: Option<SchemaNode<'_>>) -> Result<(), ApiError> {
    let (key, deletes) = match parallel_key(key, DELETE_FROM_LIST) {
        None => (key, false),
        Some(Some(list)) => (list, true),
        Some(None) => return Err(ApiError::bad_request("invalid patch format of primitive list")),
    };
    if value.is_null() {
        original.remove(key);
        return Ok(());
    }
    let field = schema.and_then(|s| s.field(key));
    match (original.get_mut(key), value) {
        (Some(Value::Object(old)), Value::Object(new)) if field.is_some_and(|f| f.patch_strategy == PatchStrategy::ReplaceMap) => {
            *old = new
        }
        (Some(Value::Object(old)), Value::Object(new)) => {
            *old = merge_map(std::mem::take(old), new, field)?;
        }
        (Some(Value::Array(old)), Value::Array(new)) => {
            *old = list::merge_list(std::mem::take(old), new, field, deletes)?;
        }
        // Nothing to delete from.
        (_, _) if deletes => {}
        (_, mut new) => {
            discard_nulls(&mut new);
            if remove_directives(&mut new) {
                original.insert(key.to_string(), new);
            } else {
                original.remove(key);
            }
        }
    }
    Ok(())
}

/// `$retainKeys` lists what may remain: the tool that made the patch saw a union change its member.
fn retain_keys(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), ApiError> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let bad = || ApiError::bad_request("invalid patch format of retainKeys");
    let keys: Vec<&str> = keys.as_array().ok_or_else(bad)?.iter().filter_map(Value::as_str).collect();
    let is_parallel = |key: &str| key.starts_with(DELETE_FROM_LIST) || key.starts_with(ELEMENT_ORDER);
    if patch.iter().any(|(key, value)| !value.is_null() && !is_parallel(key) && !keys.contains(&key.as_str())) {
        return Err(bad());
    }
    original.retain(|key, _| keys.contains(&key.as_str()));
    Ok(())
}

/// For a key that starts with `prefix`: the list it belongs to, if it is well formed.
fn parallel_key<'a>(key: &'a str, prefix: &str) -> Option<Option<&'a str>> {
    let rest = key.strip_prefix(prefix)?;
    Some(rest.strip_prefix('/'))
}

/// Removes the maps with a directive; false when the value is one of them.
fn remove_directives(value: &mut Value) -> bool {
    match value {
        Value::Object(map) => {
            if map.contains_key(DIRECTIVE) {
                return false;
            }
            map.retain(|_, v| remove_directives(v));
        }
        Value::Array(items) => items.retain_mut(remove_directives),
        _ => {}
    }
    true
}

/// Drops the fields set to null, everywhere.
fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => map.retain(|_, v| {
            discard_nulls(v);
            !v.is_null()
        }),
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

fn merges(field: Option<SchemaNode<'_>>) -> bool {
    field.is_some_and(|f| matches!(f.patch_strategy, PatchStrategy::Merge | PatchStrategy::MergeRetainKeys))
}

fn merge_key(field: Option<SchemaNode<'_>>) -> &str {
    field.and_then(|f| f.get().patch_merge_key.as_deref()).unwrap_or_default()
}

fn bad_directive(directive: &Value, map: &Map<String, Value>) -> ApiError {
    server_error(format!("unknown patch type: {} in map: {}", go_text(directive), go_text(&Value::Object(map.clone()))))
}

fn no_merge_key(item: &Value, key: &str) -> ApiError {
    server_error(format!("map: {} does not contain declared merge key: {key}", go_text(item)))
}

fn bad_type(expected: &str, actual: &Value) -> ApiError {
    server_error(format!("expected a {expected}, but received a {}", go_type(actual)))
}

/// Upstream has no status for these faults of a patch, so they come out as its fault.
fn server_error(message: String) -> ApiError {
    ApiError::new(500, Reason::Unknown, message)
}
