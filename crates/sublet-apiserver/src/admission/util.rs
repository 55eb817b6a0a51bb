//! What several plugins need.

use super::Attributes;
use serde_json::Value;
use std::fmt::Display;
use std::sync::Arc;
use sublet_machinery::{ApiError, ObjectExt};

impl Attributes<'_> {
    /// Whether the request is about the main resource named like `pods` or `deployments.apps`.
    pub fn is_main(&self, group_resource: &str) -> bool {
        self.subresource.is_empty() && self.is(group_resource)
    }

    /// Whether the request is about the resource or one of its subresources.
    pub fn is(&self, group_resource: &str) -> bool {
        match group_resource.split_once('.') {
            Some((plural, group)) => self.resource.plural == plural && self.resource.group == group,
            None => self.resource.plural == group_resource && self.resource.group.is_empty(),
        }
    }

    /// The answer of a plugin that refuses: `pods "web" is forbidden: <why>`.
    pub fn forbidden(&self, why: impl Display) -> ApiError {
        let object = self.object.as_ref();
        let candidates = [
            self.name,
            object.map(ObjectExt::name).unwrap_or_default(),
            object.and_then(|o| o.str_at("/metadata/generateName")).unwrap_or_default(),
            "Unknown",
        ];
        let name = candidates.into_iter().find(|n| !n.is_empty()).unwrap_or_default();
        ApiError::forbidden(&self.resource.group, &self.resource.plural, name, why)
    }
}

/// The newest of the objects that carry one of the annotations with the value `true`; of two made at the
/// same time the first by name.
pub(super) fn newest_marked(objects: Vec<Arc<Value>>, annotations: &[&str]) -> Option<Arc<Value>> {
    let marked = objects.into_iter().filter(|o| annotations.iter().any(|a| o.annotation(a) == Some("true")));
    marked.max_by(|a, b| {
        let created = |o: &Value| o.str_at("/metadata/creationTimestamp").unwrap_or_default().to_string();
        created(a).cmp(&created(b)).then_with(|| b.name().cmp(a.name()))
    })
}

/// The list under a key, made when missing.
pub(super) fn list_mut<'a>(object: &'a mut Value, key: &str) -> &'a mut Vec<Value> {
    if !object[key].is_array() {
        object[key] = Value::Array(Vec::new());
    }
    object[key].as_array_mut().expect("was just made a list")
}
