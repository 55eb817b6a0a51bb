//! Black-box tests of the built binary: the HTTP API by route, durability, the command line, kubectl.
//!
//! The answers under `api/snapshots/` are upstream's: `SUBLET_IT_UPSTREAM=DIR INSTA_UPDATE=always
//! cargo test --test it api:: -- --test-threads=1` sends the same requests to the kube-apiserver whose
//! `admin.kubeconfig`, `ca.crt`, `ca.key` and tokens are in DIR, and writes what it said.

#![expect(clippy::unwrap_used, reason = "a test may panic: that is how it fails")]

mod api;
mod cli;
mod durability;
mod harness;
mod kubectl;
mod races;
mod strangers;
