//! Stores in files, crash-safe, for one process.
//!
//! A file is a redb database whose keys are revisions: writes append on the right, and a superseded
//! revision is removed by the transaction that supersedes it, so the file holds the live keys and nothing
//! else. What is written goes to the journal first, which all stores of the process share (`journal/`).

#[cfg(test)]
mod crash_tests;
mod file;
mod journal;

use crate::backend::{Backend, KeyValue, Observer, StorageError, StoreIdentity, Write, WriteFuture};
use file::Loaded;
pub use journal::Journal;
use journal::{Core, Request, Store};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{mpsc, oneshot};

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
    journal: Journal,
    core: Arc<Core>,
    store: Arc<Store>,
    /// What was read when the file was opened, until somebody takes it.
    loaded: Mutex<Option<Loaded>>,
    /// `None` once closed.
    requests: Mutex<Option<mpsc::Sender<Request>>>,
}

impl EmbeddedBackend {
    /// Opens a store with a journal for itself, beside it; makes it when it is missing.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, StorageError> {
        let path = path.as_ref();
        Journal::of(path.parent().unwrap_or(Path::new(""))).open(path, &options)
    }

    fn opened(journal: Journal, core: Arc<Core>, store: Arc<Store>, requests: mpsc::Sender<Request>, loaded: Loaded) -> Self {
        Self {
            identity: store.file.identity().to_string(),
            journal,
            core,
            store,
            loaded: Mutex::new(Some(loaded)),
            requests: Mutex::new(Some(requests)),
        }
    }

    fn requests(&self) -> MutexGuard<'_, Option<mpsc::Sender<Request>>> {
        self.requests.lock().expect("no holder of this lock panics")
    }

    fn is_open(&self) -> Result<(), StorageError> {
        if self.requests().is_some() { Ok(()) } else { Err(StorageError::Closed) }
    }

    /// The writing thread went away: closed meanwhile, or it died.
    fn gone(&self) -> StorageError {
        self.is_open().err().unwrap_or_else(|| {
            StorageError::Failed("the store's writer stopped after an internal error: restart to open the store again".into())
        })
    }
}

impl Backend for EmbeddedBackend {
    fn load(&self) -> Result<(Vec<KeyValue>, u64), StorageError> {
        let loaded = self.loaded.lock().expect("no holder of this lock panics").take();
        let loaded = match loaded {
            // Nothing was written since.
            Some(loaded) if loaded.revision == self.store.revision() => loaded,
            _ => {
                self.is_open()?;
                self.journal.catch_up(&self.store)?;
                self.store.file.load()?
            }
        };
        Ok((loaded.values, loaded.revision))
    }

    fn observe(&self, observer: Observer) {
        *self.store.observer.lock().expect("observers do not panic") = Some(observer);
    }

    fn write(&self, write: Write) -> WriteFuture<'_> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let requests = self.requests().clone().ok_or(StorageError::Closed)?;
            requests.send(Request { write, reply }).await.map_err(|_| self.gone())?;
            // Held any longer, it would keep a request alive that nobody takes.
            drop(requests);
            self.core.list(&self.store);
            answer.await.map_err(|_| self.gone())?
        })
    }

    fn identity(&self) -> StoreIdentity {
        self.identity.clone()
    }

    fn size_bytes(&self) -> u64 {
        self.store.file.length_bytes()
    }

    /// Blocks while pages are moved: call it from a thread that may.
    fn compact_step(&self) -> Result<bool, StorageError> {
        self.is_open()?;
        if !self.store.file.may_shrink() {
            return Ok(false);
        }
        // What the file does not have yet may free most of it.
        self.journal.catch_up(&self.store)?;
        self.store.compact_step()
    }

    fn close(&self) {
        let Some(requests) = self.requests().take() else { return };
        drop(requests);
        self.journal.close(&self.core, &self.store);
        *self.store.observer.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
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

    /// What a killed process leaves: files as they are, open or not.
    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
            let to = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                copy(&entry.path(), &to);
            } else {
                std::fs::copy(entry.path(), to).unwrap();
            }
        }
    }

    #[test]
    fn stores_of_a_killed_process_are_whole_wherever_they_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let journal = Journal::of(at("live"));
        let stores = ["a", "b"].map(|name| {
            std::fs::create_dir_all(at("live").join(name)).unwrap();
            journal.open(at("live").join(name).join("store"), &Options::default()).unwrap()
        });
        runtime().block_on(async {
            for (store, value) in stores.iter().zip(["of a", "of b"]) {
                store.write(put("/k", value, Expect::Absent)).await.unwrap();
                store.write(put("/gone", "x", Expect::Absent)).await.unwrap();
                store.write(delete("/gone", Expect::Any)).await.unwrap();
            }
        });
        copy(&at("live"), &at("killed"));
        copy(&at("live/a"), &at("alone/a"));
        let open = |path: &str| EmbeddedBackend::open(at(path), Options::default());
        let holds = |store: &EmbeddedBackend, value: &'static str| {
            assert_eq!(store.load().unwrap().1, 4);
            assert_eq!(contents(store), [("/k".into(), value.into(), 2)]);
        };
        // Without its journal it would be a state of the past.
        let error = open("alone/a/store").err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("the last writes of") && error.contains("put it back"), "{error}");
        // A dedicated one finds the journal that it shared, and empties it for all.
        holds(&open("killed/a/store").unwrap(), "of a");
        assert_eq!(std::fs::metadata(at("killed/journal/0")).unwrap().len(), 0);
        let again = Journal::of(at("killed"));
        again.settle(at("killed/b/store")).unwrap();
        again.settle(at("killed/c/store")).unwrap();
        std::fs::remove_dir_all(at("killed/journal")).unwrap();
        holds(&open("killed/b/store").unwrap(), "of b");
        // A closed store is whole by itself.
        drop(stores);
        copy(&at("live/b"), &at("alone/b"));
        holds(&open("alone/b/store").unwrap(), "of b");
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
