//! Who wrote what on a host object, from its `managedFields`: the merge base that survives restarts.
//!
//! Copies are created with POST, which alone can refuse to touch an object that exists, and updated
//! with server-side apply, which removes what we no longer want and leaves what others added. Between
//! the two lies [`adopt_created_fields`]: the entry of the POST becomes that of an apply.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use sublet_api::marks;
use sublet_machinery::ObjectExt;

/// A digest of what we want to have written, kept on the object under [`marks::APPLIED`].
pub fn digest(desired: &Value) -> String {
    let mut sha = Sha256::new();
    // Maps are sorted, so equal values give equal bytes.
    sha.update(desired.to_string().as_bytes());
    format!("{:.24x}", sha.finalize())
}

/// The fields of `desired` that are no longer what we wrote: a change by anybody else takes the field
/// out of our entries, and so does a host that does not know it. Values changed by admission while we
/// wrote stay ours, so a mutating webhook is not fought. Objects without any entry of ours count as touched.
pub fn unowned(host: &Value, desired: &Value) -> Vec<String> {
    let ours: Vec<Value> = entries(host).filter_map(fields_of).collect();
    let all: Vec<&Value> = ours.iter().collect();
    let metadata: Vec<&Value> = ours.iter().filter_map(|f| f.get("f:metadata")).collect();
    let mut found = Vec::new();
    for part in ["labels", "annotations"] {
        let value = &desired["metadata"][part];
        if !value.is_null() {
            look_at(&metadata, part, value, "/metadata", &mut found);
        }
    }
    let not_tracked = ["apiVersion", "kind", "metadata", "dataDigest"];
    for (key, value) in desired.as_object().into_iter().flatten().filter(|(key, _)| !not_tracked.contains(&key.as_str())) {
        look_at(&all, key, value, "", &mut found);
    }
    found
}

/// Whether every field of `desired` on the host is still what we wrote.
pub fn owns_all(host: &Value, desired: &Value) -> bool {
    unowned(host, desired).is_empty()
}

fn look_at(parents: &[&Value], key: &str, value: &Value, at: &str, found: &mut Vec<String>) {
    let field = format!("f:{key}");
    let children: Vec<&Value> = parents.iter().filter_map(|p| p.get(&field)).collect();
    let at = format!("{at}/{key}");
    if children.is_empty() { found.push(at) } else { look_below(&children, value, &at, found) }
}

fn look_below(fields: &[&Value], value: &Value, at: &str, found: &mut Vec<String>) {
    // No children: an atomic field, ours as a whole.
    if fields.iter().all(|f| f.as_object().is_none_or(Map::is_empty)) {
        return;
    }
    match value {
        Value::Object(map) => map.iter().for_each(|(k, v)| look_at(fields, k, v, at, found)),
        Value::Array(items) => items.iter().for_each(|item| look_at_item(fields, item, at, found)),
        _ => {}
    }
}

/// An item of a list with keys (`k:{"name":"a"}`) or of a set (`v:"a"`).
fn look_at_item(fields: &[&Value], item: &Value, at: &str, found: &mut Vec<String>) {
    let ours: Vec<&Value> = fields
        .iter()
        .filter_map(|f| f.as_object())
        .flatten()
        .filter(|(path, _)| {
            if let Some(keys) = path.strip_prefix("k:") {
                let keys: Value = serde_json::from_str(keys).unwrap_or_default();
                keys.as_object().is_some_and(|keys| keys.iter().all(|(k, v)| item.get(k).is_none_or(|have| have == v)))
            } else {
                path.strip_prefix("v:").and_then(|v| serde_json::from_str::<Value>(v).ok()).is_some_and(|v| v == *item)
            }
        })
        .map(|(_, below)| below)
        .collect();
    let at = format!("{at}/{}", item.get("name").unwrap_or(item));
    if ours.is_empty() {
        found.push(at);
    } else if item.is_object() {
        look_below(&ours, item, &at, found);
    }
}

fn entries(host: &Value) -> impl Iterator<Item = &Value> {
    host.array_at("/metadata/managedFields").iter().filter(|e| e["manager"] == marks::MANAGER)
}

/// The field set of an entry, which caches keep as text.
fn fields_of(entry: &Value) -> Option<Value> {
    match &entry["fieldsV1"] {
        Value::String(text) => serde_json::from_str(text).ok(),
        Value::Null => None,
        fields => Some(fields.clone()),
    }
}

/// Keeps our entries alone, their field sets as text: a tenth of the memory of the parsed form.
pub fn slim_managed_fields(object: &mut Value) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    let Some(Value::Array(all)) = metadata.remove("managedFields") else { return };
    let ours: Vec<Value> = all
        .into_iter()
        .filter(|e| e["manager"] == marks::MANAGER)
        .map(|mut e| {
            let fields = e["fieldsV1"].take();
            json!({"manager": marks::MANAGER, "operation": e["operation"], "subresource": e["subresource"], "fieldsV1": fields.to_string()})
        })
        .collect();
    if !ours.is_empty() {
        metadata.insert("managedFields".into(), Value::Array(ours));
    }
}

/// Whether [`adopt_created_fields`] has work to do on the object behind a local copy.
pub fn needs_adoption(host: &Value, removable_only: bool) -> bool {
    entries(host).any(|entry| {
        let created = entry["operation"] == "Update" && entry["subresource"].as_str().unwrap_or_default().is_empty();
        created && (!removable_only || fields_of(entry).is_some_and(|f| !split_removable(f).1.as_object().is_none_or(Map::is_empty)))
    })
}

