//! From a request body to an object of the expected kind.

use super::ResourceRequest;
use super::options::{FieldValidation, field_validation};
use crate::facts::builtin;
use crate::http::negotiate::{PROTOBUF, content_type};
use crate::protobuf;
use crate::registry::Resource;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use sublet_machinery::structural::{self, Decoded};
use sublet_machinery::{ApiError, FieldError, FieldPath, ObjectExt, apply};

/// The body as JSON text, by its media type; and what a strict YAML reader says about it.
fn json_text<'a>(request: &'a ResourceRequest<'_>, media_type: &str) -> Result<(Cow<'a, [u8]>, Vec<String>), ApiError> {
    match media_type {
        "application/json" | "" => Ok((Cow::Borrowed(&request.body), Vec::new())),
        "application/yaml" | "application/x-yaml" | "text/yaml" => {
            let document = structural::yaml_to_json(&request.body).map_err(|e| unrecognized(&request.resource, &request.body, &e))?;
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
    if let Some((version, kind)) = &error.of {
        let version = version.rsplit('/').next().unwrap_or_default();
        return ApiError::bad_request(format!("{kind} in version {version:?} cannot be handled as a {}: {error}", resource.kind));
    }
    unrecognized(resource, body, &error.to_string())
}

/// A body that does not even tell what it is.
fn unrecognized(resource: &Resource, body: &[u8], why: &str) -> ApiError {
    ApiError::bad_request(format!("the object provided is unrecognized (must be of type {}): {why} ({})", resource.kind, summary(body)))
}

/// The start of a body: text that looks like JSON as it is, anything else in hexadecimal.
fn summary(body: &[u8]) -> String {
    const BYTES_MAX: usize = 30;
    let start = &body[..body.len().min(BYTES_MAX)];
    let mut text = match start.first() {
        None => return "<empty>".into(),
        Some(b'{') => String::from_utf8_lossy(start).into_owned(),
        Some(_) => start.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if body.len() > BYTES_MAX {
        text.push_str(" ...");
    }
    text
}

/// Any JSON or YAML body, without a schema.
pub fn parse_body(request: &ResourceRequest<'_>) -> Result<Value, ApiError> {
    let (text, _) = json_text(request, content_type(request.headers))?;
    let value = structural::decode(&text).map(|d| d.value).map_err(|e| ApiError::bad_request(e.to_string()))?;
    if let Some(record) = request.audit {
        record.requested(&value, || value.clone());
    }
    Ok(value)
}

/// A patch body as JSON, with the strict errors of its text.
pub fn parse_patch(request: &ResourceRequest<'_>) -> Result<Decoded, ApiError> {
    let patch = structural::decode(&request.body).map_err(|_| ApiError::bad_request("invalid JSON patch"))?;
    if let Some(record) = request.audit {
        record.patched(&patch.value);
    }
    Ok(patch)
}

pub fn unsupported(request: &ResourceRequest<'_>) -> ApiError {
    let protobuf = if speaks_protobuf(request) { ", application/vnd.kubernetes.protobuf" } else { "" };
    ApiError::unsupported_media_type(format!(
        "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml{protobuf}"
    ))
}

/// The object of a create or update body: its type checked, unknown fields dropped or refused.
pub fn object(request: &ResourceRequest<'_>, options_kind: &str) -> Result<Value, ApiError> {
    let validation = field_validation(request.query, options_kind)?;
    let (text, mut strict_yaml) = json_text(request, content_type(request.headers))?;
    if validation == FieldValidation::Strict && !strict_yaml.is_empty() {
        // The YAML reader's errors come as one.
        strict_yaml = vec![format!("yaml: unmarshal errors:\n  {}", strict_yaml.join("\n  "))];
    }
    let object = read(request, &text, Map::new(), strict_yaml, validation).map_err(|unreadable| match unreadable {
        Unreadable::Unrecognized(why) => {
            unrecognized(&request.resource, &request.body, &format!("couldn't get version/kind; json parse error: {why}"))
        }
        Unreadable::Unfit(why) | Unreadable::Mistyped { why, .. } => unfit(&request.resource, &why),
        Unreadable::Other(error) => error,
    })?;
    if let Some(record) = request.audit {
        record.requested(&object, || with_defaults(&request.resource, &object));
    }
    Ok(object)
}

/// The object as whoever audits sees it.
fn with_defaults(resource: &Resource, object: &Value) -> Value {
    let mut object = object.clone();
    super::write::apply_defaults(resource, &mut object);
    object
}

/// The configuration of a server-side apply: YAML whatever the Content-Type says. Its fields become owned, so that
/// there is no leaving out of those that nobody knows.
pub fn applied(request: &ResourceRequest<'_>) -> Result<Value, ApiError> {
    let resource = &request.resource;
    let validation = field_validation(request.query, "PatchOptions")?;
    let document = structural::yaml_to_json(&request.body)
        .map_err(|e| ApiError::bad_request(format!("error encoding patch: {}", e.replace("yaml: line 1: ", "yaml: "))))?;
    let mut given = structural::decode(&document.json).map_err(|e| ApiError::bad_request(e.to_string()))?;
    if !matches!(given.value, Value::Object(_) | Value::Null) {
        let of = go_type(&given.value);
        let why = format!("json: cannot unmarshal {of} into Go value of type map[string]interface {{}}");
        return Err(ApiError::bad_request(format!("error decoding patch: error unmarshaling JSON: while decoding JSON: {why}")));
    }
    let type_of = go_kind(given.value.api_version(), given.value.kind());
    if given.value.kind() != resource.kind || given.value.api_version() != resource.api_version() {
        return Err(ApiError::bad_request(format!("invalid object type: {type_of}")));
    }
    let target = format!("{}/{}; {type_of}", given.value.namespace(), given.value.name());
    let unfit = |why: String| ApiError::bad_request(format!("failed to create typed patch object ({target}): {why}"));
    let mut value = if resource.custom.is_some() {
        apply::check_types(&given.value, resource.schema.node()).map_err(unfit)?;
        crate::crd::read(resource, &mut given)?;
        given.value
    } else {
        let decoded = structural::decode_typed(&document.json, resource.schema.node()).map_err(|e| ApiError::bad_request(e.to_string()))?;
        let unknown = decoded.strict.iter().find_map(|p| p.strip_prefix("unknown field ")).map(|path| {
            // Upstream's path begins with a dot.
            format!(".{}: field not declared in schema", path.trim_matches('"'))
        });
        if let Some(why) = decoded.type_error.or(unknown) {
            return Err(unfit(why));
        }
        decoded.value
    };
    if validation == FieldValidation::Strict && !document.duplicates.is_empty() {
        let why = format!("error converting YAML to JSON: yaml: unmarshal errors:\n  {}", document.duplicates.join("\n  "));
        return Err(ApiError::bad_request(format!("error strict decoding patch: {why}")));
    }
    if validation == FieldValidation::Warn {
        document.duplicates.into_iter().for_each(|problem| request.warn(problem));
    }
    check_type(resource, &mut value)?;
    if let Some(record) = request.audit {
        record.patched(&value);
    }
    Ok(value)
}

/// Group, version and kind as Go prints them: `apps/v1, Kind=Deployment`.
fn go_kind(api_version: &str, kind: &str) -> String {
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={kind}")
}

/// Makes a patched object conform to the schema again; what does not is told with the patch. Parts of the live object that the patch
/// left alone were read before.
pub fn conform(
    request: &ResourceRequest<'_>,
    live: &Value,
    mut value: Value,
    strict: Vec<String>,
    validation: FieldValidation,
    strategic: bool,
    patch: impl Fn() -> String,
) -> Result<Value, ApiError> {
    let kept = if request.resource.custom.is_none() { take_unchanged(live, &mut value) } else { Map::new() };
    let text = serde_json::to_vec(&value).expect("a Value is always writable");
    read(request, &text, kept, strict, validation).map_err(|unreadable| match unreadable {
        Unreadable::Mistyped { restore, .. } if strategic => unfit_patch(patch(), restore),
        Unreadable::Unrecognized(why) | Unreadable::Unfit(why) | Unreadable::Mistyped { why, .. } => unfit_patch(patch(), why),
        Unreadable::Other(error) if error.code == 400 && request.resource.custom.is_none() => unfit_patch(patch(), error.message),
        Unreadable::Other(error) => error,
    })
}

/// Takes out what is as it was, but for what tells the type.
fn take_unchanged(live: &Value, value: &mut Value) -> Map<String, Value> {
    let Value::Object(parts) = value else { return Map::new() };
    let (kept, changed) = std::mem::take(parts)
        .into_iter()
        .partition(|(key, part)| !matches!(key.as_str(), "apiVersion" | "kind") && live.get(key).is_some_and(|before| before == part));
    *parts = changed;
    kept
}

/// A patch that makes something else of the object than one of its kind.
pub fn unfit_patch(patch: String, why: String) -> ApiError {
    ApiError::invalid("", "", "", &[FieldError::invalid(&FieldPath::new("patch"), patch, why)])
}

/// Why some text is no object of the kind that is expected.
enum Unreadable {
    /// It is no JSON, or does not tell what it is.
    Unrecognized(String),
    /// It is an object of the kind with something wrong in it.
    Unfit(String),
    /// A value in it is of a wrong type, in the words of upstream's decoder and of its converter.
    Mistyped {
        why: String,
        restore: String,
    },
    Other(ApiError),
}

/// Reads an object of the resource's kind: wrong types are refused, unknown fields handled as asked. `kept` are parts of it that were
/// read before.
fn read(
    request: &ResourceRequest<'_>,
    text: &[u8],
    kept: Map<String, Value>,
    strict: Vec<String>,
    validation: FieldValidation,
) -> Result<Value, Unreadable> {
    let resource = &request.resource;
    let syntax = |e: structural::SyntaxError| Unreadable::Unrecognized(e.to_string());
    let mut problems = strict;
    let mut value;
    if resource.custom.is_none() {
        let decoded = structural::decode_typed(text, resource.schema.node()).map_err(syntax)?;
        value = decoded.value;
        if let Value::Object(parts) = &mut value {
            parts.extend(kept);
        }
        if let Some(why) = decoded.type_error {
            tells_its_type(text).map_err(Unreadable::Unrecognized)?;
            check_type(resource, &mut value).map_err(Unreadable::Other)?;
            let restore = decoded.restore_error.unwrap_or_else(|| why.clone());
            return Err(Unreadable::Mistyped { why, restore });
        }
        problems.extend(decoded.strict);
        check_type(resource, &mut value).map_err(Unreadable::Other)?;
        (resource.strategy.readable)(&value).map_err(Unreadable::Unfit)?;
    } else {
        let mut decoded = structural::decode(text).map_err(syntax)?;
        check_type(resource, &mut decoded.value).map_err(Unreadable::Other)?;
        crate::crd::read(resource, &mut decoded).map_err(Unreadable::Other)?;
        problems.extend(decoded.strict);
        value = decoded.value;
    }
    match validation {
        FieldValidation::Strict if !problems.is_empty() => {
            Err(Unreadable::Unfit(format!("strict decoding error: {}", problems.join(", "))))
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

/// Whether JSON is an object whose `apiVersion` and `kind` are texts; the error is the one of Go's decoder.
fn tells_its_type(text: &[u8]) -> Result<(), String> {
    let value = structural::decode(text).map_err(|e| e.to_string())?.value;
    let Some(map) = value.as_object() else {
        return Err(format!(
            "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; \
             Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            go_type(&value)
        ));
    };
    for key in ["apiVersion", "kind"] {
        match map.get(key) {
            None | Some(Value::String(_) | Value::Null) => {}
            Some(other) => {
                return Err(format!("json: cannot unmarshal {} into Go struct field .{key} of type string", go_type(other)));
            }
        }
    }
    Ok(())
}

fn unfit(resource: &Resource, why: &str) -> ApiError {
    ApiError::bad_request(unreadable(resource, why))
}

fn unreadable(resource: &Resource, why: &str) -> String {
    format!("{} in version {:?} cannot be handled as a {}: {why}", resource.kind, resource.version, resource.kind)
}

/// `apiVersion` and `kind` must be those of the path.
pub fn check_type(resource: &Resource, value: &mut Value) -> Result<(), ApiError> {
    if !value.is_object() {
        let go_type = go_type(value);
        let why = format!("json: cannot unmarshal {go_type} into Go value of type {}.{}", resource.version, resource.kind);
        return Err(unfit(resource, &why));
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
    if value.kind() == resource.kind && value.api_version() == resource.api_version() {
        return Ok(());
    }
    if resource.custom.is_some() && value.api_version() == resource.api_version() {
        let error = FieldError::invalid(&FieldPath::new("kind"), value.kind(), format!("must be {}", resource.kind));
        return Err(ApiError::invalid(&resource.group, value.kind(), value.name(), &[error]));
    }
    let group_of = |api_version: &str| api_version.split_once('/').map_or(String::new(), |(group, _)| group.to_string());
    let other_version = value.kind() == resource.kind && group_of(value.api_version()) == resource.group;
    if resource.custom.is_some() || (other_version && is_builtin(value)) {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({}) does not match the expected API version ({})",
            value.api_version(),
            resource.api_version()
        )));
    }
    Err(other_kind(value, resource.internal_package(), &resource.kind))
}

/// The error for a body of another kind than the expected one.
fn other_kind(value: &Value, package: &str, expected: &str) -> ApiError {
    let (kind, api_version) = (value.kind(), value.api_version());
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let why = if is_builtin(value) {
        format!("converting ({version}.{kind}) to ({package}.{expected}): unknown conversion")
    } else {
        format!("no kind {kind:?} is registered for version {api_version:?} in scheme {SCHEME:?}")
    };
    ApiError::bad_request(format!("{kind} in version {version:?} cannot be handled as a {expected}: {why}"))
}

/// Upstream tells where in its sources it registers types.
const SCHEME: &str = "k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30";

fn is_builtin(value: &Value) -> bool {
    let (group, version) = value.api_version().split_once('/').unwrap_or(("", value.api_version()));
    builtin().kind(group, version, value.kind()).is_some()
}

pub fn go_type(value: &Value) -> &'static str {
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
    let (text, _) = json_text(request, content_type(request.headers))?;
    let syntax = |why: &str| ApiError::bad_request(format!("couldn't get version/kind; json parse error: {why}"));
    let schema = builtin().kind("", "v1", "DeleteOptions").expect("the facts have DeleteOptions");
    let decoded = structural::decode_typed(&text, schema.node()).map_err(|e| syntax(&e.to_string()))?;
    let value = decoded.value;
    if !matches!(value.kind(), "DeleteOptions" | "") {
        let (kind, version) = (value.kind(), value.api_version());
        return Err(ApiError::bad_request(format!("no kind {kind:?} is registered for version {version:?}")));
    }
    match decoded.type_error {
        None => {
            if let Some(record) = request.audit {
                record.requested(&value, || as_options(value.clone()));
            }
            Ok(value)
        }
        Some(why) => {
            tells_its_type(&text).map_err(|e| syntax(&e))?;
            Err(ApiError::bad_request(why))
        }
    }
}

/// Options as upstream's log shows them.
fn as_options(mut options: Value) -> Value {
    options["kind"] = json!("DeleteOptions");
    options["apiVersion"] = json!("meta.k8s.io/__internal");
    options
}

/// A body that must be of one kind, for subresources. `package` is where upstream has the kind.
pub fn body_of_kind(request: &ResourceRequest<'_>, package: &str, kind: &str) -> Result<Value, ApiError> {
    let mut value = parse_body(request)?;
    if !value.is_object() {
        return Err(ApiError::bad_request(format!("the request body must be a {kind} object")));
    }
    if value.kind().is_empty() {
        value["kind"] = json!(kind);
    }
    if value.kind() != kind {
        return Err(other_kind(&value, package, kind));
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
        return body_of_kind(request, "autoscaling", "Scale").map(ScaleBody::Object);
    }
    let json = || parse_patch(request).map(|d| d.value);
    match content_type(request.headers) {
        "application/json-patch+json" => json().map(ScaleBody::Json),
        "application/merge-patch+json" | "application/strategic-merge-patch+json" => json().map(ScaleBody::Merge),
        "application/apply-patch+yaml" => parse_body(request).map(ScaleBody::Apply),
        _ => Err(unsupported(request)),
    }
}
