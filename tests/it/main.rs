//! Black-box tests of the built binary: the HTTP API by route, durability, the command line, kubectl.
//!
//! The answers under `api/snapshots/` are upstream's: `SUBLET_IT_UPSTREAM=DIR INSTA_UPDATE=always
//! cargo test --test it api:: -- --test-threads=1` sends the same requests to a fresh kube-apiserver without controllers
//! that knows the tokens of `harness/server.rs`, and writes what it said. DIR holds its `admin.kubeconfig`, `ca.crt`
//! and `ca.key`. Where this server differs on purpose, the test says why and leaves the difference out.

#![expect(clippy::unwrap_used, reason = "a test may panic: that is how it fails")]

mod api;
mod bootstrap;
mod cli;
mod controllers;
mod durability;
mod harness;
mod in_cluster;
mod kubectl;
mod operator;
mod races;
mod strangers;
