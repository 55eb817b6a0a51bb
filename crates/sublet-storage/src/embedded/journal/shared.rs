//! What the threads of a journal share: who has something to write, and which stores each of its two files
//! is still needed for.

use super::store::{Marked, Store};
use super::volume::Volume;
use crate::backend::StorageError;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

pub(in crate::embedded) struct Core {
    pub volume: Arc<dyn Volume>,
    listed: Mutex<Listed>,
    /// Somebody was listed, or the end has come.
    wake: Condvar,
    segments: Mutex<[Held; 2]>,
    /// A file is needed less, or cannot be given up.
    freed: Condvar,
    /// `None` when nothing is left to do.
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
}

#[derive(Default)]
struct Listed {
    stores: VecDeque<Arc<Store>>,
    ending: bool,
    /// The committing thread is gone.
    ended: bool,
}

/// Why a file of the journal must stay as it is.
#[derive(Default)]
struct Held {
    /// Those with writes in it that are nowhere else.
    stores: HashMap<u64, Arc<Store>>,
    /// What went wrong when they were to be written elsewhere.
    stuck: Option<String>,
}

/// Work on stores' files, which takes longer than others should wait.
pub(in crate::embedded) enum Job {
    Mark(Arc<Store>),
    Checkpoint(Arc<Store>, usize),
}

/// What the committing thread does next.
pub(in crate::embedded) enum Turn {
    Stores(Vec<Arc<Store>>),
    /// Nobody wrote until the time given.
    Late,
}

impl Core {
    pub fn new(volume: Arc<dyn Volume>, jobs: mpsc::Sender<Job>) -> Self {
        Self {
            volume,
            listed: Mutex::default(),
            wake: Condvar::new(),
            segments: Mutex::default(),
            freed: Condvar::new(),
            jobs: Mutex::new(Some(jobs)),
        }
    }

    fn listed(&self) -> MutexGuard<'_, Listed> {
        self.listed.lock().expect("no holder of this lock panics")
    }

    fn segments(&self) -> MutexGuard<'_, [Held; 2]> {
        self.segments.lock().expect("no holder of this lock panics")
    }

    /// Says that a store has something to do for the committing thread.
    pub fn list(&self, store: &Arc<Store>) {
        if !store.list() {
            return;
        }
        let mut listed = self.listed();
        if listed.ended {
            store.closed();
        } else {
            listed.stores.push_back(store.clone());
            self.wake.notify_one();
        }
    }

    /// The committing thread ends when nothing is left to do.
    pub fn end(&self) {
        self.listed().ending = true;
        self.wake.notify_one();
    }

    /// Nobody writes the journal any more.
    pub fn ended(&self) {
        let mut listed = self.listed();
        listed.ended = true;
        for store in listed.stores.drain(..) {
            store.listed.store(false, Ordering::SeqCst);
            store.closed();
        }
    }

    /// The workers end when they have done what they were given.
    pub fn end_jobs(&self) {
        self.jobs().take();
    }

    fn jobs(&self) -> MutexGuard<'_, Option<mpsc::Sender<Job>>> {
        self.jobs.lock().expect("no holder of this lock panics")
    }

    /// All that are listed, or `Late` when nobody is until `deadline`; `None` at the end.
    pub fn next(&self, deadline: Option<Instant>) -> Option<Turn> {
        let mut listed = self.listed();
        loop {
            if !listed.stores.is_empty() {
                let stores: Vec<Arc<Store>> = listed.stores.drain(..).collect();
                for store in &stores {
                    // Before its queue is read: what comes later lists it again.
                    store.listed.store(false, Ordering::SeqCst);
                }
                return Some(Turn::Stores(stores));
            }
            if listed.ending {
                return None;
            }
            listed = match deadline.map(|d| d.saturating_duration_since(Instant::now())) {
                None => self.wake.wait(listed).expect("no holder of this lock panics"),
                Some(Duration::ZERO) => return Some(Turn::Late),
                Some(left) => self.wake.wait_timeout(listed, left).expect("no holder of this lock panics").0,
            };
        }
    }

    /// Has the store's file marked; it is listed again when that is done.
    pub fn mark(&self, store: &Arc<Store>) {
        *store.marked() = Marked::Soon;
        self.job(Job::Mark(store.clone()));
    }

    fn job(&self, job: Job) {
        if let Some(jobs) = &*self.jobs() {
            // The workers live as long as the committing thread.
            let _ = jobs.send(job);
        }
    }

    /// A file of the journal got writes of a store.
    pub fn hold(&self, segment: usize, store: &Arc<Store>) {
        let held = &mut self.segments()[segment].stores;
        held.entry(store.mark.session).or_insert_with(|| store.clone());
    }

    /// Begins to bring those up to date that a file of the journal is needed for.
    pub fn release(&self, segment: usize) {
        let held = &mut self.segments()[segment];
        held.stuck = None;
        for store in held.stores.values() {
            self.job(Job::Checkpoint(store.clone(), segment));
        }
    }

    /// Waits until a file of the journal is not needed. When that cannot be, it is tried anew and the error
    /// tells why it was not.
    pub fn wait_released(&self, segment: usize) -> Result<(), StorageError> {
        let mut segments = self.segments();
        loop {
            let held = &mut segments[segment];
            if held.stores.is_empty() {
                return Ok(());
            }
            if let Some(text) = held.stuck.take() {
                drop(segments);
                self.release(segment);
                return Err(StorageError::Failed(text));
            }
            segments = self.freed.wait(segments).expect("no holder of this lock panics");
        }
    }

    /// Whether nothing in the journal is needed.
    pub fn is_released(&self) -> bool {
        self.segments().iter().all(|held| held.stores.is_empty())
    }

    /// The store's writes are in its file, or beside it.
    pub fn released(&self, store: &Store) {
        for held in self.segments().iter_mut() {
            held.stores.remove(&store.mark.session);
        }
        self.freed.notify_all();
    }

    pub fn work(self: &Arc<Self>, job: Job) {
        match job {
            Job::Mark(store) => {
                store.set_mark();
                self.list(&store);
            }
            Job::Checkpoint(store, segment) => {
                let result = store.checkpoint(&*self.volume, false);
                let held = &mut self.segments()[segment];
                match result {
                    Ok(()) => {
                        held.stores.remove(&store.mark.session);
                    }
                    Err(error) => held.stuck = Some(error.to_string()),
                }
                self.freed.notify_all();
            }
        }
    }
}
