//! Tables, as `kubectl get` prints them: columns from the row of the resource, cells from the objects.

mod age;
mod columns;
mod jsonpath;
mod kinds;

pub(crate) use columns::builtin_columns;

use crate::registry::{Cell, Column, Resource};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::borrow::Borrow;
use sublet_machinery::ObjectExt;

/// What a row carries beside its cells: `includeObject` of TableOptions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

impl IncludeObject {
    /// From the query parameter; `None` for a value that does not exist.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Metadata" => Some(Self::Metadata),
            "None" => Some(Self::None),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct TableOptions {
    pub include_object: IncludeObject,
    /// Without column definitions: all but the first table of a watch.
    pub no_headers: bool,
    /// The objects are a list, not one object asked for by name. Some kinds sort or mark lists.
    pub list: bool,
    pub now: Timestamp,
}

/// What cells may depend on beside the object.
#[derive(Debug)]
pub struct Printing<'a> {
    pub now: Timestamp,
    /// The StorageClass that is the default among those listed.
    pub default_class: Option<&'a str>,
}

/// The `meta.k8s.io/v1` Table of objects. `list_meta` is the metadata of the list, or for one object
/// `{"resourceVersion": ...}`.
pub fn render<V: Borrow<Value>>(resource: &Resource, objects: &[V], options: &TableOptions, list_meta: Value) -> Value {
    let objects: Vec<&Value> = objects.iter().map(Borrow::borrow).collect();
    let generic = columns::generic();
    let columns = if resource.columns.is_empty() { &generic } else { &resource.columns };
    render_columns(resource, columns, objects, options, list_meta)
}

/// The table of a Scale, which any kind with that subresource may answer with.
pub fn render_scale(resource: &Resource, scale: &Value, options: &TableOptions) -> Value {
    let list_meta = json!({ "resourceVersion": scale.resource_version() });
    render_columns(resource, &columns::scale(), vec![scale], options, list_meta)
}

fn render_columns(resource: &Resource, columns: &[Column], mut objects: Vec<&Value>, options: &TableOptions, list_meta: Value) -> Value {
    let is = |group: &str, plural: &str| resource.custom.is_none() && resource.group == group && resource.plural == plural;
    let mut printing = Printing { now: options.now, default_class: None };
    if options.list && is("flowcontrol.apiserver.k8s.io", "flowschemas") {
        objects.sort_by_key(|o| (o.i64_at("/spec/matchingPrecedence").unwrap_or_default(), o.name().to_string()));
    }
    if options.list && is("storage.k8s.io", "storageclasses") {
        printing.default_class = kinds::storage::default_class(&objects);
    }
    let pods = is("", "pods");
    let rows = objects.iter().map(|object| row(columns, object, options, &printing, pods)).collect();
    let mut table = Map::new();
    table.insert("kind".into(), "Table".into());
    table.insert("apiVersion".into(), "meta.k8s.io/v1".into());
    table.insert("metadata".into(), list_meta);
    let definitions = if options.no_headers { Vec::new() } else { columns.iter().map(definition).collect() };
    // Upstream keeps the key: null when headers are left out.
    table.insert("columnDefinitions".into(), if definitions.is_empty() { Value::Null } else { Value::Array(definitions) });
    table.insert("rows".into(), Value::Array(rows));
    Value::Object(table)
}

fn row(columns: &[Column], object: &Value, options: &TableOptions, printing: &Printing<'_>, pods: bool) -> Value {
    let cells: Vec<Value> = columns.iter().map(|column| cell(column, object, printing)).collect();
    let mut row = Map::new();
    row.insert("cells".into(), Value::Array(cells));
    if pods && let Some(condition) = kinds::pod::completed(object) {
        row.insert("conditions".into(), json!([condition]));
    }
    let carried = match options.include_object {
        IncludeObject::None => Value::Null,
        IncludeObject::Metadata => partial(object),
        IncludeObject::Object => object.clone(),
    };
    row.insert("object".into(), carried);
    Value::Object(row)
}

fn cell(column: &Column, object: &Value, printing: &Printing<'_>) -> Value {
    match &column.cell {
        Cell::JsonPath(path) => jsonpath::cell(path, &column.value_type, object, printing.now),
        Cell::Code(code) => code(object, printing),
    }
}

fn definition(column: &Column) -> Value {
    json!({
        "name": column.name,
        "type": column.value_type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    })
}

/// The `PartialObjectMetadata` of an object.
pub fn partial(object: &Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"] })
}

/// The columns of a custom resource: its name and what `additionalPrinterColumns` says, or the age when it says nothing.
pub fn custom_columns(additional: &[Value]) -> Vec<Column> {
    columns::custom(additional)
}

#[cfg(test)]
mod tests;
