//! The `sublet` command: thin entrances to the rooms under `crates/`.

pub mod cli;
pub mod compose;
pub mod install;

/// Runs the command line; the exit code of the process.
pub fn main() -> std::process::ExitCode {
    cli::run()
}
