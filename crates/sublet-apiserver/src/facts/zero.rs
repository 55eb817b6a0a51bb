//! Zero values: what Go writes for fields that were never set.
//!
//! Upstream answers with Go structs, and fields that are no pointers and have no `omitempty` are written even when
//! nobody set them: `status: {}`, `resources: {}`, `replicas: 0`, `rules: null`. The published documents show which
//! these are: a default of `{}` stands for a struct, and a required field has no `omitempty`.

use super::Builtin;
use super::parse::{Line, Shape, shape};
use serde_json::{Map, Value};
use std::collections::HashMap;
use sublet_machinery::{NodeId, SchemaNode};

/// The fields of a type that are always written, with the value that stands for nothing.
pub(super) type Zeros = HashMap<NodeId, Vec<(&'static str, Value)>>;

/// The value of a field that was not set, for fields that are written all the same.
pub(super) fn zero(of: &str, field: &str, line: &Line<'_>) -> Option<Value> {
    let always = line.required || ALWAYS.contains(&(of, field));
    match line.default {
        Some("{}") => Some(Value::Object(Map::new())),
        Some("\"\"") if always => Some("".into()),
        Some("0") if always => Some(0.into()),
        Some("false") if always => Some(false.into()),
        None if line.shape.ends_with("Time") && TIMES.contains(&field) => Some(Value::Null),
        None if always && matches!(shape(line.shape), Shape::List(_) | Shape::Map(_)) => Some(Value::Null),
        _ => None,
    }
}

impl Builtin {
    /// Gives an object the form in which upstream writes it: maps and lists that are empty go, where Go leaves them
    /// out, and fields that it always writes come.
    pub fn normalize(&self, schema: SchemaNode<'_>, value: &mut Value) {
        match value {
            Value::Object(map) => {
                let zeros = self.zeros.get(&schema.id()).map(Vec::as_slice).unwrap_or_default();
                map.retain(|key, value| {
                    !is_nothing(schema.property(key), value) || zeros.iter().any(|(always, zero)| always == key && zero.is_null())
                });
                for (field, zero) in zeros {
                    if !map.contains_key(*field) {
                        map.insert((*field).into(), zero.clone());
                    }
                }
                for (key, value) in map {
                    if let Some(field) = schema.field(key) {
                        self.normalize(field, value);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = schema.items() {
                    items.iter_mut().for_each(|item| self.normalize(schema, item));
                }
            }
            _ => {}
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

/// An empty map or list; `{}` of a struct says something.
fn is_nothing(schema: Option<SchemaNode<'_>>, value: &Value) -> bool {
    let Some(schema) = schema else { return false };
    match value {
        Value::Object(map) => map.is_empty() && schema.additional().is_some() && schema.get().properties.is_empty(),
        Value::Array(items) => items.is_empty() && schema.items().is_some(),
        _ => false,
    }
}

/// Fields that the documents call optional and Go writes always.
const ALWAYS: &[(&str, &str)] = &[
    ("io.k8s.api.core.v1.Event", "reportingComponent"),
    ("io.k8s.api.core.v1.Event", "reportingInstance"),
    ("io.k8s.api.rbac.v1.ClusterRole", "rules"),
    ("io.k8s.api.rbac.v1.Role", "rules"),
    ("io.k8s.api.rbac.v1.RoleRef", "apiGroup"),
];

/// Times that are structs in Go and not pointers, whatever type has them.
const TIMES: &[&str] = &[
    "deprecatedFirstTimestamp",
    "deprecatedLastTimestamp",
    "eventTime",
    "expirationTimestamp",
    "finishedAt",
    "firstTimestamp",
    "lastHeartbeatTime",
    "lastObservedTime",
    "lastProbeTime",
    "lastTimestamp",
    "lastTransitionTime",
    "lastUpdateTime",
    "startedAt",
];

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
