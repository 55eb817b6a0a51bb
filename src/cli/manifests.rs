//! `sublet manifests`

use crate::install;
use anyhow::{Context as _, Result};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub struct Arguments {
    /// The folder to write to; files that are no longer rendered are removed from it
    #[arg(default_value = "manifests", value_name = "DIR")]
    dir: PathBuf,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let files = install::tree()?;
    // Rendered as a whole: what a rename leaves behind would be applied for ever.
    for folder in ["crds", "rbac", "install", "overlays", "components", "samples", "chart"] {
        let _ = std::fs::remove_dir_all(arguments.dir.join(folder));
    }
    for file in &files {
        let path = arguments.dir.join(&file.path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        }
        std::fs::write(&path, &file.text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!("{} files in {}", files.len(), arguments.dir.display());
    Ok(ExitCode::SUCCESS)
}
