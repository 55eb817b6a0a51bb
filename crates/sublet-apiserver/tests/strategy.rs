//! The rules of the built-in kinds, compared with what a reference kube-apiserver made of the same objects
//! (`golden/record.py` records the answers).

use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use sublet_apiserver::facts::builtin;
use sublet_apiserver::strategy::{self, NameRule, Strategy};
use sublet_machinery::{ApiError, FieldError, FieldPath, ObjectExt, metadata, names};

#[test]
fn every_case_ends_as_it_does_upstream() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/strategy");
    let mut failures = Vec::new();
    let mut files: Vec<_> = fs::read_dir(folder).expect("the folder is there").map(|e| e.expect("a file").path()).collect();
    files.sort();
    for file in files {
        let document: Value = serde_json::from_slice(&fs::read(&file).expect("readable")).expect("JSON");
        let stem = file.file_stem().and_then(|s| s.to_str()).expect("a name");
        for case in document["cases"].as_array().expect("cases") {
            if let Some(failure) = run(&document, case) {
                failures.push(format!("{stem} / {}: {failure}", case["name"].as_str().unwrap_or_default()));
            }
        }
    }
    assert!(failures.is_empty(), "{} cases differ:\n{}", failures.len(), failures.join("\n"));
}

/// `None` when our answer is the recorded one.
fn run(document: &Value, case: &Value) -> Option<String> {
    if case["skip"].is_string() {
        return None;
    }
    let (group, resource) = (document["group"].as_str()?, document["resource"].as_str()?);
    let part = case["part"].as_str().unwrap_or_default();
    let main = strategy::of(group, resource);
    let rules = if part.is_empty() { main } else { strategy::of(group, &format!("{resource}/{part}")) };
    let base = change(&document["base"], &case["set"]);
    let answer = if case["update"].is_object() {
        let old = stored(&main, base, &case["stored"]);
        update(&rules, change(&old, &case["update"]), &old)
    } else if case["status"].is_object() {
        let old = stored(&main, base, &case["stored"]);
        update_status(&main, change(&old, &case["status"]), &old)
    } else {
        create(&main, base)
    };
    compare(document, case, answer)
}

fn compare(document: &Value, case: &Value, answer: Result<(Value, Vec<String>), (Value, Vec<FieldError>)>) -> Option<String> {
    match answer {
        Ok((object, warnings)) if case["object"].is_object() => {
            let (mut ours, mut theirs) = (object, case["object"].clone());
            let version = theirs.api_version().rsplit('/').next().unwrap_or_default().to_string();
            let schema = builtin().kind(document["group"].as_str()?, &version, theirs.kind());
            if let Some(schema) = schema {
                builtin().normalize(schema.node(), &mut ours);
            }
            for path in document["ignore"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                (ours, theirs) = (change(&ours, &json!({path: null})), change(&theirs, &json!({path: null})));
            }
            let expected: Vec<&str> = case["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let differences = differences("", &ours, &theirs);
            if !differences.is_empty() {
                return Some(differences.join("; "));
            }
            let deprecation = strategy::deprecation(document["group"].as_str()?, "v1", document["resource"].as_str()?);
            let mut warnings: Vec<String> = deprecation.into_iter().chain(warnings).collect();
            // An answer says each text once.
            warnings.dedup();
            (warnings != expected).then(|| format!("warnings {warnings:?}, not {expected:?}"))
        }
        Ok(_) => Some(format!("accepted, not {}", case["message"])),
        Err((object, errors)) => {
            let status =
                ApiError::invalid(document["group"].as_str()?, object.kind(), object.name(), &strategy::distinct(errors)).to_status();
            let (ours, theirs) = (without_diffs(&status["details"]["causes"]), without_diffs(&case["errors"]));
            (ours != theirs).then(|| format!("\n  ours   {ours}\n  theirs {theirs}"))
        }
    }
}

/// Messages about changed fields end with a difference in Go's notation, which is not compared.
fn without_diffs(causes: &Value) -> Value {
    let mut causes = causes.clone();
    for cause in causes.as_array_mut().into_iter().flatten() {
        let first_line = cause["message"].as_str().unwrap_or_default().lines().next().unwrap_or_default().to_string();
        cause["message"] = json!(without_structs(&first_line));
    }
    // Upstream walks maps in no order.
    if let Some(list) = causes.as_array_mut() {
        list.sort_by_key(Value::to_string);
    }
    causes
}

/// Upstream prints its internal types with Go's field names and every field; the value itself is not compared.
fn without_structs(message: &str) -> String {
    for opening in ["value: {", "value: [{"] {
        if let Some((head, rest)) = message.split_once(opening)
            && let Some((_, tail)) = rest.rsplit_once(['}', ']'])
        {
            return format!("{head}value: ...{tail}");
        }
    }
    message.to_string()
}

fn create(rules: &Strategy, mut object: Value) -> Result<(Value, Vec<String>), (Value, Vec<FieldError>)> {
    let given = object.clone();
    object["metadata"]["uid"] = json!("UID");
    (rules.default)(&mut object);
    (rules.prepare_create)(&mut object);
    if let Some(prepare) = rules.prepare_given {
        prepare(&mut object, &given);
    }
    if rules.generation {
        object["metadata"]["generation"] = json!(1);
    }
    let mut errors = validate_metadata(rules, &object);
    errors.extend((rules.validate)(&object));
    errors.extend((rules.validate_create)(&object));
    let warnings = (rules.warnings)(&object);
    finish(rules, object, errors, warnings)
}

fn validate_metadata(rules: &Strategy, object: &Value) -> Vec<FieldError> {
    let name = match rules.name_rule {
        NameRule::DnsSubdomain => names::name_is_dns_subdomain,
        NameRule::DnsLabel => names::name_is_dns_label,
        NameRule::Dns1035Label => names::name_is_dns_1035_label,
        NameRule::PathSegment => names::name_is_path_segment,
    };
    metadata::validate_metadata(&object["metadata"], !object.namespace().is_empty(), name, &FieldPath::new("metadata"))
}

fn stored(rules: &Strategy, base: Value, status: &Value) -> Value {
    let (mut object, _) = create(rules, base).unwrap_or_else(|(object, errors)| panic!("{} is not valid: {errors:?}", object.name()));
    object["metadata"]["uid"] = json!("UID");
    change(&object, status)
}

fn update(rules: &Strategy, mut new: Value, old: &Value) -> Result<(Value, Vec<String>), (Value, Vec<FieldError>)> {
    (rules.default)(&mut new);
    (rules.prepare_update)(&mut new, old);
    if rules.generation {
        let bump = i64::from((rules.changes_generation)(&new, old));
        new["metadata"]["generation"] = json!(old.generation() + bump);
    }
    let mut errors = (rules.validate)(&new);
    errors.extend((rules.validate_update)(&new, old));
    let warnings = rules.warn_of_update(&new, old);
    finish(rules, new, errors, warnings)
}

fn update_status(rules: &Strategy, mut new: Value, old: &Value) -> Result<(Value, Vec<String>), (Value, Vec<FieldError>)> {
    (rules.default)(&mut new);
    (rules.prepare_status_update)(&mut new, old);
    let errors = (rules.validate_status_update)(&new, old);
    if !errors.is_empty() {
        return Err((new, errors));
    }
    if let Some(metadata) = new["metadata"].as_object_mut() {
        metadata.remove("uid");
    }
    Ok((new, Vec::new()))
}

fn finish(
    rules: &Strategy,
    mut object: Value,
    errors: Vec<FieldError>,
    warnings: Vec<String>,
) -> Result<(Value, Vec<String>), (Value, Vec<FieldError>)> {
    if !errors.is_empty() {
        return Err((object, errors));
    }
    let mut again = object.clone();
    (rules.default)(&mut again);
    assert_eq!(again, object, "defaulting twice changes something");
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("uid");
    }
    Ok((object, warnings))
}

