//! From a request body to an object of the expected kind.

use super::ResourceRequest;
use super::options::{FieldValidation, field_validation};
use crate::http::negotiate::content_type;
use crate::registry::Resource;
use serde_json::{Value, json};
use sublet_machinery::structural;
use sublet_machinery::{ApiError, FieldError, FieldPath, ObjectExt, Reason};

/// A parsed body and the places where it repeats a key.
pub struct Parsed {
    pub value: Value,
    pub duplicates: Vec<String>,
}

/// Reads the body by its media type.
pub fn parse_body(request: &ResourceRequest<'_>) -> Result<Parsed, ApiError> {
    let parsed = match content_type(request.headers) {
        "application/json" | "" => structural::decode::json(&request.body),
        "application/yaml" | "application/x-yaml" | "text/yaml" => structural::decode::yaml(&request.body),
        other => return Err(unsupported(other)),
    };
    let parsed = parsed.map_err(|e| ApiError::bad_request(e.to_string()))?;
    Ok(Parsed { value: parsed.value, duplicates: parsed.duplicates })
}

pub fn unsupported(media_type: &str) -> ApiError {
    ApiError::unsupported_media_type(format!(
        "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml (got {media_type})"
    ))
}

/// The object of a create or update body: its type checked, unknown fields dropped or refused.
pub fn object(request: &ResourceRequest<'_>, options_kind: &str) -> Result<Value, ApiError> {
    let parsed = parse_body(request)?;
    let validation = field_validation(request.query, options_kind)?;
    let mut value = parsed.value;
    check_type(&request.resource, &mut value)?;
    conform(request, &mut value, parsed.duplicates, validation)?;
    Ok(value)
}

/// Makes a body conform to the schema: wrong types are refused, unknown fields handled as asked.
pub fn conform(
    request: &ResourceRequest<'_>,
    value: &mut Value,
    duplicates: Vec<String>,
    validation: FieldValidation,
) -> Result<(), ApiError> {
    let resource = &request.resource;
    if resource.custom.is_none() {
        structural::decode_types(value, resource.schema.node()).map_err(|why| {
            ApiError::bad_request(format!(
                "{} in version {:?} cannot be handled as a {}: {why}",
                resource.kind, resource.version, resource.kind
            ))
        })?;
    } else if let Some(error) = metadata_types(value) {
        return Err(ApiError::bad_request(error));
    }
    let unknown = structural::prune(value, resource.schema.node());
    let mut problems: Vec<String> = duplicates.into_iter().map(|p| format!("duplicate field {p:?}")).collect();
    problems.extend(unknown.into_iter().map(|p| format!("unknown field {p:?}")));
    if problems.is_empty() {
        return Ok(());
    }
    match validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => {
            for problem in problems {
                request.warn(problem);
            }
        }
        FieldValidation::Strict => return Err(strict_error(resource, &problems)),
    }
    Ok(())
}

fn strict_error(resource: &Resource, problems: &[String]) -> ApiError {
    let list = problems.join(", ");
    if resource.custom.is_some() {
        return ApiError::bad_request(format!("strict decoding error: {list}"));
    }
    ApiError::bad_request(format!(
        "{} in version {:?} cannot be handled as a {}: strict decoding error: {list}",
        resource.kind, resource.version, resource.kind
    ))
}

/// `apiVersion` and `kind` must be those of the path.
pub fn check_type(resource: &Resource, value: &mut Value) -> Result<(), ApiError> {
    if !value.is_object() {
        return Err(ApiError::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: json: cannot unmarshal {} into Go value of type {}.{}",
            resource.kind,
            resource.version,
            resource.kind,
            go_type(value),
            resource.version,
            resource.kind
        )));
    }
    let (kind, api_version) = (value.kind().to_string(), value.api_version().to_string());
    // A body without a type is taken for the expected one, as upstream's decoder defaults it for built-ins.
    if resource.custom.is_none() {
        if kind.is_empty() {
            value["kind"] = json!(resource.kind);
        }
        if api_version.is_empty() {
            value["apiVersion"] = json!(resource.api_version());
        }
    } else if kind.is_empty() {
        return Err(ApiError::bad_request(format!("Object 'Kind' is missing in '{value}'")));
    } else if api_version.is_empty() {
        return Err(ApiError::bad_request(format!("Object 'apiVersion' is missing in '{value}'")));
    }
    if value.kind() != resource.kind || value.api_version() != resource.api_version() {
        if value.api_version() != resource.api_version() {
            return Err(ApiError::bad_request(format!(
                "the API version in the data ({}) does not match the expected API version ({})",
                value.api_version(),
                resource.api_version()
            )));
        }
        return Err(ApiError::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: converting ({}) to ({}.{}): unknown conversion",
            value.kind(),
            resource.version,
            resource.kind,
            value.kind(),
            resource.version,
            resource.kind
        )));
    }
    Ok(())
}

