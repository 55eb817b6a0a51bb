//! Compares the protobuf transcoder with upstream's: `protobuf DIR`, where each `NAME.pb` is an object in its envelope
//! and `NAME.json` the same object as Go shows it. `protobuf-fixtures.sh` runs it on the fixtures of the published
//! Go module. With `--write`, what it encodes from JSON is left in `NAME.out`, for another decoder to judge.

use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;
use std::{fs, io};
use sublet_apiserver::protobuf;

fn main() -> io::Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let Some(folder) = arguments.next() else {
        eprintln!("usage: protobuf DIR [--write]");
        return Ok(ExitCode::from(2));
    };
    let write = arguments.next().is_some();
    let mut paths: Vec<_> = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?.iter().map(fs::DirEntry::path).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "pb"));
    paths.sort();
    let (mut same, mut unknown, mut different) = (0, 0, 0);
    for path in &paths {
        let json: Value = serde_json::from_slice(&fs::read(path.with_extension("json"))?)?;
        let text = |key: &str| json[key].as_str().unwrap_or_default();
        if !protobuf::knows(text("apiVersion"), text("kind")) {
            unknown += 1;
            continue;
        }
        match check(path, &json, write) {
            Ok(()) => same += 1,
            Err(why) => {
                different += 1;
                println!("{}: {why}", path.display());
            }
        }
    }
    println!("{same} alike, {different} different, {unknown} of kinds that this server does not have");
    Ok(if different == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check(path: &Path, json: &Value, write: bool) -> Result<(), String> {
    let show = |e: &dyn std::fmt::Display| e.to_string();
    let bytes = fs::read(path).map_err(|e| show(&e))?;
    let decoded = protobuf::decode(&bytes, None).map_err(|e| show(&e))?;
    differ("", json, &decoded)?;
    let encoded = protobuf::encode(json).map_err(|e| show(&e))?;
    let text = |key: &str| json[key].as_str().unwrap_or_default();
    let from_text = protobuf::encode_json(text("apiVersion"), text("kind"), json.to_string().as_bytes()).map_err(|e| show(&e))?;
    if encoded != from_text {
        return Err("a value and its text are encoded differently".into());
    }
    if write {
        fs::write(path.with_extension("out"), &encoded).map_err(|e| show(&e))?;
    }
    if encoded.len() != bytes.len() {
        return Err(format!("{} bytes encoded, upstream has {}", encoded.len(), bytes.len()));
    }
    let again = protobuf::decode(&encoded, None).map_err(|e| show(&e))?;
    differ("after encoding: ", json, &again)
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
