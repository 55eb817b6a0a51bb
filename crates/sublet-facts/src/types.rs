//! Types: from OpenAPI v3 component schemas to one line per field.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// All schemas by published name. A type that several documents carry is the same in each, but for the list of
/// groups it is registered in, which is joined.
pub fn collect(documents: &[Value]) -> Result<BTreeMap<String, Value>> {
    let mut types: BTreeMap<String, Value> = BTreeMap::new();
    for document in documents {
        let Some(schemas) = document.pointer("/components/schemas").and_then(Value::as_object) else { continue };
        for (name, schema) in schemas {
            let mut schema = schema.clone();
            let kinds = take_kinds(&mut schema);
            match types.get_mut(name) {
                None => {
                    schema["kinds"] = Value::Array(kinds.into_iter().collect());
                    types.insert(name.clone(), schema);
                }
                Some(known) => {
                    let mut all: Vec<Value> = known["kinds"].as_array().cloned().unwrap_or_default();
                    all.extend(kinds.into_iter().filter(|k| !known["kinds"].as_array().is_some_and(|a| a.contains(k))));
                    all.sort_by_key(Value::to_string);
                    known["kinds"] = Value::Array(all);
                    let mut same = known.clone();
                    same.as_object_mut().context("a schema is an object")?.remove("kinds");
                    if same != schema {
                        bail!("{name} differs between documents");
                    }
                }
            }
        }
    }
    Ok(types)
}

fn take_kinds(schema: &mut Value) -> Vec<Value> {
    match schema.as_object_mut().and_then(|s| s.remove(KINDS)) {
        Some(Value::Array(kinds)) => kinds,
        _ => Vec::new(),
    }
}

/// The v2 document has the full lists of groups of the types that all groups register, such as DeleteOptions.
pub fn take_all_kinds(types: &mut BTreeMap<String, Value>, v2: &Value) {
    for (name, schema) in types {
        if let Some(kinds) = v2["definitions"][name.as_str()].get(KINDS) {
            schema["kinds"] = kinds.clone();
        }
    }
}

/// The facts file: packages, their types, their fields.
pub fn render(types: &BTreeMap<String, Value>) -> Result<String> {
    let mut out = String::from(HEADER);
    let packages: BTreeSet<&str> = types.keys().map(|name| split(name).0).collect();
    for package in packages {
        writeln!(out, "package {package}")?;
        for (name, schema) in types.iter().filter(|(name, _)| split(name).0 == package) {
            type_lines(&mut out, package, split(name).1, schema).with_context(|| name.clone())?;
        }
    }
    Ok(out)
}

fn type_lines(out: &mut String, package: &str, name: &str, schema: &Value) -> Result<()> {
    let map = schema.as_object().context("a schema is an object")?;
    check_keys(map, TYPE_KEYS)?;
    write!(out, "type {name} {}", type_of(package, map)?)?;
    attributes(out, map)?;
    if let Some(unions) = map.get("x-kubernetes-unions") {
        write!(out, " unions={unions}")?;
    }
    let kinds = map["kinds"].as_array().map_or(&[][..], Vec::as_slice);
    if !kinds.is_empty() {
        let kinds = kinds.iter().map(kind_text).collect::<Result<Vec<_>>>()?;
        write!(out, " kinds={}", kinds.join(","))?;
    }
    out.push('\n');
    let required: Vec<&str> = map.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    for (field, schema) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let schema = schema.as_object().context("a field is an object")?;
        check_keys(schema, FIELD_KEYS).with_context(|| field.clone())?;
        write!(out, " {field} {}", type_of(package, schema).with_context(|| field.clone())?)?;
        if required.contains(&field.as_str()) {
            out.push_str(" required");
        }
        attributes(out, schema)?;
        out.push('\n');
    }
    Ok(())
}

