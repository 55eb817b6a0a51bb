//! JSON patch (RFC 6902), with the leniency of the library that upstream uses: negative indexes count from
//! the end, `replace` of a missing map key adds it, and `null` is the same as missing.

use super::{merge_patch::json_kind, rejected};
use crate::error::ApiError;
use serde_json::{Map, Value};

/// A patch with more operations is refused.
pub const OPERATIONS_MAX: usize = 10_000;

/// Copies may make an object grow by this much in all, as upstream has it: ten thousand copies of copies would else fill
/// memory.
pub const COPIED_BYTES_MAX: usize = 3 << 20;

/// Why a patch does not apply. Clients of an API server are not told, but logs and tools are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JsonPatchError(pub String);

/// Applies a patch document for a client.
pub fn apply(current: &Value, patch: &Value) -> Result<Value, ApiError> {
    let operations = check(patch)?;
    apply_operations(current.clone(), operations).map_err(|_| rejected())
}

/// Checks the shape and size of a patch document.
pub fn check(patch: &Value) -> Result<&[Value], ApiError> {
    let decode = |kind: &str, target: &str| {
        ApiError::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {kind} into Go value of type {target}handlers.jsonPatchOp"
        ))
    };
    let operations = match patch {
        Value::Array(operations) => operations.as_slice(),
        Value::Null => &[],
        other => return Err(decode(json_kind(other), "[]")),
    };
    if let Some(wrong) = operations.iter().find(|o| !o.is_object() && !o.is_null()) {
        return Err(decode(json_kind(wrong), ""));
    }
    if operations.len() > OPERATIONS_MAX {
        return Err(ApiError::too_large(format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            operations.len()
        )));
    }
    Ok(operations)
}

/// Fields of operations that JSON patch does not know, for field validation.
pub fn unknown_fields(patch: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    for (i, operation) in patch.as_array().into_iter().flatten().enumerate() {
        for field in operation.as_object().into_iter().flat_map(Map::keys) {
            if !matches!(field.as_str(), "op" | "path" | "from" | "value") {
                errors.push(format!("json patch unknown field \"[{i}].{field}\""));
            }
        }
    }
    errors
}

/// Applies the operations one after the other.
pub fn apply_operations(mut document: Value, operations: &[Value]) -> Result<Value, JsonPatchError> {
    let mut copied_bytes = 0;
    for operation in operations {
        match operation["op"].as_str().unwrap_or("unknown") {
            "add" => add(&mut document, operation)?,
            "remove" => remove(&mut document, operation)?,
            "replace" => replace(&mut document, operation)?,
            "move" => move_value(&mut document, operation)?,
            "test" => test(&document, operation)?,
            "copy" => copy(&mut document, operation, &mut copied_bytes)?,
            other => return Err(JsonPatchError(format!("Unexpected kind: {other}"))),
        }
    }
    Ok(document)
}

fn add(document: &mut Value, operation: &Value) -> Result<(), JsonPatchError> {
    let Some(path) = operation["path"].as_str() else {
        return fail("add operation failed to decode path: missing value".into());
    };
    let Some((container, key)) = find_mut(document, path) else {
        return fail(format!("add operation does not apply: doc is missing path: \"{path}\": missing value"));
    };
    insert(container, &key, operation["value"].clone()).map_err(|e| JsonPatchError(format!("error in add for path: '{path}': {e}")))
}

fn remove(document: &mut Value, operation: &Value) -> Result<(), JsonPatchError> {
    let Some(path) = operation["path"].as_str() else {
        return fail("remove operation failed to decode path: missing value".into());
    };
    let Some((container, key)) = find_mut(document, path) else {
        return fail(format!("remove operation does not apply: doc is missing path: \"{path}\": missing value"));
    };
    take(container, &key).map(|_| ()).map_err(|e| JsonPatchError(format!("error in remove for path: '{path}': {e}")))
}

fn replace(document: &mut Value, operation: &Value) -> Result<(), JsonPatchError> {
    let Some(path) = operation["path"].as_str() else {
        return fail("replace operation failed to decode path: operation missing path field: missing value".into());
    };
    let value = operation["value"].clone();
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return fail("replace operation value must be object or array: %!w(<nil>)".into());
        }
        *document = value;
        return Ok(());
    }
    let Some((container, key)) = find_mut(document, path) else {
        return fail(format!("replace operation does not apply: doc is missing path: {path}: missing value"));
    };
    match container {
        Value::Array(items) => match index(&key, items.len()) {
            Ok(at) if at < items.len() => items[at] = value,
            _ => return fail(format!("replace operation does not apply: doc is missing key: {path}: missing value")),
        },
        Value::Object(map) => {
            map.insert(key, value);
        }
        _ => unreachable_container(),
    }
    Ok(())
}

