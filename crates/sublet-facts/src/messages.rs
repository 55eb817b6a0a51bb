//! Protobuf messages: from `generated.proto` and the struct tags of the Go types to one line per field.
//!
//! The proto files have numbers and types. What JSON makes of a field (its name, whether it is left out when empty,
//! whether it is a pointer) stands in the tags of the Go struct of the same name.

use crate::golang::{Package, Tags};
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The messages of one `generated.proto`.
#[derive(Debug)]
pub struct ProtoFile {
    /// As OpenAPI names it: `io.k8s.api.apps.v1`.
    package: String,
    /// As other proto files name it: `k8s.io.api.apps.v1`.
    proto_package: String,
    messages: BTreeMap<String, Vec<ProtoField>>,
    go: Package,
}

#[derive(Debug)]
struct ProtoField {
    name: String,
    number: u32,
    /// `string`, `[]Container`, `{}string`, with types as the file names them.
    shape: String,
}

/// Reads the `generated.proto` files of a Go module.
pub fn read_module(root: &Path, module: &str) -> Result<Vec<ProtoFile>> {
    let mut files = Vec::new();
    visit(root, &mut |folder| {
        let proto = folder.join("generated.proto");
        if !proto.is_file() {
            return Ok(());
        }
        let inside = folder.strip_prefix(root)?.to_str().context("a path is text")?;
        let import = if inside.is_empty() { module.to_string() } else { format!("{module}/{inside}") };
        let text = fs::read_to_string(&proto)?;
        let go = Package::read(folder)?;
        files.push(parse(&import, &text, go).with_context(|| proto.display().to_string())?);
        Ok(())
    })?;
    Ok(files)
}

fn visit(folder: &Path, each: &mut impl FnMut(&Path) -> Result<()>) -> Result<()> {
    each(folder)?;
    let mut entries: Vec<_> = fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries.iter().filter(|e| e.path().is_dir() && e.file_name() != "testdata") {
        visit(&entry.path(), each)?;
    }
    Ok(())
}

fn parse(import: &str, text: &str, go: Package) -> Result<ProtoFile> {
    let mut file = ProtoFile {
        package: openapi_package(import),
        proto_package: import.replace('/', ".").replace('-', "_"),
        messages: BTreeMap::new(),
        go,
    };
    let mut open: Option<(String, Vec<ProtoField>)> = None;
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("//")) {
        if let Some(name) = line.strip_prefix("message ").and_then(|l| l.strip_suffix(" {")) {
            open = Some((name.to_string(), Vec::new()));
        } else if line == "}" {
            let (name, fields) = open.take().context("a message ends that did not begin")?;
            file.messages.insert(name, fields);
        } else if let Some((_, fields)) = &mut open {
            fields.push(field(line).with_context(|| line.to_string())?);
        }
    }
    Ok(file)
}

/// `k8s.io/api/apps/v1` is published as `io.k8s.api.apps.v1`.
fn openapi_package(import: &str) -> String {
    let path = import.strip_prefix("k8s.io/").unwrap_or(import);
    format!("io.k8s.{}", path.replace('/', "."))
}

/// `optional string name = 1;`
fn field(line: &str) -> Result<ProtoField> {
    let (head, number) = line.trim_end_matches(';').rsplit_once(" = ").context("a field has a number")?;
    let (shape, name) = head.rsplit_once(' ').context("a field has a type")?;
    let shape = if let Some(of) = shape.strip_prefix("optional ") {
        of.to_string()
    } else if let Some(of) = shape.strip_prefix("repeated ") {
        format!("[]{of}")
    } else if let Some(of) = shape.strip_prefix("map<string, ").and_then(|s| s.strip_suffix('>')) {
        format!("{{}}{of}")
    } else {
        bail!("neither optional, repeated nor a map from strings");
    };
    Ok(ProtoField { name: name.to_string(), number: number.parse()?, shape })
}

/// The facts file: the messages that the published types of `roots` are made of.
pub fn render(files: &[ProtoFile], roots: &BTreeSet<String>) -> Result<String> {
    let mut wanted: Vec<String> = roots.iter().cloned().collect();
    let mut done: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    while let Some(full) = wanted.pop() {
        let (package, name) = full.rsplit_once('.').context("a type has a package")?;
        // Types without a message, such as version.Info, are only ever shown as JSON.
        let Some(file) = files.iter().find(|f| f.package == package && f.messages.contains_key(name)) else { continue };
        if done.get(package).is_some_and(|of| of.contains_key(name)) {
            continue;
        }
        let text = message(files, file, name, &mut wanted).with_context(|| full.clone())?;
        done.entry(package.to_string()).or_default().insert(name.to_string(), text);
    }
    let mut out = String::from(HEADER);
    for (package, messages) in done {
        writeln!(out, "package {package}")?;
        out.extend(messages.into_values());
    }
    Ok(out)
}

