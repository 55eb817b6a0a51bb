//! The verbs of the API on one resource. Every kind takes the same steps in the same order.

pub mod convert;
pub mod decode;
pub mod delete;
pub mod list;
mod list_body;
pub mod metadata;
pub mod options;
pub mod patch;
pub mod present;
pub mod selection;
pub mod subresource;
pub mod watch;
pub mod write;

use crate::admission::{Attributes, UserInfo};
use crate::audit::Record;
use crate::http::negotiate::Accepted;
use crate::http::{Query, RequestInfo};
use crate::registry::{Resource, Snapshot};
use http::HeaderMap;
use std::sync::{Arc, Mutex};
use sublet_machinery::{ApiError, FieldError, FieldPath};

/// A request on a resource, authenticated and authorized.
pub struct ResourceRequest<'a> {
    pub info: &'a RequestInfo,
    pub query: &'a Query,
    pub headers: &'a HeaderMap,
    pub user: &'a UserInfo,
    pub accepted: Accepted,
    pub resource: Arc<Resource>,
    pub registry: Arc<Snapshot>,
    pub body: bytes::Bytes,
    /// Texts for Warning headers, collected on the way.
    pub warnings: Mutex<Vec<String>>,
    /// What the audit log is told, when it wants to know.
    pub audit: Option<&'a Record>,
}

impl ResourceRequest<'_> {
    pub fn warn(&self, text: impl Into<String>) {
        self.warnings.lock().expect("no holder of this lock panics").push(text.into());
    }

    /// What admission warned of goes to the client, and what it noted to whoever audits, whatever becomes of the request.
    pub(crate) fn pass_warnings(&self, attributes: &mut Attributes<'_>) {
        attributes.warnings.drain(..).for_each(|warning| self.warn(warning));
        if let Some(record) = self.audit {
            attributes.annotations.iter().for_each(|(key, value)| record.annotate(key, value));
        }
    }

    /// The namespace of a namespaced resource; an error when the path has none where it must.
    pub fn namespace(&self) -> &str {
        if self.resource.namespaced { &self.info.namespace } else { "" }
    }

    /// `fieldManager`, or what the user agent says before its slash.
    pub fn field_manager(&self) -> Result<String, ApiError> {
        const BYTES_MAX: usize = 128;
        let manager = self.query.get("fieldManager");
        if manager.len() > BYTES_MAX {
            let error = FieldError::too_long(&FieldPath::new("fieldManager"), BYTES_MAX);
            return Err(ApiError::invalid("meta.k8s.io", self.options_kind(), "", &[error]));
        }
        if !manager.is_empty() {
            return Ok(manager.to_string());
        }
        let agent = self.headers.get(http::header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or("unknown");
        let prefix = agent.split('/').next().unwrap_or("unknown");
        Ok(prefix.chars().filter(|c| !c.is_control()).take(BYTES_MAX).collect())
    }

    /// The kind of the options in the query.
    pub fn options_kind(&self) -> &'static str {
        match self.info.verb {
            "create" => "CreateOptions",
            "update" => "UpdateOptions",
            "patch" => "PatchOptions",
            _ => "DeleteOptions",
        }
    }

    pub fn not_found(&self, name: &str) -> ApiError {
        ApiError::not_found(&self.resource.group, &self.resource.plural, name)
    }
}