/// A word for a type: `string`, `int32`, `[]Container`, `{}[]string`, `string(A|B)`.
fn type_of(package: &str, schema: &Map<String, Value>) -> Result<String> {
    if let Some(reference) = schema.get("$ref").or_else(|| schema.get("allOf").and_then(|all| all.pointer("/0/$ref"))) {
        let name = reference.as_str().and_then(|r| r.strip_prefix("#/components/schemas/")).context("a reference to a schema")?;
        let (of, short) = split(name);
        return Ok(if of == package { short.to_string() } else { name.to_string() });
    }
    let nested = |key: &str| schema.get(key).and_then(Value::as_object);
    let format = schema.get("format").and_then(Value::as_str);
    let word = match (schema.get("type").and_then(Value::as_str), format) {
        (Some("array"), None) => format!("[]{}", type_of(package, nested("items").context("an array has items")?)?),
        (Some("object"), None) => match nested("additionalProperties") {
            Some(values) => format!("{{}}{}", type_of(package, values)?),
            None => "object".to_string(),
        },
        (Some("string"), None) => "string".to_string(),
        (Some("string"), Some("byte")) => "bytes".to_string(),
        (Some("string"), Some("date-time")) => "date-time".to_string(),
        (Some("integer"), None) => "integer".to_string(),
        (Some("integer"), Some(format @ ("int32" | "int64"))) => format.to_string(),
        (Some("number"), Some("double")) => "double".to_string(),
        (Some("boolean"), None) => "boolean".to_string(),
        (None, Some("int-or-string")) => "int-or-string".to_string(),
        (None, None) if schema.contains_key("oneOf") => "quantity".to_string(),
        (None, None) => "any".to_string(),
        other => bail!("no word for {other:?}"),
    };
    Ok(match schema.get("enum").and_then(Value::as_array) {
        Some(values) => {
            let values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
            if values.iter().any(|v| v.contains(['|', '(', ')', '\t'])) {
                bail!("an enum value that the format cannot hold: {values:?}");
            }
            format!("{word}({})", values.join("|").replace(' ', "\u{b7}"))
        }
        None => word,
    })
}

fn attributes(out: &mut String, schema: &Map<String, Value>) -> Result<()> {
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    if let Some(list) = text("x-kubernetes-list-type") {
        let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
        let keys: Vec<&str> = keys.into_iter().flatten().filter_map(Value::as_str).collect();
        write!(out, " list={list}")?;
        if !keys.is_empty() {
            write!(out, ":{}", keys.join(","))?;
        }
    }
    if let Some(map) = text("x-kubernetes-map-type") {
        write!(out, " map={map}")?;
    }
    if let Some(strategy) = text("x-kubernetes-patch-strategy") {
        write!(out, " patch={strategy}")?;
    }
    if let Some(key) = text("x-kubernetes-patch-merge-key") {
        write!(out, " key={key}")?;
    }
    if let Some(default) = schema.get("default") {
        write!(out, " default={default}")?;
    }
    Ok(())
}

fn kind_text(kind: &Value) -> Result<String> {
    let text = |key: &str| kind[key].as_str().with_context(|| format!("a kind has {key}"));
    Ok(format!("{}/{}/{}", text("group")?, text("version")?, text("kind")?))
}

fn check_keys(schema: &Map<String, Value>, known: &[&str]) -> Result<()> {
    match schema.keys().find(|k| !known.contains(&k.as_str())) {
        Some(key) => bail!("the format has no place for {key}"),
        None => Ok(()),
    }
}

/// Package and name: the name is the part after the last dot.
fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('.').unwrap_or(("", name))
}

const KINDS: &str = "x-kubernetes-group-version-kind";
const HEADER: &str = "# Types of Kubernetes 1.37, as its OpenAPI documents publish them. Written by sublet-facts; do not edit.
# `type NAME TYPE attributes` opens a type, its fields follow as ` FIELD TYPE attributes`.
";
const TYPE_KEYS: &[&str] =
    &["kinds", "description", "type", "format", "oneOf", "properties", "required", "x-kubernetes-map-type", "x-kubernetes-unions"];
const FIELD_KEYS: &[&str] = &[
    "description",
    "type",
    "format",
    "items",
    "additionalProperties",
    "allOf",
    "$ref",
    "default",
    "enum",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-patch-merge-key",
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document(kinds: Value) -> Value {
        json!({"components": {"schemas": {
            "a.v1.Thing": {
                "type": "object", "description": "text that stays out", KINDS: kinds, "required": ["ports"],
                "properties": {
                    "ports": {"type": "array", "items": {"$ref": "#/components/schemas/a.v1.Port"},
                        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"]},
                    "other": {"allOf": [{"$ref": "#/components/schemas/b.v1.Other"}], "default": {}},
                    "limits": {"type": "object", "additionalProperties": {"type": "string", "enum": ["A", "B C"]}},
                },
            },
        }}})
    }

    #[test]
    fn a_type_becomes_lines() {
        let kind = |group: &str| json!([{"group": group, "version": "v1", "kind": "Thing"}]);
        let types = collect(&[document(kind("a")), document(kind("b"))]).expect("types");
        let text = render(&types).expect("text");
        let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "package a.v1",
                "type Thing object kinds=a/v1/Thing,b/v1/Thing",
                " limits {}string(A|B\u{b7}C)",
                " other b.v1.Other default={}",
                " ports []Port required list=map:port,protocol",
            ]
        );
    }

    #[test]
    fn what_the_format_cannot_hold_is_an_error() {
        let document =
            json!({"components": {"schemas": {"a.v1.Thing": {"type": "object", "properties": {"x": {"type": "string", "maxLength": 3}}}}}});
        let types = collect(&[document]).expect("types");
        assert!(format!("{:#}", render(&types).expect_err("a limit")).contains("no place for maxLength"));
    }
}
