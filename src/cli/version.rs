//! `sublet version`

use super::output;
use anyhow::Result;
use clap::Args;
use serde_json::json;
use std::process::ExitCode;

#[derive(Args)]
pub struct Arguments {
    #[arg(short, long, value_enum)]
    output: Option<output::Format>,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let version = env!("CARGO_PKG_VERSION");
    match arguments.output {
        Some(format) => output::print(&json!({"version": version, "kubernetes": "1.37"}), format)?,
        None => println!("sublet {version} (serves Kubernetes 1.37)"),
    }
    Ok(ExitCode::SUCCESS)
}
