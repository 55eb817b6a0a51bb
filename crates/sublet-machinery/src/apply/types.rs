//! Types as server-side apply sees them: which maps and lists have parts that can be owned one by one.
//!
//! Follows what upstream derives from OpenAPI (kube-openapi `schemaconv`).

use super::path::PathElement;
use crate::schema::{ListType, MapType, PatchStrategy, SchemaNode, ValueType};
use serde_json::Value;

#[derive(Clone, Copy, Debug)]
pub(super) enum Type<'a> {
    /// A type with a schema; the flag says that a parent preserves unknown fields, which its children inherit.
    Schema(SchemaNode<'a>, bool),
    /// No schema: maps are granular, lists atomic.
    Deduced,
    /// Anything, owned as one.
    Atomic,
}

/// How a value is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Map,
    Scalar,
    List,
}

/// What tells the elements of a list apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Elements<'a> {
    /// Nothing: the list is owned as one.
    Atomic,
    /// Their value.
    Set,
    /// These fields of theirs.
    Map(&'a [Box<str>]),
}

/// Lists of these merge by patch strategy, but are stated to be atomic.
const ATOMIC_ITEMS: [&str; 2] = ["io.k8s.api.batch.v1.JobCondition", "io.k8s.api.core.v1.HostIP"];

const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

/// A type whose name is empty when it is missing.
const NAMED_BY_NOTHING: &str = "io.k8s.api.core.v1.LocalObjectReference";
static NO_NAME: Value = Value::String(String::new());

impl<'a> Type<'a> {
    pub(super) fn of(node: SchemaNode<'a>) -> Self {
        Self::nested(node, false)
    }

    fn nested(node: SchemaNode<'a>, preserved: bool) -> Self {
        if node.type_name.as_deref() == Some(RAW_EXTENSION) {
            return Self::Atomic;
        }
        Self::Schema(node, preserved || node.preserve_unknown)
    }

    /// Whether values of the kind may be (map, list, scalar).
    fn allows(self) -> (bool, bool, bool) {
        let Self::Schema(node, _) = self else { return (true, true, true) };
        match node.value_type {
            _ if node.int_or_string => (false, false, true),
            ValueType::Any => (true, true, true),
            ValueType::Object => (true, false, false),
            ValueType::Array => (false, true, false),
            _ => (false, false, true),
        }
    }

    /// How to walk a value; `None` (absent) and values that do not fit are walked as what the type is first.
    pub(super) fn shape(self, value: Option<&Value>) -> Shape {
        let (map, list, scalar) = self.allows();
        match value {
            Some(Value::Object(_)) if map => Shape::Map,
            Some(Value::Array(_)) if list => Shape::List,
            Some(Value::String(_) | Value::Number(_) | Value::Bool(_)) if scalar => Shape::Scalar,
            _ if map => Shape::Map,
            _ if scalar => Shape::Scalar,
            _ => Shape::List,
        }
    }

    pub(super) fn is_atomic_map(self) -> bool {
        match self {
            Self::Schema(node, _) => node.map_type == MapType::Atomic,
            Self::Deduced => false,
            Self::Atomic => true,
        }
    }

    pub(super) fn elements(self) -> Elements<'a> {
        let Self::Schema(node, _) = self else { return Elements::Atomic };
        let node = node.get();
        match node.list_type {
            ListType::Map => Elements::Map(&node.list_map_keys),
            ListType::Set => Elements::Set,
            // Types without a list type have one by their patch strategy.
            ListType::Atomic if matches!(node.patch_strategy, PatchStrategy::Merge | PatchStrategy::MergeRetainKeys) => {
                let of = self.item().type_name().unwrap_or_default();
                match &node.patch_merge_key {
                    _ if ATOMIC_ITEMS.contains(&of) => Elements::Atomic,
                    Some(key) => Elements::Map(std::slice::from_ref(key)),
                    None => Elements::Set,
                }
            }
            ListType::Atomic => Elements::Atomic,
        }
    }

    fn type_name(self) -> Option<&'a str> {
        match self {
            Self::Schema(node, _) => node.get().type_name.as_deref(),
            _ => None,
        }
    }

    pub(super) fn item(self) -> Self {
        match self {
            Self::Schema(node, preserved) => node.items().map_or(Self::Atomic, |i| Self::nested(i, preserved)),
            other => other,
        }
    }

    /// The type of a declared field.
    pub(super) fn declared(self, key: &str) -> Option<Self> {
        match self {
            Self::Schema(node, preserved) => node.property(key).map(|p| Self::nested(p, preserved)),
            _ => None,
        }
    }

    /// The type of whatever stands under a key of a map; `None` when the type has no such field.
    pub(super) fn field(self, key: &str) -> Option<Self> {
        let Self::Schema(node, preserved) = self else { return Some(self) };
        if let Some(declared) = self.declared(key) {
            return Some(declared);
        }
        match node.additional() {
            Some(values) => Some(Self::nested(values, preserved)),
            None if preserved || node.properties.is_empty() => Some(Self::Deduced),
            None => None,
        }
    }

    /// A map that says nothing about its fields.
    pub(super) fn is_untyped_map(self) -> bool {
        match self {
            Self::Schema(node, _) => {
                node.properties.is_empty() && node.additional().is_none_or(|a| a.value_type == ValueType::Any && !a.int_or_string)
            }
            Self::Deduced => true,
            Self::Atomic => false,
        }
    }

    /// The scalar that the type asks for, if it asks for one.
    pub(super) fn scalar(self) -> Option<ScalarType> {
        let Self::Schema(node, _) = self else { return None };
        match node.value_type {
            _ if node.int_or_string => None,
            ValueType::Integer | ValueType::Number => Some(ScalarType::Numeric),
            ValueType::Boolean => Some(ScalarType::Boolean),
            ValueType::String => match node.format.as_deref() {
                None | Some("" | "byte") => Some(ScalarType::String),
                Some(_) => None,
            },
            _ => None,
        }
    }

    /// The step to an element of a list of this type, or what is wrong with the element.
    pub(super) fn step(self, item: &Value) -> Result<PathElement, String> {
        match self.elements() {
            Elements::Atomic => Err("invalid indexing of non-associative list".into()),
            Elements::Set => match item {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".into()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".into()),
                scalar => Ok(PathElement::Value(scalar.clone())),
            },
            Elements::Map(keys) => self.keyed_step(keys, item),
        }
    }

    fn keyed_step(self, keys: &[Box<str>], item: &Value) -> Result<PathElement, String> {
        let map = match item {
            Value::Object(map) => map,
            Value::Null => return Err("associative list with keys may not have a null element".into()),
            _ => return Err("associative list with keys may not have non-map elements".into()),
        };
        let mut fields: Vec<(Box<str>, Value)> = Vec::with_capacity(keys.len());
        for key in keys {
            // A missing key without default stays out; such an element is one of its own.
            if let Some(value) = map.get(&**key).or_else(|| self.key_default(key)) {
                fields.push((key.clone(), value.clone()));
            }
        }
        if fields.is_empty() {
            let names: Vec<String> = keys.iter().map(|k| format!("{k:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                names.join(" ")
            ));
        }
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(PathElement::Key(fields))
    }

    fn key_default(self, key: &str) -> Option<&'a Value> {
        // Zero values are not among the defaults of a schema, because nothing is filled in by them.
        if self.item().type_name() == Some(NAMED_BY_NOTHING) {
            return Some(&NO_NAME);
        }
        match self {
            Self::Schema(node, _) => node.items()?.property(key)?.get().default.as_ref(),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScalarType {
    Numeric,
    String,
    Boolean,
}
