use super::*;
use serde_json::json;

fn crd(schema: Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "foos.ex.com"},
        "spec": {"group": "ex.com", "scope": "Namespaced",
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"}, "conversion": {"strategy": "None"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
        "status": {"storedVersions": ["v1"]}})
}

fn texts(crd: &Value) -> Vec<String> {
    validate(crd).iter().map(ToString::to_string).collect()
}

fn check_schema(schema: Value, expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|e| format!("spec.validation.openAPIV3Schema{e}")).collect();
    assert_eq!(texts(&crd(schema)), expected);
}

#[test]
fn a_plain_definition_is_valid() {
    check_schema(
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}}}),
        &[],
    );
}

#[test]
fn names_are_checked() {
    let mut wrong = crd(json!({"type": "object"}));
    wrong["metadata"]["name"] = json!("bars.ex.com");
    wrong["spec"]["scope"] = json!("x");
    wrong["spec"]["names"]["listKind"] = json!("Foo");
    assert_eq!(
        texts(&wrong),
        [
            "metadata.name: Invalid value: \"bars.ex.com\": must be spec.names.plural+\".\"+spec.group",
            "spec.scope: Unsupported value: \"x\": supported values: \"Cluster\", \"Namespaced\"",
            "spec.names.listKind: Invalid value: \"Foo\": kind and listKind may not be the same",
        ]
    );
}

#[test]
fn schemas_must_be_structural() {
    check_schema(json!({}), &[".type: Required value: must not be empty at the root"]);
    check_schema(
        json!({"type": "object", "properties": {"a": {}, "b": {"type": "array"}, "c": {"type": "integer", "anyOf": [{"type": "integer"}]}}}),
        &[
            ".properties[a].type: Required value: must not be empty for specified object fields",
            ".properties[b].items: Required value: must be specified",
            ".properties[c].anyOf[0].type: Forbidden: must be empty to be structural",
        ],
    );
    check_schema(
        json!({"type": "object", "properties": {"a": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}}}),
        &[],
    );
}

#[test]
fn defaults_must_fit() {
    check_schema(
        json!({"type": "object", "properties": {"a": {"type": "object", "default": {"b": 1, "x": 2}, "properties": {"b": {"type": "string"}}}}}),
        &[
            ".properties[a].default: Invalid value: {\"b\":1,\"x\":2}: must not have unknown fields",
            ".properties[a].default.b: Invalid value: \"integer\": b in body must be of type string: \"integer\"",
        ],
    );
}
