//! `sublet`: virtual clusters for Kubernetes.

fn main() -> std::process::ExitCode {
    sublet::main()
}
