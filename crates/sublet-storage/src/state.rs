//! Which key was last written when, and whether a write may happen: the rules shared by all backends.

use crate::backend::{Event, Expect, StorageError, Write};
use std::collections::HashMap;
use std::sync::Arc;

/// The revision of a store in which nothing was written yet. The first write gets the next one;
/// zero means "any revision" to Kubernetes clients and is never given out.
pub(crate) const FIRST_REVISION: u64 = 1;

/// Live keys with the revision of their last write.
pub(crate) struct Index {
    revisions: HashMap<Arc<str>, u64>,
    revision: u64,
}

/// A write that was let through, and the revision of the value it replaces.
pub(crate) struct Applied {
    pub event: Event,
    pub replaced: Option<u64>,
}

impl Index {
    pub fn new(revision: u64) -> Self {
        Self { revisions: HashMap::new(), revision }
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Takes over a key found in a file.
    pub fn insert(&mut self, key: Arc<str>, revision: u64) {
        self.revisions.insert(key, revision);
        self.revision = self.revision.max(revision);
    }

    /// Checks what the write expects and gives it a revision. A delete needs a key to delete: without
    /// one it is a conflict whatever it expects.
    pub fn apply(&mut self, write: Write) -> Result<Applied, StorageError> {
        let current = self.revisions.get(&write.key).copied();
        let holds = match write.expect {
            Expect::Any => true,
            Expect::Absent => current.is_none(),
            Expect::At(revision) => current == Some(revision),
        };
        if !holds || (write.value.is_none() && current.is_none()) {
            return Err(StorageError::Conflict { current });
        }
        self.revision += 1;
        match write.value {
            Some(_) => self.revisions.insert(write.key.clone(), self.revision),
            None => self.revisions.remove(&write.key),
        };
        Ok(Applied { event: Event { revision: self.revision, key: write.key, value: write.value }, replaced: current })
    }
}
