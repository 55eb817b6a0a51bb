//! What the benches have in common: processes that are measured, load, percentiles, tables.
//!
//! A bench is a client from outside: it starts the built binary, speaks to it over the network and reads
//! what the kernel knows of its processes. It prints ratios; nothing is asserted.

#![allow(dead_code, reason = "each bench uses a part")]

pub mod load;
pub mod objects;
pub mod process;
pub mod seen;
pub mod table;
pub mod tenants;
pub mod wire;

use anyhow::Result;
use std::future::Future;
use std::path::PathBuf;

/// Another API server, measured beside the built one.
#[derive(clap::Args)]
pub struct Other {
    /// Another API server to measure with the same load
    #[arg(long, requires = "pids")]
    pub kubeconfig: Option<PathBuf>,
    /// The processes of the other API server and its store
    #[arg(long, value_delimiter = ',')]
    pub pids: Vec<u32>,
}

/// The arguments of a bench, without what Cargo adds.
pub fn arguments<A: clap::Parser>() -> A {
    A::parse_from(std::env::args().filter(|a| a != "--bench"))
}

/// Runs a bench on a runtime of its own.
pub fn run<F: Future<Output = Result<()>>>(bench: F) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(bench)
}
