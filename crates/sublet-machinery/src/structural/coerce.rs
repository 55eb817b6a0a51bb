//! What happens to a custom resource between its JSON and its defaults: metadata is read as its
//! type, unknown fields go, `null` goes where it says nothing.

use super::decode::decode_typed;
use super::object_meta_schema;
use crate::error::{FieldError, FieldPath};
use crate::schema::SchemaNode;
use serde_json::{Map, Value};

const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Why an object cannot be read at all; a 400.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CoerceError {
    /// Go's words about `metadata`.
    #[error("{0}")]
    Metadata(String),
    /// An embedded resource is none.
    #[error("{0}")]
    Embedded(FieldError),
}

/// Reads `metadata`, prunes the object and drops nulls. Returns the paths of unknown fields as a
/// strict reader reports them: metadata first, then the rest in order.
pub fn coerce(object: &mut Value, schema: SchemaNode<'_>) -> Result<Vec<String>, CoerceError> {
    let mut unknown = Vec::new();
    if let Some(metadata) = object.get_mut("metadata") {
        unknown = read_metadata(metadata).map_err(CoerceError::Metadata)?.iter().map(|path| format!("metadata.{path}")).collect();
    }
    unknown.extend(prune(object, schema));
    drop_nulls(object, Some(schema));
    let mut embedded = Vec::new();
    for (key, value) in members(object) {
        if let Some(node) = schema.field(key).filter(|_| !META_FIELDS.contains(&key.as_str())) {
            coerce_embedded(value, node, &FieldPath::new(key.as_str()), &mut embedded)?;
        }
    }
    embedded.sort();
    unknown.extend(embedded);
    Ok(unknown)
}

fn members(value: &mut Value) -> impl Iterator<Item = (&String, &mut Value)> {
    value.as_object_mut().into_iter().flat_map(Map::iter_mut)
}

/// Replaces metadata by what its type keeps of it; returns unknown paths inside.
fn read_metadata(metadata: &mut Value) -> Result<Vec<String>, String> {
    let text = serde_json::to_vec(metadata).expect("a JSON value can be written");
    let decoded = decode_typed(&text, object_meta_schema().node()).map_err(|e| e.0)?;
    if let Some(error) = decoded.type_error {
        return Err(error);
    }
    *metadata = decoded.value;
    drop_empty_metadata(metadata);
    let path = |text: &String| text.strip_prefix("unknown field \"").and_then(|t| t.strip_suffix('"')).map(str::to_string);
    Ok(decoded.strict.iter().filter_map(path).collect())
}

/// Go leaves out empty members of metadata when it writes an object.
pub fn drop_empty_metadata(metadata: &mut Value) {
    if let Some(map) = metadata.as_object_mut() {
        map.retain(|_, value| match value {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(members) => !members.is_empty(),
            Value::Number(number) => number.as_i64() != Some(0),
            Value::Bool(_) => true,
        });
    }
}

