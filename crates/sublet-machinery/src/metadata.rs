//! The rules for `metadata` that hold for every kind (as in apimachinery's `ValidateObjectMeta`, 1.37).

use crate::error::{FieldError, FieldPath};
use crate::names::{self, NameFn};
use crate::selector::validate_labels;
use serde_json::{Map, Value};

pub const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
pub const FIELD_MANAGER_BYTES_MAX: usize = 128;
pub const SUBRESOURCE_BYTES_MAX: usize = 256;
pub const IMMUTABLE: &str = "field is immutable";

/// Checks the `metadata` of a new object, whose name has been generated already.
pub fn validate_metadata(metadata: &Value, namespaced: bool, name_rule: NameFn, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (name, generate_name) = (text(metadata, "name"), text(metadata, "generateName"));
    if !generate_name.is_empty() {
        extend(&mut errors, &path.child("generateName"), generate_name, name_rule(generate_name, true));
    }
    if name.is_empty() {
        errors.push(FieldError::required(&path.child("name"), "name or generateName is required"));
    } else {
        extend(&mut errors, &path.child("name"), name, name_rule(name, false));
    }
    validate_namespace(text(metadata, "namespace"), namespaced, &path.child("namespace"), &mut errors);
    validate_common(metadata, path, &mut errors);
    validate_finalizers(metadata, &path.child("finalizers"), &mut errors);
    errors.extend(validate_managed_fields(&metadata["managedFields"], &path.child("managedFields")));
    errors
}

/// Checks the `metadata` of an object that replaces `old`.
pub fn validate_metadata_update(new: &Value, old: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !old["deletionTimestamp"].is_null() {
        validate_no_new_finalizers(new, old, &path.child("finalizers"), &mut errors);
    }
    if text(new, "resourceVersion").is_empty() {
        errors.push(FieldError::invalid(&path.child("resourceVersion"), "", "must be specified for an update"));
    }
    let generation = |metadata: &Value| metadata["generation"].as_i64().unwrap_or_default();
    let decremented = generation(new) < generation(old);
    validate_common(new, path, &mut errors);
    if decremented {
        errors.push(FieldError::invalid(&path.child("generation"), generation(new), "must not be decremented"));
    }
    for field in ["name", "namespace", "uid"] {
        if text(new, field) != text(old, field) {
            errors.push(FieldError::invalid(&path.child(field), text(new, field), IMMUTABLE));
        }
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        errors.extend(validate_immutable(&new[field], &old[field], &path.child(field)));
    }
    errors.extend(validate_managed_fields(&new["managedFields"], &path.child("managedFields")));
    errors
}

/// A field that keeps the value it was created with.
pub fn validate_immutable(new: &Value, old: &Value, path: &FieldPath) -> Option<FieldError> {
    (new != old).then(|| FieldError::invalid(path, new.clone(), IMMUTABLE))
}

/// Keys of annotations follow the rule for label keys in any case; all of them together have a size.
pub fn validate_annotations(annotations: &Map<String, Value>, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut bytes = 0;
    for (key, value) in annotations {
        let faults = if key.bytes().any(|b| b.is_ascii_uppercase()) {
            names::qualified_name(&key.to_lowercase())
        } else {
            names::qualified_name(key)
        };
        extend(&mut errors, path, key, faults);
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        errors.push(FieldError::too_long(path, ANNOTATIONS_BYTES_MAX));
    }
    errors
}

/// The name under which a client's fields are remembered.
pub fn validate_field_manager(manager: &str, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if manager.len() > FIELD_MANAGER_BYTES_MAX {
        errors.push(FieldError::too_long(path, FIELD_MANAGER_BYTES_MAX));
    }
    for (position, c) in manager.char_indices().filter(|(_, c)| !is_printable(*c)) {
        let detail = format!("invalid character U+{:04X} (at position {position})", u32::from(c));
        errors.push(FieldError::invalid(path, manager, detail));
    }
    errors
}

