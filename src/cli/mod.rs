//! The command line: one file per subcommand.

mod apiserver;
mod audit;
mod authentication;
mod check;
mod clusters;
mod completion;
mod connect;
mod create;
mod delete;
mod demo;
mod describe;
mod dev;
mod forward;
mod host;
mod install;
mod kubeconfig;
mod list;
mod manifests;
mod operator;
mod output;
mod pod;
mod shard;
mod uninstall;
mod version;

use clap::{Parser, Subcommand};
use std::io::IsTerminal as _;
use std::process::ExitCode;

/// Polls after which a busy thread looks whether something arrived. Tokio's own 61 make a quiet tenant wait for as many
/// turns of busy ones.
const EVENT_INTERVAL: u32 = 11;

const AFTER_HELP: &str = "Examples:
  sublet demo                                   See it all work, on this machine alone
  sublet dev --dir /tmp/sublet                  An embedded host cluster and the operator, until Ctrl-C
  sublet create alpha -n team-a --wait          A virtual cluster in host namespace team-a
  sublet connect alpha -n team-a -- kubectl get ns
  sublet kubeconfig alpha -n team-a > alpha.kubeconfig";

/// Virtual clusters for Kubernetes: an API server for every tenant, one shared host.
#[derive(Parser)]
#[command(name = "sublet", version, about, after_help = AFTER_HELP, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Log verbosity, as kube-apiserver's: 0 warnings, 2 what happens, 4 requests, 6 everything
    #[arg(long = "v", global = true, default_value_t = 1, value_name = "LEVEL")]
    verbosity: u8,
}

#[derive(Subcommand)]
enum Command {
    /// Show the whole product at work: two tenants on an embedded host, step by step
    Demo(demo::Arguments),
    /// Run an embedded host cluster and the operator in this process
    Dev(dev::Arguments),
    /// Run a Kubernetes API server with its controllers, alone
    Apiserver(Box<apiserver::Arguments>),
    /// Run the operator: in a cluster, or against one from outside of it
    Operator(operator::Arguments),
    /// Run the control planes that an operator placed in this pod
    #[command(hide = true)]
    Shard(shard::Arguments),
    /// Say whether a host cluster suits, and what will not work there
    Check(check::Arguments),
    /// Install Sublet in a host cluster
    Install(install::Arguments),
    /// Remove Sublet from a host cluster
    Uninstall(uninstall::Arguments),
    /// Create a virtual cluster
    Create(create::Arguments),
    /// List virtual clusters
    #[command(visible_alias = "ls")]
    List(list::Arguments),
    /// Show a virtual cluster, its conditions and events
    Describe(describe::Arguments),
    /// Delete a virtual cluster and everything in it
    Delete(delete::Arguments),
    /// Print the kubeconfig of a virtual cluster
    Kubeconfig(kubeconfig::Arguments),
    /// Run a command with the kubeconfig of a virtual cluster
    Connect(connect::Arguments),
    /// Write the manifests and the chart of an installation
    #[command(hide = true)]
    Manifests(manifests::Arguments),
    /// Print a shell completion script
    Completion(completion::Arguments),
    /// Print the version
    Version(version::Arguments),
}

/// Parses the arguments and runs the subcommand.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    start_logging(arguments.verbosity);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().event_interval(EVENT_INTERVAL).build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(async {
        match arguments.command {
            Command::Demo(a) => demo::run(a).await,
            Command::Dev(a) => dev::run(a).await,
            Command::Apiserver(a) => apiserver::run(*a).await,
            Command::Operator(a) => operator::run(a).await,
            Command::Shard(a) => shard::run(a).await,
            Command::Check(a) => check::run(a).await,
            Command::Install(a) => install::run(a).await,
            Command::Uninstall(a) => uninstall::run(a).await,
            Command::Create(a) => create::run(a).await,
            Command::List(a) => list::run(a).await,
            Command::Describe(a) => describe::run(a).await,
            Command::Delete(a) => delete::run(a).await,
            Command::Kubeconfig(a) => kubeconfig::run(a).await,
            Command::Connect(a) => connect::run(a).await,
            Command::Manifests(a) => manifests::run(a),
            Command::Completion(a) => completion::run(a),
            Command::Version(a) => version::run(a),
        }
    });
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error with its causes, each told once: some errors tell their cause themselves.
fn chain(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

fn start_logging(verbosity: u8) {
    let level = match verbosity {
        0 | 1 => "warn",
        2 | 3 => "info",
        4 | 5 => "debug",
        _ => "trace",
    };
    let own = format!(
        "warn,kube_client=off,sublet={level},sublet_apiserver={level},sublet_controllers={level},sublet_host={level},sublet_operator={level},sublet_runtime={level},sublet_storage={level},sublet_syncer={level}"
    );
    let filter = tracing_subscriber::EnvFilter::try_from_env("SUBLET_LOG").unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(own));
    // A second call in one process (tests) keeps the first subscriber.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .try_init();
}
