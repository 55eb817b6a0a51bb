//! From facts lines to the nodes of one table. Equal fields share a node.

use super::Builtin;
use super::golang::{GoField, GoTypes};
use super::parse::{Line, Shape, TypeFact, enum_values, shape, types};
use super::zero::{Vanishing, Zeros, zero};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use sublet_machinery::{ListType, MapType, Node, NodeId, PatchStrategy, Table, ValueType};

pub(super) fn build(text: &'static str, messages: &'static str) -> Builtin {
    let facts = types(text);
    let mut builder = Builder {
        table: Table::new(),
        types: HashMap::new(),
        shared: HashMap::new(),
        later: Vec::new(),
        zeros: Zeros::new(),
        vanishing: Vanishing::new(),
        go: GoTypes::read(messages),
    };
    for fact in &facts {
        let id = builder.table.push(Node::default());
        builder.types.insert(full_name(fact.package, fact.name), id);
    }
    for fact in &facts {
        builder.fill(fact);
    }
    builder.finish();
    let mut kinds = HashMap::new();
    for fact in &facts {
        let id = builder.types[full_name(fact.package, fact.name).as_ref()];
        kinds.extend(fact.line.kinds.into_iter().flat_map(|k| k.split(',')).map(|kind| (kind, id)));
    }
    Builtin { table: Arc::new(builder.table), types: builder.types, kinds, zeros: builder.zeros, vanishing: builder.vanishing }
}