pub fn validate_managed_fields(entries: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (i, entry) in entries.as_array().into_iter().flatten().enumerate() {
        let path = path.index(i);
        match text(entry, "operation") {
            "Apply" | "Update" => {}
            "" => errors.push(FieldError::required(&path.child("operation"), "must not be empty")),
            other => errors.push(FieldError::not_supported(&path.child("operation"), other, &["Apply", "Update"])),
        }
        let fields_type = text(entry, "fieldsType");
        if !fields_type.is_empty() && fields_type != "FieldsV1" {
            errors.push(FieldError::invalid(&path.child("fieldsType"), fields_type, "must be `FieldsV1`"));
        }
        errors.extend(validate_field_manager(text(entry, "manager"), &path.child("manager")));
        if text(entry, "subresource").len() > SUBRESOURCE_BYTES_MAX {
            errors.push(FieldError::too_long(&path.child("subresource"), SUBRESOURCE_BYTES_MAX));
        }
    }
    errors
}

pub fn validate_owner_references(references: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut controller: Option<String> = None;
    for (i, reference) in references.as_array().into_iter().flatten().enumerate() {
        validate_owner_reference(reference, &path.index(i), &mut errors);
        if reference["controller"] == true {
            let name = format!("{}/{}", text(reference, "kind"), text(reference, "name"));
            match &controller {
                Some(first) => errors.push(FieldError::invalid(
                    path,
                    references.clone(),
                    format!("Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"),
                )),
                None => controller = Some(name),
            }
        }
    }
    errors
}

fn validate_owner_reference(reference: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let (api_version, kind) = (text(reference, "apiVersion"), text(reference, "kind"));
    let version = api_version.rsplit('/').next().unwrap_or_default();
    if api_version.is_empty() {
        errors.push(FieldError::required(&path.child("apiVersion"), "must not be empty"));
    } else if version.is_empty() || api_version.matches('/').count() > 1 {
        errors.push(FieldError::invalid(&path.child("apiVersion"), api_version, "must be <group>/<version> or <version>"));
    }
    for field in ["kind", "name", "uid"] {
        if text(reference, field).is_empty() {
            errors.push(FieldError::required(&path.child(field), "must not be empty"));
        }
    }
    // Events are made in masses and come and go; nothing may hang on one.
    if (api_version, kind) == ("v1", "Event") {
        errors.push(FieldError::invalid(path, reference.clone(), "/v1, Kind=Event is disallowed from being an owner"));
    }
}

fn validate_namespace(namespace: &str, namespaced: bool, path: &FieldPath, errors: &mut Vec<FieldError>) {
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.push(FieldError::required(path, "")),
        (true, false) => extend(errors, path, namespace, names::dns_label(namespace)),
        (false, false) => errors.push(FieldError::forbidden(path, "not allowed on this type")),
        (false, true) => {}
    }
}

/// What creation and update have in common.
fn validate_common(metadata: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let generation = metadata["generation"].as_i64().unwrap_or_default();
    if generation < 0 {
        errors.push(FieldError::invalid(&path.child("generation"), generation, "must be greater than or equal to 0"));
    }
    if let Some(labels) = metadata["labels"].as_object() {
        errors.extend(validate_labels(labels, &path.child("labels")));
    }
    if let Some(annotations) = metadata["annotations"].as_object() {
        errors.extend(validate_annotations(annotations, &path.child("annotations")));
    }
    errors.extend(validate_owner_references(&metadata["ownerReferences"], &path.child("ownerReferences")));
}

fn validate_finalizers(metadata: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let finalizers = finalizers(metadata);
    for finalizer in &finalizers {
        extend(errors, path, finalizer, names::qualified_name(finalizer));
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        errors.push(FieldError::invalid(path, finalizers, "finalizer orphan and foregroundDeletion cannot be both set"));
    }
}