fn message(files: &[ProtoFile], file: &ProtoFile, name: &str, wanted: &mut Vec<String>) -> Result<String> {
    let fields = &file.messages[name];
    if file.go.custom_json.contains(name) {
        return Ok(format!("custom {name}\n"));
    }
    let Some(tags) = file.go.structs.get(name) else {
        let [items] = fields.as_slice() else { bail!("neither a Go struct nor a list") };
        return Ok(format!("list {name} {} {}\n", items.number, resolve(files, file, &items.shape, wanted)?));
    };
    let mut out = format!("message {name}\n");
    for field in fields {
        let tag = tags.get(&field.number).with_context(|| format!("field {} has no tag", field.name))?;
        let shape = resolve(files, file, &field.shape, wanted)?;
        writeln!(out, " {} {} {shape}{}{}", json_name(tag), field.number, flags(tag), go_name(files, file, tag))?;
    }
    Ok(out)
}

fn json_name(tag: &Tags) -> &str {
    if tag.inline { "-" } else { &tag.json }
}

fn flags(tag: &Tags) -> String {
    let mut out = String::new();
    for (set, word) in [(tag.pointer, " pointer"), (!tag.omit_empty && !tag.inline, " keep"), (tag.omit_zero, " omitzero")] {
        if set {
            out.push_str(word);
        }
    }
    out
}

/// The name of a Go type that the shape does not show, such as that of a text with a meaning: ` go=v1.PullPolicy`.
fn go_name(files: &[ProtoFile], file: &ProtoFile, tag: &Tags) -> String {
    let prefix = if tag.go_type.starts_with("[]") { "[]" } else { "" };
    let name = &tag.go_type[prefix.len()..];
    let version = |package: &str| package.rsplit('.').next().unwrap_or_default().to_string();
    let found = match name.split_once('.') {
        None if file.go.named.contains(name) => Some((version(&file.package), name)),
        // Packages are imported under names such as `corev1` and `v1`; a type of its name is in one of that version.
        Some((alias, short)) => files
            .iter()
            .find(|f| f.go.named.contains(short) && alias.ends_with(&version(&f.package)) && !f.messages.contains_key(short))
            .map(|f| (version(&f.package), short)),
        None => None,
    };
    match found {
        Some((version, short)) => format!(" go={prefix}{version}.{short}"),
        None => {
            NAMED_ELSEWHERE.iter().find(|n| name.ends_with(&format!(".{n}"))).map_or(String::new(), |n| format!(" go={prefix}types.{n}"))
        }
    }
}

/// Names for texts in a package that has no messages.
const NAMED_ELSEWHERE: &[&str] = &["UID"];

/// Names of types as the facts have them: short in their own package.
fn resolve(files: &[ProtoFile], file: &ProtoFile, shape: &str, wanted: &mut Vec<String>) -> Result<String> {
    let (prefix, name) = match shape {
        s if s.starts_with("[]") || s.starts_with("{}") => s.split_at(2),
        s => ("", s),
    };
    if SCALARS.contains(&name) {
        return Ok(shape.to_string());
    }
    let Some(full) = name.strip_prefix('.') else {
        wanted.push(format!("{}.{name}", file.package));
        return Ok(shape.to_string());
    };
    let (package, short) = full.rsplit_once('.').context("a type has a package")?;
    let of = files.iter().find(|f| f.proto_package == package).with_context(|| format!("no file has the package {package}"))?;
    wanted.push(format!("{}.{short}", of.package));
    Ok(format!("{prefix}{}.{short}", of.package))
}

const SCALARS: &[&str] = &["string", "bytes", "bool", "int32", "int64", "double"];
const HEADER: &str =
    "# Protobuf messages of Kubernetes 1.37, from its generated.proto files and Go struct tags. Written by sublet-facts; do not edit.
# `message NAME` opens a message, its fields follow as ` JSONNAME NUMBER TYPE attributes`; `-` is a message whose fields JSON
# shows in the outer object. `pointer`: absent differs from zero. `keep`: JSON shows zero too. `omitzero`: a zero message is left out.
# `go=`: the name of the Go type where that is not the shape's own.
# `list NAME NUMBER TYPE` is a message that JSON shows as a list. `custom NAME` has a JSON form of its own.
";
