//! The one thread that writes: gathers what is queued, commits it at once, then tells observers and writers.

use crate::backend::{Event, Observer, StorageError, Write};
use crate::embedded::file::{File, Loaded};
use crate::state::Index;
use std::sync::{Arc, Mutex};
use tokio::sync::{mpsc, oneshot};

/// Bounds of one commit. The first keeps the latency of its first writer low, the second its memory.
const BATCH_WRITES_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

pub(super) enum Request {
    Write { write: Write, reply: oneshot::Sender<Result<u64, StorageError>> },
    Compact { reply: std::sync::mpsc::SyncSender<Result<bool, StorageError>> },
}

pub(super) struct Writer {
    file: Arc<File>,
    index: Index,
    observer: Arc<Mutex<Option<Observer>>>,
    /// Why nothing can be written any more. After a failed commit the file may or may not hold it: only
    /// opening it again can tell, so every later write fails.
    failed: Option<String>,
}

type Answer = (oneshot::Sender<Result<u64, StorageError>>, Result<u64, StorageError>);

impl Writer {
    pub fn new(file: Arc<File>, loaded: &Loaded, observer: Arc<Mutex<Option<Observer>>>) -> Self {
        let mut index = Index::new(loaded.revision);
        for kv in &loaded.values {
            index.insert(kv.key.clone(), kv.revision);
        }
        Self { file, index, observer, failed: None }
    }

    /// Runs until the last sender is gone and the queue is empty.
    pub fn run(mut self, mut queue: mpsc::Receiver<Request>) {
        while let Some(first) = queue.blocking_recv() {
            let mut next = Some(first);
            let mut batch = Vec::new();
            let mut bytes = 0;
            let mut compact = None;
            while let Some(request) = next.take() {
                match request {
                    Request::Write { write, reply } => {
                        bytes += write.value.as_ref().map_or(0, bytes::Bytes::len);
                        batch.push((write, reply));
                    }
                    Request::Compact { reply } => {
                        compact = Some(reply);
                        break;
                    }
                }
                if batch.len() < BATCH_WRITES_MAX && bytes < BATCH_BYTES_MAX {
                    next = queue.try_recv().ok();
                }
            }
            if !batch.is_empty() {
                self.commit(batch);
            }
            if let Some(reply) = compact {
                let result = self.guarded(|file| file.compact_step());
                // The caller may have stopped waiting.
                let _ = reply.send(result);
            }
        }
    }

    fn commit(&mut self, batch: Vec<(Write, oneshot::Sender<Result<u64, StorageError>>)>) {
        if let Some(text) = &self.failed {
            // The index may be ahead of the file: not even a conflict could be told from it.
            for (_, reply) in batch {
                let _ = reply.send(Err(StorageError::Failed(text.clone())));
            }
            return;
        }
        let mut events: Vec<Event> = Vec::with_capacity(batch.len());
        let mut replaced = Vec::new();
        let mut answers: Vec<Answer> = Vec::with_capacity(batch.len());
        let stored = self.index.revision();
        for (write, reply) in batch {
            let answer = self.index.apply(write).map(|applied| {
                let revision = applied.event.revision;
                events.push(applied.event);
                // A value written earlier in this batch never reaches the file.
                replaced.extend(applied.replaced.filter(|r| *r <= stored));
                revision
            });
            answers.push((reply, answer));
        }
        // A conflict may rest on a write of this batch, so it too is answered after the commit.
        let committed = if events.is_empty() { Ok(()) } else { self.guarded(|file| file.commit(&events, &replaced)) };
        if committed.is_ok()
            && !events.is_empty()
            && let Some(observer) = &mut *self.observer.lock().expect("observers do not panic")
        {
            observer(&events);
        }
        for (reply, answer) in answers {
            let answer = match &committed {
                Ok(()) => answer,
                Err(error) => Err(StorageError::Failed(error.to_string())),
            };
            // The writer may have given up waiting; its write stands.
            let _ = reply.send(answer);
        }
    }

    /// Does something to the file, unless an earlier attempt failed.
    fn guarded<T>(&mut self, action: impl FnOnce(&File) -> Result<T, StorageError>) -> Result<T, StorageError> {
        if let Some(text) = &self.failed {
            return Err(StorageError::Failed(text.clone()));
        }
        action(&self.file).inspect_err(|error| {
            tracing::error!(%error, "the store cannot be written any more");
            self.failed = Some(error.to_string());
        })
    }
}
