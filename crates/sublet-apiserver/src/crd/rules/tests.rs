use super::*;
use serde_json::json;
use sublet_machinery::structural::build;

fn check(schema: Value, object: Value, old: Option<Value>, expected: &[&str]) {
    let schema = build(Some(&schema), false, "x.v1.Foo");
    let rules = Rules::compile(schema.node()).expect("there are rules");
    let texts: Vec<String> = rules.validate(schema.node(), &object, old.as_ref()).errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts, expected, "{object}");
}

fn spec(of: Value) -> Value {
    json!({"type": "object", "properties": {"spec": of}})
}

#[test]
fn broken_rules_tell_their_message() {
    let schema = |rule: Value| {
        spec(json!({"type": "object", "x-kubernetes-validations": [rule],
            "properties": {"min": {"type": "integer"}, "max": {"type": "integer"}}}))
    };
    let object = json!({"spec": {"min": 2, "max": 1}});
    check(
        schema(json!({"rule": "self.min <= self.max"})),
        object.clone(),
        None,
        &["spec: Invalid value: failed rule: self.min <= self.max"],
    );
    check(
        schema(json!({"rule": "self.min <= self.max", "message": "max is low", "fieldPath": ".max", "reason": "FieldValueForbidden"})),
        object.clone(),
        None,
        &["spec.max: Forbidden: max is low"],
    );
    check(
        schema(json!({"rule": "self.min <= self.max", "messageExpression": "'min ' + string(self.min)"})),
        object,
        None,
        &["spec: Invalid value: min 2"],
    );
    check(schema(json!({"rule": "self.min <= self.max"})), json!({"spec": {"min": 1, "max": 1}}), None, &[]);
    check(
        schema(json!({"rule": "self.min <= self.max"})),
        json!({"spec": {"min": 1}}),
        None,
        &["spec: Invalid value: \"object\": no such key: max evaluating rule: self.min <= self.max"],
    );
}

#[test]
fn transition_rules_run_on_updates_alone() {
    let schema = spec(json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "only up"}]}));
    check(schema.clone(), json!({"spec": 1}), None, &[]);
    check(schema.clone(), json!({"spec": 2}), Some(json!({"spec": 1})), &[]);
    check(schema, json!({"spec": 1}), Some(json!({"spec": 2})), &["spec: Invalid value: 1: only up"]);
    let optional = spec(json!({"type": "integer",
        "x-kubernetes-validations": [{"rule": "oldSelf.hasValue() || self == 1", "message": "starts at one", "optionalOldSelf": true}]}));
    check(optional.clone(), json!({"spec": 2}), None, &["spec: Invalid value: 2: starts at one"]);
    check(optional, json!({"spec": 2}), Some(json!({"spec": 1})), &[]);
}

#[test]
fn items_of_list_maps_find_their_old_value() {
    let schema = spec(json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.v == oldSelf.v", "message": "fixed"}]}}));
    check(
        schema,
        json!({"spec": [{"k": "b", "v": 2}, {"k": "a", "v": 2}]}),
        Some(json!({"spec": [{"k": "a", "v": 1}, {"k": "b", "v": 2}]})),
        &["spec[1]: Invalid value: fixed"],
    );
}

#[test]
fn what_did_not_change_is_forgiven() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 5", "message": "small"}]}, "b": {"type": "integer"}}});
    check(schema.clone(), json!({"a": 7, "b": 2}), Some(json!({"a": 7, "b": 1})), &[]);
    check(schema, json!({"a": 8, "b": 2}), Some(json!({"a": 7, "b": 1})), &["a: Invalid value: 8: small"]);
}

#[test]
fn the_names_in_metadata_can_be_judged() {
    let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.metadata.name == 'only'", "message": "not you"}]});
    check(schema, json!({"apiVersion": "x/v1", "kind": "Foo", "metadata": {"name": "other"}}), None, &["<nil>: Invalid value: not you"]);
}

fn check_definition(schema: Value, expected: &[&str]) {
    let texts: Vec<String> = validate(&schema, &FieldPath::new("schema")).iter().map(ToString::to_string).collect();
    for (text, expected) in texts.iter().zip(expected) {
        assert!(text.contains(expected), "{text}\ndoes not contain\n{expected}");
    }
    assert_eq!(texts.len(), expected.len(), "{texts:?}");
}

#[test]
fn definitions_with_wrong_rules_are_refused() {
    let rule = |rule: &str| {
        spec(json!({"type": "object", "properties": {"x": {"type": "integer"}}, "x-kubernetes-validations": [{"rule": rule}]}))
    };
    check_definition(rule("self.x > 1"), &[]);
    check_definition(rule("self.y > 1"), &["compilation failed: ERROR: <input>:1:5: undefined field 'y'\n | self.y > 1\n | ....^"]);
    check_definition(rule("self.x"), &["cel expression must evaluate to a bool"]);
    check_definition(rule("self.x > "), &["compilation failed: ERROR: <input>:1:10: Syntax error"]);
    check_definition(
        spec(
            json!({"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 9, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}),
        ),
        &["oldSelf cannot be used on the uncorrelatable portion of the schema within schema.properties[spec]"],
    );
}

#[test]
fn definitions_with_expensive_rules_are_refused() {
    check_definition(
        spec(
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": [{"rule": "self.all(s, self.all(t, s == t))"}]}),
        ),
        &[
            "schema.properties[spec].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x",
            "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema",
            "schema: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x",
        ],
    );
}