fn move_value(document: &mut Value, operation: &Value) -> Result<(), JsonPatchError> {
    let Some(from) = operation["from"].as_str() else {
        return fail("move operation failed to decode from: operation, missing from field: missing value".into());
    };
    let Some((container, key)) = find_mut(document, from) else {
        return fail(format!("move operation does not apply: doc is missing from path: {from}: missing value"));
    };
    let value = take(container, &key).map_err(|e| JsonPatchError(format!("error in move for path: '{key}': {e}")))?;
    let Some(path) = operation["path"].as_str() else {
        return fail("move operation failed to decode path: operation missing path field: missing value".into());
    };
    let Some((container, key)) = find_mut(document, path) else {
        return fail(format!("move operation does not apply: doc is missing destination path: {path}: missing value"));
    };
    insert(container, &key, value).map_err(|e| JsonPatchError(format!("error in move for path: '{path}': {e}")))
}

fn copy(document: &mut Value, operation: &Value, copied_bytes: &mut usize) -> Result<(), JsonPatchError> {
    let Some(from) = operation["from"].as_str() else {
        return fail("copy operation failed to decode from: operation, missing from field: missing value".into());
    };
    let Some((container, key)) = find(document, from) else {
        return fail(format!("copy operation does not apply: doc is missing from path: {from}: missing value"));
    };
    let value = get(container, &key).map_err(|e| JsonPatchError(format!("error in copy for from: '{from}': {e}")))?.clone();
    *copied_bytes += size_bytes(&value);
    if *copied_bytes > COPIED_BYTES_MAX {
        return fail(format!(
            "Unable to complete the copy, the accumulated size increase of copy is {copied_bytes}, exceeding the limit {COPIED_BYTES_MAX}"
        ));
    }
    let Some(path) = operation["path"].as_str() else {
        return fail("copy operation failed to decode path: missing value".into());
    };
    let Some((container, key)) = find_mut(document, path) else {
        return fail(format!("copy operation does not apply: doc is missing destination path: {path}: missing value"));
    };
    insert(container, &key, value).map_err(|e| JsonPatchError(format!("error while adding value during copy: {e}")))
}

fn test(document: &Value, operation: &Value) -> Result<(), JsonPatchError> {
    let Some(path) = operation["path"].as_str() else {
        return fail("test operation failed to decode path: operation missing path field: missing value".into());
    };
    let actual = if path.is_empty() {
        document
    } else {
        let Some((container, key)) = find(document, path) else {
            return fail(format!("test operation does not apply: is missing path: {path}: missing value"));
        };
        get(container, &key).map_err(|e| JsonPatchError(format!("error in test for path: '{path}': {e}")))?
    };
    if *actual == operation["value"] { Ok(()) } else { fail(format!("testing value {path} failed: test failed")) }
}

/// The container that a path leads into, and the last key.
fn find<'a>(document: &'a Value, path: &str) -> Option<(&'a Value, String)> {
    let (parents, key) = segments(path)?;
    let mut container = document;
    for part in parents {
        let next = get(container, &unescape(part)).ok()?;
        container = Some(next).filter(|n| n.is_object() || n.is_array())?;
    }
    Some((container, unescape(key)))
}

fn find_mut<'a>(document: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (parents, key) = segments(path)?;
    let mut container = document;
    for part in parents {
        let part = unescape(part);
        let next = match container {
            Value::Object(map) => map.get_mut(&part)?,
            Value::Array(items) => {
                let at = index(&part, items.len()).ok()?;
                items.get_mut(at)?
            }
            _ => return None,
        };
        container = Some(next).filter(|n| n.is_object() || n.is_array())?;
    }
    Some((container, unescape(key)))
}

/// Splits at slashes. What stands before the first slash does not count.
fn segments(path: &str) -> Option<(impl Iterator<Item = &str>, &str)> {
    let (_, path) = path.split_once('/')?;
    let (parents, key) = match path.rsplit_once('/') {
        Some((parents, key)) => (Some(parents), key),
        None => (None, path),
    };
    Some((parents.into_iter().flat_map(|p| p.split('/')), key))
}

fn unescape(key: &str) -> String {
    if key.contains('~') { key.replace("~1", "/").replace("~0", "~") } else { key.to_string() }
}

/// What stands at a key; `null` when a map does not have it.
fn get<'a>(container: &'a Value, key: &str) -> Result<&'a Value, String> {
    match container {
        Value::Array(items) => {
            let at = index(key, items.len())?;
            items.get(at).ok_or_else(|| invalid_index(at))
        }
        map => Ok(&map[key]),
    }
}

fn take(container: &mut Value, key: &str) -> Result<Value, String> {
    match container {
        Value::Array(items) => {
            let at = index(key, items.len())?;
            if at < items.len() { Ok(items.remove(at)) } else { Err(invalid_index(at)) }
        }
        Value::Object(map) => map.remove(key).ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value")),
        _ => unreachable_container(),
    }
}