/// The managed fields of a live object after its creation entry became one of server-side apply: all
/// of it, or only what can be taken away later where `removable_only` (pods, whose other fields never change
/// by apply). `None` when there is nothing to do.
pub fn adopt_created_fields(live: &Value, removable_only: bool) -> Option<Value> {
    let mut all = live.array_at("/metadata/managedFields").to_vec();
    let is_ours = |e: &Value, operation: &str| {
        e["manager"] == marks::MANAGER && e["operation"] == operation && e["subresource"].as_str().unwrap_or_default().is_empty()
    };
    let at = all.iter().position(|e| is_ours(e, "Update"))?;
    let mut entry = all.remove(at);
    let mut moved = entry["fieldsV1"].take();
    if removable_only {
        let (kept, taken) = split_removable(moved);
        if taken.as_object().is_none_or(Map::is_empty) {
            return None;
        }
        entry["fieldsV1"] = kept;
        all.push(entry.clone());
        moved = taken;
    }
    match all.iter_mut().find(|e| is_ours(e, "Apply")) {
        Some(apply) => merge_fields(&mut apply["fieldsV1"], moved),
        None => {
            entry["operation"] = json!("Apply");
            entry["fieldsV1"] = moved;
            all.push(entry);
        }
    }
    Some(Value::Array(all))
}

/// What can be taken away from a pod later: labels, annotations and gates, apart from the other fields.
const REMOVABLE: [(&str, &[&str]); 2] = [("f:metadata", &["f:labels", "f:annotations"]), ("f:spec", &["f:schedulingGates"])];

fn split_removable(mut fields: Value) -> (Value, Value) {
    let mut taken = json!({});
    for (parent, parts) in REMOVABLE {
        let Some(below) = fields.get_mut(parent).and_then(Value::as_object_mut) else { continue };
        for part in parts {
            if let Some(part_of_it) = below.remove(*part) {
                taken[parent][*part] = part_of_it;
            }
        }
        if below.is_empty()
            && let Some(map) = fields.as_object_mut()
        {
            map.remove(parent);
        }
    }
    (fields, taken)
}

fn merge_fields(into: &mut Value, from: Value) {
    let Value::Object(from) = from else { return };
    if !into.is_object() {
        *into = json!({});
    }
    for (path, below) in from {
        match into.get_mut(&path) {
            Some(present) => merge_fields(present, below),
            None => into[path.as_str()] = below,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(fields: &Value) -> Value {
        let mut host = json!({"metadata": {"managedFields": [
            {"manager": "sublet", "operation": "Apply", "fieldsV1": fields},
            {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:data": {"f:other": {}}}},
        ]}});
        slim_managed_fields(&mut host);
        host
    }

    fn check(fields: Value, desired: Value, expected: bool) {
        assert_eq!(owns_all(&host(&fields), &desired), expected, "{fields} {desired}");
    }

    #[test]
    fn a_field_written_by_another_is_no_longer_ours() {
        check(json!({"f:data": {"f:a": {}, "f:b": {}}}), json!({"data": {"a": "1", "b": "2"}}), true);
        check(json!({"f:data": {"f:a": {}}}), json!({"data": {"a": "1", "b": "2"}}), false);
        check(json!({"f:data": {".": {}, "f:a": {}}}), json!({"data": {"a": "1"}}), true);
    }

    #[test]
    fn keyed_lists_sets_and_atomic_fields_are_told_apart() {
        let fields = json!({"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:targetPort": {}}}}});
        check(fields.clone(), json!({"spec": {"ports": [{"port": 80, "targetPort": 8080}]}}), true);
        check(fields.clone(), json!({"spec": {"ports": [{"port": 81}]}}), false);
        check(fields, json!({"spec": {"ports": [{"port": 80, "name": "x"}]}}), false);
        check(json!({"f:spec": {"f:modes": {"v:\"a\"": {}}}}), json!({"spec": {"modes": ["a"]}}), true);
        check(json!({"f:spec": {"f:modes": {"v:\"a\"": {}}}}), json!({"spec": {"modes": ["b"]}}), false);
        check(json!({"f:spec": {"f:selector": {}}}), json!({"spec": {"selector": {"a": "b"}}}), true);
    }

    #[test]
    fn the_entry_of_a_post_becomes_that_of_an_apply() {
        let entry = |operation: &str, fields: Value| json!({"manager": "sublet", "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields});
        let live = json!({"metadata": {"managedFields": [
            entry("Update", json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:x": {}}})),
        ]}});
        let all = adopt_created_fields(&live, false).unwrap();
        assert_eq!(all, json!([entry("Apply", json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:x": {}}}))]));
        let split = adopt_created_fields(&live, true).unwrap();
        assert_eq!(
            split,
            json!([entry("Update", json!({"f:spec": {"f:x": {}}})), entry("Apply", json!({"f:metadata": {"f:labels": {"f:a": {}}}}))])
        );
        // Done once, there is nothing left to do.
        assert_eq!(adopt_created_fields(&json!({"metadata": {"managedFields": all}}), false), None);
        assert_eq!(adopt_created_fields(&json!({"metadata": {"managedFields": split}}), true), None);
    }
}
