//! One structural schema form for built-in and custom kinds.
//!
//! A [`Table`] holds the nodes of many types; nodes name each other by [`NodeId`], so recursive types
//! need no boxes and all tenants share the table of the built-in kinds. Algorithms walk with
//! [`SchemaNode`], a cursor into a table.

use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

pub type NodeId = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ValueType {
    /// No type stated: any JSON value.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// `x-kubernetes-list-type`; a list that states none is atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ListType {
    #[default]
    Atomic,
    Set,
    Map,
}

/// `x-kubernetes-map-type`; a map that states none is granular.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MapType {
    #[default]
    Granular,
    Atomic,
}

/// `x-kubernetes-patch-strategy`, for strategic merge patch. Without one, lists are replaced and maps merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PatchStrategy {
    #[default]
    Replace,
    Merge,
    RetainKeys,
    MergeRetainKeys,
    /// `replace` stated on a map: the patch's map stands for the whole.
    ReplaceMap,
}

/// A rule of `x-kubernetes-validations`.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct CelRule {
    pub rule: String,
    pub message: String,
    pub message_expression: String,
    pub reason: String,
    pub field_path: String,
    pub optional_old_self: Option<bool>,
}

/// The number, string and collection limits that few nodes have, kept apart to keep nodes small.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Limits {
    pub minimum: Option<f64>,
    pub maximum: Option<f64>,
    pub exclusive_minimum: bool,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub pattern: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Default)]
pub struct Node {
    pub value_type: ValueType,
    /// `int32`, `int64`, `date-time`, `byte`, `quantity`, ...
    pub format: Option<Box<str>>,
    pub nullable: bool,
    pub properties: BTreeMap<Box<str>, NodeId>,
    /// The type of the values of a map (`additionalProperties`).
    pub additional: Option<NodeId>,
    pub items: Option<NodeId>,
    pub required: Vec<Box<str>>,
    pub enums: Vec<Value>,
    pub default: Option<Value>,
    pub list_type: ListType,
    pub list_map_keys: Vec<Box<str>>,
    pub map_type: MapType,
    pub patch_strategy: PatchStrategy,
    pub patch_merge_key: Option<Box<str>>,
    pub int_or_string: bool,
    pub preserve_unknown: bool,
    pub embedded_resource: bool,
    pub limits: Option<Box<Limits>>,
    pub rules: Vec<CelRule>,
    pub all_of: Vec<NodeId>,
    pub any_of: Vec<NodeId>,
    pub one_of: Vec<NodeId>,
    pub not: Option<NodeId>,
    /// The published name of the type (`io.k8s.api.core.v1.PodSpec`), for OpenAPI and explain.
    pub type_name: Option<Box<str>>,
    /// The name of the Go type of a built-in field, where type and format do not tell it: `v1.PullPolicy`.
    pub go_type: Option<Box<str>>,
    /// Fields of a built-in type that Go embeds from another struct, with its name: `httpGet`, `ProbeHandler`.
    pub embedded: BTreeMap<Box<str>, Box<str>>,
    /// Only for custom resources; built-in kinds get theirs when documents are made.
    pub description: Option<Box<str>>,
}

/// The nodes of one family of types.
#[derive(Debug, Default)]
pub struct Table {
    nodes: Vec<Node>,
}

impl Table {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn push(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId::try_from(self.nodes.len() - 1).expect("a table has fewer than 2^32 nodes")
    }

    /// For builders that reserve an id before the node is known.
    pub fn set(&mut self, id: NodeId, node: Node) {
        self.nodes[id as usize] = node;
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

/// A type: a table and the node to start from. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Schema {
    pub table: Arc<Table>,
    pub root: NodeId,
}

impl Schema {
    pub fn node(&self) -> SchemaNode<'_> {
        SchemaNode { table: &self.table, id: self.root }
    }
}

/// A cursor into a table.
#[derive(Clone, Copy, Debug)]
pub struct SchemaNode<'a> {
    table: &'a Table,
    id: NodeId,
}

impl<'a> SchemaNode<'a> {
    pub fn new(table: &'a Table, id: NodeId) -> Self {
        Self { table, id }
    }

    pub fn id(self) -> NodeId {
        self.id
    }

    pub fn table(self) -> &'a Table {
        self.table
    }

    /// The node itself; also reachable by `*`-less field access through `Deref`.
    pub fn get(self) -> &'a Node {
        self.table.node(self.id)
    }

    pub fn at(self, id: NodeId) -> Self {
        Self { table: self.table, id }
    }

    /// The schema of a declared property.
    pub fn property(self, name: &str) -> Option<Self> {
        self.get().properties.get(name).map(|id| self.at(*id))
    }

    /// The schema of a value under `key`: the declared property, or else the type of map values.
    pub fn field(self, key: &str) -> Option<Self> {
        self.property(key).or_else(|| self.additional())
    }

    pub fn additional(self) -> Option<Self> {
        self.get().additional.map(|id| self.at(id))
    }

    pub fn items(self) -> Option<Self> {
        self.get().items.map(|id| self.at(id))
    }
}

impl std::ops::Deref for SchemaNode<'_> {
    type Target = Node;

    fn deref(&self) -> &Node {
        self.get()
    }
}