fn insert(container: &mut Value, key: &str, value: Value) -> Result<(), String> {
    match container {
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            // An insertion may stand one place further than a reference.
            let at = index(key, items.len() + 1)
                .map_err(|e| if e.starts_with("strconv") { format!("value was not a proper array index: '{key}': {e}") } else { e })?;
            if at > items.len() {
                return Err(invalid_index(at));
            }
            items.insert(at, value);
        }
        Value::Object(map) => {
            map.insert(key.to_string(), value);
        }
        _ => unreachable_container(),
    }
    Ok(())
}

/// A list index; negative ones count from the end.
fn index(key: &str, length: usize) -> Result<usize, String> {
    let number: i64 = key.parse().map_err(|_| format!("strconv.Atoi: parsing {key:?}: invalid syntax"))?;
    if number >= 0 {
        return Ok(usize::try_from(number).unwrap_or(usize::MAX));
    }
    let from_end = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
    length.checked_sub(from_end).ok_or_else(|| format!("Unable to access invalid index: {number}: invalid index referenced"))
}

fn invalid_index(at: usize) -> String {
    format!("Unable to access invalid index: {at}: invalid index referenced")
}

/// About the bytes of a value as JSON.
fn size_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|i| size_bytes(i) + 1).sum::<usize>(),
        Value::Object(map) => 2 + map.iter().map(|(k, v)| k.len() + 4 + size_bytes(v)).sum::<usize>(),
        _ => 8,
    }
}

fn fail<T>(text: String) -> Result<T, JsonPatchError> {
    Err(JsonPatchError(text))
}

fn unreachable_container() -> ! {
    unreachable!("a path ends in a map or a list")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(document: Value, operations: Value) -> Result<Value, String> {
        apply_operations(document, operations.as_array().unwrap()).map_err(|e| e.0)
    }

    #[test]
    fn operations_apply_in_order() {
        let document = json!({"a": [1, 2, 3], "b": {"c/d": 1, "e~f": 2}});
        let patch = json!([
            {"op": "add", "path": "/a/-", "value": 4}, {"op": "add", "path": "/a/0", "value": 0}, {"op": "remove", "path": "/a/-1"},
            {"op": "replace", "path": "/b/c~1d", "value": 5}, {"op": "move", "from": "/b/e~0f", "path": "/g"},
            {"op": "copy", "from": "/a/1", "path": "/h"}, {"op": "test", "path": "/h", "value": 1}, {"op": "replace", "path": "/new", "value": 1},
            {"op": "test", "path": "/missing", "value": null}
        ]);
        assert_eq!(run(document, patch).unwrap(), json!({"a": [0, 1, 2, 3], "b": {"c/d": 5}, "g": 2, "h": 1, "new": 1}));
    }

    #[test]
    fn what_does_not_apply_is_named() {
        for (operation, message) in [
            (json!({"op": "test", "path": "/a", "value": 2}), "testing value /a failed: test failed"),
            (json!({"op": "remove", "path": "/x"}), "error in remove for path: '/x': Unable to remove nonexistent key: x: missing value"),
            (
                json!({"op": "add", "path": "/x/y", "value": 1}),
                "add operation does not apply: doc is missing path: \"/x/y\": missing value",
            ),
            (
                json!({"op": "add", "path": "/l/3", "value": 1}),
                "error in add for path: '/l/3': Unable to access invalid index: 3: invalid index referenced",
            ),
            (
                json!({"op": "replace", "path": "/l/9", "value": 1}),
                "replace operation does not apply: doc is missing key: /l/9: missing value",
            ),
            (json!({"op": "jump"}), "Unexpected kind: jump"),
            (json!({"op": "remove", "path": ""}), "remove operation does not apply: doc is missing path: \"\": missing value"),
        ] {
            assert_eq!(run(json!({"a": 1, "l": [1, 2]}), json!([operation])).unwrap_err(), message);
        }
    }

    #[test]
    fn clients_get_the_status_that_upstream_sends() {
        let failed = apply(&json!({"a": 1}), &json!([{"op": "test", "path": "/a", "value": 2}])).unwrap_err();
        assert_eq!((failed.code, failed.message.as_str()), (422, "the server rejected our request due to an error in our request"));
        let shape = apply(&json!({}), &json!({})).unwrap_err();
        assert_eq!(shape.message, "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp");
        let many = Value::Array(vec![json!({"op": "test", "path": "/x"}); OPERATIONS_MAX + 1]);
        assert_eq!(apply(&json!({}), &many).unwrap_err().code, 413);
        assert_eq!(unknown_fields(&json!([{"op": "add", "foo": 1}])), ["json patch unknown field \"[0].foo\""]);
    }

    #[test]
    fn copies_of_copies_are_bounded() {
        let mut operations = vec![json!({"op": "add", "path": "/a", "value": ["x".repeat(1024)]})];
        operations.extend((0..40).map(|_| json!({"op": "copy", "from": "/a", "path": "/a/-"})));
        assert!(run(json!({}), Value::Array(operations)).unwrap_err().contains("accumulated size"));
    }
}
