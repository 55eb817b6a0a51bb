//! Compares what this server makes of upstream's fixtures with what upstream makes of them: `round_trip DIR...`, where each
//! `NAME.json`, `NAME.yaml` and `NAME.pb` of a folder are one object in three forms. What the fixtures of an older minor
//! become in this one is in `NAME.after_roundtrip.json`. `e2e/conformance/round-trip` runs it on the published Go modules.
//! With `--write`, what it encodes from JSON is left in `NAME.out`, for another decoder to judge.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};
use sublet_apiserver::facts::builtin;
use sublet_apiserver::protobuf;
use sublet_machinery::structural;

fn main() -> io::Result<ExitCode> {
    let (flags, folders): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|argument| argument == "--write");
    if folders.is_empty() {
        eprintln!("usage: round_trip DIR... [--write]");
        return Ok(ExitCode::from(2));
    }
    let mut all_alike = true;
    for folder in &folders {
        all_alike &= compare_folder(Path::new(folder), !flags.is_empty())?;
    }
    Ok(if all_alike { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn compare_folder(folder: &Path, write: bool) -> io::Result<bool> {
    let mut paths: Vec<_> = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?.iter().map(fs::DirEntry::path).collect();
    let is_after = |path: &Path| path.to_string_lossy().contains(".after_roundtrip.");
    paths.retain(|path| path.extension().is_some_and(|e| e == "pb") && !is_after(path));
    paths.sort();
    let (mut same, mut unknown, mut different) = (0, 0, 0);
    for path in &paths {
        let json: Value = serde_json::from_slice(&fs::read(path.with_extension("json"))?)?;
        let text = |key: &str| json[key].as_str().unwrap_or_default();
        if !protobuf::knows(text("apiVersion"), text("kind")) {
            unknown += 1;
            continue;
        }
        let checked = check_texts(path, &json).and_then(|()| check_protobuf(path, write));
        match checked {
            Ok(()) => same += 1,
            Err(why) => {
                different += 1;
                println!("{}: {why}", path.display());
            }
        }
    }
    let name = folder.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    println!("{name}: {same} alike, {different} different, {unknown} of kinds that this server does not have");
    Ok(different == 0 && same > 0)
}

/// The file that a fixture is compared with: what it becomes in this version, if that is something else.
fn expected(path: &Path, extension: &str) -> PathBuf {
    let after = path.with_extension(format!("after_roundtrip.{extension}"));
    if after.exists() { after } else { path.with_extension(extension) }
}

fn read_json(path: &Path) -> Result<Value, String> {
    let bytes = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_slice(&bytes).map_err(|e| e.to_string())
}

/// JSON and YAML are read as upstream reads them, and written again without a change.
fn check_texts(path: &Path, json: &Value) -> Result<(), String> {
    let expected = read_json(&expected(path, "json"))?;
    let (group, version) = json["apiVersion"]
        .as_str()
        .unwrap_or_default()
        .split_once('/')
        .unwrap_or_else(|| ("", json["apiVersion"].as_str().unwrap_or_default()));
    let Some(schema) = builtin().kind(group, version, json["kind"].as_str().unwrap_or_default()) else { return Ok(()) };
    let yaml = fs::read(path.with_extension("yaml")).map_err(|e| e.to_string())?;
    let yaml = structural::yaml_to_json(&yaml)?;
    for (form, text) in [("JSON", json.to_string().as_bytes()), ("YAML", &yaml.json)] {
        let decoded = structural::decode_typed(text, schema.node()).map_err(|e| e.to_string())?;
        if let Some(why) = decoded.type_error {
            return Err(format!("{form}: {why}"));
        }
        let mut value = decoded.value;
        builtin().normalize(schema.node(), &mut value);
        differ(&format!("{form}: "), &expected, &value)?;
    }
    Ok(())
}

fn check_protobuf(path: &Path, write: bool) -> Result<(), String> {
    let show = |e: &dyn std::fmt::Display| e.to_string();
    let expected_bytes = fs::read(expected(path, "pb")).map_err(|e| show(&e))?;
    let json = read_json(&expected(path, "json"))?;
    let decoded = protobuf::decode(&fs::read(path).map_err(|e| show(&e))?, None).map_err(|e| show(&e))?;
    differ("protobuf: ", &json, &decoded)?;
    let encoded = protobuf::encode(&json).map_err(|e| show(&e))?;
    let text = |key: &str| json[key].as_str().unwrap_or_default();
    let from_text = protobuf::encode_json(text("apiVersion"), text("kind"), json.to_string().as_bytes()).map_err(|e| show(&e))?;
    if encoded != from_text {
        return Err("a value and its text are encoded differently".into());
    }
    if write {
        fs::write(path.with_extension("out"), &encoded).map_err(|e| show(&e))?;
    }
    if encoded.len() != expected_bytes.len() {
        return Err(format!("{} bytes encoded, upstream has {}", encoded.len(), expected_bytes.len()));
    }
    let again = protobuf::decode(&encoded, None).map_err(|e| show(&e))?;
    differ("after encoding: ", &json, &again)
}

/// Names the first place where two values differ.
fn differ(path: &str, expected: &Value, found: &Value) -> Result<(), String> {
    match (expected, found) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys()) {
                let (a, b) = (a.get(key), b.get(key));
                match (a, b) {
                    (Some(a), Some(b)) => differ(&format!("{path}.{key}"), a, b)?,
                    _ => return Err(format!("{path}.{key}: expected {a:?}, found {b:?}")),
                }
            }
            Ok(())
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().try_for_each(|(at, (a, b))| differ(&format!("{path}[{at}]"), a, b))
        }
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => Ok(()),
        (a, b) if a == b => Ok(()),
        (a, b) => Err(format!("{path}: expected {a}, found {b}")),
    }
}
