//! Turns what a Kubernetes server publishes about its APIs into the facts files that sublet-apiserver builds in.
//!
//! `dump.sh DIR` saves the documents, `cargo run -p sublet-facts -- --server-dump DIR` writes the facts. Those of
//! protobuf come from the published Go modules: `--go-modules DIR` names the folder that `go mod download` put them in.
//! Facts are names, types, numbers and flags; descriptions stay out.

mod golang;
mod messages;
mod resources;
mod types;

use anyhow::{Context, Result};
use clap::Parser;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Parser)]
struct Args {
    /// The folder that dump.sh filled.
    #[arg(long)]
    server_dump: Option<PathBuf>,
    /// The folder `k8s.io` of the Go module cache.
    #[arg(long)]
    go_modules: Option<PathBuf>,
    /// The version of the Go modules.
    #[arg(long, default_value = "v0.37.2")]
    go_version: String,
    /// Where the facts files go.
    #[arg(long, default_value = "crates/sublet-apiserver/src/facts")]
    out: PathBuf,
}

fn main() -> Result<()> {
    let args = Args::parse();
    if let Some(dump) = &args.server_dump {
        write_published(dump, &args.out)?;
    }
    if let Some(modules) = &args.go_modules {
        write_messages(modules, &args.go_version, &args.out)?;
    }
    Ok(())
}

fn write_published(dump: &Path, out: &Path) -> Result<()> {
    let documents = read_all(&dump.join("openapi/v3"))?;
    let mut types = types::collect(&documents)?;
    types::take_all_kinds(&mut types, &read(&dump.join("openapi/v2.json"))?);
    fs::write(out.join("types.txt"), types::render(&types)?)?;

    let apiservices = read(&dump.join("apiservices.json"))?;
    fs::write(out.join("groups.tsv"), resources::render_groups(&apiservices)?)?;

    let mut discovery = vec![read(&dump.join("api/v1.json"))?];
    for group in read(&dump.join("apis.json"))?["groups"].as_array().into_iter().flatten() {
        for version in group["versions"].as_array().into_iter().flatten() {
            let version = version["groupVersion"].as_str().context("a version has groupVersion")?;
            discovery.push(read(&dump.join(format!("apis/{version}.json")))?);
        }
    }
    fs::write(out.join("resources.tsv"), resources::render(&discovery)?)?;
    Ok(())
}

/// The messages of all published types that are a kind.
fn write_messages(modules: &Path, version: &str, out: &Path) -> Result<()> {
    let types = fs::read_to_string(out.join("types.txt"))?;
    let mut files = Vec::new();
    for name in ["api", "apiextensions-apiserver", "apimachinery", "kube-aggregator"] {
        files.extend(messages::read_module(&modules.join(format!("{name}@{version}")), &format!("k8s.io/{name}"))?);
    }
    let mut roots: BTreeSet<String> = META_KINDS.iter().map(|kind| format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}")).collect();
    let mut package = "";
    for line in types.lines() {
        if let Some(name) = line.strip_prefix("package ") {
            package = name;
        } else if let Some((name, _)) = line.strip_prefix("type ").filter(|l| l.contains(" kinds=")).and_then(|l| l.split_once(' ')) {
            roots.insert(format!("{package}.{name}"));
        }
    }
    fs::write(out.join("messages.txt"), messages::render(&files, &roots)?)?;
    Ok(())
}

/// Kinds that no document publishes as such.
const META_KINDS: [&str; 3] = ["PartialObjectMetadata", "PartialObjectMetadataList", "WatchEvent"];

fn read_all(folder: &Path) -> Result<Vec<Value>> {
    let mut documents = Vec::new();
    let mut entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let path = entry.path();
        if path.is_dir() {
            documents.extend(read_all(&path)?);
        } else if path.extension().is_some_and(|e| e == "json") {
            documents.push(read(&path)?);
        }
    }
    Ok(documents)
}

fn read(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}
