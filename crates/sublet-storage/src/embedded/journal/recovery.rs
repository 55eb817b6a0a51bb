//! What is done with the writes that a journal has when it is opened: they go to the stores' files, so that it
//! begins empty and each file is whole without it.

use super::frame::{self, FrameWriter, Record, WriteRecord};
use super::pending::Pending;
use super::volume::{Segment, Volume};
use crate::backend::{Event, StorageError};
use crate::embedded::file::{File, Marking, io_text};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Files that are brought up to date at once: they wait for the disk most of the time.
const FILES_AT_ONCE: usize = 4;

/// Pages of a file that is open for a moment.
const CACHE_BYTES: usize = 256 * 1024;

/// The writes of a session.
struct Found {
    session: u64,
    name: String,
    writes: Vec<WriteRecord>,
}

/// Empties the journal into its stores.
pub(super) fn recover(volume: &dyn Volume, segments: &mut [Box<dyn Segment>; 2]) -> Result<(), StorageError> {
    let found = Mutex::new(read(segments)?);
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..FILES_AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = { found.lock().unwrap_or_else(PoisonError::into_inner).pop() };
                    let Some(found) = next else { return };
                    if let Err(error) = found.recover(volume) {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    }
                }
            });
        }
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    for segment in segments {
        segment.empty().map_err(|error| StorageError::Failed(io_text(&error)))?;
    }
    Ok(())
}

fn read(segments: &mut [Box<dyn Segment>; 2]) -> Result<Vec<Found>, StorageError> {
    let mut bytes = |at: usize| segments[at].read().map_err(|error| StorageError::Failed(io_text(&error)));
    let contents = frame::read_both([&bytes(0)?, &bytes(1)?]).map_err(|_| damaged("journal"))?;
    let mut found: HashMap<u64, Found> = HashMap::new();
    for record in contents.into_iter().flat_map(|c| c.records) {
        match record {
            Record::Store { session, name } => {
                found.entry(session).or_insert_with(|| Found { session, name, writes: Vec::new() });
            }
            Record::Write { session, event } => {
                found.get_mut(&session).ok_or_else(|| damaged("journal"))?.writes.push(event);
            }
        }
    }
    Ok(found.into_values().collect())
}

impl Found {
    /// An error tells that the writes could be kept nowhere.
    fn recover(self, volume: &dyn Volume) -> Result<(), StorageError> {
        let path = volume.path_of(&self.name);
        let error = match volume.open_store(&path, CACHE_BYTES, None) {
            // Its tenant is gone.
            Ok(None) => return Ok(()),
            Ok(Some(file)) => match self.give(volume, &path, &file) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            },
            Err(error) => error,
        };
        tracing::error!(store = %path.display(), %error, "the last writes of a store are kept beside it");
        let mut kept = unsaved(volume, &path, self.session)?;
        let last = kept.last().map_or(0, |e| e.revision);
        kept.extend(self.writes.into_iter().filter(|w| w.revision > last).map(WriteRecord::into_event));
        let mut frame = FrameWriter::default();
        frame.clear();
        frame.store(self.session, &self.name);
        kept.iter().for_each(|event| frame.write(self.session, event));
        volume.write_unsaved(&path, Some(frame.finish(self.session, 0))).map_err(|error| StorageError::Failed(io_text(&error)))
    }

    fn give(&self, volume: &dyn Volume, path: &Path, file: &File) -> Result<(), StorageError> {
        // Closed since, or another file was put in its place.
        if file.mark().is_none_or(|mark| mark.session != self.session) {
            return Ok(());
        }
        let mut events = unsaved(volume, path, self.session)?;
        let kept = events.last().map_or(0, |e| e.revision);
        let known = kept.max(file.load()?.revision);
        let whole = self.writes.first().is_none_or(|w| w.revision <= known + 1);
        if !whole || self.writes.windows(2).any(|pair| pair[1].revision != pair[0].revision + 1) {
            return Err(damaged("journal"));
        }
        events.extend(self.writes.iter().filter(|w| w.revision > kept).cloned().map(WriteRecord::into_event));
        complete(volume, path, file, &events)
    }
}

/// The writes of a session that are kept beside a store.
pub(super) fn unsaved(volume: &dyn Volume, path: &Path, session: u64) -> Result<Vec<Event>, StorageError> {
    let bytes = volume.read_unsaved(path).map_err(|error| StorageError::Failed(io_text(&error)))?.unwrap_or_default();
    let records = frame::read(&bytes).map_err(|_| damaged("last writes"))?.records.into_iter();
    let writes = records.filter_map(|record| match record {
        Record::Write { session: of, event } if of == session => Some(event.into_event()),
        _ => None,
    });
    Ok(writes.collect())
}

/// Brings a file up to date with writes in the order of their revisions. It needs no journal afterwards.
pub(super) fn complete(volume: &dyn Volume, path: &Path, file: &File, events: &[Event]) -> Result<(), StorageError> {
    let loaded = file.load()?;
    let mut pending = Pending::at(loaded.revision);
    let mut revisions: HashMap<Arc<str>, u64> = loaded.values.into_iter().map(|kv| (kv.key, kv.revision)).collect();
    for event in events.iter().filter(|e| e.revision > loaded.revision) {
        let replaced = match &event.value {
            Some(_) => revisions.insert(event.key.clone(), event.revision),
            None => revisions.remove(&event.key),
        };
        pending.add(event, replaced);
    }
    file.commit(&pending.take().changes(Marking::Clear))?;
    if let Err(error) = volume.write_unsaved(path, None) {
        // The file has another mark from now on, so it says nothing any more.
        tracing::debug!(%error, "what was beside a store is not removed");
    }
    Ok(())
}

fn damaged(what: &str) -> StorageError {
    StorageError::Failed(format!("the {what} cannot be read: the disk changed what was written; restore a snapshot"))
}
