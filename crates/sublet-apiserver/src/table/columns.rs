//! The columns of each kind, and the words they are written with.

use crate::registry::{Cell, CellCode, Column};
use crate::table::{age, kinds};
use serde_json::{Map, Value};
use sublet_machinery::ObjectExt;

/// The columns of a built-in resource.
pub(crate) fn builtin_columns(group: &str, plural: &str) -> Vec<Column> {
    let rest = match group {
        "" => kinds::core::columns(plural),
        "apps" | "batch" | "autoscaling" | "policy" => kinds::workloads::columns(plural),
        "storage.k8s.io" => kinds::storage::columns(plural),
        "networking.k8s.io" | "discovery.k8s.io" => kinds::network::columns(plural),
        "admissionregistration.k8s.io" | "apiextensions.k8s.io" | "apiregistration.k8s.io" => kinds::extension::columns(plural),
        _ => kinds::cluster::columns(plural),
    };
    rest.unwrap_or_else(generic)
}

/// For kinds that print nothing of their own.
pub(super) fn generic() -> Vec<Column> {
    vec![name(), created_at()]
}

pub(super) fn scale() -> Vec<Column> {
    vec![
        Column { format: String::new(), ..name() },
        integer("Desired", "Replicas asked for.", |o, _| count(o, "/spec/replicas")),
        integer("Available", "Replicas that exist.", |o, _| count(o, "/status/replicas")),
        self::age(),
    ]
}

pub(super) fn custom(additional: &[Value]) -> Vec<Column> {
    let mut columns = vec![name()];
    if additional.is_empty() {
        let path = ".metadata.creationTimestamp";
        columns.push(Column { value_type: "date".into(), cell: Cell::JsonPath(path.into()), ..self::age() });
    }
    columns.extend(additional.iter().map(|column| {
        let text = |key: &str| column[key].as_str().unwrap_or_default().to_string();
        let path = text("jsonPath");
        let description = match text("description") {
            described if !described.is_empty() => described,
            _ => format!("Custom resource definition column (in JSONPath format): {path}"),
        };
        Column {
            name: text("name"),
            value_type: text("type"),
            format: text("format"),
            description,
            priority: column["priority"].as_i64().and_then(|p| i32::try_from(p).ok()).unwrap_or_default(),
            cell: Cell::JsonPath(path),
        }
    }));
    columns
}

pub(super) fn name() -> Column {
    named("Name", |o, _| o.name().into())
}

/// The column that tells objects apart.
pub(super) fn named(title: &str, code: CellCode) -> Column {
    Column { format: "name".into(), ..string(title, "The name of the object, unique among its kind in its namespace.", code) }
}

pub(super) fn age() -> Column {
    string("Age", "The time since the object was created.", |o, p| age::since(o.str_at("/metadata/creationTimestamp"), p.now).into())
}

pub(super) fn created_at() -> Column {
    let code: CellCode = |o, _| o.str_at("/metadata/creationTimestamp").unwrap_or("0001-01-01T00:00:00Z").into();
    column("Created At", "date", "The time at which the object was created.", code)
}

pub(super) fn string(title: &str, description: &str, code: CellCode) -> Column {
    column(title, "string", description, code)
}

pub(super) fn integer(title: &str, description: &str, code: CellCode) -> Column {
    column(title, "integer", description, code)
}

pub(super) fn boolean(title: &str, description: &str, code: CellCode) -> Column {
    column(title, "boolean", description, code)
}

fn column(title: &str, value_type: &str, description: &str, code: CellCode) -> Column {
    Column {
        name: title.into(),
        value_type: value_type.into(),
        format: String::new(),
        description: description.into(),
        priority: 0,
        cell: Cell::Code(code),
    }
}

/// Shown with `-o wide`.
pub(super) fn wide(column: Column) -> Column {
    Column { priority: 1, ..column }
}

/// A number, zero when it is missing, as Go fields are.
pub(super) fn count(object: &Value, pointer: &str) -> Value {
    object.i64_at(pointer).unwrap_or_default().into()
}

/// A string, empty when it is missing.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.str_at(pointer).unwrap_or_default()
}

/// A string, or these words when it is missing or empty.
pub(super) fn text_or<'a>(object: &'a Value, pointer: &str, missing: &'a str) -> &'a str {
    object.str_at(pointer).filter(|t| !t.is_empty()).unwrap_or(missing)
}

/// A quantity or an IntOrString as it prints.
pub(super) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(s) => Some(s.clone()),
        Value::Number(n) => Some(n.to_string()),
        _ => None,
    }
}

pub(super) fn scalar_at(object: &Value, pointer: &str) -> Option<String> {
    object.pointer(pointer).and_then(scalar)
}

pub(super) fn strings(values: &[Value]) -> impl Iterator<Item = &str> {
    values.iter().filter_map(Value::as_str)
}

pub(super) fn joined(values: &[Value], separator: &str) -> String {
    strings(values).collect::<Vec<_>>().join(separator)
}

/// `a=1,b=2`, or `<none>`.
pub(super) fn labels(map: Option<&Map<String, Value>>) -> String {
    let pairs: Vec<String> = map.into_iter().flatten().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
    if pairs.is_empty() { NONE.into() } else { pairs.join(",") }
}

/// A LabelSelector as text; empty when it selects all or nothing.
pub(super) fn selector(selector: &Value) -> String {
    let mut terms: Vec<(&str, String)> = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        terms.push((key, format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for expression in selector.array_at("/matchExpressions") {
        let key = text(expression, "/key");
        let mut values: Vec<&str> = strings(expression.array_at("/values")).collect();
        values.sort_unstable();
        let values = values.join(",");
        terms.push(match text(expression, "/operator") {
            "In" => (key, format!("{key} in ({values})")),
            "NotIn" => (key, format!("{key} notin ({values})")),
            "Exists" => (key, key.to_string()),
            _ => (key, format!("!{key}")),
        });
    }
    terms.sort_by_key(|(key, _)| *key);
    terms.into_iter().map(|(_, term)| term).collect::<Vec<_>>().join(",")
}

/// At most `max` of the values, then how many more there are.
pub(super) fn some_of(values: &[String], max: usize, separator: &str) -> String {
    let shown = values[..values.len().min(max)].join(separator);
    if values.len() > max { format!("{shown} + {} more...", values.len() - max) } else { shown }
}

/// The status of a condition.
pub(super) fn condition<'a>(conditions: &'a [Value], condition_type: &str) -> Option<&'a str> {
    conditions.iter().find(|c| c["type"] == condition_type).and_then(|c| c["status"].as_str())
}

/// The names and images of containers, each joined by commas.
pub(super) fn each(containers: &[Value], key: &str) -> Value {
    containers.iter().map(|c| c[key].as_str().unwrap_or_default()).collect::<Vec<_>>().join(",").into()
}

pub(super) const NONE: &str = "<none>";
pub(super) const UNSET: &str = "<unset>";
