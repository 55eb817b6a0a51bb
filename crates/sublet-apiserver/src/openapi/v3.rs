//! Version 3: an index and a document per group version.

use super::custom::Writer;
use super::json::write_object;
use super::operations::{Operation, PathItem, Type, paths};
use super::parameters::Parameter;
use super::types::Types;
use super::{Version, reference, roots};
use crate::registry::{Resource, Snapshot};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::Arc;

/// The names in the index, which are paths without the leading slash: `api/v1`, `apis/apps/v1`, `version`.
pub fn document_names(snapshot: &Snapshot) -> BTreeSet<String> {
    let mut all: BTreeSet<String> = ROOTS.iter().map(|n| (*n).to_string()).collect();
    for row in snapshot.resources.values() {
        if row.group.is_empty() {
            all.insert(format!("api/{}", row.version));
            continue;
        }
        all.insert(format!("apis/{}/{}", row.group, row.version));
        if row.custom.is_none() {
            all.insert(format!("apis/{}", row.group));
        }
    }
    all
}

/// Whether the index has a document of this name.
pub fn has_document(name: &str, snapshot: &Snapshot) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        ["api", version] => snapshot.in_version("", version).next().is_some(),
        ["apis", group] => has_builtin(group, snapshot),
        ["apis", group, version] => snapshot.in_version(group, version).next().is_some(),
        _ => ROOTS.contains(&name),
    }
}

fn has_builtin(group: &str, snapshot: &Snapshot) -> bool {
    snapshot.in_group(group).any(|r| r.custom.is_none())
}

/// Writes the document of this name, if there is one.
pub fn write_document(name: &str, snapshot: &Snapshot, out: &mut dyn Write) -> io::Result<bool> {
    match parts(name, snapshot) {
        Some(parts) => parts.write(out).map(|()| true),
        None => Ok(false),
    }
}

/// What a document is made of.
struct Parts<'a> {
    items: BTreeMap<String, PathItem>,
    rows: Vec<&'a Arc<Resource>>,
    /// Set for the documents of built-in group versions.
    group_version: Option<(&'a str, &'a str)>,
}

fn parts<'a>(name: &'a str, snapshot: &'a Snapshot) -> Option<Parts<'a>> {
    let parts: Vec<&str> = name.split('/').collect();
    let one = |item: PathItem| Some(Parts { items: by_path(vec![item]), rows: Vec::new(), group_version: None });
    match parts[..] {
        ["api"] => one(roots::api()),
        ["apis"] => one(roots::apis()),
        ["version"] => one(roots::version()),
        [".well-known", "openid-configuration"] => one(roots::openid_configuration()),
        ["openid", "v1", "jwks"] => one(roots::openid_keys()),
        ["api", version] => group_version("", version, snapshot),
        ["apis", group] => {
            if has_builtin(group, snapshot) {
                one(roots::group(group))
            } else {
                None
            }
        }
        ["apis", group, version] => group_version(group, version, snapshot),
        _ => None,
    }
}

fn group_version<'a>(group: &'a str, version: &'a str, snapshot: &'a Snapshot) -> Option<Parts<'a>> {
    let rows: Vec<&Arc<Resource>> = snapshot.in_version(group, version).collect();
    let builtin = rows.first()?.custom.is_none();
    let mut items: Vec<PathItem> = rows.iter().flat_map(|row| paths(row)).collect();
    if builtin {
        items.push(roots::resources(group, version));
    }
    Some(Parts { items: by_path(items), rows, group_version: builtin.then_some((group, version)) })
}

impl Parts<'_> {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let types = Types::load();
        let writer = Writer { version: Version::V3, descriptions: &types.descriptions };
        let custom: BTreeMap<String, Value> = self.rows.iter().filter(|r| r.custom.is_some()).flat_map(|r| writer.types(r)).collect();
        let mut named: BTreeSet<String> = self.items.values().flat_map(|item| &item.operations).flat_map(named_types).collect();
        if !custom.is_empty() {
            named.extend(CUSTOM_PARTS.iter().map(|n| (*n).to_string()));
        }
        // Upstream makes the documents of custom resources apart from the others, and they tell less about themselves.
        let info = if custom.is_empty() {
            json!({ "title": "Kubernetes", "version": "1.37" })
        } else {
            json!({ "title": "Kubernetes CRD Swagger", "version": "v0.1.0" })
        };
        write_object(out, |document| {
            document.entry("openapi", &"3.0.0".into())?;
            document.entry("info", &info)?;
            document.object("paths", |all| self.items.iter().try_for_each(|(path, item)| all.entry(path, &path_item(item))))?;
            document.object("components", |components| {
                if custom.is_empty() {
                    components.object("securitySchemes", |schemes| schemes.entry("BearerToken", &security()))?;
                }
                let builtin = types.closure(named);
                if builtin.is_empty() && custom.is_empty() {
                    return Ok(());
                }
                components.object("schemas", |schemas| {
                    for name in &builtin {
                        if let Some(schema) = types.schema(name, Version::V3, self.group_version) {
                            schemas.entry(name, &schema)?;
                        }
                    }
                    custom.iter().try_for_each(|(name, schema)| schemas.entry(name, schema))
                })
            })
        })
    }
}

