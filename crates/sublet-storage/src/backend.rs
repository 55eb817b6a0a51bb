//! The narrow waist between the API server and whatever keeps its bytes.

use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// What must be true of the key for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    Any,
    Absent,
    /// The key exists and was last written at this revision.
    At(u64),
}

/// A put (`value` given) or a delete.
#[derive(Clone, Debug)]
pub struct Write {
    pub key: Arc<str>,
    pub value: Option<Bytes>,
    pub expect: Expect,
}

/// A write that happened.
#[derive(Clone, Debug)]
pub struct Event {
    pub revision: u64,
    pub key: Arc<str>,
    pub value: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    pub key: Arc<str>,
    pub value: Bytes,
    pub revision: u64,
}

/// Called with committed events in revision order, from the one committing thread. It must not block.
pub type Observer = Box<dyn FnMut(&[Event]) + Send>;

/// Random name given to a store when it is made. A tenant remembers it: a wrong or empty store under a
/// known tenant is refused, never used.
pub type StoreIdentity = String;

#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// `Expect` did not hold; the revision of the key now, or `None` when it does not exist.
    #[error("the key was changed by another writer")]
    Conflict { current: Option<u64> },
    /// The store is full, damaged or not writable; the text says what to do.
    #[error("{0}")]
    Failed(String),
    #[error("the store is closed")]
    Closed,
    /// What may be kept is kept already.
    #[error("the store holds {bytes} bytes of at most {most}")]
    Full { bytes: usize, most: usize },
}

pub type WriteFuture<'a> = Pin<Box<dyn Future<Output = Result<u64, StorageError>> + Send + 'a>>;

/// Bytes under keys, each write with a revision of its own.
pub trait Backend: Send + Sync + 'static {
    /// The current state and its revision. Called once, before [`Self::observe`].
    fn load(&self) -> Result<(Vec<KeyValue>, u64), StorageError>;

    /// From now on every committed event goes to `observer`. Called once, before the first write.
    fn observe(&self, observer: Observer);

    /// Writes durably and returns the revision of the write. Concurrent writers share one commit.
    fn write(&self, write: Write) -> WriteFuture<'_>;

    fn identity(&self) -> StoreIdentity;

    /// Bytes on disk (or held), for the size metric and quota.
    fn size_bytes(&self) -> u64;

    /// Gives back some space, a bounded step at a time; true when there is more to do.
    fn compact_step(&self) -> Result<bool, StorageError>;

    /// Commits what is queued and releases the file. Later writes fail with `Closed`.
    fn close(&self);
}
