//! What the tests stand on: servers in folders of their own, plain requests, transcripts.

pub mod certificates;
pub mod client;
pub mod mask;
pub mod server;
pub mod transcript;

pub use client::{Credential, Request};
pub use transcript::Transcript;
