//! Reading a request body: JSON text becomes a [`Value`], guided by a schema or not.
//!
//! Built-in kinds are read as Go reads JSON into structs ([`decode_typed`]): unknown fields are
//! dropped, `null` means absent, a wrong type is an error. Custom resources are read as they come
//! ([`decode`]) and meet their schema later. Both report unknown and duplicate fields in the words of
//! the strict decoder; the caller ignores them, warns or refuses.

use super::scan::{Scanner, SyntaxError, Token, check_depth, untyped_number};
use super::{go, leaf};
use crate::schema::{SchemaNode, ValueType};
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// Strict errors beyond this are dropped, as upstream drops them.
pub const STRICT_ERRORS_MAX: usize = 100;

/// A body that is JSON, with what a strict reader finds wrong with it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    pub value: Value,
    /// `unknown field "spec.x"`, `duplicate field "spec.x"`, in the order of the text. Each one is a
    /// Warning header when the client asked to warn.
    pub strict: Vec<String>,
    /// `line 3: key "a" already set in map`: what a strict YAML reader says first.
    pub strict_yaml: Vec<String>,
    /// The first value of a wrong type, in the words of Go's `encoding/json`. Always an error.
    pub type_error: Option<String>,
    /// The same, in the words of the converter through which upstream's strategic patches go.
    pub restore_error: Option<String>,
}

impl Decoded {
    /// `strict decoding error: ...`, for requests that asked to be strict.
    pub fn strict_error(&self) -> Option<String> {
        let mut parts = Vec::new();
        if !self.strict_yaml.is_empty() {
            parts.push(format!("yaml: unmarshal errors:\n  {}", self.strict_yaml.join("\n  ")));
        }
        parts.extend(self.strict.iter().cloned());
        if parts.is_empty() { None } else { Some(format!("strict decoding error: {}", parts.join(", "))) }
    }

    /// The texts for Warning headers.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        self.strict_yaml.iter().chain(&self.strict).map(String::as_str)
    }
}

/// Reads JSON without a schema: every duplicate field counts, nothing is unknown.
pub fn decode(text: &[u8]) -> Result<Decoded, SyntaxError> {
    run(text, Guide::Untyped { duplicates: true })
}

/// Reads JSON as an object of a built-in type.
pub fn decode_typed(text: &[u8], schema: SchemaNode<'_>) -> Result<Decoded, SyntaxError> {
    let mut decoded = run(text, Guide::Typed(schema))?;
    if decoded.value.is_null() {
        decoded.value = Value::Object(Map::new());
    }
    Ok(decoded)
}

fn run(text: &[u8], guide: Guide<'_>) -> Result<Decoded, SyntaxError> {
    let mut decoder = Decoder {
        scanner: Scanner::new(text),
        path: String::new(),
        fields: Vec::new(),
        structure: String::new(),
        decoded: Decoded::default(),
    };
    let value = decoder.value(guide, 0)?;
    decoder.scanner.finish()?;
    decoder.decoded.value = value;
    Ok(decoder.decoded)
}

/// What the value at hand should be.
#[derive(Clone, Copy)]
enum Guide<'s> {
    Typed(SchemaNode<'s>),
    Untyped { duplicates: bool },
}

struct Decoder<'t> {
    scanner: Scanner<'t>,
    /// The path with indexes, for strict errors.
    path: String,
    /// The names of struct fields on the way, for type errors.
    fields: Vec<String>,
    /// The Go type that holds the last of `fields`.
    structure: String,
    decoded: Decoded,
}

