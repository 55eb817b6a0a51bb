//! Version 2: one document for everything.

use super::custom::Writer;
use super::json::write_object;
use super::operations::{Operation, PathItem, Type, paths};
use super::parameters::Parameter;
use super::protobuf::{self, Item, NamedEntries, put_bytes};
use super::types::Types;
use super::v3::{by_path, code_text, security, shared_parameters};
use super::{Version, reference, roots};
use crate::registry::Snapshot;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// Writes the document at `/openapi/v2`.
pub fn write_document(snapshot: &Snapshot, out: &mut dyn Write) -> io::Result<()> {
    let items = items(snapshot);
    write_object(out, |document| {
        let Value::Object(head) = head() else { return Ok(()) };
        head.iter().try_for_each(|(key, value)| document.entry(key, value))?;
        document.object("paths", |all| items.iter().try_for_each(|(path, item)| all.entry(path, &path_item(item))))?;
        document.object("definitions", |all| definitions(snapshot, |name, schema| all.entry(name, &schema)))?;
        let parameters = parameters(&items);
        document.object("parameters", |all| parameters.iter().try_for_each(|(name, parameter)| all.entry(name, parameter)))
    })
}

/// The same document in protobuf.
pub fn write_protobuf_document(snapshot: &Snapshot, out: &mut dyn Write) -> io::Result<()> {
    let mut bytes = protobuf::encode(&protobuf::DOCUMENT, &head());
    let items = items(snapshot);
    let mut paths = NamedEntries::new(2, Item::Path);
    items.iter().for_each(|(path, item)| paths.push(path, &path_item(item)));
    put_bytes(&mut bytes, 8, &paths.into_bytes());
    let mut schemas = NamedEntries::new(1, Item::Schema);
    definitions(snapshot, |name, schema| {
        schemas.push(name, &schema);
        Ok(())
    })?;
    put_bytes(&mut bytes, 9, &schemas.into_bytes());
    let mut shared = NamedEntries::new(1, Item::Parameter);
    parameters(&items).iter().for_each(|(name, parameter)| shared.push(name, parameter));
    put_bytes(&mut bytes, 10, &shared.into_bytes());
    out.write_all(&bytes)
}

/// The small parts of the document.
fn head() -> Value {
    json!({
        "swagger": "2.0",
        "info": { "title": "Kubernetes", "version": "1.37" },
        "securityDefinitions": { "BearerToken": security() },
        "security": [{ "BearerToken": [] }],
    })
}

fn definitions(snapshot: &Snapshot, mut each: impl FnMut(&str, Value) -> io::Result<()>) -> io::Result<()> {
    let types = Types::load();
    for name in types.names() {
        if let Some(schema) = types.schema(name, Version::V2, None) {
            each(name, schema)?;
        }
    }
    let writer = Writer { version: Version::V2, descriptions: &types.descriptions };
    let custom = snapshot.resources.values().filter(|r| r.custom.is_some());
    custom.flat_map(|row| writer.types(row)).try_for_each(|(name, schema)| each(&name, schema))
}

fn parameters(items: &BTreeMap<String, PathItem>) -> BTreeMap<String, Value> {
    let all = items.values().flat_map(|item| &item.operations).flat_map(|operation| &operation.parameters);
    all.map(|p| (key(p), parameter(p))).collect()
}

fn items(snapshot: &Snapshot) -> BTreeMap<String, PathItem> {
    let mut all = vec![roots::api(), roots::apis(), roots::version(), roots::openid_configuration(), roots::openid_keys()];
    let mut versions = BTreeSet::new();
    for row in snapshot.resources.values() {
        all.extend(paths(row));
        if row.custom.is_none() && versions.insert((&row.group, &row.version)) {
            all.push(roots::resources(&row.group, &row.version));
        }
    }
    let groups: BTreeSet<&String> = versions.into_iter().map(|(group, _)| group).filter(|g| !g.is_empty()).collect();
    all.extend(groups.into_iter().map(|group| roots::group(group)));
    by_path(all)
}

/// Parameters are stated once in the document and referred to.
fn key(parameter: &Parameter) -> String {
    format!("{}-{}", parameter.name, if parameter.in_path { "path" } else { "query" })
}

fn parameter_reference(parameter: &Parameter) -> Value {
    json!({ "$ref": format!("#/parameters/{}", key(parameter)) })
}

fn path_item(item: &PathItem) -> Value {
    let shared = shared_parameters(item);
    let mut out = Map::new();
    for operation in &item.operations {
        out.insert(operation.method.into(), self::operation(operation, &shared));
    }
    if !shared.is_empty() {
        out.insert("parameters".into(), shared.iter().map(parameter_reference).collect());
    }
    Value::Object(out)
}

fn operation(operation: &Operation, shared: &[Parameter]) -> Value {
    let answer = match &operation.answer {
        Type::Named(name) => json!({ "$ref": reference(name, Version::V2) }),
        Type::Text => json!({ "type": "string" }),
    };
    let mut responses = Map::new();
    for code in operation.codes {
        responses.insert(code.to_string(), json!({ "description": code_text(*code), "schema": answer }));
    }
    responses.insert("401".into(), json!({ "description": "Unauthorized" }));
    let mut parameters: Vec<Value> = Vec::new();
    if let Some(body) = &operation.body {
        let mut value = json!({ "name": "body", "in": "body", "schema": { "$ref": reference(&body.of, Version::V2) } });
        if body.required {
            value["required"] = true.into();
        }
        parameters.push(value);
    }
    let mut own: Vec<&Parameter> = operation.parameters.iter().filter(|p| !shared.contains(p)).collect();
    own.sort_by_key(|p| p.name);
    parameters.extend(own.into_iter().map(parameter_reference));
    let mut out = json!({
        "tags": [operation.tag],
        "description": operation.description,
        "operationId": operation.id,
        "schemes": ["https"],
        "produces": operation.produces,
        "responses": responses,
    });
    let consumes = operation.body.as_ref().map_or(operation.consumes, |b| b.consumes);
    if !consumes.is_empty() {
        out["consumes"] = consumes.iter().copied().collect();
    }
    if !parameters.is_empty() {
        out["parameters"] = Value::Array(parameters);
    }
    if let Some(action) = operation.action {
        out["x-kubernetes-action"] = action.into();
    }
    if let Some(kind) = &operation.kind {
        out["x-kubernetes-group-version-kind"] = json!({ "group": kind.group, "version": kind.version, "kind": kind.kind });
    }
    out
}

fn parameter(parameter: &Parameter) -> Value {
    let mut out = json!({
        "name": parameter.name,
        "in": if parameter.in_path { "path" } else { "query" },
        "description": parameter.description,
        "type": parameter.value_type,
        "uniqueItems": true,
    });
    if parameter.in_path {
        out["required"] = true.into();
    }
    out
}
