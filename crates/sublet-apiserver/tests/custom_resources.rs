//! Definitions and custom resources, judged as a kube-apiserver 1.37 judges them: its answers were
//! recorded, ours must be the same.

use serde_json::{Value, json};
use sublet_apiserver::registry::Resource;
use sublet_apiserver::{cel, crd};
use sublet_machinery::schema::Schema;
use sublet_machinery::structural;

/// Expected texts that end with this are compared up to it: what follows is worded by another library.
const UP_TO_HERE: char = '…';

/// Mutilated expressions that are tried.
const ROUNDS: usize = 3000;
const COST_MAX: u64 = 10_000;

fn golden(name: &str) -> Vec<Value> {
    let path = format!("{}/tests/golden/crd/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("the golden file is there");
    serde_json::from_str(&text).expect("the golden file is JSON")
}

fn strings(list: &Value) -> Vec<String> {
    let mut texts: Vec<String> =
        list.as_array().map(|l| l.iter().filter_map(Value::as_str).map(str::to_string).collect()).unwrap_or_default();
    texts.sort();
    texts
}

fn same(found: &[String], expected: &[String]) -> bool {
    let matches = |found: &String, expected: &String| match expected.strip_suffix(UP_TO_HERE) {
        Some(prefix) => found.starts_with(prefix),
        None => found == expected,
    };
    found.len() == expected.len() && found.iter().zip(expected).all(|(f, e)| matches(f, e))
}

#[test]
fn definitions_are_judged_as_upstream_judges_them() {
    let mut differences = Vec::new();
    for case in golden("definitions") {
        let mut definition = case["definition"].clone();
        crd::default(&mut definition);
        crd::prepare(&mut definition, None);
        let mut found: Vec<String> = crd::validate(&definition).iter().map(ToString::to_string).collect();
        found.sort();
        found.dedup();
        let mut expected = strings(&case["causes"]);
        // Names are judged with the rest of the metadata.
        expected.retain(|cause| !(cause.starts_with("metadata.name") && cause.contains("RFC 1123")));
        expected.dedup();
        if !same(&found, &expected) {
            differences.push(format!("{}\n  found    {found:#?}\n  expected {expected:#?}", case["name"]));
        }
        let warnings = crd::warnings(&definition);
        if expected.is_empty() && warnings != strings(&case["warnings"]) {
            differences.push(format!("{}\n  warns {warnings:?}", case["name"]));
        }
    }
    assert!(differences.is_empty(), "{} differ\n{}", differences.len(), differences.join("\n"));
}

/// What the server would do with a request: the object or the refusal, and the warnings.
struct Answer {
    result: Result<Value, Vec<String>>,
    warnings: Vec<String>,
}

/// The rows of a recorded definition, as a server would have them.
fn row(definition: &Value) -> std::sync::Arc<Resource> {
    let mut definition = definition.clone();
    crd::default(&mut definition);
    crd::prepare(&mut definition, None);
    definition["status"] = crd::accept(&definition, std::iter::empty(), "2026-01-01T00:00:00Z").expect("the names are free");
    crd::rows(&definition).into_iter().next().expect("one version is served")
}

fn answer(resource: &Resource, case: &Value) -> Answer {
    let text = |key: &str| case[key].as_str().unwrap_or_default();
    let refused = |error: String| Answer { result: Err(vec![error]), warnings: Vec::new() };
    let mut decoded = structural::decode(text("body").as_bytes()).expect("the body is JSON");
    if let Some(error) = decoded.type_error {
        return refused(crd::cannot_handle(resource, error).message);
    }
    if let Err(error) = crd::read(resource, &mut decoded) {
        return refused(error.message);
    }
    if text("mode") == "Strict"
        && let Some(error) = decoded.strict_error()
    {
        return refused(crd::cannot_handle(resource, error).message);
    }
    let mut warnings: Vec<String> = if text("mode") == "Warn" { decoded.warnings().map(str::to_string).collect() } else { Vec::new() };
    let mut object = decoded.value;
    let old = &case["old"];
    crd::default_object(resource, &mut object);
    let verdict = match text("op") {
        "create" => {
            (resource.strategy.prepare_create)(&mut object);
            crd::validate_create(resource, &object)
        }
        "status" => {
            (resource.strategy.prepare_status_update)(&mut object, old);
            crd::validate_object_status_update(resource, &object, old)
        }
        _ => {
            (resource.strategy.prepare_update)(&mut object, old);
            crd::validate_object_update(resource, &object, old)
        }
    };
    warnings.extend(verdict.warnings);
    if let Some(map) = object.as_object_mut() {
        map.remove("metadata");
    }
    let errors: Vec<String> = verdict.errors.iter().map(ToString::to_string).collect();
    Answer { result: if errors.is_empty() { Ok(object) } else { Err(errors) }, warnings }
}

#[test]
fn objects_are_judged_as_upstream_judges_them() {
    let mut differences = Vec::new();
    for group in golden("objects") {
        let resource = row(&group["definition"]);
        for case in group["cases"].as_array().expect("a definition has cases") {
            let Answer { result, mut warnings } = answer(&resource, case);
            let mut expected_errors = strings(&case["causes"]);
            expected_errors.extend(case["error"].as_str().map(str::to_string));
            warnings.sort();
            let name = format!("{} {} {}", group["name"], case["op"], case["body"]);
            match result {
                Ok(object) if expected_errors.is_empty() => {
                    if object != case["result"] {
                        differences.push(format!("{name}\n  found    {object}\n  expected {}", case["result"]));
                    }
                }
                Ok(object) => differences.push(format!("{name}\n  found    {object}\n  expected {expected_errors:#?}")),
                Err(mut errors) => {
                    errors.sort();
                    if !same(&errors, &expected_errors) {
                        differences.push(format!("{name}\n  found    {errors:#?}\n  expected {expected_errors:#?} {}", case["result"]));
                    }
                }
            }
            if warnings != strings(&case["warnings"]) {
                differences.push(format!("{name}\n  warns    {warnings:?}\n  expected {}", case["warnings"]));
            }
        }
    }
    assert!(differences.is_empty(), "{} differ\n{}", differences.len(), differences.join("\n"));
}

/// A definition with one rule.
fn ruled(schema: &Value, rule: Value) -> Value {
    let mut spec = schema.clone();
    spec["x-kubernetes-validations"] = json!([rule]);
    json!({"metadata": {"name": "cels.cel.ex.com"}, "spec": {"group": "cel.ex.com", "scope": "Namespaced",
        "names": {"plural": "cels", "kind": "Cel"}, "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}})
}

#[test]
fn expressions_have_the_values_they_have_upstream() {
    let mut differences = Vec::new();
    let mut cases = golden("expressions").into_iter();
    let setting = cases.next().expect("the first entry is the setting");
    for case in cases {
        // A rule that is always broken tells the value of an expression; other rules speak for themselves.
        let (expression, rule) = match case["expression"].as_str() {
            Some(expression) => (expression, json!({"rule": "self.s == 'never'", "messageExpression": expression})),
            None => (case["rule"].as_str().unwrap_or_default(), json!({"rule": case["rule"]})),
        };
        let mut definition = ruled(&setting["schema"], rule);
        crd::default(&mut definition);
        crd::prepare(&mut definition, None);
        let mut errors: Vec<String> = crd::validate(&definition).iter().map(ToString::to_string).collect();
        errors.sort();
        let refused = strings(&case["refused"]);
        if !same(&errors, &refused) {
            differences.push(format!("{expression}\n  found    {errors:#?}\n  expected {refused:#?}"));
        }
        if !errors.is_empty() || !refused.is_empty() {
            continue;
        }
        let object = json!({"apiVersion": "cel.ex.com/v1", "kind": "Cel", "metadata": {"name": "a"}, "spec": setting["object"]});
        let verdict = crd::validate_create(&row(&definition), &object);
        let told: Vec<String> = verdict.errors.iter().map(ToString::to_string).collect();
        let expected = match case["message"].as_str() {
            Some(message) => vec![format!("spec: {message}")],
            None => strings(&case["errors"]),
        };
        if !same(&told, &expected) {
            differences.push(format!("{expression}\n  found    {told:?}\n  expected {expected:?}"));
        }
    }
    assert!(differences.is_empty(), "{} differ\n{}", differences.len(), differences.join("\n"));
}

/// Compiles an expression about the object of the setting, and runs it when it is right.
struct Attempt {
    schema: Schema,
    object: Value,
}

impl Attempt {
    fn new(setting: &Value) -> Self {
        Self { schema: structural::build_plain(&setting["schema"]), object: setting["object"].clone() }
    }

    fn is_right(&self, text: &str) -> bool {
        let node = self.schema.node();
        let own = cel::declare(node).expect("an object has a type");
        let Ok(compiled) = cel::compile(text, &[("self", own)], Some(node)) else { return false };
        let value = cel::of_json(&self.object, Some(node), false).expect("the object fits");
        let _ = compiled.program.eval(&[("self", value)], COST_MAX);
        true
    }
}

/// Broken expressions are refused, not stumbled over.
#[test]
fn mutilated_expressions_do_no_harm() {
    let mut cases = golden("expressions").into_iter();
    let attempt = Attempt::new(&cases.next().expect("the first entry is the setting"));
    let texts: Vec<String> = cases.filter_map(|case| case["expression"].as_str().or(case["rule"].as_str()).map(str::to_string)).collect();
    let mut state: u64 = 7;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below.max(1)
    };
    for round in 0..ROUNDS {
        let mut text: Vec<char> = texts[round % texts.len()].chars().collect();
        for _ in 0..=random(3) {
            let at = random(text.len());
            match random(4) {
                0 => drop(text.drain(at..(at + 1 + random(4)).min(text.len()))),
                1 => text.insert(at, ['(', ')', '[', '\'', '.', '?', '{', '-', '9', 'é', '\\', '%'][random(12)]),
                2 => {
                    let other: Vec<char> = texts[random(texts.len())].chars().collect();
                    let from = random(other.len());
                    text.splice(at..at, other[from..].iter().copied().take(12));
                }
                _ => text.truncate(at),
            }
        }
        attempt.is_right(&text.into_iter().collect::<String>());
    }
}

/// Deep and long ones neither exhaust the stack nor take long.
#[test]
fn endless_expressions_are_refused() {
    let attempt = Attempt::new(&golden("expressions")[0]);
    for part in ["(", "[", "-", "!", "{1:", "size(", "true?1:", "self.a?", "self.l.map(x,", "1+(", "dyn("] {
        assert!(!attempt.is_right(&part.repeat(9000)), "{part}");
    }
    for part in ["1+", "self.", "1==", "[0]+", "true?1:"] {
        assert!(!attempt.is_right(&(part.repeat(9000) + "1")), "{part}");
    }
    let nested = |open: &str, count: usize| open.repeat(count) + "1" + &")".repeat(open.matches('(').count() * count);
    for right in [
        "1+".repeat(250) + "1",
        "true&&".repeat(9000) + "true",
        "true?1:".repeat(119) + "1",
        nested("dyn(", 119),
        nested("self.l.map(x,", 119),
        nested("-(", 119),
        nested("1+(", 80),
        nested("1+(2*-int(", 40),
        "[".repeat(119) + &"]".repeat(119),
        "dyn(self)".to_string() + &"[0]".repeat(248),
        "dyn(self)".to_string() + &".a".repeat(248),
    ] {
        assert!(attempt.is_right(&right), "{right}");
    }
    assert!(!attempt.is_right(&nested("true||true&&1==1+1*-size(", 119)));
}
