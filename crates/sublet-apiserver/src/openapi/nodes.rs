//! Schema nodes of custom resources, as schemas of either OpenAPI version.

use super::Version;
use super::custom::Writer;
use serde_json::{Map, Value, json};
use sublet_machinery::schema::{CelRule, Limits};
use sublet_machinery::{ListType, MapType, SchemaNode, ValueType};

/// The schema of a whole kind. That its root is a resource goes without saying.
pub(super) fn root(of: SchemaNode<'_>, writer: &Writer<'_>) -> Map<String, Value> {
    write(of, false, writer)
}

/// The schema of a node.
fn node(of: SchemaNode<'_>, writer: &Writer<'_>) -> Map<String, Value> {
    write(of, of.embedded_resource, writer)
}

fn write(of: SchemaNode<'_>, embedded: bool, writer: &Writer<'_>) -> Map<String, Value> {
    let mut schema = Map::new();
    if let Some(description) = of.description.as_deref() {
        schema.insert("description".into(), description.into());
    }
    // Version 2 has no words for nullable values and open objects, so it leaves their type out.
    let untyped = writer.version == Version::V2 && (of.nullable || of.preserve_unknown || of.int_or_string);
    if !untyped {
        if let Some(word) = type_word(of.value_type) {
            schema.insert("type".into(), word.into());
        }
        structure(&mut schema, of, embedded, writer);
    }
    for (key, flag) in [
        ("x-kubernetes-int-or-string", of.int_or_string),
        ("x-kubernetes-embedded-resource", embedded),
        ("x-kubernetes-preserve-unknown-fields", of.preserve_unknown),
    ] {
        if flag {
            schema.insert(key.into(), true.into());
        }
    }
    if !of.rules.is_empty() {
        schema.insert("x-kubernetes-validations".into(), of.rules.iter().map(rule).collect());
    }
    scalars(&mut schema, of);
    if writer.version == Version::V3 {
        only_v3(&mut schema, of, writer);
    }
    schema
}

/// Items, properties and what they must be.
fn structure(schema: &mut Map<String, Value>, of: SchemaNode<'_>, embedded: bool, writer: &Writer<'_>) {
    if let Some(items) = of.items() {
        schema.insert("items".into(), Value::Object(node(items, writer)));
    }
    if let Some(values) = of.additional() {
        schema.insert("additionalProperties".into(), Value::Object(node(values, writer)));
    }
    if !of.properties.is_empty() {
        let fields = of.properties.iter().map(|(name, id)| (name.to_string(), Value::Object(node(of.at(*id), writer))));
        schema.insert("properties".into(), Value::Object(fields.collect()));
    }
    let mut required: Vec<&str> = of.required.iter().map(AsRef::as_ref).collect();
    if embedded && writer.version == Version::V3 {
        let properties = schema.entry("properties").or_insert_with(|| json!({}));
        writer.insert_type_meta(properties);
        for field in ["kind", "apiVersion"] {
            if !required.contains(&field) {
                required.push(field);
            }
        }
    }
    if !required.is_empty() {
        schema.insert("required".into(), required.into_iter().collect());
    }
    match of.list_type {
        ListType::Atomic => {}
        ListType::Set => drop(schema.insert("x-kubernetes-list-type".into(), "set".into())),
        ListType::Map => drop(schema.insert("x-kubernetes-list-type".into(), "map".into())),
    }
    if !of.list_map_keys.is_empty() {
        schema.insert("x-kubernetes-list-map-keys".into(), of.list_map_keys.iter().map(AsRef::as_ref).collect());
    }
    if of.map_type == MapType::Atomic {
        schema.insert("x-kubernetes-map-type".into(), "atomic".into());
    }
}

fn scalars(schema: &mut Map<String, Value>, of: SchemaNode<'_>) {
    if let Some(format) = of.format.as_deref() {
        schema.insert("format".into(), format.into());
    }
    if !of.enums.is_empty() {
        schema.insert("enum".into(), Value::Array(of.enums.clone()));
    }
    if let Some(limits) = of.limits.as_deref() {
        insert_limits(schema, limits);
    }
}

fn only_v3(schema: &mut Map<String, Value>, of: SchemaNode<'_>, writer: &Writer<'_>) {
    if of.nullable {
        schema.insert("nullable".into(), true.into());
    }
    if let Some(default) = &of.default {
        schema.insert("default".into(), default.clone());
    }
    for (key, ids) in [("allOf", &of.all_of), ("anyOf", &of.any_of), ("oneOf", &of.one_of)] {
        if !ids.is_empty() {
            schema.insert(key.into(), ids.iter().map(|id| Value::Object(node(of.at(*id), writer))).collect());
        }
    }
    if let Some(not) = of.not {
        schema.insert("not".into(), Value::Object(node(of.at(not), writer)));
    }
    if of.int_or_string && !schema.contains_key("anyOf") && !schema.contains_key("allOf") {
        schema.insert("anyOf".into(), json!([{ "type": "integer" }, { "type": "string" }]));
    }
}

fn insert_limits(schema: &mut Map<String, Value>, limits: &Limits) {
    let numbers = [("minimum", limits.minimum), ("maximum", limits.maximum), ("multipleOf", limits.multiple_of)];
    for (key, number) in numbers {
        if let Some(number) = number {
            schema.insert(key.into(), whole(number));
        }
    }
    let counts = [
        ("minLength", limits.min_length),
        ("maxLength", limits.max_length),
        ("minItems", limits.min_items),
        ("maxItems", limits.max_items),
        ("minProperties", limits.min_properties),
        ("maxProperties", limits.max_properties),
    ];
    for (key, count) in counts {
        if let Some(count) = count {
            schema.insert(key.into(), count.into());
        }
    }
    let flags = [
        ("exclusiveMinimum", limits.exclusive_minimum),
        ("exclusiveMaximum", limits.exclusive_maximum),
        ("uniqueItems", limits.unique_items),
    ];
    for (key, flag) in flags {
        if flag {
            schema.insert(key.into(), true.into());
        }
    }
    if let Some(pattern) = &limits.pattern {
        schema.insert("pattern".into(), pattern.as_str().into());
    }
}

/// A whole number without `.0`.
fn whole(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 9e15 { (number as i64).into() } else { number.into() }
}

fn rule(rule: &CelRule) -> Value {
    let mut out = Map::new();
    let texts = [
        ("rule", &rule.rule),
        ("message", &rule.message),
        ("messageExpression", &rule.message_expression),
        ("reason", &rule.reason),
        ("fieldPath", &rule.field_path),
    ];
    for (key, text) in texts {
        if !text.is_empty() {
            out.insert(key.into(), text.as_str().into());
        }
    }
    if let Some(optional) = rule.optional_old_self {
        out.insert("optionalOldSelf".into(), optional.into());
    }
    Value::Object(out)
}

fn type_word(value_type: ValueType) -> Option<&'static str> {
    match value_type {
        ValueType::Any => None,
        ValueType::Object => Some("object"),
        ValueType::Array => Some("array"),
        ValueType::String => Some("string"),
        ValueType::Integer => Some("integer"),
        ValueType::Number => Some("number"),
        ValueType::Boolean => Some("boolean"),
    }
}
