//! `sublet completion`

use anyhow::Result;
use clap::{Args, CommandFactory as _};
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Example:
  source <(sublet completion bash)")]
pub struct Arguments {
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    clap_complete::generate(arguments.shell, &mut super::Arguments::command(), "sublet", &mut std::io::stdout());
    Ok(ExitCode::SUCCESS)
}