fn validate_no_new_finalizers(new: &Value, old: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let known = finalizers(old);
    let mut added: Vec<String> = finalizers(new).into_iter().filter(|f| !known.contains(f)).map(|f| format!("{f:?}")).collect();
    if added.is_empty() {
        return;
    }
    added.sort();
    added.dedup();
    let list = added.join(", ");
    errors.push(FieldError::forbidden(
        path,
        format!("no new finalizers can be added if the object is being deleted, found new finalizers []string{{{list}}}"),
    ));
}

fn finalizers(metadata: &Value) -> Vec<&str> {
    metadata["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn extend(errors: &mut Vec<FieldError>, path: &FieldPath, value: &str, faults: Vec<String>) {
    errors.extend(faults.into_iter().map(|fault| FieldError::invalid(path, value, fault)));
}

/// Printable in Go's sense; `escape_debug` knows the same classes of characters. The letter before it
/// keeps combining marks from being escaped.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    format!("a{c}").escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    fn create(metadata: &Value) -> Vec<String> {
        texts(validate_metadata(metadata, true, names::name_is_dns_subdomain, &FieldPath::new("metadata")))
    }

    fn update(new: &Value, old: &Value) -> Vec<String> {
        texts(validate_metadata_update(new, old, &FieldPath::new("metadata")))
    }

    #[test]
    fn a_name_and_a_namespace_are_needed() {
        assert!(create(&json!({"name": "a", "namespace": "b", "generateName": "c-"})).is_empty());
        assert_eq!(
            create(&json!({})),
            ["metadata.name: Required value: name or generateName is required", "metadata.namespace: Required value"]
        );
        let cluster = validate_metadata(&json!({"name": "a", "namespace": "b"}), false, names::name_is_dns_label, &FieldPath::root());
        assert_eq!(texts(cluster), ["namespace: Forbidden: not allowed on this type"]);
    }

    #[test]
    fn owners_are_complete_and_one_controls() {
        let owner = |name: &str| json!({"apiVersion": "a/v1", "kind": "K", "name": name, "uid": "1", "controller": true});
        let errors = create(&json!({"name": "a", "namespace": "b", "ownerReferences": [owner("x"), owner("y")]}));
        assert_eq!(errors.len(), 1);
        assert!(errors[0].ends_with("Found \"true\" in references for K/x and K/y"), "{errors:?}");
        let event = json!([{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "1"}, {"apiVersion": "a/b/c"}]);
        assert_eq!(validate_owner_references(&event, &FieldPath::new("o")).len(), 5);
    }

    #[test]
    fn updates_keep_what_never_changes() {
        let old =
            json!({"name": "a", "uid": "1", "resourceVersion": "1", "generation": 2, "finalizers": ["x.y/z"], "deletionTimestamp": "t"});
        assert!(update(&old, &old).is_empty());
        let new = json!({"name": "b", "uid": "2", "generation": 1, "finalizers": ["n.y/z"]});
        assert_eq!(
            update(&new, &old),
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"n.y/z\"}",
                "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
                "metadata.generation: Invalid value: 1: must not be decremented",
                "metadata.name: Invalid value: \"b\": field is immutable",
                "metadata.uid: Invalid value: \"2\": field is immutable",
                "metadata.deletionTimestamp: Invalid value: null: field is immutable",
            ]
        );
    }

    #[test]
    fn annotations_have_a_total_size() {
        let annotations = json!({"A.b/C": "x".repeat(ANNOTATIONS_BYTES_MAX)});
        let errors = validate_annotations(annotations.as_object().unwrap(), &FieldPath::new("a"));
        assert_eq!(texts(errors), ["a: Too long: may not be more than 262144 bytes"]);
    }

    #[test]
    fn managers_are_printable() {
        let path = FieldPath::new("fieldManager");
        assert!(validate_field_manager("kubectl é e\u{301} 漢", &path).is_empty());
        assert_eq!(
            texts(validate_field_manager("a\u{7}", &path)),
            ["fieldManager: Invalid value: \"a\\u{7}\": invalid character U+0007 (at position 1)"]
        );
        let entries = json!([{"operation": "x", "fieldsType": "y"}, {}]);
        assert_eq!(validate_managed_fields(&entries, &path).len(), 3);
    }
}