fn coerce_embedded(value: &mut Value, node: SchemaNode<'_>, path: &FieldPath, unknown: &mut Vec<String>) -> Result<(), CoerceError> {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let here = path.child(key);
                if node.embedded_resource && key == "metadata" {
                    let before = value.clone();
                    let paths = read_metadata(value).map_err(|text| CoerceError::Embedded(FieldError::invalid(&here, before, text)))?;
                    unknown.extend(paths.iter().map(|p| format!("{here}.{p}")));
                    continue;
                }
                if node.embedded_resource && META_FIELDS.contains(&key.as_str()) && !value.is_string() {
                    return Err(CoerceError::Embedded(FieldError::invalid(&here, value.clone(), "must be a string")));
                }
                if let Some(field) = node.property(key) {
                    coerce_embedded(value, field, &here, unknown)?;
                } else if let Some(field) = node.additional() {
                    coerce_embedded(value, field, &path.key(key), unknown)?;
                }
            }
        }
        Value::Array(items) => {
            if let Some(node) = node.items() {
                for (index, item) in items.iter_mut().enumerate() {
                    coerce_embedded(item, node, &path.index(index), unknown)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// Drops what the schema does not name and returns the paths, sorted. `apiVersion`, `kind` and
/// `metadata` of the root stay, and those of embedded resources.
pub fn prune(value: &mut Value, schema: SchemaNode<'_>) -> Vec<String> {
    let mut pruner = Pruner { path: String::new(), unknown: Vec::new() };
    if let Value::Object(map) = value {
        let preserve = schema.preserve_unknown;
        pruner.object(map, schema, true, preserve);
    }
    pruner.unknown.sort();
    pruner.unknown
}

/// [`prune`] for a value that is not the root of a resource.
pub fn prune_value(value: &mut Value, node: SchemaNode<'_>) -> Vec<String> {
    let mut pruner = Pruner { path: String::new(), unknown: Vec::new() };
    pruner.value(value, Some(node));
    pruner.unknown.sort();
    pruner.unknown
}

struct Pruner {
    path: String,
    unknown: Vec<String>,
}

impl Pruner {
    fn value(&mut self, value: &mut Value, node: Option<SchemaNode<'_>>) {
        let preserve = node.is_some_and(|n| n.preserve_unknown);
        self.visit(value, node, preserve);
    }

    /// `preserve` keeps unknown fields here and below lists; stated properties decide for themselves.
    fn visit(&mut self, value: &mut Value, node: Option<SchemaNode<'_>>, preserve: bool) {
        match (value, node) {
            (Value::Object(map), Some(node)) => self.object(map, node, node.embedded_resource, preserve),
            (Value::Object(map), None) if !preserve => {
                for key in std::mem::take(map).keys() {
                    self.record(key);
                }
            }
            (Value::Array(items), node) => {
                for (index, item) in items.iter_mut().enumerate() {
                    let length = self.path.len();
                    self.path.push_str(&format!("[{index}]"));
                    let node = node.and_then(SchemaNode::items);
                    if preserve {
                        self.visit(item, node, true);
                    } else {
                        self.value(item, node);
                    }
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn object(&mut self, map: &mut Map<String, Value>, node: SchemaNode<'_>, is_resource: bool, preserve: bool) {
        let mut unknown = Vec::new();
        for (key, value) in map.iter_mut() {
            if is_resource && META_FIELDS.contains(&key.as_str()) {
                continue;
            }
            match node.field(key) {
                Some(field) => {
                    let length = self.path.len();
                    if length > 0 {
                        self.path.push('.');
                    }
                    self.path.push_str(key);
                    self.value(value, Some(field));
                    self.path.truncate(length);
                }
                None if preserve => {}
                None => unknown.push(key.clone()),
            }
        }
        for key in unknown {
            self.record(&key);
            map.remove(&key);
        }
    }

    fn record(&mut self, key: &str) {
        self.unknown.push(if self.path.is_empty() { key.into() } else { format!("{}.{key}", self.path) });
    }
}

/// Removes members that are `null` though their schema allows none, unless a default will replace them.
fn drop_nulls(value: &mut Value, node: Option<SchemaNode<'_>>) {
    match value {
        Value::Object(map) => map.retain(|key, value| {
            let field = node.and_then(|n| n.field(key));
            if value.is_null() {
                return field.is_none_or(|f| f.nullable || f.default.is_some());
            }
            drop_nulls(value, field);
            true
        }),
        Value::Array(items) => {
            let node = node.and_then(SchemaNode::items);
            items.iter_mut().for_each(|item| drop_nulls(item, node));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::build;
    use super::*;
    use serde_json::json;

    fn check(schema: Value, object: Value, expected: Value, unknown: &[&str]) {
        let schema = build(Some(&schema), false, "x.v1.Foo");
        let mut object = object;
        assert_eq!(coerce(&mut object, schema.node()), Ok(unknown.iter().map(ToString::to_string).collect()));
        assert_eq!(object, expected);
    }

    #[test]
    fn unknown_fields_go_and_are_told() {
        check(
            json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"tight": {"type": "object", "properties": {"b": {"type": "string"}}}}},
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"c": {"type": "string"}}}},
            }}}}),
            json!({"apiVersion": "x/v1", "kind": "Foo", "metadata": {"name": "n", "zzz": 1, "labels": {}}, "top": 1,
                "spec": {"list": [{"a": "1", "x": 2}], "free": {"any": {"thing": [{"d": 1}]}, "tight": {"b": "1", "x": 1}},
                    "map": {"k": {"c": "1", "x": 1}}, "x": 1}}),
            json!({"apiVersion": "x/v1", "kind": "Foo", "metadata": {"name": "n"},
                "spec": {"list": [{"a": "1"}], "free": {"any": {"thing": [{"d": 1}]}, "tight": {"b": "1"}}, "map": {"k": {"c": "1"}}}}),
            &["metadata.zzz", "spec.free.tight.x", "spec.list[0].x", "spec.map.k.x", "spec.x", "top"],
        );
    }

    #[test]
    fn embedded_resources_keep_their_metadata() {
        check(
            json!({"type": "object", "properties": {"pod": {"type": "object", "x-kubernetes-embedded-resource": true,
                "properties": {"spec": {"type": "object"}}}}}),
            json!({"pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "x": 1}, "spec": {"y": 1}, "z": 1}}),
            json!({"pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}}}),
            &["pod.spec.y", "pod.z", "pod.metadata.x"],
        );
    }

    #[test]
    fn nulls_go_unless_allowed_or_defaulted() {
        check(
            json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "gone": {"type": "string"}, "kept": {"type": "string", "nullable": true},
                "defaulted": {"type": "string", "default": "x"}}}}}),
            json!({"spec": {"gone": null, "kept": null, "defaulted": null}}),
            json!({"spec": {"kept": null, "defaulted": null}}),
            &[],
        );
    }

    #[test]
    fn metadata_of_a_wrong_type_is_refused() {
        let schema = build(Some(&json!({"type": "object"})), false, "x.v1.Foo");
        assert_eq!(
            coerce(&mut json!({"metadata": {"labels": {"a": 1}}}), schema.node()),
            Err(CoerceError::Metadata("json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string".into()))
        );
    }
}
