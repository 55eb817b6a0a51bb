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

/// The arguments of a bench, without what Cargo adds.
pub fn arguments<A: clap::Parser>() -> A {
    A::parse_from(std::env::args().filter(|a| a != "--bench"))
}

/// Runs a bench on a runtime of its own.
pub fn run<F: Future<Output = Result<()>>>(bench: F) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(bench)
}
