//! The targets.

use crate::{edge, request};
use serde_json::{Value, json};
use std::sync::LazyLock;
use sublet_apiserver::{cel, facts, protobuf};
use sublet_machinery::selector::FieldSelector;
use sublet_machinery::structural::{self, format};
use sublet_machinery::{Quantity, Schema, Selector, apply, patch, pattern};

/// Something that eats bytes.
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Inputs to begin with.
    pub seeds: &'static [&'static [u8]],
}

pub const TARGETS: &[Target] = &[
    Target { name: "request", run: request::run, seeds: request::SEEDS },
    Target { name: "json", run: json_text, seeds: &[br#"{"a":[1,-2.5e3,"x\u00e9"],"b":{"a":null,"a":true}}"#] },
    Target {
        name: "yaml",
        run: yaml,
        seeds: &[b"a: &x [1, yes, 012, 1.5, ~]\nb: {<<: *m, c: 'd'}\n---\nx: |\n  text\n", b"? a\n: - b\n  - !!binary aGk=\n"],
    },
    Target { name: "protobuf", run: protobuf_bytes, seeds: &[POD, b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Secret\x12\x04\x0a\x02\x0a\x00"] },
    Target { name: "patches", run: patches, seeds: PATCHES },
    Target { name: "apply", run: applied, seeds: PATCHES },
    Target {
        name: "selectors",
        run: selectors,
        seeds: &[b"a=b,c!=d,e in (f, g),!h,i notin (j),k>1,l", b"metadata.name=a,spec.nodeName!=b\\,c"],
    },
    Target { name: "quantities", run: quantities, seeds: &[b"1500m", b"-0.5Gi", b"1e3", b"12E", b"1h30m"] },
    Target { name: "cel", run: expressions, seeds: EXPRESSIONS },
    Target { name: "schemas", run: edge::schema, seeds: edge::SCHEMAS },
    Target { name: "negotiation", run: edge::negotiation, seeds: edge::NEGOTIATIONS },
    Target { name: "queries", run: edge::query, seeds: edge::QUERIES },
    Target { name: "continuations", run: edge::continuation, seeds: edge::CONTINUATIONS },
    Target { name: "tokens", run: edge::token, seeds: edge::TOKENS },
    Target { name: "certificates", run: edge::certificates, seeds: edge::CERTIFICATES },
    Target { name: "packets", run: edge::packet, seeds: edge::PACKETS },
    Target { name: "files", run: edge::files, seeds: edge::FILES },
    Target { name: "patterns", run: patterns, seeds: &[b"^([a-z0-9]([-a-z0-9]*[a-z0-9])?\\.)+$\na.b", b"(?i)[\\w-]{1,63}\\Qx\\E\nabc"] },
];

/// The target of a name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|t| t.name == name)
}

/// A pod, encoded.
const POD: &[u8] =
    b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x1d\x0a\x08\x0a\x01a\x1a\x01n\x22\x00\x12\x11\x12\x0f\x0a\x04main\x12\x07img:1.0";

const PATCHES: &[&[u8]] = &[
    br#"[{"op":"add","path":"/spec/containers/-","value":{"name":"b"}},{"op":"copy","from":"/spec","path":"/metadata/labels"},{"op":"move","from":"/spec/containers/0","path":"/x"},{"op":"test","path":"/a~1b","value":1}]"#,
    br#"{"metadata":{"labels":{"a":null}},"spec":{"containers":[{"name":"main","image":"x","$patch":"replace"},{"$patch":"delete","name":"b"}],"$setElementOrder/containers":[{"name":"main"}],"$retainKeys":["containers"]}}"#,
    br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","managedFields":[{"manager":"m","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:image":{}}}}}}]},"spec":{"containers":[{"name":"main","ports":[{"containerPort":80}],"env":[{"name":"A","value":"b"}]}]}}"#,
];

const EXPRESSIONS: &[&[u8]] = &[
    b"self.metadata.name.startsWith('a') && self.items.all(x, x.matches('^[a-z]+$'))",
    b"has(self.a) ? self.list.map(x, x * 2).sum() > 3 : self.map.exists(k, k == 'b')",
    b"duration('1h').getSeconds() > 5 || timestamp('2024-01-01T00:00:00Z') < timestamp('2025-01-01T00:00:00Z')",
    b"quantity('1Gi').isGreaterThan(quantity('5Mi')) && ip('::1').isLoopback() && cidr('10.0.0.0/8').containsIP('10.1.2.3')",
    b"'%s %d %.2f'.format(['a', 1, 2.5]) == self.text.replace('a', 'b').split(',').join(';').substring(1, 3)",
    b"url('https://a.b/c?d=e').getHost().indexOf('a') + [1, 2, 3].slice(0, 2).size() - lists.range(3)[0]",
    b"optional.of(self.a).orValue('x').charAt(0) == self.list.sortBy(x, -x)[0] ? b'ab' == bytes('ab') : {1: 2u}[1] == 2u",
];

/// The object that patches and expressions are about.
static LIVE: LazyLock<Value> = LazyLock::new(|| {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "n", "labels": {"a": "b"}, "resourceVersion": "7", "managedFields": [
            {"manager": "m", "operation": "Update", "apiVersion": "v1", "time": "2024-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}}}
        ]},
        "spec": {"containers": [{"name": "main", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}]}], "volumes": [{"name": "v", "emptyDir": {}}]},
    })
});

