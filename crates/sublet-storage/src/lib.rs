//! Revisions over bytes: what a tenant's state is kept in. Knows nothing of Kubernetes.
//!
//! Entry types: [`Backend`] (the trait), [`MemoryBackend`], [`EmbeddedBackend`] (a file of its own), [`Journal`] (what
//! the stores of a process write to together).
//!
//! Invariants: revisions rise by one per write and are never reused; a write is durable before
//! [`Backend::write`] returns; observers see every write once, in order, before its writer gets the answer.

mod backend;
mod embedded;
mod memory;
mod state;
#[cfg(any(test, feature = "suite"))]
pub mod suite;

pub use backend::{Backend, Event, Expect, KeyValue, Observer, StorageError, StoreIdentity, Write, WriteFuture};
pub use embedded::{EmbeddedBackend, Journal, Options};
pub use memory::MemoryBackend;
