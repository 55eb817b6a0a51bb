//! From the `openAPIV3Schema` of a custom resource definition to nodes.

use super::format;
use super::push_object_meta;
use crate::schema::{CelRule, Limits, ListType, MapType, Node, NodeId, Schema, Table, ValueType};
use serde_json::{Map, Value};
use std::sync::Arc;

/// The schema of one version of a custom resource, with `apiVersion`, `kind` and `metadata` made
/// explicit at the root and in embedded resources. No schema means that everything is pruned, or
/// kept with `preserve_unknown`.
pub fn build(schema: Option<&Value>, preserve_unknown: bool, type_name: &str) -> Schema {
    let mut builder = Builder { table: Table::new(), object_meta: None };
    let empty = Value::Object(Map::new());
    let mut root = builder.node(schema.unwrap_or(&empty));
    root.value_type = ValueType::Object;
    root.preserve_unknown |= preserve_unknown;
    root.embedded_resource = true;
    root.type_name = Some(type_name.into());
    builder.add_meta(&mut root);
    let root = builder.table.push(root);
    Schema { table: Arc::new(builder.table), root }
}

/// The schema as it is written, for checks of the definition itself.
pub fn build_plain(schema: &Value) -> Schema {
    let mut builder = Builder { table: Table::new(), object_meta: None };
    let root = builder.push(schema);
    Schema { table: Arc::new(builder.table), root }
}

struct Builder {
    table: Table,
    object_meta: Option<NodeId>,
}

impl Builder {
    fn push(&mut self, schema: &Value) -> NodeId {
        let mut node = self.node(schema);
        if node.embedded_resource {
            self.add_meta(&mut node);
        }
        self.table.push(node)
    }

    fn node(&mut self, schema: &Value) -> Node {
        let flag = |key: &str| schema[key].as_bool().unwrap_or_default();
        let text = |key: &str| schema[key].as_str().filter(|t| !t.is_empty());
        let int_or_string = flag("x-kubernetes-int-or-string");
        let value_type = value_type(text("type").unwrap_or_default());
        Node {
            value_type,
            format: text("format").filter(|f| format::is_enforced(f, value_type)).map(Into::into),
            nullable: flag("nullable"),
            properties: self.properties(schema),
            additional: self.additional(schema),
            items: schema.get("items").filter(|s| s.is_object()).map(|s| self.push(s)),
            required: strings(&schema["required"]),
            enums: schema["enum"].as_array().cloned().unwrap_or_default(),
            default: schema.get("default").cloned(),
            list_type: match text("x-kubernetes-list-type") {
                Some("set") => ListType::Set,
                Some("map") => ListType::Map,
                _ => ListType::Atomic,
            },
            list_map_keys: strings(&schema["x-kubernetes-list-map-keys"]),
            map_type: if text("x-kubernetes-map-type") == Some("atomic") { MapType::Atomic } else { MapType::Granular },
            int_or_string,
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded_resource: flag("x-kubernetes-embedded-resource"),
            limits: limits(schema).map(Box::new),
            rules: rules(schema),
            all_of: self.branches(schema, "allOf"),
            any_of: self.branches(schema, "anyOf"),
            one_of: self.branches(schema, "oneOf"),
            not: schema.get("not").filter(|s| s.is_object()).map(|s| self.push(s)),
            description: text("description").map(Into::into),
            ..Node::default()
        }
    }

    fn properties(&mut self, schema: &Value) -> std::collections::BTreeMap<Box<str>, NodeId> {
        let Some(properties) = schema["properties"].as_object() else { return Default::default() };
        properties.iter().map(|(name, schema)| (name.as_str().into(), self.push(schema))).collect()
    }

    /// `additionalProperties: true` says nothing about the values, which a node without any statement says too.
    fn additional(&mut self, schema: &Value) -> Option<NodeId> {
        match schema.get("additionalProperties")? {
            Value::Bool(true) => Some(self.table.push(Node::default())),
            Value::Object(_) => Some(self.push(&schema["additionalProperties"])),
            _ => None,
        }
    }

