//! PATCH in its four forms.

use super::ResourceRequest;
use super::convert::storage_resource;
use super::decode;
use super::options::{self, FieldValidation};
use super::write::{Change, Manager, empty_object, reset_fields};
use crate::http::HttpResponse;
use crate::http::negotiate::content_type;
use crate::server::Server;
use http::StatusCode;
use serde_json::{Value, json};
use sublet_machinery::{ApiError, FieldError, FieldPath, ObjectExt, Reason, apply, patch};

impl Server {
    pub(crate) async fn handle_patch(&self, request: &ResourceRequest<'_>) -> Result<HttpResponse, ApiError> {
        let dry_run = options::dry_run(request.query, "PatchOptions")?;
        let validation = options::field_validation(request.query, "PatchOptions")?;
        match content_type(request.headers) {
            "application/json-patch+json" => {
                let body = decode::parse_patch(request)?;
                self.patch_with(request, dry_run, validation, body.strict, None, |live| patch::json_patch::apply(live, &body.value)).await
            }
            "application/merge-patch+json" => {
                let body = decode::parse_patch(request)?;
                must_be_object(&body.value)?;
                self.patch_with(request, dry_run, validation, body.strict, None, |live| patch::merge_patch::apply(live, &body.value)).await
            }
            "application/strategic-merge-patch+json" => {
                if request.resource.custom.is_some() {
                    return Err(ApiError::unsupported_media_type(
                        "the body of the request was in an unknown format - accepted media types include: \
                         application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
                    ));
                }
                let mut body = decode::parse_patch(request)?;
                must_be_object(&body.value)?;
                if body.value.is_null() {
                    body.value = json!({});
                }
                let schema = request.resource.schema.clone();
                let merge = |live: &Value| patch::strategic::merge(live, &body.value, schema.node());
                self.patch_with(request, dry_run, validation, body.strict.clone(), Some(&body.value), merge).await
            }
            "application/apply-patch+yaml" | "application/apply-patch" => self.apply(request, dry_run).await,
            _ => Err(unsupported_patch()),
        }
    }

    async fn patch_with(
        &self,
        request: &ResourceRequest<'_>,
        dry_run: bool,
        validation: FieldValidation,
        strict: Vec<String>,
        // Strategic patches are told as they are, the others by what they make of the object.
        told: Option<&Value>,
        merge: impl Fn(&Value) -> Result<Value, ApiError>,
    ) -> Result<HttpResponse, ApiError> {
        if request.query.has("force") && request.query.bool("force") {
            let error = FieldError::forbidden(&FieldPath::new("force"), "may not be specified for non-apply patch");
            return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
        }
        let manager = Manager { name: request.field_manager()?, subresource: request.info.subresource.clone() };
        // Told once, however often the patch is tried.
        let strict = std::sync::Mutex::new(strict);
        let change = |live: &Value| {
            let patched = || {
                let mut new = merge(live)?;
                keep_identity(live, &mut new)?;
                Ok::<_, ApiError>(new)
            };
            let new = patched()?;
            let strict = std::mem::take(&mut *strict.lock().expect("no holder of this lock panics"));
            let patch = || told.map_or_else(|| patched().unwrap_or_default().to_string(), go_text);
            decode::conform(request, live, new, strict, validation, told.is_some(), patch).map(Change::To)
        };
        let written = self.modify(request, Some(&manager), dry_run, change).await?;
        self.present_written(request, StatusCode::OK, &written).await
    }

    async fn apply(&self, request: &ResourceRequest<'_>, dry_run: bool) -> Result<HttpResponse, ApiError> {
        if request.query.get("fieldManager").is_empty() {
            let error = FieldError::required(&FieldPath::new("fieldManager"), "is required for apply patch");
            return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
        }
        let resource = &request.resource;
        let mut config = decode::applied(request)?;
        if !config["metadata"]["managedFields"].is_null() {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        decode::check_namespace(request, &mut config)?;
        check_applied_name(request, &mut config)?;
        let manager = request.field_manager()?;
        let force = request.query.bool("force");
        let subresource = request.info.subresource.clone();
        let api_version = resource.api_version();
        let empty = empty_object(resource);
        let merge = |live: Option<&Value>| {
            let now = self.now();
            let writer = apply::Writer {
                manager: &manager,
                subresource: &subresource,
                api_version: &api_version,
                now: &now,
                reset_fields: reset_fields(resource, &subresource),
            };
            let options = apply::ApplyOptions { writer, kind: &resource.kind, force };
            apply::apply_over(live, &empty, &config, resource.schema.node(), &options)
        };
        let exists = self.store().get(&storage_resource(resource), request.namespace(), &request.info.name).is_some();
        if !exists && request.info.subresource.is_empty() {
            self.authorize_create(request)?;
            if !config.uid().is_empty() {
                return Err(request.not_found(&request.info.name));
            }
            let merged = merge(None)?;
            match self.create_object(request, merged.object, None, dry_run).await {
                Err(error) if error.is(Reason::AlreadyExists) => {}
                result => return self.present_written(request, StatusCode::CREATED, &result?).await,
            }
        }
        let change = |live: &Value| {
            let mut merged = merge(Some(live))?.object;
            if config.resource_version().is_empty() {
                merged.metadata_mut().insert("resourceVersion".into(), live["metadata"]["resourceVersion"].clone());
            }
            Ok(Change::Applied(merged))
        };
        let written = self.modify(request, None, dry_run, change).await?;
        self.present_written(request, StatusCode::OK, &written).await
    }
}

fn must_be_object(value: &Value) -> Result<(), ApiError> {
    let what = match value {
        Value::Object(_) | Value::Null => return Ok(()),
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
    };
    let why = format!("json: cannot unmarshal {what} into Go value of type map[string]interface {{}}");
    Err(ApiError::bad_request(format!("error decoding patch: {why}")))
}

/// A value as Go prints it.
fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_text).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => format!("map[{}]", map.iter().map(|(k, v)| format!("{k}:{}", go_text(v))).collect::<Vec<_>>().join(" ")),
        other => other.to_string(),
    }
}

fn unsupported_patch() -> ApiError {
    ApiError { is_generic: true, ..ApiError::unsupported_media_type("415: Unsupported Media Type") }
}

/// A patch may not turn the object into another one.
fn keep_identity(live: &Value, new: &mut Value) -> Result<(), ApiError> {
    if !new.is_object() {
        return Err(ApiError::bad_request("the patch leaves no object"));
    }
    if new.name() != live.name() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            new.name(),
            live.name()
        )));
    }
    if new.namespace().is_empty() && !live.namespace().is_empty() {
        new.metadata_mut().insert("namespace".into(), live.namespace().into());
    }
    if new.namespace() != live.namespace() {
        return Err(ApiError::bad_request("the namespace of the provided object does not match the namespace sent on the request"));
    }
    Ok(())
}

fn check_applied_name(request: &ResourceRequest<'_>, config: &mut Value) -> Result<(), ApiError> {
    let name = &request.info.name;
    if config.name().is_empty() {
        config.metadata_mut().insert("name".into(), json!(name));
    }
    if config.name() != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({name})",
            config.name()
        )));
    }
    Ok(())
}
