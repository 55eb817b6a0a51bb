//! Published types from the facts file, as schemas of either OpenAPI version.

use super::descriptions::Descriptions;
use super::{Version, reference};
use crate::facts::TYPES;
use crate::facts::parse::{Line, Shape, TypeFact, enum_values, shape, types};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The types of the facts file by full name. Made while a document is, then dropped.
pub(super) struct Types {
    facts: BTreeMap<String, TypeFact<'static>>,
    pub(super) descriptions: Descriptions,
}

impl Types {
    pub(super) fn load() -> Self {
        let facts = types(TYPES).into_iter().map(|t| (format!("{}.{}", t.package, t.name), t)).collect();
        Self { facts, descriptions: Descriptions::load() }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.facts.keys().map(String::as_str)
    }

    /// The given types and all they refer to. Names that are not in the facts file are left out.
    pub(super) fn closure(&self, roots: impl IntoIterator<Item = String>) -> BTreeSet<String> {
        let mut open: Vec<String> = roots.into_iter().collect();
        let mut all = BTreeSet::new();
        while let Some(name) = open.pop() {
            let Some(fact) = self.facts.get(&name) else { continue };
            if all.insert(name) {
                open.extend(fact.fields.iter().filter_map(|(_, line)| referred(fact.package, line.shape)));
            }
        }
        all
    }

    /// The schema of a type. `group_version` keeps of a type that all groups register only the kinds of that group
    /// version and of the core group.
    pub(super) fn schema(&self, name: &str, version: Version, group_version: Option<(&str, &str)>) -> Option<Value> {
        let fact = self.facts.get(name)?;
        let mut schema = shaped(fact.package, fact.line.shape, version);
        attributes(&mut schema, &fact.line);
        if let Some(description) = self.descriptions.of_type(name) {
            schema.insert("description".into(), description.into());
        }
        if let Some(kinds) = kinds(&fact.line, group_version) {
            schema.insert("x-kubernetes-group-version-kind".into(), kinds);
        }
        if let Some(unions) = fact.line.unions.and_then(|u| serde_json::from_str(u).ok()) {
            schema.insert("x-kubernetes-unions".into(), unions);
        }
        let required: Vec<Value> = fact.fields.iter().filter(|(_, l)| l.required).map(|(n, _)| (*n).into()).collect();
        if !required.is_empty() {
            schema.insert("required".into(), Value::Array(required));
        }
        if !fact.fields.is_empty() {
            let fields =
                fact.fields.iter().map(|(field, line)| ((*field).to_string(), self.field(name, fact.package, field, line, version)));
            schema.insert("properties".into(), Value::Object(fields.collect()));
        }
        Some(Value::Object(schema))
    }

    fn field(&self, of: &str, package: &str, field: &str, line: &Line<'_>, version: Version) -> Value {
        let mut schema = shaped(package, line.shape, version);
        attributes(&mut schema, line);
        let description = self.descriptions.of_field(of, field).unwrap_or_default().into_owned() + &enum_text(line);
        if !description.is_empty() {
            schema.insert("description".into(), description.into());
        }
        if version == Version::V3
            && let Some(default) = line.default.and_then(|d| serde_json::from_str(d).ok())
        {
            schema.insert("default".into(), default);
        }
        wrap_reference(schema, version)
    }
}

/// The values of an enum, as upstream lists them behind the description.
fn enum_text(line: &Line<'_>) -> String {
    let Shape::Scalar(_, Some(values)) = shape(line.shape) else { return String::new() };
    let lines = enum_values(values).map(|value| format!("\n - `\"{value}\"`"));
    format!("\n\nPossible enum values:{}", lines.collect::<String>())
}

/// Version 3 allows no siblings of a reference.
pub(super) fn wrap_reference(mut schema: Map<String, Value>, version: Version) -> Value {
    if version == Version::V3
        && schema.len() > 1
        && let Some(reference) = schema.remove("$ref")
    {
        schema.insert("allOf".into(), json!([{ "$ref": reference }]));
    }
    Value::Object(schema)
}

/// The full name of the type in a shape.
fn referred(package: &str, text: &str) -> Option<String> {
    match shape(text) {
        Shape::List(of) | Shape::Map(of) => referred(package, of),
        Shape::Type(of, name) => Some(format!("{}.{name}", of.unwrap_or(package))),
        Shape::Scalar(..) => None,
    }
}

fn shaped(package: &str, text: &str, version: Version) -> Map<String, Value> {
    let value = match shape(text) {
        Shape::List(of) => json!({ "type": "array", "items": shaped(package, of, version) }),
        Shape::Map(of) => json!({ "type": "object", "additionalProperties": shaped(package, of, version) }),
        Shape::Type(of, name) => json!({ "$ref": reference(&format!("{}.{name}", of.unwrap_or(package)), version) }),
        Shape::Scalar(word, values) => {
            let mut schema = scalar(word, version);
            if let Some(values) = values {
                schema["enum"] = enum_values(values).map(Value::String).collect();
            }
            schema
        }
    };
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn scalar(word: &str, version: Version) -> Value {
    match word {
        "bytes" => json!({ "type": "string", "format": "byte" }),
        "date-time" => json!({ "type": "string", "format": "date-time" }),
        "int32" | "int64" => json!({ "type": "integer", "format": word }),
        "double" => json!({ "type": "number", "format": word }),
        "any" => json!({}),
        "int-or-string" if version == Version::V2 => json!({ "type": "string", "format": word }),
        "int-or-string" => json!({ "format": word, "oneOf": [{ "type": "integer" }, { "type": "string" }] }),
        "quantity" if version == Version::V2 => json!({ "type": "string" }),
        "quantity" => json!({ "oneOf": [{ "type": "string" }, { "type": "number" }] }),
        word => json!({ "type": word }),
    }
}

fn attributes(schema: &mut Map<String, Value>, line: &Line<'_>) {
    let texts = [
        ("x-kubernetes-list-type", line.list_type),
        ("x-kubernetes-map-type", line.map_type),
        ("x-kubernetes-patch-strategy", line.patch_strategy),
        ("x-kubernetes-patch-merge-key", line.merge_key),
    ];
    for (key, value) in texts {
        if let Some(value) = value {
            schema.insert(key.into(), value.into());
        }
    }
    if let Some(keys) = line.list_keys {
        schema.insert("x-kubernetes-list-map-keys".into(), keys.split(',').collect());
    }
}

fn kinds(line: &Line<'_>, group_version: Option<(&str, &str)>) -> Option<Value> {
    let all: Vec<(&str, &str, &str)> = line.kinds?.split(',').filter_map(split_kind).collect();
    let shared = all.len() > 2;
    let wanted = |(group, version, _): &(&str, &str, &str)| match group_version {
        Some(of) if shared => (*group, *version) == of || (*group, *version) == ("", "v1"),
        _ => true,
    };
    let value = |(group, version, kind): (&str, &str, &str)| json!({ "group": group, "version": version, "kind": kind });
    Some(all.into_iter().filter(wanted).map(value).collect())
}

fn split_kind(text: &str) -> Option<(&str, &str, &str)> {
    let mut parts = text.splitn(3, '/');
    Some((parts.next()?, parts.next()?, parts.next()?))
}
