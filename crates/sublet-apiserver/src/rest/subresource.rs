//! Subresources that are more than a view of their object.

mod binding;
mod eviction;
mod scale;

pub(crate) use scale::{scale_of, scale_paths};

use super::ResourceRequest;
use super::convert::storage_resource;
use super::write::{Change, Manager, Written};
use super::{decode, options};
use crate::admission::{Attributes, Operation};
use crate::http::{HttpResponse, respond};
use crate::server::Server;
use http::StatusCode;
use serde_json::{Value, json};
use sublet_machinery::{ApiError, ObjectExt};

impl Server {
    /// A request on a subresource. Those that speak the kind of their object take the common path.
    pub(crate) async fn subresource(&self, request: &ResourceRequest<'_>) -> Result<HttpResponse, ApiError> {
        let info = request.info;
        let resource = &request.resource;
        let known = resource.subresource(&info.subresource).ok_or_else(ApiError::no_such_path)?;
        let verb = info.verb;
        if !known.verbs.iter().any(|v| v == verb) {
            return Err(ApiError::method_not_allowed());
        }
        match (info.subresource.as_str(), verb) {
            ("scale", _) => self.scale(request, known).await,
            ("binding", "create") => self.bind(request, &info.name).await,
            ("eviction", "create") => self.evict(request).await,
            ("token", "create") => self.create_token(request).await,
            (_, "get") if known.kind.kind == resource.kind.as_str() && info.subresource != "log" => self.handle_get(request).await,
            (_, "update") if known.kind.kind == resource.kind.as_str() => self.handle_update(request).await,
            (_, "patch") if known.kind.kind == resource.kind.as_str() => self.handle_patch(request).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    /// The live object that the path names.
    async fn live(&self, request: &ResourceRequest<'_>) -> Result<Value, ApiError> {
        let name = &request.info.name;
        let entry =
            self.store().get(&storage_resource(&request.resource), request.namespace(), name).ok_or_else(|| request.not_found(name))?;
        self.object_at(entry.value(), &request.resource).await
    }

    /// Admission of a body that is no object of its own, such as a Binding.
    async fn admit_body(&self, request: &ResourceRequest<'_>, body: Value, dry_run: bool) -> Result<Value, ApiError> {
        let mut attributes = Attributes {
            subresource: &request.info.subresource,
            namespace: request.namespace(),
            name: &request.info.name,
            object: Some(body),
            dry_run,
            query: Some(request.query),
            ..Attributes::new(request.user, Operation::Create, &request.resource)
        };
        self.admit(request, &mut attributes).await?;
        Ok(attributes.object.take().unwrap_or_default())
    }

    async fn create_token(&self, request: &ResourceRequest<'_>) -> Result<HttpResponse, ApiError> {
        let dry_run = options::dry_run(request.query, "CreateOptions")?;
        let body = decode::body_of_kind(request, "authentication", "TokenRequest")?;
        let body = self.admit_body(request, body, dry_run).await?;
        let issued = self.security().tokens.request(request.namespace(), &request.info.name, body, self.clock_now())?;
        Ok(respond::value(StatusCode::CREATED, request.accepted, &issued))
    }

    /// Changes the object of a request on behalf of a subresource with a body of its own.
    async fn modify_live(
        &self,
        request: &ResourceRequest<'_>,
        dry_run: bool,
        change: impl Fn(&Value) -> Result<Value, ApiError>,
    ) -> Result<Written, ApiError> {
        let manager = Manager { name: request.field_manager()?, subresource: request.info.subresource.clone() };
        self.modify(request, Some(&manager), dry_run, |live| change(live).map(Change::To)).await
    }
}

/// `Status: Success`, the answer of binding and eviction.
fn success(request: &ResourceRequest<'_>) -> HttpResponse {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    respond::value(StatusCode::CREATED, request.accepted, &status)
}

/// The name in the body of a subresource must be that of the path, when both are given.
fn check_body_name(request: &ResourceRequest<'_>, body: &Value) -> Result<(), ApiError> {
    let name = &request.info.name;
    if !name.is_empty() && !body.name().is_empty() && body.name() != name {
        return Err(ApiError::bad_request(format!("name in URL does not match name in {} object", body.kind())));
    }
    Ok(())
}
