//! A store of a journal: its queue, what it knows of its keys, its file and what the file does not have yet.

use super::frame::FrameWriter;
use super::pending::Pending;
use super::volume::Volume;
use crate::backend::{Event, Observer, StorageError, Write};
use crate::embedded::file::{File, Loaded, Mark, Marking};
use crate::state::Index;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// What one store puts into a group at most, so that a group that many wait for stays short.
const PART_WRITES_MAX: usize = 256;
const PART_BYTES_MAX: usize = 2 * 1024 * 1024;

pub(in crate::embedded) struct Request {
    pub write: Write,
    pub reply: oneshot::Sender<Result<u64, StorageError>>,
}

type Answer = (oneshot::Sender<Result<u64, StorageError>>, Result<u64, StorageError>);

pub(in crate::embedded) struct Store {
    pub mark: Mark,
    /// How the journal names it.
    pub name: String,
    pub path: PathBuf,
    pub file: File,
    /// Held while the file is changed.
    file_turn: Mutex<()>,
    /// The committing thread's own.
    writing: Mutex<Writing>,
    /// Whether it is in the list of those with something to do.
    pub listed: AtomicBool,
    marked: Mutex<Marked>,
    /// Guards memory alone.
    pending: Mutex<Pending>,
    /// Why nothing can be written any more. After a failed commit the files may or may not hold it: only
    /// opening them again can tell, so every later write fails.
    failed: Mutex<Option<String>>,
    pub observer: Mutex<Option<Observer>>,
    closing: Mutex<Option<std::sync::mpsc::SyncSender<()>>>,
}

struct Writing {
    /// `None` once closed.
    queue: Option<mpsc::Receiver<Request>>,
    index: Index,
}

/// Whether its file says that the journal has later writes. It must, before the first of them is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::embedded) enum Marked {
    No,
    Soon,
    Yes,
}

impl Store {
    pub fn new(volume: &dyn Volume, path: PathBuf, file: File, mark: Mark, loaded: &Loaded, queue: mpsc::Receiver<Request>) -> Self {
        let mut index = Index::new(loaded.revision);
        for kv in &loaded.values {
            index.insert(kv.key.clone(), kv.revision);
        }
        let marked = if file.mark() == Some(&mark) { Marked::Yes } else { Marked::No };
        Self {
            mark,
            name: volume.name_of(&path),
            path,
            file,
            file_turn: Mutex::default(),
            writing: Mutex::new(Writing { queue: Some(queue), index }),
            listed: AtomicBool::new(false),
            marked: Mutex::new(marked),
            pending: Mutex::new(Pending::at(loaded.revision)),
            failed: Mutex::default(),
            observer: Mutex::default(),
            closing: Mutex::default(),
        }
    }

    /// The revision of the last write.
    pub fn revision(&self) -> u64 {
        self.pending().revision()
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().expect("no holder of this lock panics")
    }

