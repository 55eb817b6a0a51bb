//! A store in one file of its own, crash-safe, for one process.
//!
//! The file is a redb database whose keys are revisions: writes append on the right, and a superseded
//! revision is removed by the transaction that supersedes it, so the file holds the live keys and nothing
//! else. One writer thread gathers concurrent writes into one commit (see `writer.rs`).

#[cfg(test)]
mod crash_tests;
mod file;
mod writer;

use crate::backend::{Backend, KeyValue, Observer, StorageError, StoreIdentity, Write, WriteFuture};
use file::{File, Loaded};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};
use writer::{Request, Writer};

/// Writers beyond these wait; nothing is dropped.
const QUEUE_WRITES_MAX: usize = 256;

/// The writer's stack: redb recurses over a tree of a few levels.
const WRITER_STACK_BYTES: usize = 512 * 1024;

#[derive(Clone, Debug)]
pub struct Options {
    /// Memory for pages of the file. Reads come from the server's own memory, so a little is enough.
    pub cache_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { cache_bytes: 2 * 1024 * 1024 }
    }
}

/// A store in a file. Dropping it closes it.
pub struct EmbeddedBackend {
    identity: StoreIdentity,
    file: Arc<File>,
    /// What was read when the file was opened, until somebody takes it.
    loaded: Mutex<Option<Loaded>>,
    observer: Arc<Mutex<Option<Observer>>>,
    /// `None` once closed.
    running: Mutex<Option<Running>>,
}

struct Running {
    requests: mpsc::Sender<Request>,
    writer: JoinHandle<()>,
}

impl EmbeddedBackend {
    /// Opens the file, or makes it with a new identity.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, StorageError> {
        Self::start(File::open(path.as_ref(), options.cache_bytes)?)
    }

    fn start(file: File) -> Result<Self, StorageError> {
        let loaded = file.load()?;
        let file = Arc::new(file);
        let observer = Arc::new(Mutex::new(None));
        let (requests, queue) = mpsc::channel(QUEUE_WRITES_MAX);
        let writer = Writer::new(file.clone(), &loaded, observer.clone());
        let writer = std::thread::Builder::new()
            .name("sublet-store".into())
            .stack_size(WRITER_STACK_BYTES)
            .spawn(move || writer.run(queue))
            .map_err(|error| StorageError::Failed(format!("the store's writer thread does not start: {error}")))?;
        Ok(Self {
            identity: file.identity().to_string(),
            file,
            loaded: Mutex::new(Some(loaded)),
            observer,
            running: Mutex::new(Some(Running { requests, writer })),
        })
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().expect("no holder of this lock panics")
    }

    fn requests(&self) -> Result<mpsc::Sender<Request>, StorageError> {
        Ok(self.running().as_ref().ok_or(StorageError::Closed)?.requests.clone())
    }

    /// The writer went away: closed meanwhile, or it died.
    fn gone(&self) -> StorageError {
        if self.running().is_none() {
            StorageError::Closed
        } else {
            StorageError::Failed("the store's writer stopped after an internal error: restart to open the store again".into())
        }
    }
}

impl Backend for EmbeddedBackend {
    fn load(&self) -> Result<(Vec<KeyValue>, u64), StorageError> {
        let loaded = self.loaded.lock().expect("no holder of this lock panics").take();
        let loaded = match loaded {
            // Nothing was written since, or the file knows better.
            Some(loaded) if loaded.revision == self.file.revision() => loaded,
            _ => self.file.load()?,
        };
        Ok((loaded.values, loaded.revision))
    }

    fn observe(&self, observer: Observer) {
        *self.observer.lock().expect("observers do not panic") = Some(observer);
    }

    fn write(&self, write: Write) -> WriteFuture<'_> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let requests = self.requests()?;
            requests.send(Request::Write { write, reply }).await.map_err(|_| self.gone())?;
            answer.await.map_err(|_| self.gone())?
        })
    }

    fn identity(&self) -> StoreIdentity {
        self.identity.clone()
    }

    fn size_bytes(&self) -> u64 {
        self.file.length_bytes()
    }

    /// Blocks while the writer does the step: call it from a thread that may.
    fn compact_step(&self) -> Result<bool, StorageError> {
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        match self.requests()?.try_send(Request::Compact { reply }) {
            Ok(()) => answer.recv().map_err(|_| self.gone())?,
            // Writers come first; the caller asks again later.
            Err(mpsc::error::TrySendError::Full(_)) => Ok(true),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(self.gone()),
        }
    }

    fn close(&self) {
        // The queue ends when its last sender is gone; the writer commits what is in it before it leaves.
        let Some(Running { requests, writer }) = self.running().take() else { return };
        drop(requests);
        if writer.join().is_err() {
            tracing::error!("the store's writer panicked; what it acknowledged is in the file");
        }
        *self.observer.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
        self.file.close();
    }
}

impl Drop for EmbeddedBackend {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{contents, delete, put};
    use crate::{Expect, MemoryBackend};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    crate::suite!(in_temp_dir());

