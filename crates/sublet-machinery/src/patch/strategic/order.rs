//! `$setElementOrder/x`: the order in which the client wants the elements of list `x`.

use super::{DIRECTIVE, ELEMENT_ORDER, bad_type, list, merge_key, parallel_key, remove_directives, server_error};
use crate::error::ApiError;
use crate::patch::go_text;
use crate::schema::SchemaNode;
use serde_json::{Map, Value};

/// Merges the lists whose order the patch states, and takes them and their orders out of the patch.
pub(super) fn merge_ordered_lists(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    schema: Option<SchemaNode<'_>>,
) -> Result<(), ApiError> {
    let directives: Vec<String> = patch.keys().filter(|k| k.starts_with(ELEMENT_ORDER)).cloned().collect();
    for directive in directives {
        let order = list_of(patch.remove(&directive).unwrap_or_default())?;
        let name = parallel_key(&directive, ELEMENT_ORDER).flatten().ok_or_else(bad_order)?;
        let field = schema.and_then(|s| s.field(name));
        let live = original.get(name).cloned().map(list_of).transpose()?;
        let wanted = patch.remove(name).map(list_of).transpose()?;
        check(wanted.as_deref().unwrap_or_default(), &order, merge_key(field))?;
        let live_order = live_order(live.as_deref().unwrap_or_default(), wanted.as_deref().unwrap_or_default(), merge_key(field))?;
        let merged = match (live, wanted) {
            (None, None) => continue,
            (Some(live), None) => live,
            (None, Some(new)) => {
                let mut new = Value::Array(new);
                remove_directives(&mut new);
                list_of(new)?
            }
            (Some(live), Some(new)) => list::merge_list(live, new, field, false)?,
        };
        list::is_list_of_maps(&merged, &[])?;
        let arranged = list::arrange(merged, merge_key(field), &list::keys(&order, merge_key(field))?, &live_order)?;
        original.insert(name.to_string(), Value::Array(arranged));
    }
    Ok(())
}

/// The order of the live list, against which server-only elements are placed. Upstream deletes and appends
/// in the array that it later takes this order from, so new elements take the room of deleted ones.
fn live_order(live: &[Value], patch: &[Value], key: &str) -> Result<Vec<Value>, ApiError> {
    let mut order = list::keys(live, key)?;
    if key.is_empty() || patch.iter().any(|item| item.get(DIRECTIVE).is_some_and(|d| d == "replace")) {
        return Ok(order);
    }
    let deleted: Vec<&Value> = patch.iter().filter(|i| i.get(DIRECTIVE).is_some()).filter_map(|i| i.get(key)).collect();
    if deleted.is_empty() {
        return Ok(order);
    }
    order.retain(|id| !deleted.contains(&id));
    for id in patch.iter().filter(|i| i.get(DIRECTIVE).is_none()).filter_map(|i| i.get(key)) {
        if order.len() < live.len() && !order.contains(id) {
            order.push(id.clone());
        }
    }
    Ok(order)
}

/// The patch must list its elements in the stated order, and none that the order does not have.
fn check(patch: &[Value], order: &[Value], key: &str) -> Result<(), ApiError> {
    if order.is_empty() || patch.is_empty() {
        return Ok(());
    }
    let mut places = order.iter();
    for item in patch.iter().filter(|i| i.get(DIRECTIVE).is_none()) {
        let id = id_of(item, key)?;
        let mut found = false;
        for place in places.by_ref() {
            found = id_of(place, key)? == id;
            if found {
                break;
            }
        }
        if !found {
            let lists = [patch, order].map(|l| go_text(&Value::Array(l.to_vec())));
            return Err(server_error(format!(
                "The order in patch list:\n{}\n doesn't match {ELEMENT_ORDER} list:\n{}\n",
                lists[0], lists[1]
            )));
        }
    }
    Ok(())
}

fn id_of<'a>(item: &'a Value, key: &str) -> Result<&'a Value, ApiError> {
    if key.is_empty() {
        return Ok(item);
    }
    if !item.is_object() {
        return Err(bad_type("map[string]interface {}", item));
    }
    item.get(key).ok_or_else(|| super::no_merge_key(item, key))
}

fn list_of(value: Value) -> Result<Vec<Value>, ApiError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(bad_type("[]interface {}", &other)),
    }
}

fn bad_order() -> ApiError {
    ApiError::bad_request("invalid patch format of setElementOrder list")
}