struct Builder {
    table: Table,
    types: HashMap<Box<str>, NodeId>,
    /// Nodes of fields by package and text of the line.
    shared: HashMap<(&'static str, String), NodeId>,
    /// Fields that are a type with attributes of their own: (node, type), filled when all types are.
    later: Vec<(NodeId, NodeId, Line<'static>)>,
    zeros: Zeros,
    vanishing: Vanishing,
    go: GoTypes,
}

impl Builder {
    fn fill(&mut self, fact: &TypeFact<'static>) {
        let name = full_name(fact.package, fact.name);
        let mut node = scalar(fact.line.shape);
        for (field, line) in &fact.fields {
            let id = self.field(fact.package, &name, field, *line);
            node.properties.insert((*field).into(), id);
            if let Some(embedded) = self.go.field(&name, field).and_then(|go| go.embedded.as_deref()) {
                node.embedded.insert((*field).into(), embedded.into());
            }
            if line.required {
                node.required.push((*field).into());
            }
        }
        let zeros: Vec<_> = fact.fields.iter().filter_map(|(field, line)| Some((*field, self.zero(&name, field, line)?))).collect();
        if !zeros.is_empty() {
            self.zeros.insert(self.types[&name], zeros);
        }
        let vanishing = fact.fields.iter().map(|(field, _)| *field).filter(|f| self.go.field(&name, f).is_some_and(GoField::vanishes));
        let vanishing: Vec<_> = vanishing.collect();
        if !vanishing.is_empty() {
            self.vanishing.insert(self.types[&name], vanishing);
        }
        node.preserve_unknown = FREE_FORM.contains(&name.as_ref());
        apply(&mut node, &fact.line);
        let id = self.types[&name];
        node.type_name = Some(name);
        self.table.set(id, node);
    }

    /// What Go writes of a field that nobody set; the published documents know it of types that are no messages.
    fn zero(&self, of: &str, field: &str, line: &Line<'_>) -> Option<Value> {
        match self.go.field(of, field) {
            Some(go) => go.zero(),
            None => zero(line),
        }
    }

    fn field(&mut self, package: &'static str, of: &str, field: &str, line: Line<'static>) -> NodeId {
        let id = self.plain_field(package, of, field, line);
        match self.go.field(of, field).and_then(|go| go.go_type) {
            Some(go_type) => self.named(id, go_type),
            None => id,
        }
    }

    /// The node with the name of its Go type.
    fn named(&mut self, id: NodeId, go_type: &'static str) -> NodeId {
        let key = ("", format!("{id} {go_type}"));
        if let Some(id) = self.shared.get(&key) {
            return *id;
        }
        let mut node = self.table.node(id).clone();
        if let (Some(items), Some(of)) = (node.items, go_type.strip_prefix("[]")) {
            node.items = Some(self.named(items, of));
        }
        node.go_type = Some(go_type.into());
        let named = self.table.push(node);
        self.shared.insert(key, named);
        named
    }

    fn plain_field(&mut self, package: &'static str, of: &str, field: &str, line: Line<'static>) -> NodeId {
        let default = real_default(of, field, &line);
        let has_attributes = line.list_type.is_some()
            || line.map_type.is_some()
            || line.patch_strategy.is_some()
            || line.merge_key.is_some()
            || default.is_some();
        if !has_attributes {
            return self.shaped(package, line.shape);
        }
        let text = line.text.split(" default=").next().unwrap_or_default();
        let key = (scope(package, line.shape), format!("{text} {}", default.as_ref().map(Value::to_string).unwrap_or_default()));
        if let Some(id) = self.shared.get(&key) {
            return *id;
        }
        let id = match shape(line.shape) {
            Shape::Type(..) => {
                let of_type = self.shaped(package, line.shape);
                let id = self.table.push(Node::default());
                self.later.push((id, of_type, line));
                id
            }
            _ => {
                let of_shape = self.shaped(package, line.shape);
                let mut node = self.table.node(of_shape).clone();
                apply(&mut node, &line);
                node.default = default;
                self.table.push(node)
            }
        };
        self.shared.insert(key, id);
        id
    }

    /// The node of a shape without attributes.
    fn shaped(&mut self, package: &'static str, text: &'static str) -> NodeId {
        let parsed = shape(text);
        if let Shape::Type(of, name) = parsed {
            return self.types[full_name(of.unwrap_or(package), name).as_ref()];
        }
        let key = (scope(package, text), text.to_string());
        if let Some(id) = self.shared.get(&key) {
            return *id;
        }
        let node = match parsed {
            Shape::List(items) => Node { value_type: ValueType::Array, items: Some(self.shaped(package, items)), ..Node::default() },
            Shape::Map(values) => Node { value_type: ValueType::Object, additional: Some(self.shaped(package, values)), ..Node::default() },
            _ => scalar(text),
        };
        let id = self.table.push(node);
        self.shared.insert(key, id);
        id
    }

    fn finish(&mut self) {
        for (id, of, line) in std::mem::take(&mut self.later) {
            let mut node = self.table.node(of).clone();
            apply(&mut node, &line);
            self.table.set(id, node);
            if let Some(zeros) = self.zeros.get(&of) {
                self.zeros.insert(id, zeros.clone());
            }
            if let Some(vanishing) = self.vanishing.get(&of) {
                self.vanishing.insert(id, vanishing.clone());
            }
        }
    }
}

/// The node of a word such as `string(A|B)` or `object`.
fn scalar(text: &str) -> Node {
    let Shape::Scalar(word, values) = shape(text) else { return Node::default() };
    let (value_type, format) = match word {
        "string" => (ValueType::String, None),
        "bytes" => (ValueType::String, Some("byte")),
        "date-time" => (ValueType::String, Some("date-time")),
        "quantity" => (ValueType::String, Some("quantity")),
        "integer" => (ValueType::Integer, None),
        "int32" => (ValueType::Integer, Some("int32")),
        "int64" => (ValueType::Integer, Some("int64")),
        "double" => (ValueType::Number, Some("double")),
        "boolean" => (ValueType::Boolean, None),
        "object" => (ValueType::Object, None),
        _ => (ValueType::Any, None),
    };
    Node {
        value_type,
        format: format.map(Into::into),
        int_or_string: word == "int-or-string",
        enums: values.into_iter().flat_map(enum_values).map(Value::String).collect(),
        ..Node::default()
    }
}

fn apply(node: &mut Node, line: &Line<'_>) {
    match line.list_type {
        Some("set") => node.list_type = ListType::Set,
        Some("map") => node.list_type = ListType::Map,
        _ => {}
    }
    if let Some(keys) = line.list_keys {
        node.list_map_keys = keys.split(',').map(Into::into).collect();
    }
    match line.map_type {
        Some("atomic") => node.map_type = MapType::Atomic,
        Some("granular") => node.map_type = MapType::Granular,
        _ => {}
    }
    match line.patch_strategy {
        Some("merge") => node.patch_strategy = PatchStrategy::Merge,
        Some("retainKeys") => node.patch_strategy = PatchStrategy::RetainKeys,
        Some("merge,retainKeys") => node.patch_strategy = PatchStrategy::MergeRetainKeys,
        // Lists are replaced anyway; a map says it when it does not merge.
        Some("replace") if node.value_type == ValueType::Object => node.patch_strategy = PatchStrategy::ReplaceMap,
        _ => {}
    }
    if let Some(key) = line.merge_key {
        node.patch_merge_key = Some(key.into());
    }
}

/// Published zero values (`{}`, `""`, `0`) only say that the Go field is no pointer; nothing is defaulted by them.
fn real_default(of: &str, field: &str, line: &Line<'_>) -> Option<Value> {
    let text = line.default?;
    let zero = matches!(text, "{}" | "\"\"" | "0" | "false");
    let real = !zero || ZERO_DEFAULTS.contains(&(of, field));
    real.then(|| serde_json::from_str(text).expect("a default in the facts file is JSON"))
}

/// Where equal text means equal nodes: names of types belong to a package, the other words are the same everywhere.
fn scope(package: &'static str, text: &str) -> &'static str {
    match shape(text) {
        Shape::List(of) | Shape::Map(of) => scope(package, of),
        Shape::Scalar(..) => "",
        Shape::Type(..) => package,
    }
}

fn full_name(package: &str, name: &str) -> Box<str> {
    format!("{package}.{name}").into()
}

/// Pointer fields whose default is a zero value (a `+default` marker on the Go type).
const ZERO_DEFAULTS: &[(&str, &str)] = &[
    ("io.k8s.api.core.v1.AzureDiskVolumeSource", "readOnly"),
    ("io.k8s.api.core.v1.FileKeySelector", "optional"),
    ("io.k8s.api.core.v1.GRPCAction", "service"),
];

/// Types that hold any JSON.
const FREE_FORM: &[&str] = &[
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Patch",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
];
