//! From a request body to an object of the expected kind.

use super::ResourceRequest;
use super::options::{FieldValidation, field_validation};
use crate::http::negotiate::{PROTOBUF, content_type};
use crate::protobuf;
use crate::registry::Resource;
use serde_json::{Value, json};
use std::borrow::Cow;
use sublet_machinery::structural::{self, Decoded};
use sublet_machinery::{ApiError, FieldError, FieldPath, ObjectExt, Reason};

/// The body as JSON text, by its media type; and what a strict YAML reader says about it.
fn json_text<'a>(request: &'a ResourceRequest<'_>, media_type: &str) -> Result<(Cow<'a, [u8]>, Vec<String>), ApiError> {
    match media_type {
        "application/json" | "" => Ok((Cow::Borrowed(&request.body), Vec::new())),
        "application/yaml" | "application/x-yaml" | "text/yaml" | "application/apply-patch+yaml" | "application/apply-patch" => {
            let document = structural::yaml_to_json(&request.body).map_err(ApiError::bad_request)?;
            Ok((Cow::Owned(document.json), document.duplicates))
        }
        PROTOBUF if speaks_protobuf(request) => {
            let object = protobuf::decode(&request.body, Some((&request.resource.api_version(), &request.resource.kind)));
            let object = object.map_err(|e| unreadable_protobuf(&request.resource, &request.body, &e))?;
            Ok((Cow::Owned(serde_json::to_vec(&object).expect("a Value is always writable")), Vec::new()))
        }
        _ => Err(unsupported(request)),
    }
}

/// Custom resources have no messages; their Scale and the options of a delete have.
fn speaks_protobuf(request: &ResourceRequest<'_>) -> bool {
    request.resource.custom.is_none() || request.info.subresource == "scale" || request.info.verb.starts_with("delete")
}

fn unreadable_protobuf(resource: &Resource, body: &[u8], error: &protobuf::ProtobufError) -> ApiError {
    const SUMMARY_BYTES_MAX: usize = 30;
    if let Some((version, kind)) = &error.of {
        let version = version.rsplit('/').next().unwrap_or_default();
        return ApiError::bad_request(format!("{kind} in version {version:?} cannot be handled as a {}: {error}", resource.kind));
    }
    let mut summary: String = body.iter().take(SUMMARY_BYTES_MAX).map(|byte| format!("{byte:02x}")).collect();
    match body.len() {
        0 => summary.push_str("<empty>"),
        length if length > SUMMARY_BYTES_MAX => summary.push_str(" ..."),
        _ => {}
    }
    ApiError::bad_request(format!("the object provided is unrecognized (must be of type {}): {error} ({summary})", resource.kind))
}

/// Any JSON or YAML body, without a schema.
pub fn parse_body(request: &ResourceRequest<'_>) -> Result<Value, ApiError> {
    let (text, _) = json_text(request, content_type(request.headers))?;
    structural::decode(&text).map(|d| d.value).map_err(|e| ApiError::bad_request(e.to_string()))
}

/// A patch body as JSON, with the strict errors of its text.
pub fn parse_patch(request: &ResourceRequest<'_>) -> Result<Decoded, ApiError> {
    structural::decode(&request.body).map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}")))
}

pub fn unsupported(request: &ResourceRequest<'_>) -> ApiError {
    let protobuf = if speaks_protobuf(request) { ", application/vnd.kubernetes.protobuf" } else { "" };
    ApiError::unsupported_media_type(format!(
        "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml{protobuf}"
    ))
}

/// The object of a create or update body: its type checked, unknown fields dropped or refused.
pub fn object(request: &ResourceRequest<'_>, options_kind: &str) -> Result<Value, ApiError> {
    object_as(request, options_kind, content_type(request.headers))
}

/// As [`object`], whatever the Content-Type says the body is: apply sends YAML.
pub fn object_as(request: &ResourceRequest<'_>, options_kind: &str, media_type: &str) -> Result<Value, ApiError> {
    let validation = field_validation(request.query, options_kind)?;
    let (text, strict_yaml) = json_text(request, media_type)?;
    read(request, &text, strict_yaml, validation)
}

/// Makes a patched object conform to the schema again.
pub fn conform(request: &ResourceRequest<'_>, value: &Value, strict: Vec<String>, validation: FieldValidation) -> Result<Value, ApiError> {
    let text = serde_json::to_vec(value).expect("a Value is always writable");
    read(request, &text, strict, validation)
}

/// Reads an object of the resource's kind: wrong types are refused, unknown fields handled as asked.
fn read(request: &ResourceRequest<'_>, text: &[u8], strict: Vec<String>, validation: FieldValidation) -> Result<Value, ApiError> {
    let resource = &request.resource;
    let syntax = |e: structural::SyntaxError| ApiError::bad_request(unreadable(resource, &e.to_string()));
    let mut problems = strict;
    let mut value;
    if resource.custom.is_none() {
        let decoded = structural::decode_typed(text, resource.schema.node()).map_err(syntax)?;
        if let Some(why) = decoded.type_error {
            return Err(ApiError::bad_request(unreadable(resource, &why)));
        }
        problems.extend(decoded.strict);
        value = decoded.value;
        check_type(resource, &mut value)?;
    } else {
        let mut decoded = structural::decode(text).map_err(syntax)?;
        check_type(resource, &mut decoded.value)?;
        crate::crd::read(resource, &mut decoded)?;
        problems.extend(decoded.strict);
        value = decoded.value;
    }
    match validation {
        FieldValidation::Strict if !problems.is_empty() => {
            let list = format!("strict decoding error: {}", problems.join(", "));
            Err(ApiError::bad_request(if resource.custom.is_some() { list } else { unreadable(resource, &list) }))
        }
        FieldValidation::Warn => {
            for problem in problems {
                request.warn(problem);
            }
            Ok(value)
        }
        _ => Ok(value),
    }
}

fn unreadable(resource: &Resource, why: &str) -> String {
    format!("{} in version {:?} cannot be handled as a {}: {why}", resource.kind, resource.version, resource.kind)
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
    let value = parse_body(request)?;
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
    let mut value = parse_body(request)?;
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
    Apply(Value),
}

/// A Scale has no lists, so that a strategic merge is a merge.
pub fn parse_body_as_patch_or_object(request: &ResourceRequest<'_>) -> Result<ScaleBody, ApiError> {
    if request.info.verb != "patch" {
        return body_of_kind(request, "Scale").map(ScaleBody::Object);
    }
    let json = || parse_patch(request).map(|d| d.value);
    match content_type(request.headers) {
        "application/json-patch+json" => json().map(ScaleBody::Json),
        "application/merge-patch+json" | "application/strategic-merge-patch+json" => json().map(ScaleBody::Merge),
        "application/apply-patch+yaml" => parse_body(request).map(ScaleBody::Apply),
        _ => Err(unsupported(request)),
    }
}
