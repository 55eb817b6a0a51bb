//! Collects the descriptions of the built-in types for OpenAPI and `kubectl explain`.
//!
//! They are the doc comments of the k8s-openapi crate, which Cargo has unpacked anyway for the clients in this
//! workspace. Without its source the server is built all the same and its documents have no descriptions.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let mut out = String::new();
    match source() {
        Some(source) => {
            println!("cargo:rerun-if-changed={}", source.display());
            visit(&source, &mut |text| describe(text, &mut out));
        }
        None => {
            println!("cargo:warning=the source of k8s-openapi is not there: OpenAPI documents will have no descriptions");
            // A path that is missing makes Cargo look again in the next build.
            println!("cargo:rerun-if-changed=missing-k8s-openapi");
        }
    }
    let target = PathBuf::from(env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR")).join("descriptions.z");
    let file = fs::File::create(target).expect("OUT_DIR can be written");
    let mut encoder = flate2::write::ZlibEncoder::new(file, flate2::Compression::best());
    encoder.write_all(out.as_bytes()).and_then(|()| encoder.finish().map(drop)).expect("OUT_DIR can be written");
}

/// The folder of the generated types: unpacked by Cargo, or vendored into the workspace.
fn source() -> Option<PathBuf> {
    let cargo_home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = env::var_os("HOME").or_else(|| env::var_os("USERPROFILE")).map(|h| Path::new(&h).join(".cargo"));
    let registries = cargo_home.or(home).map(|home| children(&home.join("registry/src"))).unwrap_or_default();
    let vendored = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?).join("../../vendor");
    let crates = registries.iter().chain([&vendored]).flat_map(|folder| children(folder));
    let is_ours = |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("k8s-openapi"));
    let versions = crates.filter(is_ours).map(|path| path.join("src").join(VERSION)).filter(|path| path.is_dir());
    versions.max()
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    paths.sort();
    paths
}

fn visit(folder: &Path, each: &mut impl FnMut(&str)) {
    for path in children(folder) {
        if path.is_dir() {
            visit(&path, each);
        } else if let Ok(text) = fs::read_to_string(&path) {
            each(&text);
        }
    }
}

/// Appends a line `=TYPE<tab>description` and lines `FIELD<tab>description` for the type of a generated file.
fn describe(text: &str, out: &mut String) {
    let Some(name) = text.lines().find_map(|l| l.strip_prefix("// Generated from definition ")) else { return };
    let json_names = json_names(text);
    let mut docs: Vec<&str> = Vec::new();
    for line in text.lines() {
        let line = line.trim_start();
        if let Some(doc) = line.strip_prefix("///") {
            docs.push(doc.strip_prefix(' ').unwrap_or(doc));
        } else if line.starts_with("pub struct ") || line.starts_with("pub enum ") {
            line_of(out, &format!("={name}"), &docs);
            docs.clear();
        } else if let Some(field) = line.strip_prefix("pub ").and_then(|l| l.split_once(": ")) {
            if let Some(json_name) = json_names.get(field.0) {
                line_of(out, json_name, &docs);
            }
            docs.clear();
        } else if line == "}" && !out.is_empty() {
            break;
        } else if !line.starts_with("#[") {
            docs.clear();
        }
    }
}

/// Rust names of fields to their names in JSON, from the deserializer: `"hostIP" => Field::Key_host_ip,`.
fn json_names(text: &str) -> BTreeMap<&str, &str> {
    let pairs = text.lines().filter_map(|line| {
        let (json, field) = line.trim().strip_prefix('"')?.split_once("\" => Field::Key_")?;
        Some((field.strip_suffix(',')?, json))
    });
    pairs.collect()
}

fn line_of(out: &mut String, name: &str, docs: &[&str]) {
    let text = plain(&docs.join("\n"));
    out.push_str(name);
    out.push('\t');
    out.push_str(&text.trim().replace('\\', "\\\\").replace('\n', "\\n"));
    out.push('\n');
}

/// Takes back the escapes that keep rustdoc from reading markup.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let escapes = c == '\\' && chars.peek().is_some_and(|next| next.is_ascii_punctuation());
        if !escapes {
            out.push(c);
        } else if let Some(next) = chars.next() {
            out.push(next);
        }
    }
    out
}

const VERSION: &str = "v1_37";
