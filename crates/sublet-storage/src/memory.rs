//! A store without a file, for tests and throw-away clusters.

use crate::backend::{Backend, Event, KeyValue, Observer, StorageError, StoreIdentity, Write, WriteFuture};
use crate::state::{FIRST_REVISION, Index};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

pub struct MemoryBackend {
    identity: StoreIdentity,
    /// Held while a write is applied and observed, so that observers see revisions in order.
    state: Mutex<State>,
}

struct State {
    index: Index,
    values: BTreeMap<Arc<str>, (Bytes, u64)>,
    bytes: u64,
    observer: Option<Observer>,
    closed: bool,
}

impl MemoryBackend {
    #[must_use]
    pub fn new() -> Self {
        let state = State { index: Index::new(FIRST_REVISION), values: BTreeMap::new(), bytes: 0, observer: None, closed: false };
        Self { identity: uuid::Uuid::new_v4().to_string(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("observers do not panic")
    }
}

impl Default for MemoryBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    fn write(&mut self, write: Write) -> Result<u64, StorageError> {
        if self.closed {
            return Err(StorageError::Closed);
        }
        let event = self.index.apply(write)?.event;
        self.keep(&event);
        if let Some(observer) = &mut self.observer {
            observer(std::slice::from_ref(&event));
        }
        Ok(event.revision)
    }

    fn keep(&mut self, event: &Event) {
        let length = |value: &Bytes| (event.key.len() + value.len()) as u64;
        let old = match &event.value {
            Some(value) => {
                self.bytes += length(value);
                self.values.insert(event.key.clone(), (value.clone(), event.revision))
            }
            None => self.values.remove(&event.key),
        };
        self.bytes -= old.map_or(0, |(value, _)| length(&value));
    }
}

impl Backend for MemoryBackend {
    fn load(&self) -> Result<(Vec<KeyValue>, u64), StorageError> {
        let state = self.state();
        let values = state.values.iter();
        let loaded = values.map(|(key, (value, revision))| KeyValue { key: key.clone(), value: value.clone(), revision: *revision });
        Ok((loaded.collect(), state.index.revision()))
    }

    fn observe(&self, observer: Observer) {
        self.state().observer = Some(observer);
    }

    fn write(&self, write: Write) -> WriteFuture<'_> {
        Box::pin(async move { self.state().write(write) })
    }

    fn identity(&self) -> StoreIdentity {
        self.identity.clone()
    }

    fn size_bytes(&self) -> u64 {
        self.state().bytes
    }

    fn compact_step(&self) -> Result<bool, StorageError> {
        Ok(false)
    }

    fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.observer = None;
    }
}

#[cfg(test)]
mod tests {
    crate::suite!(super::MemoryBackend::new());
}
