//! How authorizers, admission plugins and controllers inside the server see and change its objects.

use crate::server::Server;
use async_trait::async_trait;
use serde_json::Value;
use std::sync::Arc;
use sublet_machinery::ApiError;

/// Reads of the current state, from memory. `group_resource` is `pods` or `deployments.apps`.
pub trait Reader: Send + Sync + 'static {
    fn get(&self, group_resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>>;

    /// All objects, or those of one namespace.
    fn list(&self, group_resource: &str, namespace: Option<&str>) -> Vec<Arc<Value>>;

    /// Rises with every change of the resource, so that derived tables know when to be made anew.
    fn revision(&self, group_resource: &str) -> u64;
}

/// Writes by the server itself: no authentication, authorization or admission.
#[async_trait]
pub trait Writer: Reader {
    /// The whole server, for plugins that call others on its behalf. Stores of tests have none.
    fn server(&self) -> Option<&Server> {
        None
    }

    /// Creates the object with metadata filled in.
    async fn create(&self, group_resource: &str, object: Value) -> Result<Value, ApiError>;

    /// Replaces the object if its resourceVersion is still the current one (a Conflict otherwise).
    async fn update(&self, group_resource: &str, object: Value) -> Result<Value, ApiError>;

    async fn delete(&self, group_resource: &str, namespace: &str, name: &str) -> Result<(), ApiError>;
}
