//! Broken bodies are refused, not stumbled over.

use serde_json::{Value, json};
use sublet_machinery::FieldPath;
use sublet_machinery::structural;

const ROUNDS: usize = 4000;

/// The same numbers on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end.max(1)
    }

    /// Bytes taken out, put in, or taken from elsewhere.
    fn mutilate(&mut self, text: &str, marks: &[u8]) -> Vec<u8> {
        let source = text.as_bytes();
        let mut bytes = source.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(4) {
                0 => drop(bytes.drain(at..(at + 1 + self.below(6)).min(bytes.len()))),
                1 => bytes.insert(at, marks[self.below(marks.len())]),
                2 => {
                    let from = self.below(source.len());
                    let end = (from + self.below(30)).min(source.len());
                    bytes.splice(at..at, source[from..end].iter().copied());
                }
                _ => bytes[at..].iter_mut().take(1).for_each(|b| *b = marks[self.below(marks.len())]),
            }
        }
        bytes
    }
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["replicas"], "properties": {
        "replicas": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 10, "default": 1},
        "ratio": {"type": "number", "multipleOf": 0.5},
        "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5, "nullable": true},
        "when": {"type": "string", "format": "date-time"},
        "size": {"x-kubernetes-int-or-string": true},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"], "items": {
            "type": "object", "required": ["key"], "properties": {"key": {"type": "string", "default": "k"}, "v": {"type": "boolean"}}}},
        "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
    }}}})
}

fn body() -> String {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "labels": {"a": "b\u{e9}\n"}},
        "spec": {"replicas": 3, "ratio": 1.5e3, "name": "abc", "when": "2020-01-02T03:04:05Z", "size": "50%", "labels": {"x": "y"},
            "items": [{"key": "a", "v": true}, {"key": "b", "v": false}], "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {}}}})
    .to_string()
}

fn judge(bytes: &[u8], schema: &sublet_machinery::schema::Schema) {
    let node = schema.node();
    // Whatever comes of it.
    if let Ok(decoded) = structural::decode_typed(bytes, node) {
        let _ = (decoded.strict_error(), decoded.warnings().count());
    }
    let Ok(decoded) = structural::decode(bytes) else { return };
    let mut value = decoded.value;
    let old = value.clone();
    if structural::coerce(&mut value, node).is_err() {
        return;
    }
    structural::prune(&mut value, node);
    structural::default(&mut value, node);
    structural::omit_empty(&mut value, node);
    let path = FieldPath::root();
    structural::validate(&value, node, &path);
    structural::validate_update(&value, &old, node, &path);
    structural::validate_lists(&value, node, &path);
    structural::validate_embedded(&value, node, &path);
    structural::validate_required_and_enums(&value, node, &path);
}

#[test]
fn mutilated_json_does_no_harm() {
    let schema = structural::build(Some(&schema()), false, "Thing");
    let (body, mut random) = (body(), Random(1));
    for _ in 0..ROUNDS {
        judge(&random.mutilate(&body, b"{}[]\",:\\0-e.nt u\xff\x00"), &schema);
    }
    for deep in ["[", "{\"a\":", "{\"spec\":", "[[{\"a\":["] {
        judge(deep.repeat(10_000).as_bytes(), &schema);
    }
}

#[test]
fn mutilated_yaml_does_no_harm() {
    let schema = structural::build(Some(&schema()), false, "Thing");
    let body = "apiVersion: example.com/v1\nkind: Thing\nmetadata: &m {name: a, labels: {a: \"b\"}}\nspec:\n  replicas: 0x10\n  \
                name: |-\n    abc\n  items:\n  - key: yes\n    v: ~\n  - {key: 'b', v: !!bool true}\n  labels: {<<: *m, x: 1e3}\n# end\n";
    let mut random = Random(2);
    for _ in 0..ROUNDS {
        if let Ok(document) = structural::yaml_to_json(&random.mutilate(body, b"{}[]\",:-&*!|>#%@ \n\t'?<~\xff")) {
            judge(&document.json, &schema);
        }
    }
    for deep in ["[", "{a: ", "- ", "? ", "a: {b: ["] {
        let _ = structural::yaml_to_json(deep.repeat(10_000).as_bytes());
    }
}
