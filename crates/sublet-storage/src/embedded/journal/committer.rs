//! The thread that writes the journal: gathers what is queued in all stores, appends it at once, then tells
//! observers and writers. Others bring the stores' files up to date.

use super::log::{Limits, Log};
use super::random;
use super::shared::{Core, Turn};
use super::store::{Marked, Part, Store};
use super::volume::{Segment, Volume};
use crate::backend::StorageError;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

/// Bytes of one group. It keeps the latency of its first writer low.
const GROUP_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Files that are brought up to date at once: they wait for the disk most of the time.
const WORKERS: usize = 4;

/// redb recurses over a tree of a few levels.
const STACK_BYTES: usize = 512 * 1024;

/// The threads of an open journal.
pub(super) struct Threads {
    committer: JoinHandle<Log>,
    workers: Vec<JoinHandle<()>>,
}

impl Threads {
    pub fn start(volume: Arc<dyn Volume>, segments: [Box<dyn Segment>; 2], limits: Limits) -> Result<(Arc<Core>, Self), StorageError> {
        let (sender, jobs) = mpsc::channel();
        let core = Arc::new(Core::new(volume, sender));
        let mut log = Log::new(segments, limits, random());
        let committer = spawn("sublet-journal", {
            let core = core.clone();
            move || {
                let _last = Last(core.clone());
                while let Some(turn) = core.next(log.deadline()) {
                    match turn {
                        Turn::Stores(stores) => group(&core, &mut log, stores),
                        Turn::Late => log.late(&core),
                    }
                }
                log
            }
        })?;
        let jobs = Arc::new(Mutex::new(jobs));
        let workers = (0..WORKERS).map(|_| {
            let (core, jobs) = (Arc::downgrade(&core), jobs.clone());
            spawn("sublet-store", move || {
                loop {
                    // Its sender goes with the core.
                    let job = { jobs.lock().unwrap_or_else(PoisonError::into_inner).recv() };
                    let (Ok(job), Some(core)) = (job, core.upgrade()) else { return };
                    core.work(job);
                }
            })
        });
        let workers = workers.collect::<Result<_, _>>()?;
        Ok((core, Self { committer, workers }))
    }

    /// Ends them. Nobody has an open store any more.
    pub fn end(self, core: &Arc<Core>) {
        core.end();
        match self.committer.join() {
            Ok(log) => log.finish(core),
            Err(_) => tracing::error!("the journal's thread panicked; what it acknowledged is in its files"),
        }
        core.end_jobs();
        for worker in self.workers {
            if worker.join().is_err() {
                tracing::error!("a thread of the journal panicked; what was acknowledged is in the files");
            }
        }
    }
}

/// Sees to it that nobody waits for a thread that is no more.
struct Last(Arc<Core>);

impl Drop for Last {
    fn drop(&mut self) {
        self.0.ended();
    }
}

fn spawn<T: Send + 'static>(name: &str, run: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>, StorageError> {
    std::thread::Builder::new()
        .name(name.into())
        .stack_size(STACK_BYTES)
        .spawn(run)
        .map_err(|error| StorageError::Failed(format!("the store's threads do not start: {error}")))
}

/// Writes what the listed stores have in their queues.
fn group(core: &Arc<Core>, log: &mut Log, stores: Vec<Arc<Store>>) {
    let (mut parts, mut bytes, mut closing): (Vec<Part>, usize, Vec<Arc<Store>>) = (Vec::new(), 0, Vec::new());
    for store in stores {
        if bytes >= GROUP_BYTES_MAX {
            core.list(&store);
            continue;
        }
        if !may_write(core, &store) {
            continue;
        }
        let (part, more) = store.next_part();
        bytes += part.bytes;
        if more {
            core.list(&store);
        } else if store.is_closing() {
            closing.push(store);
        }
        if !part.is_empty() {
            parts.push(part);
        }
    }
    if !parts.is_empty() {
        let events = parts.iter().any(|p| !p.events.is_empty());
        let committed = if events { log.append(core, &parts) } else { Ok(()) };
        for part in parts {
            part.finish(&committed);
        }
    }
    for store in closing {
        store.closed();
    }
}

/// Whether the store's file is marked. If not, that is done first, unless there is nothing to write.
fn may_write(core: &Core, store: &Arc<Store>) -> bool {
    let marked = { *store.marked() };
    match marked {
        Marked::Yes => true,
        Marked::Soon => false,
        Marked::No if store.has_writes() => {
            core.mark(store);
            false
        }
        Marked::No => {
            if store.is_closing() {
                store.closed();
            }
            false
        }
    }
}