/// Custom resources take any JSON, but their metadata must have the types of ObjectMeta.
fn metadata_types(value: &Value) -> Option<String> {
    let metadata = value.get("metadata")?;
    if metadata.is_null() {
        return None;
    }
    if !metadata.is_object() {
        return Some(format!("json: cannot unmarshal {} into Go struct field ObjectMeta.metadata", go_type(metadata)));
    }
    for key in ["labels", "annotations"] {
        match &metadata[key] {
            Value::Null => {}
            Value::Object(map) => {
                if let Some((_, wrong)) = map.iter().find(|(_, v)| !v.is_string()) {
                    return Some(format!("json: cannot unmarshal {} into Go struct field ObjectMeta.metadata.{key} of type string", go_type(wrong)));
                }
            }
            other => {
                return Some(format!(
                    "json: cannot unmarshal {} into Go struct field ObjectMeta.metadata.{key} of type map[string]string",
                    go_type(other)
                ));
            }
        }
    }
    None
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The namespace of the body must be that of the path; it is filled in when missing.
pub fn check_namespace(request: &ResourceRequest<'_>, object: &mut Value) -> Result<(), ApiError> {
    let namespace = request.namespace();
    let given = object.namespace();
    if !request.resource.namespaced {
        if !given.is_empty() {
            object.metadata_mut().remove("namespace");
        }
        return Ok(());
    }
    if given.is_empty() {
        if namespace.is_empty() {
            return Err(ApiError::bad_request("an empty namespace may not be set during creation"));
        }
        object.metadata_mut().insert("namespace".into(), json!(namespace));
        return Ok(());
    }
    if given != namespace {
        return Err(ApiError::bad_request("the namespace of the provided object does not match the namespace sent on the request"));
    }
    Ok(())
}

/// Options that come as a body: DeleteOptions.
pub fn options_body(request: &ResourceRequest<'_>) -> Result<Value, ApiError> {
    if request.body.is_empty() {
        return Ok(Value::Null);
    }
    let parsed = parse_body(request)?;
    let value = parsed.value;
    if value.is_null() {
        return Ok(value);
    }
    if !value.is_object() || !matches!(value.kind(), "DeleteOptions" | "") {
        return Err(ApiError::new(400, Reason::BadRequest, "the body of a delete request must be DeleteOptions"));
    }
    Ok(value)
}

/// A body that must be of one kind, for subresources.
pub fn body_of_kind(request: &ResourceRequest<'_>, kind: &str) -> Result<Value, ApiError> {
    let mut value = parse_body(request)?.value;
    if !value.is_object() {
        return Err(ApiError::bad_request(format!("the request body must be a {kind} object")));
    }
    if value.kind().is_empty() {
        value["kind"] = json!(kind);
    }
    if value.kind() != kind {
        let error = FieldError::invalid(&FieldPath::new("kind"), value.kind(), format!("must be {kind}"));
        return Err(ApiError::bad_request(error.to_string()));
    }
    Ok(value)
}

/// The body of a write to `scale`.
pub enum ScaleBody {
    Object(Value),
    Merge(Value),
    Json(Value),
}

/// A Scale has no lists, so that strategic merge and apply are merges.
pub fn parse_body_as_patch_or_object(request: &ResourceRequest<'_>) -> Result<ScaleBody, ApiError> {
    if request.info.verb != "patch" {
        return body_of_kind(request, "Scale").map(ScaleBody::Object);
    }
    let parse = |parsed: Result<structural::decode::Decoded, _>| parsed.map(|p| p.value).map_err(|e: structural::decode::DecodeError| ApiError::bad_request(e.to_string()));
    match content_type(request.headers) {
        "application/json-patch+json" => parse(structural::decode::json(&request.body)).map(ScaleBody::Json),
        "application/merge-patch+json" | "application/strategic-merge-patch+json" => {
            parse(structural::decode::json(&request.body)).map(ScaleBody::Merge)
        }
        "application/apply-patch+yaml" => parse(structural::decode::yaml(&request.body)).map(ScaleBody::Merge),
        other => Err(unsupported(other)),
    }
}
