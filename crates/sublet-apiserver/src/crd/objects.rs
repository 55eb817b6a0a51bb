//! Custom resources on their way in and out: reading, defaults, validation, conversion.

use super::rules::Verdict;
use crate::registry::{Resource, ScalePaths};
use serde_json::{Value, json};
use sublet_machinery::structural::{self, Decoded};
use sublet_machinery::{ApiError, FieldError, FieldPath, ObjectExt};

/// Makes a decoded body an object of the resource: reads its metadata, drops unknown fields (and adds
/// them to the strict errors) and meaningless nulls. Also for what a patch or apply made.
pub fn read(resource: &Resource, decoded: &mut Decoded) -> Result<(), ApiError> {
    let unknown = structural::coerce(&mut decoded.value, resource.schema.node()).map_err(|error| cannot_handle(resource, &error))?;
    for path in unknown {
        let text = format!("unknown field {path:?}");
        if decoded.strict.len() < structural::STRICT_ERRORS_MAX && !decoded.strict.contains(&text) {
            decoded.strict.push(text);
        }
    }
    Ok(())
}

/// `Foo in version "v1" cannot be handled as a Foo: ...`
pub fn cannot_handle(resource: &Resource, why: impl std::fmt::Display) -> ApiError {
    let (kind, version) = (&resource.kind, &resource.version);
    ApiError::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
}

/// Fills in the defaults of the schema. For requests and for what is read from storage alike.
pub fn default_object(resource: &Resource, object: &mut Value) {
    structural::default(object, resource.schema.node());
}

/// Everything the definition says about a new object. Metadata is validated elsewhere.
pub fn validate_create(resource: &Resource, object: &Value) -> Verdict {
    let (node, root) = (resource.schema.node(), FieldPath::root());
    let mut errors = validate_kind(resource, object);
    if !errors.is_empty() {
        return Verdict { errors, warnings: Vec::new() };
    }
    errors.extend(structural::validate(object, node, &root));
    errors.extend(validate_scale(resource, object, true));
    errors.extend(validate_embedded(resource, object));
    errors.extend(structural::validate_lists(object, node, &root));
    with_rules(resource, object, None, errors)
}

/// Everything the definition says about a changed object. What was wrong before and did not change is forgiven.
pub fn validate_update(resource: &Resource, new: &Value, old: &Value) -> Verdict {
    let (node, root) = (resource.schema.node(), FieldPath::root());
    let mut errors = validate_kind(resource, new);
    if !errors.is_empty() {
        return Verdict { errors, warnings: Vec::new() };
    }
    errors.extend(structural::validate_update(new, old, node, &root));
    errors.extend(validate_scale(resource, new, true));
    errors.extend(validate_embedded(resource, new));
    errors.extend(validate_changed_lists(resource, new, old));
    with_rules(resource, new, Some(old), errors)
}

/// An update through `/status`: of the schema only the part about status counts.
pub fn validate_status_update(resource: &Resource, new: &Value, old: &Value) -> Verdict {
    let mut errors = validate_kind(resource, new);
    if !errors.is_empty() {
        return Verdict { errors, warnings: Vec::new() };
    }
    if let (Some(node), Some(status)) = (resource.schema.node().property("status"), new.get("status")) {
        let old = old.get("status").unwrap_or(&Value::Null);
        errors.extend(structural::validate_update(status, old, node, &FieldPath::new("status")));
    }
    errors.extend(validate_scale(resource, new, false));
    errors.extend(validate_changed_lists(resource, new, old));
    with_rules(resource, new, Some(old), errors)
}

/// The same object at another version, with `conversion.strategy: None`: only `apiVersion` changes.
pub fn convert(object: &mut Value, to: &Resource) {
    object["apiVersion"] = json!(to.api_version());
}

