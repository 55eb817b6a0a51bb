//! Reading and writing the metadata of an object held as JSON.

use serde_json::{Map, Value, json};
use std::fmt;

/// Namespace and name; the namespace of a cluster-scoped object is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct NamespacedName {
    pub namespace: String,
    pub name: String,
}

impl NamespacedName {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub fn of(object: &Value) -> Self {
        Self::new(object.namespace(), object.name())
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

/// Accessors for the parts that every Kubernetes object has. A missing field reads as empty.
pub trait ObjectExt {
    fn api_version(&self) -> &str;
    fn kind(&self) -> &str;
    fn name(&self) -> &str;
    fn namespace(&self) -> &str;
    fn uid(&self) -> &str;
    fn resource_version(&self) -> &str;
    fn generation(&self) -> i64;
    fn label(&self, key: &str) -> Option<&str>;
    fn annotation(&self, key: &str) -> Option<&str>;
    /// The map under `metadata.labels`, if there is one.
    fn labels(&self) -> Option<&Map<String, Value>>;
    fn annotations(&self) -> Option<&Map<String, Value>>;
    fn is_deleting(&self) -> bool;
    fn finalizers(&self) -> Vec<&str>;
    fn has_finalizer(&self, finalizer: &str) -> bool;
    fn owner_references(&self) -> &[Value];
    /// The owner reference with `controller: true`.
    fn controller_owner(&self) -> Option<&Value>;
    fn str_at(&self, pointer: &str) -> Option<&str>;
    fn i64_at(&self, pointer: &str) -> Option<i64>;
    fn bool_at(&self, pointer: &str) -> Option<bool>;
    fn array_at(&self, pointer: &str) -> &[Value];
    fn object_at(&self, pointer: &str) -> Option<&Map<String, Value>>;
    /// The condition of this type in the status.
    fn condition(&self, kind: &str) -> Option<&Value>;
    /// Whether the condition is there and true.
    fn is_condition_true(&self, kind: &str) -> bool;
    /// `metadata` as a map, made when missing.
    fn metadata_mut(&mut self) -> &mut Map<String, Value>;
    fn set_label(&mut self, key: &str, value: &str);
    fn set_annotation(&mut self, key: &str, value: &str);
    /// Sets a value at a pointer of plain map keys, making the maps on the way.
    fn set_at(&mut self, pointer: &str, value: Value);
    /// Removes the value at a pointer of map keys.
    fn remove_at(&mut self, pointer: &str) -> Option<Value>;
}

impl ObjectExt for Value {
    fn api_version(&self) -> &str {
        self["apiVersion"].as_str().unwrap_or_default()
    }
    fn kind(&self) -> &str {
        self["kind"].as_str().unwrap_or_default()
    }
    fn name(&self) -> &str {
        self["metadata"]["name"].as_str().unwrap_or_default()
    }
    fn namespace(&self) -> &str {
        self["metadata"]["namespace"].as_str().unwrap_or_default()
    }
    fn uid(&self) -> &str {
        self["metadata"]["uid"].as_str().unwrap_or_default()
    }
    fn resource_version(&self) -> &str {
        self["metadata"]["resourceVersion"].as_str().unwrap_or_default()
    }
    fn generation(&self) -> i64 {
        self["metadata"]["generation"].as_i64().unwrap_or_default()
    }
    fn label(&self, key: &str) -> Option<&str> {
        self["metadata"]["labels"][key].as_str()
    }
    fn annotation(&self, key: &str) -> Option<&str> {
        self["metadata"]["annotations"][key].as_str()
    }
    fn labels(&self) -> Option<&Map<String, Value>> {
        self["metadata"]["labels"].as_object()
    }
    fn annotations(&self) -> Option<&Map<String, Value>> {
        self["metadata"]["annotations"].as_object()
    }
    fn is_deleting(&self) -> bool {
        self["metadata"]["deletionTimestamp"].is_string()
    }
    fn finalizers(&self) -> Vec<&str> {
        self.array_at("/metadata/finalizers").iter().filter_map(Value::as_str).collect()
    }
    fn has_finalizer(&self, finalizer: &str) -> bool {
        self.array_at("/metadata/finalizers").iter().any(|f| f == finalizer)
    }
    fn owner_references(&self) -> &[Value] {
        self.array_at("/metadata/ownerReferences")
    }
    fn controller_owner(&self) -> Option<&Value> {
        self.owner_references().iter().find(|r| r["controller"] == true)
    }
    fn str_at(&self, pointer: &str) -> Option<&str> {
        self.pointer(pointer)?.as_str()
    }
    fn i64_at(&self, pointer: &str) -> Option<i64> {
        self.pointer(pointer)?.as_i64()
    }
    fn bool_at(&self, pointer: &str) -> Option<bool> {
        self.pointer(pointer)?.as_bool()
    }
    fn array_at(&self, pointer: &str) -> &[Value] {
        self.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
    fn object_at(&self, pointer: &str) -> Option<&Map<String, Value>> {
        self.pointer(pointer)?.as_object()
    }
    fn condition(&self, kind: &str) -> Option<&Value> {
        self.array_at("/status/conditions").iter().find(|c| c["type"] == kind)
    }
    fn is_condition_true(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|c| c["status"] == "True")
    }
    fn metadata_mut(&mut self) -> &mut Map<String, Value> {
        child_map(self, "metadata")
    }
    fn set_label(&mut self, key: &str, value: &str) {
        let metadata = &mut self["metadata"];
        child_map(metadata, "labels").insert(key.to_string(), json!(value));
    }
    fn set_annotation(&mut self, key: &str, value: &str) {
        let metadata = &mut self["metadata"];
        child_map(metadata, "annotations").insert(key.to_string(), json!(value));
    }
    fn set_at(&mut self, pointer: &str, value: Value) {
        let (parent, last) = pointer.rsplit_once('/').unwrap_or(("", pointer));
        let mut at = self;
        for key in parent.split('/').skip(1) {
            let key = unescape(key);
            child_map(at, &key);
            at = &mut at[key.as_str()];
        }
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at[unescape(last).as_str()] = value;
    }
    fn remove_at(&mut self, pointer: &str) -> Option<Value> {
        let (parent, last) = pointer.rsplit_once('/')?;
        self.pointer_mut(parent)?.as_object_mut()?.remove(&unescape(last))
    }
}

fn unescape(key: &str) -> String {
    key.replace("~1", "/").replace("~0", "~")
}

/// The map at `key` of `value`; whatever else stood there is replaced by an empty map.
fn child_map<'a>(value: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let child = &mut value[key];
    if !child.is_object() {
        *child = Value::Object(Map::new());
    }
    child.as_object_mut().expect("was just made an object")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_at_makes_the_maps_on_the_way() {
        let mut object = json!({});
        object.set_at("/spec/template/metadata", json!({"a": 1}));
        object.set_at("/metadata/annotations/a.b~1c", json!("d"));
        object.set_label("k", "v");
        assert_eq!(
            object,
            json!({"spec": {"template": {"metadata": {"a": 1}}}, "metadata": {"annotations": {"a.b/c": "d"}, "labels": {"k": "v"}}})
        );
    }

    #[test]
    fn missing_metadata_reads_as_empty() {
        let object = json!({"kind": "Pod"});
        assert_eq!((object.name(), object.namespace(), object.is_deleting()), ("", "", false));
        assert!(object.owner_references().is_empty());
    }
}
