//! Version 2 in protobuf, which clients ask for as `application/com.github.proto-openapi.spec.v2@v1.0+protobuf`.
//!
//! The messages are those of gnostic's `OpenAPIv2.proto`; the tables below name of each what the documents here use.

use serde_json::{Map, Value};

/// A message: its fields by the JSON key they come from.
pub(super) struct Message {
    fields: &'static [Field],
    /// Where keys that start with `x-` go.
    extensions: Option<u64>,
}

struct Field {
    key: &'static str,
    number: u64,
    kind: Kind,
}

enum Kind {
    Text,
    Texts,
    Bool,
    Int,
    Double,
    /// A list of values of any type.
    Values,
    /// A message.
    One(&'static Message),
    /// A list of messages.
    Many(&'static Message),
    /// A map, as a message whose only field repeats names and messages.
    Named(u64, Item),
    /// One type or several.
    TypeWords,
    /// A schema in a message that also has place for other forms.
    Wrapped(&'static Message),
    Parameters,
    /// Scopes by the name of a security definition.
    Requirements,
}

/// The messages of a map.
#[derive(Clone, Copy)]
pub(super) enum Item {
    Schema,
    Path,
    Parameter,
    Response,
    SecurityDefinition,
}

/// A message whose only field is `entries`, one per name.
pub(super) struct NamedEntries {
    bytes: Vec<u8>,
    number: u64,
    item: Item,
}

impl NamedEntries {
    pub(super) fn new(number: u64, item: Item) -> Self {
        Self { bytes: Vec::new(), number, item }
    }

    pub(super) fn push(&mut self, name: &str, value: &Value) {
        let mut named = Vec::new();
        put_bytes(&mut named, 1, name.as_bytes());
        put_bytes(&mut named, 2, &item(self.item, value));
        put_bytes(&mut self.bytes, self.number, &named);
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

fn item(item: Item, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match item {
        Item::Schema => return encode(&SCHEMA, value),
        Item::Path => return encode(&PATH_ITEM, value),
        Item::Parameter => return parameter(value),
        Item::Response => put_bytes(&mut out, 1, &encode(&RESPONSE, value)),
        Item::SecurityDefinition => put_bytes(&mut out, 2, &encode(&API_KEY, value)),
    }
    out
}

/// A JSON object as a message.
pub(super) fn encode(message: &Message, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let empty = Map::new();
    let map = value.as_object().unwrap_or(&empty);
    for field in message.fields {
        if let Some(value) = map.get(field.key) {
            put(&mut out, field, value);
        }
    }
    if let Some(number) = message.extensions {
        for (name, value) in map.iter().filter(|(name, _)| name.starts_with("x-")) {
            let mut named = Vec::new();
            put_bytes(&mut named, 1, name.as_bytes());
            put_bytes(&mut named, 2, &any(value));
            put_bytes(&mut out, number, &named);
        }
    }
    out
}

fn put(out: &mut Vec<u8>, field: &Field, value: &Value) {
    let number = field.number;
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    match &field.kind {
        Kind::Text => put_bytes(out, number, value.as_str().unwrap_or_default().as_bytes()),
        Kind::Texts => items.iter().filter_map(Value::as_str).for_each(|text| put_bytes(out, number, text.as_bytes())),
        Kind::Bool => put_varint_field(out, number, value.as_bool().unwrap_or_default().into()),
        Kind::Int => put_varint_field(out, number, value.as_u64().unwrap_or_default()),
        Kind::Double => {
            put_varint(out, number << 3 | 1);
            out.extend(value.as_f64().unwrap_or_default().to_le_bytes());
        }
        Kind::Values => items.iter().for_each(|value| put_bytes(out, number, &any(value))),
        Kind::One(message) => put_bytes(out, number, &encode(message, value)),
        Kind::Many(message) => items.iter().for_each(|value| put_bytes(out, number, &encode(message, value))),
        Kind::Named(inner, item) => {
            let mut entries = NamedEntries::new(*inner, *item);
            value.as_object().into_iter().flatten().for_each(|(name, value)| entries.push(name, value));
            put_bytes(out, number, &entries.into_bytes());
        }
        Kind::TypeWords => {
            let mut words = Vec::new();
            value.as_str().into_iter().chain(items.iter().filter_map(Value::as_str)).for_each(|w| put_bytes(&mut words, 1, w.as_bytes()));
            put_bytes(out, number, &words);
        }
        Kind::Wrapped(message) => {
            let mut wrapped = Vec::new();
            put_bytes(&mut wrapped, 1, &encode(message, value));
            put_bytes(out, number, &wrapped);
        }
        Kind::Parameters => items.iter().for_each(|value| put_bytes(out, number, &parameter_or_reference(value))),
        Kind::Requirements => items.iter().for_each(|value| put_bytes(out, number, &requirement(value))),
    }
}

fn parameter_or_reference(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    if value.get("$ref").is_some() {
        put_bytes(&mut out, 2, &encode(&REFERENCE, value));
    } else {
        put_bytes(&mut out, 1, &parameter(value));
    }
    out
}

fn parameter(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    if value["in"] == "body" {
        put_bytes(&mut out, 1, &encode(&BODY, value));
        return out;
    }
    let mut other = Vec::new();
    match value["in"].as_str() {
        Some("path") => put_bytes(&mut other, 4, &encode(&PATH, value)),
        _ => put_bytes(&mut other, 3, &encode(&QUERY, value)),
    }
    put_bytes(&mut out, 2, &other);
    out
}

fn requirement(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for name in value.as_object().into_iter().flatten().map(|(name, _)| name) {
        let mut named = Vec::new();
        put_bytes(&mut named, 1, name.as_bytes());
        // No scopes.
        put_bytes(&mut named, 2, &[]);
        put_bytes(&mut out, 1, &named);
    }
    out
}

/// A value of any type, as YAML; JSON is YAML.
fn any(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, 2, value.to_string().as_bytes());
    out
}

pub(super) fn put_bytes(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    put_varint(out, number << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_varint_field(out: &mut Vec<u8>, number: u64, value: u64) {
    put_varint(out, number << 3);
    put_varint(out, value);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

const fn field(key: &'static str, number: u64, kind: Kind) -> Field {
    Field { key, number, kind }
}

pub(super) static INFO: Message = Message { fields: &[field("title", 1, Kind::Text), field("version", 2, Kind::Text)], extensions: None };

/// The parts of a document that are small.
pub(super) static DOCUMENT: Message = Message {
    fields: &[
        field("swagger", 1, Kind::Text),
        field("info", 2, Kind::One(&INFO)),
        field("security", 12, Kind::Requirements),
        field("securityDefinitions", 13, Kind::Named(1, Item::SecurityDefinition)),
    ],
    extensions: None,
};

static PATH_ITEM: Message = Message {
    fields: &[
        field("get", 2, Kind::One(&OPERATION)),
        field("put", 3, Kind::One(&OPERATION)),
        field("post", 4, Kind::One(&OPERATION)),
        field("delete", 5, Kind::One(&OPERATION)),
        field("options", 6, Kind::One(&OPERATION)),
        field("head", 7, Kind::One(&OPERATION)),
        field("patch", 8, Kind::One(&OPERATION)),
        field("parameters", 9, Kind::Parameters),
    ],
    extensions: Some(10),
};

static OPERATION: Message = Message {
    fields: &[
        field("tags", 1, Kind::Texts),
        field("description", 3, Kind::Text),
        field("operationId", 5, Kind::Text),
        field("produces", 6, Kind::Texts),
        field("consumes", 7, Kind::Texts),
        field("parameters", 8, Kind::Parameters),
        field("responses", 9, Kind::Named(1, Item::Response)),
        field("schemes", 10, Kind::Texts),
    ],
    extensions: Some(13),
};

static RESPONSE: Message =
    Message { fields: &[field("description", 1, Kind::Text), field("schema", 2, Kind::Wrapped(&SCHEMA))], extensions: Some(5) };

static REFERENCE: Message = Message { fields: &[field("$ref", 1, Kind::Text)], extensions: None };

static BODY: Message = Message {
    fields: &[
        field("description", 1, Kind::Text),
        field("name", 2, Kind::Text),
        field("in", 3, Kind::Text),
        field("required", 4, Kind::Bool),
        field("schema", 5, Kind::One(&SCHEMA)),
    ],
    extensions: Some(6),
};

static QUERY: Message = Message {
    fields: &[
        field("required", 1, Kind::Bool),
        field("in", 2, Kind::Text),
        field("description", 3, Kind::Text),
        field("name", 4, Kind::Text),
        field("type", 6, Kind::Text),
        field("uniqueItems", 20, Kind::Bool),
    ],
    extensions: Some(23),
};

static PATH: Message = Message {
    fields: &[
        field("required", 1, Kind::Bool),
        field("in", 2, Kind::Text),
        field("description", 3, Kind::Text),
        field("name", 4, Kind::Text),
        field("type", 5, Kind::Text),
        field("uniqueItems", 19, Kind::Bool),
    ],
    extensions: Some(22),
};

static API_KEY: Message = Message {
    fields: &[field("type", 1, Kind::Text), field("name", 2, Kind::Text), field("in", 3, Kind::Text), field("description", 4, Kind::Text)],
    extensions: None,
};

static SCHEMA: Message = Message {
    fields: &[
        field("$ref", 1, Kind::Text),
        field("format", 2, Kind::Text),
        field("description", 4, Kind::Text),
        field("multipleOf", 6, Kind::Double),
        field("maximum", 7, Kind::Double),
        field("exclusiveMaximum", 8, Kind::Bool),
        field("minimum", 9, Kind::Double),
        field("exclusiveMinimum", 10, Kind::Bool),
        field("maxLength", 11, Kind::Int),
        field("minLength", 12, Kind::Int),
        field("pattern", 13, Kind::Text),
        field("maxItems", 14, Kind::Int),
        field("minItems", 15, Kind::Int),
        field("uniqueItems", 16, Kind::Bool),
        field("maxProperties", 17, Kind::Int),
        field("minProperties", 18, Kind::Int),
        field("required", 19, Kind::Texts),
        field("enum", 20, Kind::Values),
        field("additionalProperties", 21, Kind::Wrapped(&SCHEMA)),
        field("type", 22, Kind::TypeWords),
        field("items", 23, Kind::Wrapped(&SCHEMA)),
        field("allOf", 24, Kind::Many(&SCHEMA)),
        field("properties", 25, Kind::Named(1, Item::Schema)),
    ],
    extensions: Some(31),
};

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_schema_is_encoded_as_the_proto_says() {
        let schema =
            json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}, "x-kubernetes-map-type": "atomic"});
        let expected: &[&[u8]] = &[
            b"\x9a\x01\x01a",                                                   // required
            b"\xb2\x01\x08\x0a\x06object",                                      // type
            b"\xca\x01\x12\x0a\x10\x0a\x01a\x12\x0b\xb2\x01\x08\x0a\x06string", // properties
            b"\xfa\x01\x23\x0a\x15x-kubernetes-map-type\x12\x0a\x12\x08\"atomic\"",
        ];
        assert_eq!(encode(&SCHEMA, &schema), expected.concat());
    }

    #[test]
    fn parameters_are_told_apart() {
        let reference = json!({"$ref": "#/parameters/x"});
        assert_eq!(parameter_or_reference(&reference), b"\x12\x10\x0a\x0e#/parameters/x");
        let body = json!({"in": "body", "name": "body"});
        assert_eq!(parameter_or_reference(&body), b"\x0a\x0e\x0a\x0c\x12\x04body\x1a\x04body");
        let path = json!({"in": "path", "name": "n", "required": true});
        assert_eq!(parameter_or_reference(&path), b"\x0a\x0f\x12\x0d\x22\x0b\x08\x01\x12\x04path\x22\x01n");
    }
}
