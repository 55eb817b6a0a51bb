use super::super::build_plain;
use super::*;
use serde_json::json;

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn check_errors(schema: Value, value: Value, expected: &[&str]) {
    let schema = build_plain(&schema);
    assert_eq!(texts(&validate(&value, schema.node(), &FieldPath::root())), expected, "{value}");
}

fn spec(of: Value) -> Value {
    json!({"type": "object", "properties": {"a": of}})
}

#[test]
fn types_are_checked_with_the_words_of_kube_openapi() {
    check_errors(
        spec(json!({"type": "string"})),
        json!({"a": 1}),
        &["a: Invalid value: \"integer\": a in body must be of type string: \"integer\""],
    );
    check_errors(
        spec(json!({"type": "string"})),
        json!({"a": null}),
        &["a: Invalid value: \"null\": a in body must be of type string: \"null\""],
    );
    check_errors(spec(json!({"type": "string", "nullable": true})), json!({"a": null}), &[]);
    check_errors(spec(json!({"type": "number"})), json!({"a": 1}), &[]);
    check_errors(
        spec(json!({"x-kubernetes-int-or-string": true})),
        json!({"a": true}),
        &["a: Invalid value: \"boolean\": a in body must be of type integer,string: \"boolean\""],
    );
    check_errors(
        spec(json!({"type": "string", "format": "date-time"})),
        json!({"a": "x"}),
        &["a: Invalid value: \"x\": a in body must be of type date-time: \"x\""],
    );
    check_errors(
        spec(json!({"type": "integer", "format": "int32"})),
        json!({"a": 3_000_000_000u64}),
        &["<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in a"],
    );
}

#[test]
fn limits_are_checked() {
    check_errors(spec(json!({"type": "string", "maxLength": 2})), json!({"a": "äöü"}), &["a: Too long: may not be more than 2 bytes"]);
    check_errors(
        spec(json!({"type": "string", "minLength": 4})),
        json!({"a": "äöü"}),
        &["a: Invalid value: \"äöü\": a in body should be at least 4 chars long"],
    );
    check_errors(
        spec(json!({"type": "string", "pattern": "^b+$"})),
        json!({"a": "c"}),
        &["a: Invalid value: \"c\": a in body should match '^b+$'"],
    );
    check_errors(
        spec(json!({"type": "integer", "minimum": 1, "maximum": 5})),
        json!({"a": 0}),
        &["a: Invalid value: 0: a in body should be greater than or equal to 1"],
    );
    check_errors(
        spec(json!({"type": "number", "maximum": 1.5, "exclusiveMaximum": true})),
        json!({"a": 1.75}),
        &["a: Invalid value: 1.75: a in body should be less than 1.5"],
    );
    check_errors(
        spec(json!({"type": "integer", "multipleOf": 3})),
        json!({"a": 4}),
        &["a: Invalid value: 4: a in body should be a multiple of 3"],
    );
    check_errors(
        spec(json!({"type": "array", "maxItems": 1, "items": {"type": "string"}})),
        json!({"a": ["x", "y"]}),
        &["a: Too many: 2: must have at most 1 item"],
    );
    check_errors(
        spec(json!({"type": "object", "minProperties": 1, "additionalProperties": {"type": "string"}})),
        json!({"a": {}}),
        &["a: Invalid value: 0: a in body should have at least 1 properties"],
    );
    check_errors(
        spec(json!({"type": "string", "enum": ["x", "w"]})),
        json!({"a": "y"}),
        &["a: Unsupported value: \"y\": supported values: \"x\", \"w\""],
    );
    check_errors(
        json!({"type": "object", "required": ["a"], "properties": {"m": {"type": "object", "additionalProperties": {"type": "object", "required": ["b"]}}}}),
        json!({"m": {"k": {}}}),
        &["m.k.b: Required value", "a: Required value"],
    );
}

#[test]
fn alternatives_show_the_problems_of_the_best_branch() {
    let of = json!({"type": "object", "properties": {"x": {"type": "string"}, "y": {"type": "string"}},
        "oneOf": [{"required": ["x"]}, {"required": ["y"]}]});
    check_errors(
        spec(of.clone()),
        json!({"a": {}}),
        &["<nil>: Invalid value: \"\": \"a\" must validate one and only one schema (oneOf). Found none valid", "a.x: Required value"],
    );
    check_errors(
        spec(of),
        json!({"a": {"x": "", "y": ""}}),
        &["<nil>: Invalid value: \"\": \"a\" must validate one and only one schema (oneOf). Found 2 valid alternatives"],
    );
    check_errors(
        spec(json!({"type": "integer", "allOf": [{"minimum": 5}, {"maximum": 7}]})),
        json!({"a": 1}),
        &[
            "a: Invalid value: 1: a in body should be greater than or equal to 5",
            "<nil>: Invalid value: \"\": \"a\" must validate all the schemas (allOf)",
        ],
    );
    check_errors(
        spec(json!({"type": "string", "not": {"enum": ["x"]}})),
        json!({"a": "x"}),
        &["<nil>: Invalid value: \"\": \"a\" must not validate the schema (not)"],
    );
}

#[test]
fn unchanged_parts_are_forgiven() {
    let schema = build_plain(&json!({"type": "object", "properties": {
        "a": {"type": "string", "maxLength": 2},
        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer", "maximum": 1}}}},
        "b": {"type": "integer"},
    }}));
    let check = |new: Value, old: Value, expected: &[&str]| {
        assert_eq!(texts(&validate_update(&new, &old, schema.node(), &FieldPath::root())), expected, "{new}");
    };
    check(json!({"a": "long", "b": 2}), json!({"a": "long", "b": 1}), &[]);
    check(json!({"a": "longer", "b": 2}), json!({"a": "long", "b": 1}), &["a: Too long: may not be more than 2 bytes"]);
    check(
        json!({"list": [{"k": "new", "v": 2}, {"k": "x", "v": 5}]}),
        json!({"list": [{"k": "x", "v": 5}]}),
        &["list[0].v: Invalid value: 2: list[0].v in body should be less than or equal to 1"],
    );
}

#[test]
fn built_in_kinds_are_held_to_required_and_enums() {
    let schema = build_plain(&json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"},
        "l": {"type": "array", "items": {"type": "object", "properties": {"p": {"type": "string", "enum": ["TCP", "UDP"]}}}}}}));
    let errors = validate_required_and_enums(&json!({"l": [{"p": "X"}]}), schema.node(), &FieldPath::new("spec"));
    assert_eq!(texts(&errors), ["spec.a: Required value", "spec.l[0].p: Unsupported value: \"X\": supported values: \"TCP\", \"UDP\""]);
}