    fn in_temp_dir() -> EmbeddedBackend {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedBackend::open(dir.path().join("store"), Options::default()).unwrap();
        // An open file outlives its name.
        drop(dir);
        store
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn reopening_finds_keys_revision_and_identity() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let open = || EmbeddedBackend::open(&path, Options::default()).unwrap();
        let first = open();
        let identity = first.identity();
        runtime().block_on(async {
            first.write(put("/a", "1", Expect::Any)).await.unwrap();
            first.write(put("/b", "2", Expect::Any)).await.unwrap();
            first.write(put("/a", "3", Expect::At(2))).await.unwrap();
            first.write(delete("/b", Expect::At(3))).await.unwrap();
        });
        drop(first);
        let second = open();
        assert_eq!(second.load().unwrap().1, 5, "the revision of a last delete is kept");
        assert_eq!(contents(&second), [("/a".into(), "3".into(), 4)]);
        assert_eq!(second.identity(), identity);
        assert_eq!(runtime().block_on(second.write(put("/b", "4", Expect::Absent))).unwrap(), 6);
        drop(second);
        assert_eq!(open().load().unwrap().1, 6);
    }

    #[test]
    fn an_open_store_is_not_opened_twice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let _first = EmbeddedBackend::open(&path, Options::default()).unwrap();
        let Err(error) = EmbeddedBackend::open(&path, Options::default()) else { panic!("opened twice") };
        assert!(error.to_string().contains("in use by another process"), "{error}");
    }

    #[test]
    fn a_file_of_another_kind_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        std::fs::write(&path, vec![b'x'; 10_000]).unwrap();
        assert!(matches!(EmbeddedBackend::open(&path, Options::default()), Err(StorageError::Failed(_))));
    }

    #[test]
    fn space_is_given_back_in_steps() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(EmbeddedBackend::open(dir.path().join("store"), Options::default()).unwrap());
        let all = |writes: Vec<Write>| {
            runtime().block_on(async {
                let mut tasks = tokio::task::JoinSet::new();
                for write in writes {
                    let store = store.clone();
                    tasks.spawn(async move { store.write(write).await.unwrap() });
                }
                tasks.join_all().await;
            });
        };
        all((0..4000).map(|i| put(&format!("/{i}"), vec![0; 4000], Expect::Any)).collect());
        all((0..4000).filter(|i| i % 50 != 49).map(|i| delete(&format!("/{i}"), Expect::Any)).collect());
        let before = store.size_bytes();
        let mut steps = 0;
        while store.compact_step().unwrap() {
            steps += 1;
            assert!(steps < 1000, "compaction ends");
        }
        assert!(store.size_bytes() < 4 * 1024 * 1024, "{before} bytes became {} in {steps} steps", store.size_bytes());
        assert_eq!(contents(&*store).len(), 80);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(u8, Vec<u8>),
        Delete(u8),
        Compact,
        Reopen,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let value = prop_oneof![proptest::collection::vec(any::<u8>(), 0..64), Just(vec![1; 9000])];
        let step = prop_oneof![
            8 => (0..12_u8, value).prop_map(|(key, value)| Step::Put(key, value)),
            4 => (0..12_u8).prop_map(Step::Delete),
            1 => Just(Step::Compact),
            1 => Just(Step::Reopen),
        ];
        proptest::collection::vec(step, 1..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
        #[test]
        fn both_backends_agree_with_a_map(steps in steps()) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("store");
            let mut embedded = EmbeddedBackend::open(&path, Options::default()).unwrap();
            let memory = MemoryBackend::new();
            let mut model: BTreeMap<String, (Vec<u8>, u64)> = BTreeMap::new();
            let mut revision = 1;
            let runtime = runtime();
            for step in steps {
                let write = match step {
                    Step::Put(key, value) => put(&format!("/{key}"), value, Expect::Any),
                    Step::Delete(key) => delete(&format!("/{key}"), Expect::Any),
                    Step::Compact => { embedded.compact_step().unwrap(); continue }
                    Step::Reopen => {
                        drop(embedded);
                        embedded = EmbeddedBackend::open(&path, Options::default()).unwrap();
                        continue;
                    }
                };
                let key = write.key.to_string();
                let expected = match &write.value {
                    Some(value) => { revision += 1; model.insert(key, (value.to_vec(), revision)); Some(revision) }
                    None => model.remove(&key).map(|_| { revision += 1; revision }),
                };
                prop_assert_eq!(runtime.block_on(memory.write(write.clone())).ok(), expected);
                prop_assert_eq!(runtime.block_on(embedded.write(write)).ok(), expected);
            }
            let expected: Vec<_> = model.into_iter().map(|(key, (value, revision))| (key, value.into(), revision)).collect();
            prop_assert_eq!(&contents(&memory), &expected);
            prop_assert_eq!(&contents(&embedded), &expected);
            prop_assert_eq!(embedded.load().unwrap().1, revision);
        }
    }
}
