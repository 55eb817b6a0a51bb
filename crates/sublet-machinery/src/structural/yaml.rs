//! YAML bodies become JSON first, as in Go's `sigs.k8s.io/yaml`: one document, YAML 1.1 scalars
//! (`yes` is true, `012` is ten), the last of two equal keys counts.

use super::scan::{DEPTH_MAX, float_value};
use serde_json::{Map, Value};
use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span, Tag};
use std::borrow::Cow;
use std::collections::HashMap;

/// Nodes that one document may have after its aliases are resolved, so that a small body of nested
/// aliases cannot fill the memory.
pub const YAML_NODES_MAX: usize = 500_000;

/// A YAML document as JSON text.
#[derive(Clone, Debug, PartialEq)]
pub struct YamlDocument {
    pub json: Vec<u8>,
    /// `line 3: key "a" already set in map`
    pub duplicates: Vec<String>,
}

/// Reads the first document. The error is in Go's words where they are about lines.
pub fn yaml_to_json(text: &[u8]) -> Result<YamlDocument, String> {
    let text = String::from_utf8_lossy(text);
    let mut builder = Builder { anchors: HashMap::new(), duplicates: Vec::new(), nodes: 0, aliased: 0 };
    let mut events = Parser::new_from_str(&text);
    let mut value = Value::Null;
    while let Some((event, span)) = next(&mut events)? {
        match event {
            Event::StreamStart | Event::DocumentStart(..) => {}
            Event::StreamEnd | Event::DocumentEnd => break,
            event => value = builder.node(&mut events, event, span, 0)?,
        }
    }
    let json = serde_json::to_vec(&value).expect("a JSON value can be written");
    Ok(YamlDocument { json, duplicates: builder.duplicates })
}

struct Builder {
    /// Values by anchor, with their number of nodes.
    anchors: HashMap<usize, (Value, usize)>,
    duplicates: Vec<String>,
    nodes: usize,
    /// How many of these came out of aliases.
    aliased: usize,
}

type Events<'t> = Parser<'t, serde_saphyr::granit_parser::StrInput<'t>>;

/// The next event that is not a comment.
fn next<'t>(events: &mut Events<'t>) -> Result<Option<(Event<'t>, Span)>, String> {
    loop {
        match events.next() {
            None => return Ok(None),
            Some(Ok((Event::Comment(..), _))) => {}
            Some(Ok(found)) => return Ok(Some(found)),
            Some(Err(error)) => {
                return Err(format!("yaml: line {}: {}", error.marker().line(), error.info()));
            }
        }
    }
}

impl Builder {
    fn node<'t>(&mut self, events: &mut Events<'t>, event: Event<'t>, span: Span, depth: usize) -> Result<Value, String> {
        if depth >= DEPTH_MAX {
            return Err("yaml: exceeded max depth".into());
        }
        let before = self.nodes;
        self.count(1)?;
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => (scalar(&text, style, tag.as_ref())?, anchor),
            Event::SequenceStart(_, anchor, _) => {
                let mut items = Vec::new();
                loop {
                    match self.expect(events)? {
                        (Event::SequenceEnd, _) => break,
                        (event, span) => items.push(self.node(events, event, span, depth + 1)?),
                    }
                }
                (Value::Array(items), anchor)
            }
            Event::MappingStart(_, anchor, _) => (self.mapping(events, depth)?, anchor),
            Event::Alias(anchor) => {
                let (value, nodes) = self.anchors.get(&anchor).cloned().ok_or_else(|| format!("{PREFIX}unknown anchor"))?;
                self.aliased += nodes;
                self.count(nodes)?;
                (value, 0)
            }
            _ => return Err(format!("{PREFIX}line {}: did not find expected node content", span.start.line())),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, (value.clone(), self.nodes - before));
        }
        Ok(value)
    }

    fn mapping(&mut self, events: &mut Events<'_>, depth: usize) -> Result<Value, String> {
        let mut map = Map::new();
        let mut merged = Vec::new();
        loop {
            let (event, span) = match self.expect(events)? {
                (Event::MappingEnd, _) => break,
                found => found,
            };
            let line = span.start.line();
            let is_merge = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, ..) if text == "<<");
            let key = self.node(events, event, span, depth + 1)?;
            let (event, span) = self.expect(events)?;
            let value = self.node(events, event, span, depth + 1)?;
            if is_merge {
                merged.push(value);
                continue;
            }
            let key = key_text(key)?;
            if map.contains_key(&key) {
                self.duplicates.push(format!("line {line}: key {key:?} already set in map"));
            }
            map.insert(key, value);
        }
        for value in merged {
            merge(&mut map, value)?;
        }
        Ok(Value::Object(map))
    }

    fn expect<'t>(&mut self, events: &mut Events<'t>) -> Result<(Event<'t>, Span), String> {
        next(events)?.ok_or_else(|| format!("{PREFIX}unexpected end of stream"))
    }

    /// Whether all but a hundredth of a document came out of its aliases.
    fn is_mostly_aliases(&self) -> bool {
        self.nodes > JUDGED_NODES_MIN && self.aliased > JUDGED_ALIASED_MIN && self.aliased > self.nodes / 100 * 99
    }

    fn count(&mut self, nodes: usize) -> Result<(), String> {
        self.nodes += nodes;
        if self.nodes > YAML_NODES_MAX || self.is_mostly_aliases() {
            Err(format!("{PREFIX}document contains excessive aliasing"))
        } else {
            Ok(())
        }
    }
}

const PREFIX: &str = "yaml: ";
/// From so many nodes on, and so many of them out of aliases, their part counts, as in Go's reader.
const JUDGED_NODES_MIN: usize = 1000;
const JUDGED_ALIASED_MIN: usize = 100;

