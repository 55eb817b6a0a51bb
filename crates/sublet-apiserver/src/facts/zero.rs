//! Zero values: what Go writes for fields that were never set.
//!
//! Upstream answers with Go structs, and fields that are no pointers and have no `omitempty` are written even when
//! nobody set them: `status: {}`, `resources: {}`, `replicas: 0`, `rules: null`. Other fields that are no pointers are left
//! out when they are zero, whoever set them: `hostNetwork: false`.

use super::Builtin;
use super::parse::{Line, Shape, shape};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashMap;
use sublet_machinery::{NodeId, Quantity, SchemaNode, ValueType};

/// The fields of a type that are always written, with the value that stands for nothing.
pub(super) type Zeros = HashMap<NodeId, Vec<(&'static str, Value)>>;

/// The scalar fields of a type that JSON leaves out when they are zero: Go's fields that are no pointers.
pub(super) type Vanishing = HashMap<NodeId, Vec<&'static str>>;

/// The value of a field that was not set, as far as the published documents tell it.
pub(super) fn zero(line: &Line<'_>) -> Option<Value> {
    match line.default {
        Some("{}") => Some(Value::Object(Map::new())),
        Some("\"\"") if line.required => Some("".into()),
        Some("0") if line.required => Some(0.into()),
        Some("false") if line.required => Some(false.into()),
        None if line.required && matches!(shape(line.shape), Shape::List(_) | Shape::Map(_)) => Some(Value::Null),
        _ => None,
    }
}

impl Builtin {
    /// As [`Self::normalize`], but lists that are always written and empty stay so. Upstream has them like this until it
    /// stores the object: protobuf does not tell an empty list from none.
    pub fn tidy(&self, schema: SchemaNode<'_>, value: &mut Value) {
        self.shape(schema, value, false);
    }

    /// Gives an object the form in which upstream writes it: maps and lists that are empty go, where Go leaves them
    /// out, and fields that it always writes come.
    pub fn normalize(&self, schema: SchemaNode<'_>, value: &mut Value) {
        self.shape(schema, value, true);
    }

    fn shape(&self, schema: SchemaNode<'_>, value: &mut Value, stored: bool) {
        // A schema says something with what is empty, too; what is to go from it, its own kind knows.
        if !stored && schema.type_name.as_deref().is_some_and(|name| name.ends_with(".JSONSchemaProps")) {
            return;
        }
        match value {
            Value::Object(map) => {
                let zeros = self.zeros.get(&schema.id()).map(Vec::as_slice).unwrap_or_default();
                let vanishing = self.vanishing.get(&schema.id()).map(Vec::as_slice).unwrap_or_default();
                map.retain(|key, value| {
                    if vanishing.iter().any(|field| field == key) {
                        return !is_zero(value);
                    }
                    // To have this one is an error, whatever it holds.
                    let is_forbidden =
                        key == "dependencies" && schema.type_name.as_deref().is_some_and(|n| n.ends_with(".JSONSchemaProps"));
                    is_forbidden
                        || !is_nothing(schema.property(key), value)
                        || !stored && zeros.iter().any(|(always, zero)| always == key && zero.is_null())
                });
                for (field, zero) in zeros {
                    if !map.contains_key(*field) {
                        map.insert((*field).into(), zero.clone());
                    }
                }
                for (key, value) in map {
                    if let Some(field) = schema.field(key) {
                        self.shape(field, value, stored);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = schema.items() {
                    items.iter_mut().for_each(|item| self.shape(schema, item, stored));
                }
            }
            Value::String(text) if schema.format.as_deref() == Some("quantity") => {
                if let Ok(Cow::Owned(canonical)) = Quantity::canonical(text) {
                    *text = canonical;
                }
            }
            _ => {}
        }
    }

    /// What Go shows for a field that is not set, where it is no pointer: errors tell the value `""` and not `null`.
    pub fn shown_zero(&self, schema: SchemaNode<'_>, path: &str) -> Option<Value> {
        let (mut at, mut rest) = (schema, path);
        loop {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let key = &rest[..end];
            let field = at.property(key)?;
            rest = &rest[end..];
            if rest.is_empty() {
                let vanishes = self.vanishing.get(&at.id()).is_some_and(|fields| fields.contains(&key));
                let kept = self.zeros.get(&at.id()).into_iter().flatten().find(|(name, _)| *name == key);
                let kept = kept.map(|(_, zero)| zero.clone()).filter(|zero| !zero.is_null() && !zero.is_object());
                return kept.or_else(|| vanishes.then(|| scalar_zero(field)));
            }
            at = field;
            while let Some(inner) = rest.strip_prefix('[') {
                at = at.items().or_else(|| at.additional())?;
                rest = inner.split_once(']')?.1;
            }
            rest = rest.strip_prefix('.')?;
        }
    }

    /// Adds what upstream writes for fields that are not set.
    pub fn fill_zeros(&self, schema: SchemaNode<'_>, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (field, zero) in self.zeros.get(&schema.id()).into_iter().flatten() {
                    if !map.contains_key(*field) {
                        map.insert((*field).into(), zero.clone());
                    }
                }
                for (key, value) in map {
                    if let Some(field) = schema.field(key) {
                        self.fill_zeros(field, value);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = schema.items() {
                    items.iter_mut().for_each(|item| self.fill_zeros(schema, item));
                }
            }
            _ => {}
        }
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

fn scalar_zero(schema: SchemaNode<'_>) -> Value {
    match schema.value_type {
        ValueType::Integer | ValueType::Number => 0.into(),
        ValueType::Boolean => false.into(),
        _ => "".into(),
    }
}

/// An empty map or list; `{}` of a struct says something.
fn is_nothing(schema: Option<SchemaNode<'_>>, value: &Value) -> bool {
    let Some(schema) = schema else { return false };
    match value {
        Value::Object(map) => map.is_empty() && schema.additional().is_some() && schema.get().properties.is_empty(),
        Value::Array(items) => items.is_empty() && schema.items().is_some(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::facts::builtin;
    use serde_json::{Value, json};

    fn check(group: &str, kind: &str, mut object: Value, expected: Value) {
        let schema = builtin().kind(group, "v1", kind).expect(kind);
        builtin().fill_zeros(schema.node(), &mut object);
        assert_eq!(object, expected, "{kind}");
    }

    #[test]
    fn structs_are_always_there() {
        check(
            "",
            "Pod",
            json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}),
            json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": {}}]}, "status": {}}),
        );
        check("", "Service", json!({}), json!({"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}}));
    }

    #[test]
    fn what_go_writes_as_nothing_is_written() {
        check("rbac.authorization.k8s.io", "ClusterRole", json!({"metadata": {}}), json!({"metadata": {}, "rules": null}));
        let condition = json!({"type": "Ready", "status": "True"});
        let written = json!({"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": null});
        check(
            "",
            "Pod",
            json!({"metadata": {}, "spec": {"containers": []}, "status": {"conditions": [condition]}}),
            json!({"metadata": {}, "spec": {"containers": []}, "status": {"conditions": [written]}}),
        );
        let status = json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0});
        let schema = builtin().named("io.k8s.api.apps.v1.DaemonSetStatus").expect("DaemonSetStatus");
        let mut object = json!({});
        builtin().fill_zeros(schema.node(), &mut object);
        assert_eq!(object, status);
    }
}
