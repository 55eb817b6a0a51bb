//! The file: its tables, records and format version.

use crate::backend::{Event, KeyValue, StorageError, StoreIdentity};
use crate::state::FIRST_REVISION;
use bytes::Bytes;
use redb::backends::FileBackend;
use redb::{Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// Revision to record. Exactly the live keys, and perhaps one tombstone: when the last write of a commit
/// was a delete, a record without a value stands in for it, so that its revision is not given out again.
const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");

const META_FORMAT: &str = "format";
const META_IDENTITY: &str = "identity";
/// Session (u64, little endian) and the way to the journal.
const META_JOURNAL: &str = "journal";

/// Rises when a file can no longer be read by older programs.
const FORMAT: u32 = 1;
/// The format while there may be later writes in a journal, which older programs know nothing of.
const FORMAT_MARKED: u32 = 2;

/// A record: tag, length of the key (u32, little endian), key, value.
const TAG_TOMBSTONE: u8 = 0;
const TAG_VALUE: u8 = 1;
const RECORD_HEADER_BYTES: usize = 5;

/// A file is compacted when it is this many times its contents plus some slack.
const COMPACT_RATIO: u64 = 3;
const COMPACT_SLACK_BYTES: u64 = 2 * 1024 * 1024;

/// Writers wait while pages move, so there is a limit to what is moved at once. Above it free pages are
/// only used again.
const COMPACT_LIVE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The current state, as read from the file.
pub(super) struct Loaded {
    pub values: Vec<KeyValue>,
    pub revision: u64,
}

/// Says in a store's file that a journal may have later writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Which of the journal's writes belong to this file as it is.
    pub session: u64,
    /// How the journal is reached from the store's folder.
    pub journal: String,
}

/// What a commit does to the mark.
pub(super) enum Marking<'a> {
    Keep,
    Set(&'a Mark),
    Clear,
}

/// Changes to be made at once.
pub(super) struct Changes<'a> {
    /// The last write of each key, by revision; deletes are here only with what they replace.
    pub events: &'a [Event],
    /// Revisions in the file that are no longer current.
    pub replaced: &'a [u64],
    /// The revision after all of them.
    pub revision: u64,
    pub mark: Marking<'a>,
}

pub(super) struct File {
    /// `None` once closed.
    database: Mutex<Option<Arc<Database>>>,
    identity: StoreIdentity,
    /// The mark that the file had when it was opened.
    mark: Option<Mark>,
    length: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Guards memory alone; the writer holds it for a few moves per commit.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    revision: u64,
    tombstone: Option<u64>,
    live_bytes: u64,
    /// What the contents were when the file was last compacted: before they have halved since, it would
    /// gain nothing.
    settled_bytes: Option<u64>,
}

