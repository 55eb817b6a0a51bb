//! What the tests stand on: servers in folders of their own, plain requests, transcripts.

pub mod certificates;
pub mod client;
pub mod https;
pub mod mask;
pub mod server;
pub mod transcript;

pub use client::{Client, Credential, Request, Response};
pub use server::{Server, upstream};
pub use transcript::Transcript;

use std::time::Duration;
use tokio::time::Instant;

/// How long anything may take to become true.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// Waits until something is true.
pub async fn eventually(what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_true().await {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}