pub(super) fn by_path(items: Vec<PathItem>) -> BTreeMap<String, PathItem> {
    items.into_iter().map(|item| (item.path.clone(), item)).collect()
}

pub(super) fn security() -> Value {
    json!({ "type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header" })
}

fn named_types(operation: &Operation) -> Vec<String> {
    let answer = match &operation.answer {
        Type::Named(name) => Some(name.clone()),
        Type::Text => None,
    };
    answer.into_iter().chain(operation.body.as_ref().map(|b| b.of.clone())).collect()
}

/// Parameters that every operation of a path has are stated once for the path.
pub(super) fn shared_parameters(item: &PathItem) -> Vec<Parameter> {
    let Some((first, rest)) = item.operations.split_first() else { return Vec::new() };
    let in_all = |p: &&Parameter| rest.iter().all(|o| o.parameters.contains(p));
    let mut shared: Vec<Parameter> = first.parameters.iter().filter(in_all).copied().collect();
    shared.sort_by_key(|p| (p.name, !p.in_path));
    shared
}

fn path_item(item: &PathItem) -> Value {
    let shared = shared_parameters(item);
    let mut out = Map::new();
    for operation in &item.operations {
        out.insert(operation.method.into(), self::operation(operation, &shared));
    }
    if !shared.is_empty() {
        out.insert("parameters".into(), shared.iter().map(parameter).collect());
    }
    Value::Object(out)
}

fn operation(operation: &Operation, shared: &[Parameter]) -> Value {
    let schema = match &operation.answer {
        Type::Named(name) => json!({ "$ref": reference(name, Version::V3) }),
        Type::Text => json!({ "type": "string" }),
    };
    let content = |types: &[&str], schema: &Value| -> Map<String, Value> {
        types.iter().map(|t| ((*t).to_string(), json!({ "schema": schema }))).collect()
    };
    let mut responses = Map::new();
    for code in operation.codes {
        let description = code_text(*code);
        responses.insert(code.to_string(), json!({ "description": description, "content": content(operation.produces, &schema) }));
    }
    responses.insert("401".into(), json!({ "description": "Unauthorized" }));
    let mut out = Map::new();
    out.insert("tags".into(), json!([operation.tag]));
    out.insert("description".into(), operation.description.as_str().into());
    out.insert("operationId".into(), operation.id.as_str().into());
    out.insert("responses".into(), Value::Object(responses));
    let mut own: Vec<&Parameter> = operation.parameters.iter().filter(|p| !shared.contains(p)).collect();
    own.sort_by_key(|p| p.name);
    if !own.is_empty() {
        out.insert("parameters".into(), own.into_iter().map(parameter).collect());
    }
    if let Some(body) = &operation.body {
        let mut request = json!({ "content": content(body.consumes, &json!({ "$ref": reference(&body.of, Version::V3) })) });
        if body.required {
            request["required"] = true.into();
        }
        out.insert("requestBody".into(), request);
    }
    if let Some(action) = operation.action {
        out.insert("x-kubernetes-action".into(), action.into());
    }
    if let Some(kind) = &operation.kind {
        let kind = json!({ "group": kind.group, "version": kind.version, "kind": kind.kind });
        out.insert("x-kubernetes-group-version-kind".into(), kind);
    }
    Value::Object(out)
}

pub(super) fn code_text(code: u16) -> &'static str {
    match code {
        201 => "Created",
        202 => "Accepted",
        _ => "OK",
    }
}

fn parameter(parameter: &Parameter) -> Value {
    let mut out = json!({
        "name": parameter.name,
        "in": if parameter.in_path { "path" } else { "query" },
        "description": parameter.description,
        "schema": { "type": parameter.value_type, "uniqueItems": true },
    });
    if parameter.in_path {
        out["required"] = true.into();
    }
    out
}

const ROOTS: &[&str] = &["api", "apis", "version", ".well-known/openid-configuration", "openid/v1/jwks"];
/// What the types of custom resources refer to.
const CUSTOM_PARTS: &[&str] = &["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"];