impl File {
    /// Opens the file, or makes it with `mark`. A new file gets its name when it is complete: a crash while
    /// it is made leaves nothing under `path`.
    pub fn open(path: &Path, cache_bytes: usize, mark: Option<&Mark>) -> Result<Self, StorageError> {
        if path.exists() {
            return Self::open_at(path, cache_bytes, None);
        }
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".new");
        let unfinished = PathBuf::from(unfinished);
        {
            let file = open_file(&unfinished).map_err(|error| open_failed(path, error.into()))?;
            // Whoever holds the lock is making the same store just now.
            if file.try_lock().is_err() || path.exists() {
                return Err(open_failed(path, DatabaseError::DatabaseAlreadyOpen));
            }
            file.set_len(0).map_err(|error| open_failed(path, error.into()))?;
        }
        let opened = Self::open_at(&unfinished, cache_bytes, mark)?;
        std::fs::rename(&unfinished, path).map_err(|error| open_failed(path, error.into()))?;
        sync_parent(path);
        Ok(opened)
    }

    fn open_at(path: &Path, cache_bytes: usize, mark: Option<&Mark>) -> Result<Self, StorageError> {
        let file = open_file(path).map_err(|error| open_failed(path, error.into()))?;
        let length = file.try_clone().map_err(|error| open_failed(path, error.into()))?;
        let database = FileBackend::new(file)
            .and_then(|file| Database::builder().set_cache_size(cache_bytes).create_with_backend(file))
            .map_err(|error| open_failed(path, error))?;
        Self::with_database(database, Box::new(move || length.metadata().map_or(0, |m| m.len())), mark)
    }

    /// `mark` is for a new file.
    pub fn with_database(
        database: Database,
        length: Box<dyn Fn() -> u64 + Send + Sync>,
        mark: Option<&Mark>,
    ) -> Result<Self, StorageError> {
        let (identity, mark) = identify(&database, mark)?;
        Ok(Self { database: Mutex::new(Some(Arc::new(database))), identity, mark, length, state: Mutex::default() })
    }

    /// The mark that the file had when it was opened, or was made with.
    pub fn mark(&self) -> Option<&Mark> {
        self.mark.as_ref()
    }

    pub fn identity(&self) -> &str {
        &self.identity
    }

    pub fn length_bytes(&self) -> u64 {
        (self.length)()
    }

    /// The revision of the last commit.
    pub fn revision(&self) -> u64 {
        self.state().revision
    }

    pub fn close(&self) {
        self.database.lock().expect("no holder of this lock panics").take();
    }

    fn database(&self) -> Result<Arc<Database>, StorageError> {
        self.database.lock().expect("no holder of this lock panics").clone().ok_or(StorageError::Closed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// Reads everything.
    pub fn load(&self) -> Result<Loaded, StorageError> {
        let database = self.database()?;
        let transaction = database.begin_read().map_err(failed)?;
        let log = transaction.open_table(LOG).map_err(failed)?;
        let mut loaded = Loaded { values: Vec::new(), revision: FIRST_REVISION };
        let mut state = State::default();
        for entry in log.iter().map_err(failed)? {
            let (revision, record) = entry.map_err(failed)?;
            let revision = revision.value();
            loaded.revision = revision;
            match decode(record.value())? {
                (key, Some(value)) => {
                    state.live_bytes += record.value().len() as u64;
                    loaded.values.push(KeyValue { key: key.into(), value: Bytes::copy_from_slice(value), revision });
                }
                (_, None) => state.tombstone = Some(revision),
            }
        }
        let mut known = self.state();
        // A writer may have gone on meanwhile; what it knows is newer.
        if known.revision <= loaded.revision {
            state.revision = loaded.revision;
            state.settled_bytes = known.settled_bytes;
            *known = state;
        }
        Ok(loaded)
    }

    /// Makes the changes durable.
    pub fn commit(&self, changes: &Changes<'_>) -> Result<(), StorageError> {
        let before = { self.state().tombstone };
        let mut live_bytes_change = 0_i64;
        let database = self.database()?;
        let transaction = begin(&database)?;
        let mut tombstone = before;
        {
            let mut log = transaction.open_table(LOG).map_err(failed)?;
            let kept = changes.events.iter().filter(|e| e.value.is_some());
            let last = kept.clone().next_back().map(|e| e.revision);
            for event in kept {
                live_bytes_change += insert(&mut log, event)? as i64;
            }
            // Nothing changed when the revision is still the same.
            if changes.revision > self.revision() {
                if let Some(before) = before {
                    log.remove(before).map_err(failed)?;
                }
                tombstone = (last != Some(changes.revision)).then_some(changes.revision);
                if let Some(revision) = tombstone {
                    insert(&mut log, &Event { revision, key: "".into(), value: None })?;
                }
            }
            for revision in changes.replaced {
                let removed = log.remove(*revision).map_err(failed)?;
                live_bytes_change -= removed.map_or(0, |record| record.value().len() as i64);
            }
            if !matches!(changes.mark, Marking::Keep) {
                write_mark(&mut transaction.open_table(META).map_err(failed)?, &changes.mark)?;
            }
        }
        transaction.commit().map_err(failed)?;
        let mut state = self.state();
        state.revision = state.revision.max(changes.revision);
        state.tombstone = tombstone;
        state.live_bytes = state.live_bytes.saturating_add_signed(live_bytes_change);
        Ok(())
    }

    /// Whether it is so long that compaction may be worth something.
    pub fn may_shrink(&self) -> bool {
        self.length_bytes() > COMPACT_SLACK_BYTES
    }

    /// Moves pages to the front and cuts the file, if that is worth it. True when it should be tried again.
    pub fn compact_step(&self) -> Result<bool, StorageError> {
        let length = self.length_bytes();
        let live_bytes = {
            let state = self.state();
            let live = state.live_bytes;
            let worth_it = length > live * COMPACT_RATIO + COMPACT_SLACK_BYTES && live <= COMPACT_LIVE_BYTES_MAX;
            if !worth_it || state.settled_bytes.is_some_and(|settled| live > settled / 2) {
                return Ok(false);
            }
            live
        };
        {
            let mut database = self.database.lock().expect("no holder of this lock panics");
            let database = database.as_mut().ok_or(StorageError::Closed)?;
            // Somebody reads the file just now.
            let Some(database) = Arc::get_mut(database) else { return Ok(true) };
            database.compact().map_err(failed)?;
            // Compaction drops the allocator's saved state; without it the next open reads the whole file.
            begin(database)?.commit().map_err(failed)?;
        }
        self.state().settled_bytes = Some(live_bytes);
        Ok(false)
    }
}

/// Quick repair keeps the allocator's state in the file, so that opening after a crash does not read it all.
fn begin(database: &Database) -> Result<WriteTransaction, StorageError> {
    let mut transaction = database.begin_write().map_err(failed)?;
    transaction.set_durability(Durability::Immediate).map_err(failed)?;
    transaction.set_quick_repair(true);
    Ok(transaction)
}

/// Reads identity and mark and checks the format, or makes them in a new file.
fn identify(database: &Database, mark: Option<&Mark>) -> Result<(StoreIdentity, Option<Mark>), StorageError> {
    let transaction = begin(database)?;
    let identity;
    {
        let mut meta = transaction.open_table(META).map_err(failed)?;
        transaction.open_table(LOG).map_err(failed)?;
        let read = |key: &str| -> Result<Option<Vec<u8>>, StorageError> { Ok(meta.get(key).map_err(failed)?.map(|v| v.value().to_vec())) };
        if let Some(format) = read(META_FORMAT)? {
            let format = <[u8; 4]>::try_from(format.as_slice()).map(u32::from_le_bytes).map_err(|_| damaged("format"))?;
            if format != FORMAT && format != FORMAT_MARKED {
                return Err(StorageError::Failed(format!(
                    "the store has format {format} and this program understands format {FORMAT}: use the version that wrote it"
                )));
            }
            let found = read(META_IDENTITY)?.ok_or_else(|| damaged("identity"))?;
            let identity = String::from_utf8(found).map_err(|_| damaged("identity"))?;
            let mark = read(META_JOURNAL)?.map(|mark| read_mark(&mark).ok_or_else(|| damaged("mark"))).transpose()?;
            return Ok((identity, mark));
        }
        identity = uuid::Uuid::new_v4().to_string();
        meta.insert(META_IDENTITY, identity.as_bytes()).map_err(failed)?;
        write_mark(&mut meta, &mark.map_or(Marking::Clear, Marking::Set))?;
    }
    transaction.commit().map_err(failed)?;
    Ok((identity, mark.cloned()))
}

/// Writes the mark, and the format that goes with it.
fn write_mark(meta: &mut redb::Table<'_, &'static str, &'static [u8]>, mark: &Marking<'_>) -> Result<(), StorageError> {
    let format = match mark {
        Marking::Keep => return Ok(()),
        Marking::Clear => {
            meta.remove(META_JOURNAL).map_err(failed)?;
            FORMAT
        }
        Marking::Set(mark) => {
            let bytes = [&mark.session.to_le_bytes()[..], mark.journal.as_bytes()].concat();
            meta.insert(META_JOURNAL, bytes.as_slice()).map_err(failed)?;
            FORMAT_MARKED
        }
    };
    meta.insert(META_FORMAT, format.to_le_bytes().as_slice()).map_err(failed)?;
    Ok(())
}

fn read_mark(bytes: &[u8]) -> Option<Mark> {
    let (session, journal) = bytes.split_first_chunk::<8>()?;
    Some(Mark { session: u64::from_le_bytes(*session), journal: String::from_utf8(journal.to_vec()).ok()? })
}

/// Writes the record of an event and returns its length.
fn insert(log: &mut redb::Table<'_, u64, &'static [u8]>, event: &Event) -> Result<usize, StorageError> {
    let value: &[u8] = event.value.as_deref().unwrap_or_default();
    let key_length = u32::try_from(event.key.len()).map_err(|_| StorageError::Failed("the key is too long".into()))?;
    let length = RECORD_HEADER_BYTES + event.key.len() + value.len();
    let mut record = log.insert_reserve(event.revision, length).map_err(failed)?;
    let record: &mut [u8] = record.as_mut();
    record[0] = if event.value.is_some() { TAG_VALUE } else { TAG_TOMBSTONE };
    record[1..RECORD_HEADER_BYTES].copy_from_slice(&key_length.to_le_bytes());
    let (key, rest) = record[RECORD_HEADER_BYTES..].split_at_mut(event.key.len());
    key.copy_from_slice(event.key.as_bytes());
    rest.copy_from_slice(value);
    Ok(length)
}

fn decode(record: &[u8]) -> Result<(&str, Option<&[u8]>), StorageError> {
    let (header, rest) = record.split_first_chunk::<RECORD_HEADER_BYTES>().ok_or_else(|| damaged("record"))?;
    let [tag, length @ ..] = *header;
    let (key, value) = rest.split_at_checked(u32::from_le_bytes(length) as usize).ok_or_else(|| damaged("record"))?;
    let key = std::str::from_utf8(key).map_err(|_| damaged("key"))?;
    match tag {
        TAG_VALUE => Ok((key, Some(value))),
        TAG_TOMBSTONE => Ok((key, None)),
        _ => Err(damaged("record")),
    }
}

fn damaged(what: &str) -> StorageError {
    StorageError::Failed(format!("the store is damaged (unreadable {what}): restore it from a snapshot"))
}

fn failed(error: impl Into<redb::Error>) -> StorageError {
    StorageError::Failed(match error.into() {
        redb::Error::Io(error) => io_text(&error),
        redb::Error::Corrupted(text) => format!("the store is damaged: restore it from a snapshot ({text})"),
        other => format!("the store fails: restart to open it again ({other})"),
    })
}

/// What to do about an error of the volume.
pub(super) fn io_text(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            format!("no space is left for the store: make room on its volume, then restart ({error})")
        }
        std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied => {
            format!("the store is not writable: check its volume, then restart ({error})")
        }
        _ => format!("the store's volume fails: check it, then restart ({error})"),
    }
}

pub(super) fn open_file(path: &Path) -> std::io::Result<std::fs::File> {
    std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

fn open_failed(path: &Path, error: DatabaseError) -> StorageError {
    let path = path.display();
    match error {
        DatabaseError::DatabaseAlreadyOpen => StorageError::Failed(format!("{path} is in use by another process: stop that one first")),
        other => StorageError::Failed(format!("cannot open {path}: {}", failed(other))),
    }
}

/// Makes the name of the file durable. Not every file system can, and the contents are safe anyway.
pub(super) fn sync_parent(path: &Path) {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Err(error) = std::fs::File::open(parent).and_then(|dir| dir.sync_all()) {
        tracing::debug!(%error, "the folder of the store cannot be synced");
    }
}
