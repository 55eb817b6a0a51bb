//! One log for all stores of a process.
//!
//! A write is durable when it is in the journal: concurrent writes of all stores share one append and one
//! synchronization of one file. The stores' own files catch up later, with the last value of each key. The
//! journal has two files. When one is full, or old, the stores with writes in it are brought up to date while
//! writing goes on in the other.
//!
//! A store's file says when a journal may have later writes of it (its mark), and says so no more when it is
//! closed: then it is whole, and can be moved, deleted or opened anywhere. After a crash, the journal empties
//! itself into the files before anything is opened (`recovery.rs`).

mod committer;

mod frame;
mod log;
mod pending;
mod recovery;
mod shared;
mod store;
pub(super) mod volume;

use super::file::{File, Loaded, Mark};
use super::{EmbeddedBackend, Options};
use crate::backend::StorageError;
use committer::Threads;
pub(super) use log::Limits;
pub(super) use shared::Core;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
pub(super) use store::{Request, Store};
use tokio::sync::mpsc;
use volume::{Folder, Volume};

/// Writers of one store beyond these wait; nothing is dropped.
const QUEUE_WRITES_MAX: usize = 256;

/// The name of a journal's folder.
const DIR: &str = "journal";

/// The log that stores share. It is open while one of them is.
#[derive(Clone)]
pub struct Journal(Arc<Shared>);

struct Shared {
    volume: Arc<dyn Volume>,
    limits: Limits,
    /// Guards opening and closing.
    running: Mutex<Option<Running>>,
}

struct Running {
    core: Arc<Core>,
    threads: Threads,
    stores: usize,
    _lock: Box<dyn std::any::Any + Send>,
}

impl Journal {
    /// The journal of stores below a folder. It is made there with the first of them.
    #[must_use]
    pub fn of(dir: impl AsRef<Path>) -> Self {
        Self::on(Arc::new(Folder::new(dir.as_ref().join(DIR))), Limits::USUAL)
    }

    pub(super) fn on(volume: Arc<dyn Volume>, limits: Limits) -> Self {
        Self(Arc::new(Shared { volume, limits, running: Mutex::default() }))
    }

    /// Opens a store, or makes it with a new identity.
    pub fn open(&self, path: impl AsRef<Path>, options: &Options) -> Result<EmbeddedBackend, StorageError> {
        let core = self.enter()?;
        let opened = self.open_with(&core, path.as_ref(), options);
        if opened.is_err() {
            self.leave();
        }
        opened
    }

    /// Makes the file of a closed store whole, if a crash left it otherwise.
    pub fn settle(&self, path: impl AsRef<Path>) -> Result<(), StorageError> {
        if path.as_ref().exists() {
            drop(self.open(path, &Options::default())?);
        }
        Ok(())
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.0.running.lock().expect("no holder of this lock panics")
    }

    fn enter(&self) -> Result<Arc<Core>, StorageError> {
        let mut running = self.running();
        if let Some(running) = &mut *running {
            running.stores += 1;
            return Ok(running.core.clone());
        }
        let lock = self.0.volume.lock()?;
        let mut segments = self.0.volume.segments()?;
        recovery::recover(&*self.0.volume, &mut segments)?;
        let (core, threads) = Threads::start(self.0.volume.clone(), segments, self.0.limits)?;
        *running = Some(Running { core: core.clone(), threads, stores: 1, _lock: lock });
        Ok(core)
    }

    fn leave(&self) {
        let mut running = self.running();
        let Some(now) = &mut *running else { return };
        now.stores -= 1;
        if now.stores == 0
            && let Some(last) = running.take()
        {
            last.threads.end(&last.core);
        }
    }

    fn open_with(&self, core: &Arc<Core>, path: &Path, options: &Options) -> Result<EmbeddedBackend, StorageError> {
        let volume = &*self.0.volume;
        let mark = Mark { session: random(), journal: volume.seen_from(path) };
        let (file, loaded) = self.open_file(volume, path, options, &mark)?;
        let (requests, queue) = mpsc::channel(QUEUE_WRITES_MAX);
        let store = Arc::new(Store::new(volume, path.to_path_buf(), file, mark, &loaded, queue));
        Ok(EmbeddedBackend::opened(self.clone(), core.clone(), store, requests, loaded))
    }

    /// Opens the file with all that was ever acknowledged.
    fn open_file(&self, volume: &dyn Volume, path: &Path, options: &Options, mark: &Mark) -> Result<(File, Loaded), StorageError> {
        let open = || {
            let file = volume.open_store(path, options.cache_bytes, Some(mark))?;
            file.ok_or_else(|| StorageError::Failed(format!("cannot make {}", path.display())))
        };
        let mut file = open()?;
        let old = file.mark().filter(|old| *old != mark).cloned();
        if let Some(old) = old {
            if let Some(other) = volume.other(path, &old.journal)? {
                // Whoever opens a journal opens the files of its stores.
                drop(file);
                let _lock = other.lock()?;
                recovery::recover(&*other, &mut other.segments()?)?;
                file = open()?;
            }
            if file.mark().is_some() {
                let events = recovery::unsaved(volume, path, old.session)?;
                recovery::complete(volume, path, &file, &events)?;
            }
        }
        let loaded = file.load()?;
        Ok((file, loaded))
    }

    /// Has a store's file catch up, for whoever reads it.
    pub(super) fn catch_up(&self, store: &Store) -> Result<(), StorageError> {
        store.checkpoint(&*self.0.volume, false)
    }

    /// Ends a store: what is queued is written, the file is made whole.
    pub(super) fn close(&self, core: &Arc<Core>, store: &Arc<Store>) {
        let (done, closed) = std::sync::mpsc::sync_channel(1);
        store.close_after_writes(done);
        core.list(store);
        if closed.recv().is_err() {
            tracing::error!("the journal's thread panicked; what it acknowledged is in its files");
        }
        match store.checkpoint(&*self.0.volume, true) {
            Ok(()) => core.released(store),
            Err(error) => tracing::error!(store = %store.path.display(), %error, "the last writes of a store stay in the journal"),
        }
        store.file.close();
        self.leave();
    }
}

/// A number that nothing else has.
fn random() -> u64 {
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    high ^ low.rotate_left(32)
}