    fn branches(&mut self, schema: &Value, key: &str) -> Vec<NodeId> {
        schema[key].as_array().map(|list| list.iter().map(|s| self.push(s)).collect()).unwrap_or_default()
    }

    /// Only names can be restricted inside metadata; the rest of its type is known.
    fn add_meta(&mut self, node: &mut Node) {
        for key in ["apiVersion", "kind"] {
            let text = Node { value_type: ValueType::String, ..Node::default() };
            node.properties.entry(key.into()).or_insert_with(|| self.table.push(text));
        }
        let known = *self.object_meta.get_or_insert_with(|| push_object_meta(&mut self.table));
        let id = match node.properties.get("metadata").map(|id| self.table.node(*id).clone()) {
            Some(stated) if !stated.properties.is_empty() => {
                let mut merged = self.table.node(known).clone();
                merged.properties.extend(stated.properties);
                self.table.push(Node { required: stated.required, limits: stated.limits, rules: stated.rules, ..merged })
            }
            _ => known,
        };
        node.properties.insert("metadata".into(), id);
    }
}

fn value_type(name: &str) -> ValueType {
    match name {
        "object" => ValueType::Object,
        "array" => ValueType::Array,
        "string" => ValueType::String,
        "integer" => ValueType::Integer,
        "number" => ValueType::Number,
        "boolean" => ValueType::Boolean,
        _ => ValueType::Any,
    }
}

fn strings(list: &Value) -> Vec<Box<str>> {
    list.as_array().map(|list| list.iter().filter_map(Value::as_str).map(Into::into).collect()).unwrap_or_default()
}

fn limits(schema: &Value) -> Option<Limits> {
    let count = |key: &str| schema[key].as_i64().map(|n| u64::try_from(n).unwrap_or_default());
    let limits = Limits {
        minimum: schema["minimum"].as_f64(),
        maximum: schema["maximum"].as_f64(),
        exclusive_minimum: schema["exclusiveMinimum"].as_bool().unwrap_or_default(),
        exclusive_maximum: schema["exclusiveMaximum"].as_bool().unwrap_or_default(),
        multiple_of: schema["multipleOf"].as_f64(),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        unique_items: schema["uniqueItems"].as_bool().unwrap_or_default(),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
        pattern: schema["pattern"].as_str().filter(|p| !p.is_empty()).map(Into::into),
    };
    (limits != Limits::default()).then_some(limits)
}

fn rules(schema: &Value) -> Vec<CelRule> {
    let Some(rules) = schema["x-kubernetes-validations"].as_array() else { return Vec::new() };
    let text = |rule: &Value, key: &str| rule[key].as_str().unwrap_or_default().to_string();
    rules
        .iter()
        .map(|rule| CelRule {
            rule: text(rule, "rule"),
            message: text(rule, "message"),
            message_expression: text(rule, "messageExpression"),
            reason: text(rule, "reason"),
            field_path: text(rule, "fieldPath"),
            optional_old_self: rule["optionalOldSelf"].as_bool(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_root_knows_its_metadata() {
        let schema = build(
            Some(&json!({"type": "object", "properties": {
                "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}},
                "spec": {"type": "object", "additionalProperties": {"type": "integer", "format": "int32"}},
                "status": {"type": "string", "format": "made-up"},
            }})),
            false,
            "io.example.v1.Foo",
        );
        let root = schema.node();
        let metadata = root.property("metadata").expect("was added");
        assert_eq!(metadata.property("name").expect("is known").limits.as_ref().expect("was stated").max_length, Some(5));
        assert!(metadata.property("ownerReferences").is_some() && root.property("kind").is_some());
        assert_eq!(root.property("spec").and_then(|n| n.field("x")).expect("is a map").format.as_deref(), Some("int32"));
        assert_eq!(root.property("status").expect("was stated").format, None);
    }
}
