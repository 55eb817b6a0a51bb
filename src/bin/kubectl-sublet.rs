//! `kubectl sublet`: the same command as a kubectl plugin.

fn main() -> std::process::ExitCode {
    sublet::main()
}