impl Decoder<'_> {
    fn value(&mut self, guide: Guide<'_>, depth: usize) -> Result<Value, SyntaxError> {
        match guide {
            Guide::Untyped { duplicates } => self.untyped(duplicates, depth),
            Guide::Typed(node) => self.typed(node, depth),
        }
    }

    fn untyped(&mut self, duplicates: bool, depth: usize) -> Result<Value, SyntaxError> {
        match self.scanner.token()? {
            Token::Object => self.untyped_object(duplicates, depth),
            Token::Array => self.elements(Guide::Untyped { duplicates }, depth),
            Token::String => self.scanner.string().map(Value::String),
            Token::Number => {
                let text = self.scanner.number()?;
                Ok(untyped_number(text).unwrap_or_else(|| {
                    let why = format!("json: cannot unmarshal number {text} into Go value of type float64");
                    self.type_error(why.clone(), why);
                    Value::Null
                }))
            }
            Token::True => self.scanner.literal("true").map(|()| Value::Bool(true)),
            Token::False => self.scanner.literal("false").map(|()| Value::Bool(false)),
            Token::Null => self.scanner.literal("null").map(|()| Value::Null),
        }
    }

    fn untyped_object(&mut self, duplicates: bool, depth: usize) -> Result<Value, SyntaxError> {
        check_depth(depth)?;
        let mut map = Map::new();
        let mut more = !self.scanner.open(b'}')?;
        while more {
            let key = self.scanner.key()?;
            let length = self.enter(&key);
            if duplicates && map.contains_key(&key) {
                self.strict("duplicate");
            }
            let value = self.untyped(duplicates, depth + 1)?;
            self.path.truncate(length);
            map.insert(key, value);
            more = self.scanner.more(b'}')?;
        }
        Ok(Value::Object(map))
    }

    fn typed(&mut self, node: SchemaNode<'_>, depth: usize) -> Result<Value, SyntaxError> {
        let token = self.scanner.token()?;
        if token == Token::Null {
            return self.scanner.literal("null").map(|()| Value::Null);
        }
        if leaf::is_free_form(node) {
            return self.untyped(false, depth);
        }
        match token {
            Token::Object if leaf::is_map_or_struct(node) => self.typed_object(node, depth),
            Token::Array if node.value_type == ValueType::Array => {
                self.elements(node.items().map_or(Guide::Untyped { duplicates: false }, Guide::Typed), depth)
            }
            Token::Object | Token::Array => {
                self.mismatch(if token == Token::Object { "object" } else { "array" }, node);
                self.scanner.skip(depth).map(|()| Value::Null)
            }
            Token::String => {
                let text = self.scanner.string()?;
                Ok(self.leaf(leaf::string(node, text), node))
            }
            Token::Number => {
                let text = self.scanner.number()?;
                Ok(self.leaf(leaf::number(node, text), node))
            }
            Token::True => {
                self.scanner.literal("true")?;
                Ok(self.leaf(leaf::boolean(node, true), node))
            }
            Token::False | Token::Null => {
                self.scanner.literal("false")?;
                Ok(self.leaf(leaf::boolean(node, false), node))
            }
        }
    }

    /// A struct knows its fields; a map takes every key.
    fn typed_object(&mut self, node: SchemaNode<'_>, depth: usize) -> Result<Value, SyntaxError> {
        check_depth(depth)?;
        let is_struct = !node.properties.is_empty();
        let structure = if is_struct { std::mem::replace(&mut self.structure, go::short_name(node)) } else { String::new() };
        let mut map = Map::new();
        let mut more = !self.scanner.open(b'}')?;
        while more {
            let key = self.scanner.key()?;
            let length = self.enter(&key);
            match node.field(&key) {
                None => {
                    self.strict("unknown");
                    self.scanner.skip(depth + 1)?;
                }
                Some(field) => {
                    if map.contains_key(&key) {
                        self.strict("duplicate");
                    }
                    if is_struct {
                        self.fields.push(match node.embedded.get(key.as_str()) {
                            Some(of) => format!("{of}.{key}"),
                            None => key.clone(),
                        });
                    }
                    let value = self.typed(field, depth + 1)?;
                    if is_struct {
                        self.fields.pop();
                    }
                    put(&mut map, key, value, if is_struct { None } else { Some(field) });
                }
            }
            self.path.truncate(length);
            more = self.scanner.more(b'}')?;
        }
        if is_struct {
            self.structure = structure;
        }
        Ok(Value::Object(map))
    }

    fn elements(&mut self, guide: Guide<'_>, depth: usize) -> Result<Value, SyntaxError> {
        check_depth(depth)?;
        let mut items = Vec::new();
        let mut more = !self.scanner.open(b']')?;
        while more {
            let length = self.path.len();
            write!(self.path, "[{}]", items.len()).expect("writing to a String");
            let item = self.value(guide, depth + 1)?;
            self.path.truncate(length);
            items.push(match guide {
                Guide::Typed(node) if item.is_null() => leaf::zero(node),
                _ => item,
            });
            more = self.scanner.more(b']')?;
        }
        Ok(Value::Array(items))
    }

    fn leaf(&mut self, result: Result<Value, leaf::Wrong>, node: SchemaNode<'_>) -> Value {
        match result {
            Ok(value) => return value,
            Err(leaf::Wrong::Type(found)) => self.mismatch(&found, node),
            Err(leaf::Wrong::Content(text)) => self.type_error(text.clone(), text),
        }
        Value::Null
    }

    /// Appends a key to the path and returns the length to go back to.
    fn enter(&mut self, key: &str) -> usize {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        length
    }

    fn strict(&mut self, what: &str) {
        let text = format!("{what} field {:?}", self.path);
        let strict = &mut self.decoded.strict;
        if strict.len() < STRICT_ERRORS_MAX && !strict.contains(&text) {
            strict.push(text);
        }
    }

    fn mismatch(&mut self, found: &str, node: SchemaNode<'_>) {
        let wanted = go::type_name(node);
        let restore = go::restore_error(found, node);
        let why = if self.fields.is_empty() {
            format!("json: cannot unmarshal {found} into Go value of type {wanted}")
        } else {
            let path = self.fields.join(".");
            format!("json: cannot unmarshal {found} into Go struct field {}.{path} of type {wanted}", self.structure)
        };
        self.type_error(why, restore);
    }

    /// Go goes on after a wrong type and reports the first one at the end.
    fn type_error(&mut self, text: String, restore: String) {
        self.decoded.type_error.get_or_insert(text);
        self.decoded.restore_error.get_or_insert(restore);
    }
}