    fn failed(&self) -> MutexGuard<'_, Option<String>> {
        self.failed.lock().expect("no holder of this lock panics")
    }

    fn closing(&self) -> MutexGuard<'_, Option<std::sync::mpsc::SyncSender<()>>> {
        self.closing.lock().expect("no holder of this lock panics")
    }

    pub fn fail(&self, error: &StorageError) {
        self.failed().get_or_insert_with(|| {
            tracing::error!(store = %self.path.display(), %error, "the store cannot be written any more");
            error.to_string()
        });
    }

    fn check(&self) -> Result<(), StorageError> {
        self.failed().clone().map_or(Ok(()), |text| Err(StorageError::Failed(text)))
    }

    pub fn marked(&self) -> MutexGuard<'_, Marked> {
        self.marked.lock().expect("no holder of this lock panics")
    }

    /// Whether there is something in its queue.
    pub fn has_writes(&self) -> bool {
        self.writing().queue.as_ref().is_some_and(|queue| !queue.is_empty())
    }

    fn writing(&self) -> MutexGuard<'_, Writing> {
        self.writing.lock().expect("the committing thread does not panic while it holds this lock")
    }

    /// Asks the committing thread to finish with this store, and to say so.
    pub fn close_after_writes(&self, done: std::sync::mpsc::SyncSender<()>) {
        *self.closing() = Some(done);
    }

    pub fn is_closing(&self) -> bool {
        self.closing().is_some()
    }

    /// Nothing is written any more.
    pub fn closed(&self) {
        drop(self.writing().queue.take());
        if let Some(done) = self.closing().take() {
            // The closer waits for it.
            let _ = done.send(());
        }
    }

    /// Lets writes through that are queued; tells whether there are more.
    pub fn next_part(self: &Arc<Self>) -> (Part, bool) {
        let mut part = Part { store: self.clone(), events: Vec::new(), answers: Vec::new(), bytes: 0 };
        let failed = self.check();
        let mut writing = self.writing();
        while part.answers.len() < PART_WRITES_MAX && part.bytes < PART_BYTES_MAX {
            let request = writing.queue.as_mut().and_then(|queue| queue.try_recv().ok());
            let Some(Request { write, reply }) = request else { return (part, false) };
            // The index may be ahead of what is durable: not even a conflict could be told from it.
            let answer = match &failed {
                Err(error) => Err(StorageError::Failed(error.to_string())),
                Ok(()) => writing.index.apply(write).map(|applied| {
                    let revision = applied.event.revision;
                    part.bytes += applied.event.key.len() + applied.event.value.as_ref().map_or(0, bytes::Bytes::len);
                    part.events.push((applied.event, applied.replaced));
                    revision
                }),
            };
            part.answers.push((reply, answer));
        }
        (part, true)
    }

    /// Says in the file that the journal has later writes.
    pub fn set_mark(&self) {
        let _turn = self.file_turn.lock().unwrap_or_else(PoisonError::into_inner);
        let revision = self.file.revision();
        let changes = Pending::at(revision).take();
        if let Err(error) = self.file.commit(&changes.changes(Marking::Set(&self.mark))) {
            self.fail(&error);
        }
        *self.marked() = Marked::Yes;
    }

    /// Brings the file up to date, and at the `end` says there that nothing is missing. What a broken file
    /// does not take is kept beside it. An error tells that nothing could be kept.
    pub fn checkpoint(&self, volume: &dyn Volume, end: bool) -> Result<(), StorageError> {
        let _turn = self.file_turn.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = self.pending().take();
        let changes = taken.changes(if end && *self.marked() == Marked::Yes { Marking::Clear } else { Marking::Keep });
        if changes.events.is_empty() && changes.revision == self.file.revision() && matches!(changes.mark, Marking::Keep) {
            return Ok(());
        }
        let Err(error) = self.file.commit(&changes) else { return Ok(()) };
        self.fail(&error);
        self.pending().put_back(taken);
        let mut frame = FrameWriter::default();
        frame.clear();
        frame.store(self.mark.session, &self.name);
        for event in self.pending().events() {
            frame.write(self.mark.session, &event);
        }
        volume.write_unsaved(&self.path, Some(frame.finish(self.mark.session, 0))).map_err(|unsaved| {
            tracing::error!(store = %self.path.display(), error = %unsaved, "nor can its last writes be kept beside it");
            error
        })
    }

    /// Puts it into the list of those with something to do; false when it is there.
    pub fn list(&self) -> bool {
        !self.listed.swap(true, Ordering::SeqCst)
    }

    pub fn compact_step(&self) -> Result<bool, StorageError> {
        self.check()?;
        let _turn = self.file_turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.file.compact_step().inspect_err(|error| self.fail(error))
    }
}

/// The writes of one store in a group.
pub(in crate::embedded) struct Part {
    pub store: Arc<Store>,
    pub events: Vec<(Event, Option<u64>)>,
    answers: Vec<Answer>,
    pub bytes: usize,
}

impl Part {
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// Tells observers and writers, when the group is durable or will never be.
    pub fn finish(self, committed: &Result<(), StorageError>) {
        let events = !self.events.is_empty();
        let result = match committed {
            _ if !events => Ok(()),
            Ok(()) => self.observe(),
            Err(error) => Err(StorageError::Failed(error.to_string())),
        };
        if let Err(error) = &result {
            self.store.fail(error);
        }
        // A conflict may rest on a write of this group, so it too is answered now.
        for (reply, answer) in self.answers {
            let answer = match &result {
                Ok(()) => answer,
                Err(error) => Err(StorageError::Failed(error.to_string())),
            };
            // The writer may have given up waiting; its write stands.
            let _ = reply.send(answer);
        }
    }

    fn observe(&self) -> Result<(), StorageError> {
        {
            let mut pending = self.store.pending();
            for (event, replaced) in &self.events {
                pending.add(event, *replaced);
            }
        }
        let events: Vec<Event> = self.events.iter().map(|(event, _)| event.clone()).collect();
        // One store's observer must not end the thread that commits for all.
        let observed = std::panic::catch_unwind(AssertUnwindSafe(|| {
            if let Some(observer) = &mut *self.store.observer.lock().unwrap_or_else(PoisonError::into_inner) {
                observer(&events);
            }
        }));
        observed
            .map_err(|_| StorageError::Failed("the store's reader stopped after an internal error: restart to open the store again".into()))
    }
}
