//! How authorizers, admission plugins and controllers inside the server see and change its objects.

use crate::server::Server;
use async_trait::async_trait;
use serde_json::Value;
use std::sync::{Arc, RwLock};
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

/// How a value is made from the objects of `N` resources.
type Derive<T, const N: usize> = fn(&[Vec<Arc<Value>>; N]) -> T;

/// A value made from all objects of some resources, kept until one of them changes.
pub(crate) struct Derived<T, const N: usize = 1> {
    resources: [&'static str; N],
    derive: Derive<T, N>,
    /// The value and the revisions it was made from.
    current: RwLock<Option<([u64; N], Arc<T>)>>,
}

impl<T, const N: usize> Derived<T, N> {
    pub(crate) const fn new(resources: [&'static str; N], derive: Derive<T, N>) -> Self {
        Self { resources, derive, current: RwLock::new(None) }
    }

    pub(crate) fn read(&self, reader: &dyn Reader) -> Arc<T> {
        // Asked before the objects are listed: what changes in between is newer than what the value claims.
        let revisions = self.resources.map(|resource| reader.revision(resource));
        let fresh =
            |current: &Option<([u64; N], Arc<T>)>| current.as_ref().filter(|(made, _)| *made == revisions).map(|(_, value)| value.clone());
        if let Some(value) = fresh(&self.current.read().expect("deriving does not panic")) {
            return value;
        }
        let mut current = self.current.write().expect("deriving does not panic");
        if let Some(value) = fresh(&current) {
            return value;
        }
        let value = Arc::new((self.derive)(&self.resources.map(|resource| reader.list(resource, None))));
        *current = Some((revisions, value.clone()));
        value
    }
}
