//! A store in memory and requests, for the tests of plugins.

use super::{Attributes, Operation, Plugin, UserInfo};
use crate::reader::{Reader, Writer};
use crate::registry::Resource;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use sublet_machinery::{ApiError, Node, ObjectExt, Schema, Table};

type Key = (String, String, String);

/// Objects by resource, namespace and name. Updates compare resource versions.
#[derive(Default)]
pub(crate) struct MemoryStore {
    objects: Mutex<BTreeMap<Key, Arc<Value>>>,
}

impl MemoryStore {
    fn put(&self, group_resource: &str, mut object: Value) -> Value {
        let mut objects = self.objects.lock().expect("no panic under the lock");
        let key = (group_resource.to_string(), object.namespace().to_string(), object.name().to_string());
        let version: u64 = objects.get(&key).and_then(|o| o.resource_version().parse().ok()).unwrap_or(0);
        object.metadata_mut().insert("resourceVersion".into(), json!((version + 1).to_string()));
        objects.insert(key, Arc::new(object.clone()));
        object
    }
}

impl Reader for MemoryStore {
    fn get(&self, group_resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.objects.lock().expect("no panic under the lock").get(&(group_resource.into(), namespace.into(), name.into())).cloned()
    }

    fn list(&self, group_resource: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let objects = self.objects.lock().expect("no panic under the lock");
        let wanted = |key: &Key| key.0 == group_resource && namespace.is_none_or(|n| n == key.1);
        objects.iter().filter(|(key, _)| wanted(key)).map(|(_, object)| object.clone()).collect()
    }

    fn revision(&self, _: &str) -> u64 {
        0
    }
}

#[async_trait]
impl Writer for MemoryStore {
    async fn create(&self, group_resource: &str, object: Value) -> Result<Value, ApiError> {
        Ok(self.put(group_resource, object))
    }

    async fn update(&self, group_resource: &str, object: Value) -> Result<Value, ApiError> {
        let current = self.get(group_resource, object.namespace(), object.name());
        if current.is_none_or(|c| c.resource_version() != object.resource_version()) {
            return Err(ApiError::modified("", group_resource, object.name()));
        }
        Ok(self.put(group_resource, object))
    }

    async fn delete(&self, group_resource: &str, namespace: &str, name: &str) -> Result<(), ApiError> {
        let key = (group_resource.into(), namespace.into(), name.into());
        self.objects.lock().expect("no panic under the lock").remove(&key);
        Ok(())
    }
}

pub(crate) fn store(objects: &[(&str, Value)]) -> Arc<dyn Writer> {
    let store = MemoryStore::default();
    for (group_resource, object) in objects {
        store.put(group_resource, object.clone());
    }
    Arc::new(store)
}

/// A request under way, with what attributes borrow.
pub(crate) struct Request {
    pub user: UserInfo,
    pub operation: Operation,
    pub resource: Arc<Resource>,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub object: Option<Value>,
    pub old: Option<Arc<Value>>,
    pub dry_run: bool,
}

impl Request {
    pub fn create(group_resource: &str, namespace: &str, object: Value) -> Self {
        Self::new(Operation::Create, group_resource, namespace, object.name().to_string(), Some(object), None)
    }

    pub fn update(group_resource: &str, namespace: &str, object: Value, old: Value) -> Self {
        Self::new(Operation::Update, group_resource, namespace, object.name().to_string(), Some(object), Some(Arc::new(old)))
    }

    pub fn delete(group_resource: &str, namespace: &str, name: &str) -> Self {
        Self::new(Operation::Delete, group_resource, namespace, name.to_string(), None, None)
    }

    fn new(
        operation: Operation,
        group_resource: &str,
        namespace: &str,
        name: String,
        object: Option<Value>,
        old: Option<Arc<Value>>,
    ) -> Self {
        Self {
            user: UserInfo::default(),
            operation,
            resource: Arc::new(resource(group_resource)),
            subresource: String::new(),
            namespace: namespace.into(),
            name,
            object,
            old,
            dry_run: false,
        }
    }

    pub fn part(mut self, subresource: &str) -> Self {
        self.subresource = subresource.into();
        self
    }

    /// The object and the warnings after the plugin has changed it.
    pub async fn mutate(self, plugin: &dyn Plugin, store: &Arc<dyn Writer>) -> Result<(Value, Vec<String>), ApiError> {
        self.run(plugin, store, true).await
    }

    pub async fn validate(self, plugin: &dyn Plugin, store: &Arc<dyn Writer>) -> Result<(Value, Vec<String>), ApiError> {
        self.run(plugin, store, false).await
    }

    async fn run(self, plugin: &dyn Plugin, store: &Arc<dyn Writer>, mutate: bool) -> Result<(Value, Vec<String>), ApiError> {
        let mut attributes = Attributes {
            subresource: &self.subresource,
            namespace: &self.namespace,
            name: &self.name,
            object: self.object,
            old: self.old,
            dry_run: self.dry_run,
            ..Attributes::new(&self.user, self.operation, &self.resource)
        };
        if plugin.handles(&attributes) {
            if mutate {
                plugin.mutate(&mut attributes, store).await?;
            } else {
                plugin.validate(&mut attributes, store).await?;
            }
        }
        Ok((attributes.object.unwrap_or_default(), attributes.warnings))
    }
}

fn resource(group_resource: &str) -> Resource {
    let (plural, group) = group_resource.split_once('.').unwrap_or((group_resource, ""));
    let mut table = Table::new();
    let root = table.push(Node::default());
    Resource {
        group: group.into(),
        version: "v1".into(),
        kind: String::new(),
        list_kind: String::new(),
        plural: plural.into(),
        singular: String::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: true,
        verbs: Vec::new(),
        subresources: Vec::new(),
        columns: Vec::new(),
        schema: Schema { table: Arc::new(table), root },
        storage_version: "v1".into(),
        strategy: crate::strategy::of(group, plural),
        custom: None,
    }
}
