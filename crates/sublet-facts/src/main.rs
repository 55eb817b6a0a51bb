//! Turns what a Kubernetes server publishes about its APIs into the facts files that sublet-apiserver builds in.
//!
//! `dump.sh DIR` saves the documents, `cargo run -p sublet-facts -- --server-dump DIR` writes the facts. Facts are
//! names, types and flags; descriptions stay out.

mod resources;
mod types;

use anyhow::{Context, Result};
use clap::Parser;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Parser)]
struct Args {
    /// The folder that dump.sh filled.
    #[arg(long)]
    server_dump: PathBuf,
    /// Where the facts files go.
    #[arg(long, default_value = "crates/sublet-apiserver/src/facts")]
    out: PathBuf,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let dump = &args.server_dump;
    let documents = read_all(&dump.join("openapi/v3"))?;
    let mut types = types::collect(&documents)?;
    types::take_all_kinds(&mut types, &read(&dump.join("openapi/v2.json"))?);
    fs::write(args.out.join("types.txt"), types::render(&types)?)?;

    let apiservices = read(&dump.join("apiservices.json"))?;
    fs::write(args.out.join("groups.tsv"), resources::render_groups(&apiservices)?)?;

    let mut discovery = vec![read(&dump.join("api/v1.json"))?];
    for group in read(&dump.join("apis.json"))?["groups"].as_array().into_iter().flatten() {
        for version in group["versions"].as_array().into_iter().flatten() {
            let version = version["groupVersion"].as_str().context("a version has groupVersion")?;
            discovery.push(read(&dump.join(format!("apis/{version}.json")))?);
        }
    }
    fs::write(args.out.join("resources.tsv"), resources::render(&discovery)?)?;
    Ok(())
}

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
