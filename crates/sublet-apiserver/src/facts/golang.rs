//! What the Go types of the built-in kinds make of a field: whether it is left out when it is zero, and the names that
//! clients see in messages about wrong types.

use super::parse::{Shape, shape};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// A field of a Go struct, as JSON shows it.
#[derive(Debug, Clone)]
pub(super) struct GoField {
    pub name: &'static str,
    shape: &'static str,
    /// Absent and zero differ.
    pub pointer: bool,
    /// Written when it is zero too.
    keep: bool,
    /// A struct that is left out when it is zero.
    omit_zero: bool,
    /// The name of its type, where the shape does not show it: `v1.PullPolicy`.
    pub go_type: Option<&'static str>,
    /// The embedded struct that the field comes from, with those around it: `VolumeSource`.
    pub embedded: Option<String>,
}

/// The fields of all messages, by the published name of their type.
pub(super) struct GoTypes(HashMap<String, Vec<GoField>>);

impl GoTypes {
    pub fn read(messages: &'static str) -> Self {
        let mut types: HashMap<String, Vec<GoField>> = HashMap::new();
        let (mut package, mut open) = ("", String::new());
        for line in messages.lines() {
            if let Some(name) = line.strip_prefix("package ") {
                package = name;
            } else if let Some(name) = line.strip_prefix("message ") {
                open = format!("{package}.{name}");
                types.insert(open.clone(), Vec::new());
            } else if let (Some(field), Some(fields)) = (line.strip_prefix(' '), types.get_mut(&open)) {
                fields.push(GoField::read(field));
            }
        }
        let names: Vec<String> = types.keys().cloned().collect();
        let flat = names.into_iter().map(|name| (name.clone(), flatten(&types, &name))).collect();
        Self(flat)
    }

    pub fn field(&self, of: &str, name: &str) -> Option<&GoField> {
        self.0.get(of)?.iter().find(|field| field.name == name)
    }
}

/// The fields of a type with those of the structs that it embeds.
fn flatten(types: &HashMap<String, Vec<GoField>>, name: &str) -> Vec<GoField> {
    let (package, _) = name.rsplit_once('.').unwrap_or_default();
    let mut fields = Vec::new();
    for field in types.get(name).into_iter().flatten() {
        if field.name != "-" {
            fields.push(field.clone());
            continue;
        }
        let full = if field.shape.contains('.') { field.shape.to_string() } else { format!("{package}.{}", field.shape) };
        let short = field.shape.rsplit('.').next().unwrap_or_default();
        fields.extend(flatten(types, &full).into_iter().map(|inner| {
            let embedded = Some(inner.embedded.map_or(short.to_string(), |deeper| format!("{short}.{deeper}")));
            GoField { embedded, ..inner }
        }));
    }
    fields
}

impl GoField {
    fn read(line: &'static str) -> Self {
        let mut words = line.split(' ');
        let (name, _, shape) = (words.next().unwrap_or_default(), words.next(), words.next().unwrap_or_default());
        let mut field = Self { name, shape, pointer: false, keep: false, omit_zero: false, go_type: None, embedded: None };
        for word in words {
            match word {
                "pointer" => field.pointer = true,
                "keep" => field.keep = true,
                "omitzero" => field.omit_zero = true,
                _ => field.go_type = word.strip_prefix("go="),
            }
        }
        field
    }

    /// Whether JSON leaves the field out when it holds the zero of its type.
    pub fn vanishes(&self) -> bool {
        !self.pointer && !self.keep && matches!(self.shape, "string" | "bool" | "int32" | "int64" | "double")
    }

    /// What JSON shows of the field when nobody set it.
    pub fn zero(&self) -> Option<Value> {
        if self.omit_zero {
            return None;
        }
        if self.pointer {
            return self.keep.then_some(Value::Null);
        }
        match shape(self.shape) {
            Shape::List(_) | Shape::Map(_) | Shape::Scalar("bytes", _) | Shape::Type(_, "Verbs") => self.keep.then_some(Value::Null),
            Shape::Scalar("string", _) => self.keep.then(|| "".into()),
            Shape::Scalar("int32" | "int64" | "double", _) => self.keep.then(|| 0.into()),
            Shape::Type(_, "bool") => self.keep.then_some(Value::Bool(false)),
            Shape::Type(_, name) => Some(struct_zero(name)),
            Shape::Scalar(..) => None,
        }
    }
}

/// `omitempty` does not leave out a struct.
fn struct_zero(name: &str) -> Value {
    match name {
        "Time" | "MicroTime" | "RawExtension" | "JSON" => Value::Null,
        "Quantity" => "0".into(),
        "IntOrString" => 0.into(),
        _ => Value::Object(Map::new()),
    }
}