fn pod() -> Schema {
    facts::builtin().kind("", "v1", "Pod").expect("pods are built in")
}

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn json_text(bytes: &[u8]) {
    let plain = structural::decode(bytes);
    let schema = pod();
    let typed = structural::decode_typed(bytes, schema.node());
    assert_eq!(plain.is_ok(), typed.is_ok(), "a schema does not make text readable");
    if let Ok(mut decoded) = typed {
        let written = decoded.value.to_string();
        assert!(structural::decode(written.as_bytes()).is_ok(), "what was read can be written and read: {written}");
        structural::default(&mut decoded.value, schema.node());
        structural::prune(&mut decoded.value, schema.node());
    }
}

fn yaml(bytes: &[u8]) {
    if let Ok(document) = structural::yaml_to_json(bytes) {
        let value: Value = serde_json::from_slice(&document.json).expect("YAML becomes JSON");
        drop(value);
    }
}

fn protobuf_bytes(bytes: &[u8]) {
    let options = [Some(("v1", "DeleteOptions")), Some(("policy/v1", "Eviction"))];
    for expected in [None, Some(("v1", "Pod")), Some(("apps/v1", "Deployment"))].into_iter().chain(options) {
        if let Ok(object) = protobuf::decode(bytes, expected) {
            let _ = protobuf::encode(&object);
        }
    }
}

fn patches(bytes: &[u8]) {
    let Ok(patch) = structural::decode(bytes) else { return };
    let schema = pod();
    let _ = patch::json_patch::apply(&LIVE, &patch.value);
    let _ = patch::json_patch::unknown_fields(&patch.value);
    if patch.value.is_object() {
        let _ = patch::merge_patch::apply(&LIVE, &patch.value);
        let _ = patch::strategic::merge(&LIVE, &patch.value, schema.node());
    }
}

fn applied(bytes: &[u8]) {
    let Ok(given) = structural::decode(bytes) else { return };
    if !given.value.is_object() {
        return;
    }
    let schema = pod();
    let _ = apply::check_managed_fields(&given.value["metadata"]["managedFields"]);
    if apply::check_types(&given.value, schema.node()).is_err() {
        return;
    }
    for force in [false, true] {
        let writer = apply::Writer {
            manager: "w",
            subresource: "",
            api_version: "v1",
            now: "2024-01-01T00:00:00Z",
            reset_fields: &Default::default(),
        };
        let options = apply::ApplyOptions { writer, kind: "Pod", force };
        let _ = apply::apply(Some(&LIVE), &given.value, schema.node(), &options);
        let _ = apply::apply(None, &given.value, schema.node(), &options);
    }
}

fn selectors(bytes: &[u8]) {
    let text = text(bytes);
    let labels = json!({"a": "b", "e": "f"});
    if let (Ok(selector), Some(labels)) = (Selector::parse(&text), labels.as_object()) {
        let matched = selector.matches(labels);
        let again = Selector::parse(&selector.to_string());
        assert_eq!(again.map(|s| s.matches(labels)).ok(), Some(matched), "a selector is read as it is written: {selector}");
    }
    if let Ok(selector) = FieldSelector::parse(&text) {
        selector.matches_with(|_| "a");
    }
}

fn quantities(bytes: &[u8]) {
    let text = text(bytes);
    if let Ok(quantity) = text.parse::<Quantity>() {
        let shown = quantity.to_string();
        assert!(shown.parse::<Quantity>().is_ok(), "a quantity is read as it is written: {text} became {shown}");
    }
    let _ = format::parse_go_duration(&text);
    for format in ["date-time", "duration", "ipv4", "cidr", "uri", "email", "quantity", "k8s-short-name", "uuid", "byte"] {
        format::is_valid(format, &text);
    }
}

fn expressions(bytes: &[u8]) {
    let object = json!({
        "metadata": {"name": "abc"}, "items": ["ab", "cd"], "list": [3, 1, 2], "map": {"b": 1, "c": 2}, "a": "x", "text": "a,b,c", "number": 2.5, "flag": true,
    });
    let Ok(compiled) = cel::compile(&text(bytes), &[("self", cel::Type::Dyn)], None) else { return };
    let subject = cel::of_json(&object, None, false).expect("plain JSON has a value");
    let _ = compiled.program.eval(&[("self", subject)], cel::CALL_COST_MAX);
}

fn patterns(bytes: &[u8]) {
    let text = text(bytes);
    let (pattern, subject) = text.split_once('\n').unwrap_or((&text, "abc"));
    if let Ok(regex) = pattern::compiled(pattern) {
        regex.is_match(subject);
    }
}