/// Go decodes a repeated struct or map into what is already there; `null` leaves a struct field
/// alone and makes the zero value in a map.
fn put(map: &mut Map<String, Value>, key: String, value: Value, map_value: Option<SchemaNode<'_>>) {
    match (map.get_mut(&key), value) {
        (None, Value::Null) => {
            if let Some(node) = map_value {
                map.insert(key, leaf::zero(node));
            }
        }
        (Some(_), Value::Null) => {}
        (Some(Value::Object(old)), Value::Object(new)) => old.extend(new),
        (_, value) => {
            map.insert(key, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::pod;
    use super::*;
    use serde_json::json;

    fn strict(text: &str) -> Vec<String> {
        decode_typed(text.as_bytes(), pod().node()).expect("the text is JSON").strict
    }

    fn type_error(spec: &str) -> Option<String> {
        let text = format!(r#"{{"metadata":{{"name":"a"}},"spec":{spec}}}"#);
        decode_typed(text.as_bytes(), pod().node()).expect("the text is JSON").type_error
    }

    #[test]
    fn strategic_patches_are_refused_in_words_of_their_own() {
        let check = |text: &str, expected: &str| {
            let decoded = decode_typed(text.as_bytes(), pod().node()).expect("the text is JSON");
            assert_eq!(decoded.restore_error.as_deref(), Some(expected), "{text}");
        };
        check(r#"{"metadata":{"labels":"x"}}"#, "cannot restore map from string");
        check(r#"{"spec":{"containers":{}}}"#, "cannot restore slice from map");
        check(r#"{"spec":[]}"#, "cannot restore struct from: slice");
        check(r#"{"metadata":{"name":1}}"#, "cannot convert int64 to string");
        check(r#"{"metadata":{"name":true}}"#, "unrecognized type: string");
        check(r#"{"spec":{"hostNetwork":"true"}}"#, "unrecognized type: bool");
    }

    #[test]
    fn strict_errors_come_in_the_order_of_the_text() {
        assert_eq!(
            strict(r#"{"metadata":{"name":"a","labels":{"a":"1","a":"2"},"foo":1},"spec":{},"spec":{},"bar":2}"#),
            [
                "duplicate field \"metadata.labels.a\"",
                "unknown field \"metadata.foo\"",
                "duplicate field \"spec\"",
                "unknown field \"bar\""
            ]
        );
        // Below an unknown field nothing counts, and the same path is told once.
        assert_eq!(
            strict(r#"{"spec":{"containers":[{"foo":1,"foo":2},{"Name":"c"}],"zoo":{"a":1,"a":2}}}"#),
            ["unknown field \"spec.containers[0].foo\"", "unknown field \"spec.containers[1].Name\"", "unknown field \"spec.zoo\""]
        );
    }

    #[test]
    fn wrong_types_are_told_in_go_words() {
        let check = |spec: &str, expected: &str| assert_eq!(type_error(spec).as_deref(), Some(expected), "{spec}");
        check("[]", "json: cannot unmarshal array into Go struct field Pod.spec of type v1.PodSpec");
        check(r#"{"containers":"x"}"#, "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container");
        check(
            r#"{"containers":[{"name":1}]}"#,
            "json: cannot unmarshal number into Go struct field Container.spec.containers.name of type string",
        );
        check(
            r#"{"containers":[{"ports":[{"containerPort":80.0}]}]}"#,
            "json: cannot unmarshal number 80.0 into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
        );
        check(
            r#"{"containers":[{"ports":[{"containerPort":3000000000}]}]}"#,
            "json: cannot unmarshal number 3000000000 into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
        );
        check(
            r#"{"nodeSelector":{"a":true}}"#,
            "json: cannot unmarshal bool into Go struct field PodSpec.spec.nodeSelector of type string",
        );
        check(r#"{"hostNetwork":"true"}"#, "json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool");
        check(
            r#"{"containers":[{"resources":{"limits":{"cpu":true}}}]}"#,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        );
    }

    #[test]
    fn null_means_absent_or_zero() {
        let decoded =
            decode_typed(br#"{"metadata":null,"spec":{"nodeSelector":{"a":null},"containers":[null],"hostNetwork":null}}"#, pod().node())
                .expect("the text is JSON");
        assert_eq!(decoded.value, json!({"spec": {"nodeSelector": {"a": ""}, "containers": [{}]}}));
        assert_eq!(decode_typed(b"null", pod().node()).expect("the text is JSON").value, json!({}));
    }

    #[test]
    fn custom_resources_report_duplicates_everywhere() {
        let decoded = decode(br#"{"spec":{"a":1,"b":[{"c":1,"c":2}],"a":{"x":1}},"n":1.0}"#).expect("the text is JSON");
        assert_eq!(decoded.strict, ["duplicate field \"spec.b[0].c\"", "duplicate field \"spec.a\""]);
        assert_eq!(decoded.value, json!({"spec": {"a": {"x": 1}, "b": [{"c": 2}]}, "n": 1}));
        assert_eq!(
            decoded.strict_error().as_deref(),
            Some("strict decoding error: duplicate field \"spec.b[0].c\", duplicate field \"spec.a\"")
        );
    }
}