fn validate_kind(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if object.kind() != resource.kind {
        errors.push(FieldError::invalid(&FieldPath::new("kind"), object.kind(), format!("must be {}", resource.kind)));
    }
    if object.api_version() != resource.api_version() {
        let detail = format!("must be {}", resource.api_version());
        errors.push(FieldError::invalid(&FieldPath::new("apiVersion"), object.api_version(), detail));
    }
    errors
}

/// Embedded resources below the root; the root itself is no embedded one.
fn validate_embedded(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let node = resource.schema.node();
    let mut errors = Vec::new();
    for (key, value) in object.as_object().into_iter().flatten() {
        if let Some(property) = node.property(key) {
            errors.extend(structural::validate_embedded(value, property, &FieldPath::new(key.as_str())));
        }
    }
    errors
}

/// Lists that repeated something before may go on doing so.
fn validate_changed_lists(resource: &Resource, new: &Value, old: &Value) -> Vec<FieldError> {
    let (node, root) = (resource.schema.node(), FieldPath::root());
    let errors = structural::validate_lists(new, node, &root);
    if errors.is_empty() || !structural::validate_lists(old, node, &root).is_empty() { Vec::new() } else { errors }
}

fn validate_scale(resource: &Resource, object: &Value, with_spec: bool) -> Vec<FieldError> {
    let Some(scale) = resource.subresource("scale").and_then(|s| s.scale.as_ref()) else { return Vec::new() };
    let mut errors = Vec::new();
    if with_spec {
        errors.extend(validate_replicas(object, &scale.spec_replicas));
    }
    errors.extend(validate_replicas(object, &scale.status_replicas));
    errors.extend(validate_selector(object, scale));
    errors
}

fn validate_replicas(object: &Value, pointer: &str) -> Option<FieldError> {
    let path = FieldPath::new(dotted(pointer));
    let value = object.pointer(pointer)?;
    match value.as_i64() {
        None => Some(FieldError::invalid(&path, 0, accessor_error(pointer, value, "int64"))),
        Some(count) if count < 0 => Some(FieldError::invalid(&path, count, "should be a non-negative integer")),
        Some(count) if count > i64::from(i32::MAX) => {
            Some(FieldError::invalid(&path, count, format!("should be less than or equal to {}", i32::MAX)))
        }
        Some(_) => None,
    }
}

fn validate_selector(object: &Value, scale: &ScalePaths) -> Option<FieldError> {
    let pointer = scale.label_selector.as_deref()?;
    let value = object.pointer(pointer)?;
    let wrong = !value.is_string();
    wrong.then(|| FieldError::invalid(&FieldPath::new(dotted(pointer)), "", accessor_error(pointer, value, "string")))
}

/// A JSON pointer as the definition wrote it: `.spec.replicas`.
fn dotted(pointer: &str) -> String {
    pointer.split('/').skip(1).map(|part| format!(".{}", part.replace("~1", "/").replace("~0", "~"))).collect()
}

fn accessor_error(pointer: &str, value: &Value, wanted: &str) -> String {
    let found = match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    let shown = value.as_str().map_or_else(|| value.to_string(), str::to_string);
    format!("{} accessor error: {shown} is of the type {found}, expected {wanted}", dotted(pointer))
}

/// Rules are run on objects that are sound enough for them.
fn with_rules(resource: &Resource, new: &Value, old: Option<&Value>, mut errors: Vec<FieldError>) -> Verdict {
    let Some(rules) = resource.custom.as_ref().and_then(|c| c.rules.as_ref()) else {
        return Verdict { errors, warnings: Vec::new() };
    };
    if errors.iter().any(super::rules::is_blocking) {
        let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to complete \
                      validation";
        errors.push(FieldError::invalid(&FieldPath::root(), Value::Null, detail));
        return Verdict { errors, warnings: Vec::new() };
    }
    let found = rules.validate(resource.schema.node(), new, old);
    errors.extend(found.errors);
    Verdict { errors, warnings: found.warnings }
}
