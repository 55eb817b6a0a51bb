//! A small built-in type for the tests of this module.

use super::push_object_meta;
use crate::schema::{Node, NodeId, Schema, Table, ValueType};
use std::sync::Arc;

/// The parts of `Pod` that the tests use.
pub(super) fn pod() -> Schema {
    let mut table = Table::new();
    let metadata = push_object_meta(&mut table);
    let text = table.push(node(ValueType::String, ""));
    let int32 = table.push(node(ValueType::Integer, "int32"));
    let flag = table.push(node(ValueType::Boolean, ""));
    let quantity = table.push(node(ValueType::String, "quantity"));
    let strings = table.push(Node { additional: Some(text), ..node(ValueType::Object, "") });
    let quantities = table.push(Node { additional: Some(quantity), ..node(ValueType::Object, "") });
    let port = table.push(structure("v1.ContainerPort", &[("containerPort", int32), ("name", text)]));
    let ports = table.push(Node { items: Some(port), ..node(ValueType::Array, "") });
    let resources = table.push(structure("v1.ResourceRequirements", &[("limits", quantities)]));
    let container = table.push(structure("v1.Container", &[("image", text), ("name", text), ("ports", ports), ("resources", resources)]));
    let containers = table.push(Node { items: Some(container), ..node(ValueType::Array, "") });
    let spec = table.push(structure("v1.PodSpec", &[("containers", containers), ("hostNetwork", flag), ("nodeSelector", strings)]));
    let root = table.push(structure("v1.Pod", &[("apiVersion", text), ("kind", text), ("metadata", metadata), ("spec", spec)]));
    Schema { table: Arc::new(table), root }
}

fn node(value_type: ValueType, format: &str) -> Node {
    Node { value_type, format: (!format.is_empty()).then(|| format.into()), ..Node::default() }
}

fn structure(name: &str, fields: &[(&str, NodeId)]) -> Node {
    Node {
        type_name: Some(format!("io.k8s.api.core.{name}").into()),
        properties: fields.iter().map(|(name, id)| ((*name).into(), *id)).collect(),
        ..node(ValueType::Object, "")
    }
}
