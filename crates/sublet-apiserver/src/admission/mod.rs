//! Admission: plugins that change or refuse a request between authorization and commit.

mod certificates;
mod conditions;
mod ingress_class;
mod limit_ranger;
mod matching;
mod namespace_lifecycle;
mod node_restriction;
mod plugins;
mod pod_resize;
mod pod_security;
mod policy;
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
mod view;
mod webhook;

pub(crate) use conditions::{Extras, compile as compile_expression, declare as declare_variables};
pub use plugins::{Config, ORDER, SignerPermission, default_plugins};
pub use pod_security::PodSecurityLevel;
pub(crate) use policy::{Scope as PolicyScope, type_warnings};

use crate::http::Query;
use crate::reader::Writer;
use crate::registry::Resource;
use crate::rest::delete::DeleteOptions;
use async_trait::async_trait;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
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
    /// The parameters of the request, which its options are made of.
    pub query: Option<&'a Query>,
    pub delete_options: Option<&'a DeleteOptions>,
    /// The path behind `proxy`.
    pub connect_path: Option<String>,
    /// What extensions of the API server note about the request, for whoever audits.
    pub annotations: BTreeMap<String, String>,
    /// A step of a request that extensions have judged as a whole, or of the server's own making.
    pub is_inner: bool,
    pub reinvocation: Reinvocation,
}

/// Mutation runs a second time when an extension changed the object after others had seen it.
#[derive(Debug, Default)]
pub struct Reinvocation {
    /// This is the second time.
    pub is_again: bool,
    /// A second time is wanted.
    pub is_wanted: bool,
    pub webhooks: Invoked,
    pub policies: Invoked,
}

/// What one plugin knows about the extensions that it asked.
#[derive(Debug, Default)]
pub struct Invoked {
    /// The object as the plugin left it.
    pub last: Option<Value>,
    /// Asked since the last change, and willing to be asked again.
    pub willing: BTreeSet<String>,
    /// To be asked again.
    pub again: BTreeSet<String>,
}

impl Invoked {
    /// The object changed: whoever was asked before sees it again.
    pub fn require_again(&mut self) {
        self.again.append(&mut self.willing);
    }
}

impl<'a> Attributes<'a> {
    /// A request without an object yet.
    pub fn new(user: &'a UserInfo, operation: Operation, resource: &'a Arc<Resource>) -> Self {
        Self {
            user,
            operation,
            resource,
            subresource: "",
            namespace: "",
            name: "",
            object: None,
            old: None,
            dry_run: false,
            warnings: Vec::new(),
            query: None,
            delete_options: None,
            connect_path: None,
            annotations: BTreeMap::new(),
            is_inner: false,
            reinvocation: Reinvocation::default(),
        }
    }
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