/// The edits of `record.py`.
fn change(value: &Value, edits: &Value) -> Value {
    let mut value = value.clone();
    for (path, new) in edits.as_object().into_iter().flatten() {
        let escaped = path.replace("\\.", "\0");
        let keys: Vec<String> = escaped.split('.').map(|k| k.replace('\0', ".")).collect();
        edit(&mut value, &keys, new);
    }
    value
}

fn edit(value: &mut Value, keys: &[String], new: &Value) {
    let [key, rest @ ..] = keys else { return };
    if value.is_null() {
        if new.is_null() {
            return;
        }
        *value = if key == "+" { json!([]) } else { json!({}) };
    }
    match (value, rest.is_empty()) {
        (Value::Array(list), true) if key == "+" => list.push(new.clone()),
        (Value::Array(list), true) => {
            let index: usize = key.parse().expect("an index");
            match new {
                Value::Null if index < list.len() => drop(list.remove(index)),
                Value::Null => {}
                new => list[index] = new.clone(),
            }
        }
        (Value::Array(list), false) => {
            if let Some(item) = key.parse().ok().and_then(|index: usize| list.get_mut(index)) {
                edit(item, rest, new);
            }
        }
        (Value::Object(map), true) if new.is_null() => drop(map.remove(key)),
        (Value::Object(map), true) => drop(map.insert(key.clone(), new.clone())),
        (Value::Object(map), false) if map.contains_key(key) || !new.is_null() => {
            edit(map.entry(key.clone()).or_insert(Value::Null), rest, new);
        }
        _ => {}
    }
}

fn differences(path: &str, ours: &Value, theirs: &Value) -> Vec<String> {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            let compare = |key: &&String| match (a.get(*key), b.get(*key)) {
                (Some(x), Some(y)) => differences(&format!("{path}.{key}"), x, y),
                (Some(x), None) => vec![format!("{path}.{key} is ours alone: {x}")],
                (None, y) => vec![format!("{path}.{key} is missing: {}", y.unwrap_or(&Value::Null))],
            };
            keys.iter().flat_map(compare).collect()
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().flat_map(|(i, (x, y))| differences(&format!("{path}[{i}]"), x, y)).collect()
        }
        (a, b) if a == b => Vec::new(),
        (a, b) => vec![format!("{path} is {a}, not {b}")],
    }
}
