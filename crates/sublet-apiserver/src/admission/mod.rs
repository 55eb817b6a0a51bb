//! Admission: plugins that change or refuse a request between authorization and commit.

mod certificates;
mod ingress_class;
mod limit_ranger;
mod namespace_lifecycle;
mod plugins;
mod pod_resize;
mod pod_security;
mod priority;
mod resource_quota;
mod runtime_class;
mod service_account;
mod storage;
mod taint_nodes;
#[cfg(test)]
pub(crate) mod testing;
mod tolerations;
mod topology_labels;
mod util;

pub use plugins::{Config, ORDER, SignerPermission, default_plugins};
pub use pod_security::PodSecurityLevel;

use crate::reader::Writer;
use crate::registry::Resource;
use async_trait::async_trait;
use serde_json::Value;
use std::sync::Arc;
use sublet_machinery::ApiError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// Who asks, as authentication found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: std::collections::BTreeMap<String, Vec<String>>,
}

/// The request as admission sees it.
pub struct Attributes<'a> {
    pub user: &'a UserInfo,
    pub operation: Operation,
    pub resource: &'a Arc<Resource>,
    /// Empty for the main resource.
    pub subresource: &'a str,
    pub namespace: &'a str,
    /// Empty on create with generateName.
    pub name: &'a str,
    /// The object as it will be stored (or the body of a subresource such as Binding or Eviction).
    /// `None` on delete.
    pub object: Option<Value>,
    pub old: Option<Arc<Value>>,
    pub dry_run: bool,
    /// Sent to the client as Warning headers.
    pub warnings: Vec<String>,
}

/// One admission plugin. Mutation runs for all plugins first, validation after defaulting and validation of the kind.
#[async_trait]
pub trait Plugin: Send + Sync + 'static {
    /// As in `--enable-admission-plugins`.
    fn name(&self) -> &'static str;

    fn handles(&self, attributes: &Attributes<'_>) -> bool;

    async fn mutate(&self, _attributes: &mut Attributes<'_>, _store: &Arc<dyn Writer>) -> Result<(), ApiError> {
        Ok(())
    }

    async fn validate(&self, _attributes: &mut Attributes<'_>, _store: &Arc<dyn Writer>) -> Result<(), ApiError> {
        Ok(())
    }
}