/// `<<` takes the members of a map, or of a list of maps, that the map does not have itself.
fn merge(map: &mut Map<String, Value>, value: Value) -> Result<(), String> {
    let sources = match value {
        Value::Array(items) => items,
        other => vec![other],
    };
    for source in sources {
        let Value::Object(members) = source else {
            return Err(format!("{PREFIX}map merge requires map or sequence of maps as the value"));
        };
        for (key, value) in members {
            map.entry(key).or_insert(value);
        }
    }
    Ok(())
}

fn key_text(key: Value) -> Result<String, String> {
    match key {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        other => Err(format!("unsupported map key: {other}")),
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Cow<'_, Tag>>) -> Result<Value, String> {
    let suffix = tag.and_then(|tag| tag.core_suffix()).unwrap_or_default();
    match suffix {
        "str" | "binary" => Ok(Value::String(text.into())),
        "" if style != ScalarStyle::Plain => Ok(Value::String(text.into())),
        "float" => Ok(text.replace('_', "").parse().ok().and_then(float_value).unwrap_or_else(|| Value::String(text.into()))),
        _ => resolve(text),
    }
}

/// The value of a plain scalar by the rules of go-yaml v2.
fn resolve(text: &str) -> Result<Value, String> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Ok(Value::Bool(true)),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => return Ok(Value::Bool(false)),
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf" | "-.INF" => {
            return Err("json: unsupported value".into());
        }
        _ => {}
    }
    let first = text.as_bytes()[0];
    if !(first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'.')) {
        return Ok(Value::String(text.into()));
    }
    let plain = text.replace('_', "");
    let value = if first == b'.' { float(text) } else { integer(&plain).or_else(|| float(&plain)) };
    Ok(value.unwrap_or_else(|| Value::String(text.into())))
}

/// Go's `ParseInt` with base 0: `0x`, `0o`, `0b`, and a leading zero for octal.
fn integer(text: &str) -> Option<Value> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if !digits.starts_with(|c: char| c.is_digit(radix)) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if negative { 0i64.checked_sub_unsigned(magnitude).map(Value::from) } else { Some(Value::from(magnitude)) }
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn float(text: &str) -> Option<Value> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let shape = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    if shape { text.parse().ok().and_then(float_value) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Value {
        serde_json::from_slice(&yaml_to_json(text.as_bytes()).expect("the text is YAML").json).expect("the result is JSON")
    }

    #[test]
    fn scalars_follow_yaml_1_1() {
        assert_eq!(
            read(
                "{a: yes, b: off, c: 012, d: 0x10, e: 1_000, f: 1.5, g: '1', h: ~, i: 1e3, j: 2020-01-01, k: !!str 5, l: .5, m: 1.2.3, q: -7, o: +1, p: 08}"
            ),
            json!({"a": true, "b": false, "c": 10, "d": 16, "e": 1000, "f": 1.5, "g": "1", "h": null, "i": 1000, "j": "2020-01-01",
                "k": "5", "l": 0.5, "m": "1.2.3", "q": -7, "o": 1, "p": 8})
        );
        assert_eq!(read("{1: a, true: b, y: c}"), json!({"1": "a", "true": "c"}));
    }

    #[test]
    fn duplicates_are_told_with_their_line_and_the_last_one_counts() {
        let document = yaml_to_json(b"a: 1\nb: {c: 1, c: 2}\na: 3\n").expect("the text is YAML");
        assert_eq!(document.json, br#"{"a":3,"b":{"c":2}}"#);
        assert_eq!(document.duplicates, ["line 2: key \"c\" already set in map", "line 3: key \"a\" already set in map"]);
    }

    #[test]
    fn anchors_and_merges_are_resolved() {
        assert_eq!(
            read("base: &b {x: 1, z: 2}\nover:\n  <<: *b\n  z: 3\nlist: [*b]\n"),
            json!({"base": {"x": 1, "z": 2}, "over": {"x": 1, "z": 3}, "list": [{"x": 1, "z": 2}]})
        );
    }

    /// Go's reader refuses small documents too when nearly all of what they say is said by aliases.
    #[test]
    fn documents_of_aliases_are_refused_however_small() {
        let levels = |count: usize| {
            let mut text = String::from("x0: &x0 [a,a,a,a,a,a,a,a,a]\n");
            for i in 1..count {
                text.push_str(&format!("x{i}: &x{i} [{}]\n", vec![format!("*x{}", i - 1); 9].join(",")));
            }
            text
        };
        assert!(yaml_to_json(levels(2).as_bytes()).is_ok());
        assert!(yaml_to_json(levels(4).as_bytes()).unwrap_err().contains("excessive aliasing"));
        let shared = format!("base: &b {{a: 1, b: 2}}\nlist: [{}]\n", vec!["{<<: *b, c: 3}"; 500].join(","));
        assert!(yaml_to_json(shared.as_bytes()).is_ok());
    }

    #[test]
    fn aliases_cannot_fill_the_memory() {
        let mut text = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for level in 1..12 {
            text += &format!("a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 10].join(","));
        }
        assert!(yaml_to_json(text.as_bytes()).is_err_and(|e| e.contains("excessive aliasing")));
        assert!(yaml_to_json("[".repeat(10_000).as_bytes()).is_err());
    }

    #[test]
    fn only_the_first_document_counts_and_json_is_yaml() {
        assert_eq!(read("---\na: 1\n---\nb: 2\n"), json!({"a": 1}));
        assert_eq!(read("{\"a\": [1, \"b\\n\"]}"), json!({"a": [1, "b\n"]}));
        assert_eq!(read("a: |\n  x\n  y\nb: >-\n  c\n  d\n"), json!({"a": "x\ny\n", "b": "c d"}));
    }
}
