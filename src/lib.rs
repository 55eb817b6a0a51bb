//! The `sublet` command: thin entrances to the rooms under `crates/`.

pub mod cli;
pub mod compose;
pub mod install;

/// Answers are made of many small pieces, by threads that hand them on to each other.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs the command line; the exit code of the process.
pub fn main() -> std::process::ExitCode {
    cli::run()
}
