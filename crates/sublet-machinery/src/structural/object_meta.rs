//! The type of `metadata`, for objects whose schema comes from a custom resource definition.

use crate::schema::{ListType, MapType, Node, NodeId, PatchStrategy, Schema, Table, ValueType};
use std::sync::{Arc, LazyLock};

const PACKAGE: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// `ObjectMeta` in a table of its own.
pub fn object_meta_schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let mut table = Table::new();
        let root = push_object_meta(&mut table);
        Schema { table: Arc::new(table), root }
    });
    &SCHEMA
}

/// Adds the nodes of `ObjectMeta` to a table.
pub fn push_object_meta(table: &mut Table) -> NodeId {
    let text = table.push(scalar(ValueType::String, ""));
    let time = table.push(Node { type_name: type_name("Time"), ..scalar(ValueType::String, "date-time") });
    let int64 = table.push(scalar(ValueType::Integer, "int64"));
    let flag = table.push(scalar(ValueType::Boolean, ""));
    let strings = table.push(Node { value_type: ValueType::Object, additional: Some(text), ..Node::default() });
    let finalizers = table.push(Node {
        value_type: ValueType::Array,
        items: Some(text),
        list_type: ListType::Set,
        patch_strategy: PatchStrategy::Merge,
        ..Node::default()
    });

    let owner = table.push(Node {
        map_type: MapType::Atomic,
        required: ["apiVersion", "kind", "name", "uid"].map(Into::into).to_vec(),
        ..structure(
            "OwnerReference",
            &[("apiVersion", text), ("blockOwnerDeletion", flag), ("controller", flag), ("kind", text), ("name", text), ("uid", text)],
        )
    });
    let owners = table.push(Node {
        value_type: ValueType::Array,
        items: Some(owner),
        list_type: ListType::Map,
        list_map_keys: vec!["uid".into()],
        patch_strategy: PatchStrategy::Merge,
        patch_merge_key: Some("uid".into()),
        ..Node::default()
    });

    let fields_v1 = table.push(Node { type_name: type_name("FieldsV1"), preserve_unknown: true, ..scalar(ValueType::Object, "") });
    let entry = table.push(structure(
        "ManagedFieldsEntry",
        &[
            ("apiVersion", text),
            ("fieldsType", text),
            ("fieldsV1", fields_v1),
            ("manager", text),
            ("operation", text),
            ("subresource", text),
            ("time", time),
        ],
    ));
    let managed_fields = table.push(Node { value_type: ValueType::Array, items: Some(entry), ..Node::default() });

    table.push(structure(
        "ObjectMeta",
        &[
            ("annotations", strings),
            ("creationTimestamp", time),
            ("deletionGracePeriodSeconds", int64),
            ("deletionTimestamp", time),
            ("finalizers", finalizers),
            ("generateName", text),
            ("generation", int64),
            ("labels", strings),
            ("managedFields", managed_fields),
            ("name", text),
            ("namespace", text),
            ("ownerReferences", owners),
            ("resourceVersion", text),
            ("selfLink", text),
            ("uid", text),
        ],
    ))
}

fn scalar(value_type: ValueType, format: &str) -> Node {
    Node { value_type, format: (!format.is_empty()).then(|| format.into()), ..Node::default() }
}

fn structure(name: &str, fields: &[(&str, NodeId)]) -> Node {
    Node {
        value_type: ValueType::Object,
        type_name: type_name(name),
        properties: fields.iter().map(|(name, id)| ((*name).into(), *id)).collect(),
        ..Node::default()
    }
}

fn type_name(name: &str) -> Option<Box<str>> {
    Some(format!("{PACKAGE}.{name}").into())
}
