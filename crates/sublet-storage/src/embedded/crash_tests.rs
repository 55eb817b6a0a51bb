//! The power goes at any moment: whatever the disk may hold then must open as a state that was current
//! once and has every acknowledged write, in each of the stores that share a journal.

use super::file::{File, Mark};
use super::journal::volume::{Segment, Volume};
use super::journal::{Journal, Limits};
use super::{EmbeddedBackend, Options};
use crate::suite::{contents, delete, put};
use crate::{Backend, Expect, StorageError, Write};
use bytes::Bytes;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use redb::{Database, StorageBackend};
use std::any::Any;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What is written in one piece or not at all.
const SECTOR_BYTES: usize = 512;

/// Small enough that the journal changes its files often.
const LIMITS: Limits = Limits { segment_bytes: 20_000, segment_age: Duration::from_secs(60), segment_bytes_max: 100_000 };

/// A disk that remembers what was synced and what was only written.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, Contents>,
    /// Images of the disk after a loss of power, with the revisions acknowledged by then.
    images: Vec<(Image, Revisions)>,
    /// By store.
    acknowledged: Revisions,
    seed: u64,
    /// Operations until the disk is full.
    budget: Option<u64>,
    /// The file that cannot be written.
    broken: Option<String>,
}

type Image = BTreeMap<String, Vec<u8>>;
type Revisions = BTreeMap<String, u64>;

#[derive(Clone, Debug, Default)]
struct Contents {
    now: Vec<u8>,
    synced: Vec<u8>,
    pending: Vec<Op>,
}

#[derive(Clone, Debug)]
enum Op {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

fn apply(image: &mut Vec<u8>, op: &Op) {
    match op {
        Op::Write(offset, data) => {
            let end = offset + data.len();
            if image.len() < end {
                image.resize(end, 0);
            }
            image[*offset..end].copy_from_slice(data);
        }
        Op::SetLen(len) => image.resize(*len, 0),
    }
}

impl Contents {
    /// Some of the pending writes reached the disk, some only in part. Lengths are changed in order: file
    /// systems keep metadata ordered.
    fn crashed(&self, random: &mut StdRng) -> Vec<u8> {
        let mut image = self.synced.clone();
        let keep = random.random_range(0.0..=1.0);
        for op in &self.pending {
            match op {
                Op::SetLen(_) => apply(&mut image, op),
                Op::Write(offset, data) if random.random_bool(keep) => {
                    let sectors = data.len().div_ceil(SECTOR_BYTES);
                    let torn = random.random_bool(0.3);
                    let written = if torn { random.random_range(0..=sectors) * SECTOR_BYTES } else { data.len() };
                    apply(&mut image, &Op::Write(*offset, data[..written.min(data.len())].to_vec()));
                }
                Op::Write(..) => {}
            }
        }
        image
    }
}

impl State {
    fn file(&mut self, name: &str) -> &mut Contents {
        self.files.entry(name.to_string()).or_default()
    }

    fn spend(&mut self, name: &str) -> Result<(), std::io::Error> {
        if self.broken.as_deref() == Some(name) {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        match &mut self.budget {
            Some(0) => Err(std::io::ErrorKind::StorageFull.into()),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn crash_image(&mut self) {
        self.seed += 1;
        let mut random = StdRng::seed_from_u64(self.seed);
        let image = self.files.iter().map(|(name, file)| (name.clone(), file.crashed(&mut random))).collect();
        self.images.push((image, self.acknowledged.clone()));
    }

    fn change(&mut self, name: &str, op: Op) -> Result<(), std::io::Error> {
        self.spend(name)?;
        let file = self.file(name);
        apply(&mut file.now, &op);
        file.pending.push(op);
        Ok(())
    }

    fn sync(&mut self, name: &str) -> Result<(), std::io::Error> {
        self.spend(name)?;
        self.crash_image();
        self.crash_image();
        let file = self.file(name);
        file.synced = file.now.clone();
        file.pending.clear();
        self.crash_image();
        Ok(())
    }
}

impl Disk {
    fn with<T>(&self, action: impl FnOnce(&mut State) -> T) -> T {
        action(&mut self.0.lock().unwrap())
    }

    fn of(image: Image) -> Self {
        let files = image.into_iter().map(|(name, bytes)| (name, Contents { now: bytes.clone(), synced: bytes, pending: Vec::new() }));
        Self(Arc::new(Mutex::new(State { files: files.collect(), ..State::default() })))
    }

    /// What the disk holds now.
    fn image(&self) -> Image {
        self.with(|s| s.files.iter().map(|(name, file)| (name.clone(), file.now.clone())).collect())
    }

    fn journal(&self) -> Journal {
        Journal::on(Arc::new(self.clone()), LIMITS)
    }

    fn named(&self, name: impl Into<String>) -> OneFile {
        OneFile { disk: self.clone(), name: name.into() }
    }
}

#[derive(Clone, Debug)]
struct OneFile {
    disk: Disk,
    name: String,
}

impl Volume for Disk {
    fn lock(&self) -> Result<Box<dyn Any + Send>, StorageError> {
        Ok(Box::new(()))
    }

    fn segments(&self) -> Result<[Box<dyn Segment>; 2], StorageError> {
        Ok([Box::new(self.named("journal/0")), Box::new(self.named("journal/1"))])
    }

    fn open_store(&self, path: &Path, _: usize, make: Option<&Mark>) -> Result<Option<File>, StorageError> {
        let name = path.to_str().unwrap();
        if make.is_none() && self.with(|s| !s.files.contains_key(name)) {
            return Ok(None);
        }
        let file = self.named(name);
        let length = file.clone();
        let opened = Database::builder().set_cache_size(256 * 1024).create_with_backend(file);
        let database = opened.map_err(|error| StorageError::Failed(error.to_string()))?;
        File::with_database(database, Box::new(move || length.len().unwrap()), make).map(Some)
    }

    fn read_unsaved(&self, path: &Path) -> std::io::Result<Option<Vec<u8>>> {
        let name = format!("{}.unsaved", path.display());
        Ok(self.with(|s| s.files.get(&name).map(|f| f.now.clone())))
    }

    fn write_unsaved(&self, path: &Path, bytes: Option<&[u8]>) -> std::io::Result<()> {
        let name = format!("{}.unsaved", path.display());
        self.with(|s| {
            match bytes {
                Some(bytes) => {
                    s.spend(&name)?;
                    *s.file(&name) = Contents { now: bytes.to_vec(), synced: bytes.to_vec(), pending: Vec::new() };
                    s.crash_image();
                }
                None => {
                    s.files.remove(&name);
                }
            }
            Ok(())
        })
    }

    fn name_of(&self, path: &Path) -> String {
        path.to_string_lossy().into_owned()
    }

    fn path_of(&self, name: &str) -> PathBuf {
        name.into()
    }

    fn seen_from(&self, _: &Path) -> String {
        "journal".into()
    }

    fn other(&self, _: &Path, _: &str) -> Result<Option<Box<dyn Volume>>, StorageError> {
        Ok(None)
    }
}

impl Segment for OneFile {
    fn read(&mut self) -> std::io::Result<Vec<u8>> {
        Ok(self.disk.with(|s| s.file(&self.name).now.clone()))
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.disk.with(|s| s.change(&self.name, Op::Write(offset as usize, bytes.to_vec())))
    }

    fn sync(&mut self) -> std::io::Result<()> {
        self.disk.with(|s| s.sync(&self.name))
    }

    fn empty(&mut self) -> std::io::Result<()> {
        self.disk.with(|s| {
            s.change(&self.name, Op::SetLen(0))?;
            s.sync(&self.name)
        })
    }
}

impl StorageBackend for OneFile {
    fn try_lock_range(&self, _: std::ops::Bound<u64>, _: std::ops::Bound<u64>) -> Result<bool, redb::BackendError> {
        Ok(true)
    }

    fn unlock_range(&self, _: std::ops::Bound<u64>, _: std::ops::Bound<u64>) -> Result<(), redb::BackendError> {
        Ok(())
    }

    fn len(&self) -> Result<u64, std::io::Error> {
        Ok(self.disk.with(|s| s.file(&self.name).now.len() as u64))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), std::io::Error> {
        self.disk.with(|s| match s.file(&self.name).now.get(offset as usize..offset as usize + out.len()) {
            Some(data) => {
                out.copy_from_slice(data);
                Ok(())
            }
            None => Err(std::io::ErrorKind::UnexpectedEof.into()),
        })
    }

    fn set_len(&self, len: u64) -> Result<(), std::io::Error> {
        self.disk.with(|s| s.change(&self.name, Op::SetLen(len as usize)))
    }

    fn sync_data(&self) -> Result<(), std::io::Error> {
        self.disk.with(|s| s.sync(&self.name))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), std::io::Error> {
        self.disk.with(|s| s.change(&self.name, Op::Write(offset as usize, data.to_vec())))
    }
}

type Found = Vec<(String, Bytes, u64)>;

/// The contents of a store at each revision that it had or may have.
#[derive(Clone)]
struct History {
    now: BTreeMap<String, (Bytes, u64)>,
    at: BTreeMap<u64, Found>,
}

impl History {
    fn new() -> Self {
        Self { now: BTreeMap::new(), at: BTreeMap::from([(1, Vec::new())]) }
    }

    /// A random write. It is known before it is acknowledged: a crash in between may or may not keep it.
    fn next(&mut self, random: &mut StdRng, big_bytes: usize) -> (Write, u64) {
        let key = format!("/{}", random.random_range(0..20));
        let write = if random.random_bool(0.35) && self.now.contains_key(&key) {
            delete(&key, Expect::Any)
        } else {
            let big = random.random_bool(0.1);
            put(&key, vec![random.random(); random.random_range(0..if big { big_bytes } else { 300 })], Expect::Any)
        };
        let revision = self.at.last_key_value().map_or(1, |(r, _)| *r) + 1;
        match &write.value {
            Some(value) => self.now.insert(key, (value.clone(), revision)),
            None => self.now.remove(&key),
        };
        self.at.insert(revision, self.now.iter().map(|(key, (value, revision))| (key.clone(), value.clone(), *revision)).collect());
        (write, revision)
    }
}

/// Stores that share a journal, and what was written to them.
struct Stores {
    disk: Disk,
    random: StdRng,
    big_bytes: usize,
    stores: Vec<(String, Arc<EmbeddedBackend>, History)>,
}

impl Stores {
    fn open(disk: &Disk, count: usize, seed: u64) -> Self {
        let journal = disk.journal();
        let names = (0..count).map(|i| format!("store{i}"));
        let stores = names.map(|name| {
            let store = journal.open(&name, &Options::default()).unwrap();
            (name, Arc::new(store), History::new())
        });
        let stores = stores.collect();
        // A file gets its name when it is complete, so there are no images of half a new one.
        disk.with(|s| {
            s.seed = seed / 2;
            s.images.clear();
        });
        Self { disk: disk.clone(), random: StdRng::seed_from_u64(seed), big_bytes: 20_000, stores }
    }

    /// Writes to some of them at once, so that they share groups; false at the first failure.
    async fn round(&mut self) -> bool {
        let mut writes = Vec::new();
        for (name, store, history) in &mut self.stores {
            if self.random.random_bool(0.6) {
                let (write, revision) = history.next(&mut self.random, self.big_bytes);
                let (name, store) = (name.clone(), store.clone());
                writes.push((name, revision, tokio::spawn(async move { store.write(write).await })));
            }
        }
        let mut fine = true;
        for (name, revision, answer) in writes {
            match answer.await.unwrap() {
                Ok(acknowledged) => {
                    assert_eq!(acknowledged, revision);
                    self.disk.with(|s| s.acknowledged.insert(name, acknowledged));
                }
                Err(error) => {
                    assert!(error.to_string().contains("no space is left"), "{error}");
                    fine = false;
                }
            }
        }
        if self.random.random_bool(0.1) {
            let at = self.random.random_range(0..self.stores.len());
            // A broken store says so to its writers.
            let _ = self.stores[at].1.compact_step();
        }
        fine
    }

    /// Closes one and opens it again, while the others go on.
    fn reopen(&mut self, journal: &Journal, at: usize) {
        let (name, store, _) = &mut self.stores[at];
        store.close();
        *store = Arc::new(journal.open(name, &Options::default()).unwrap());
    }

    fn histories(&self) -> BTreeMap<String, BTreeMap<u64, Found>> {
        self.stores.iter().map(|(name, _, history)| (name.clone(), history.at.clone())).collect()
    }
}

fn check_image(image: Image, acknowledged: &Revisions, histories: &BTreeMap<String, BTreeMap<u64, Found>>) {
    let disk = Disk::of(image);
    let journal = disk.journal();
    for (name, history) in histories {
        let least = acknowledged.get(name).copied().unwrap_or(1);
        let store = journal.open(name, &Options::default()).unwrap_or_else(|error| panic!("{name} after revision {least}: {error}"));
        let revision = store.load().unwrap().1;
        assert!(revision >= least, "{name}: revision {least} was acknowledged, {revision} is there");
        assert_eq!(&contents(&store), &history[&revision], "{name} at revision {revision}");
    }
}

/// As many as can be looked at in a moment, from all of the time.
fn some<T>(images: Vec<T>) -> impl Iterator<Item = T> {
    const IMAGES_MAX: usize = 120;
    let step = images.len().div_ceil(IMAGES_MAX).max(1);
    images.into_iter().step_by(step)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, max_shrink_iters: 0, ..ProptestConfig::default() })]
    #[test]
    fn acknowledged_writes_survive_a_loss_of_power(seed in any::<u64>(), count in 1..4_usize) {
        let disk = Disk::default();
        let mut stores = Stores::open(&disk, count, seed);
        runtime().block_on(async {
            for _ in 0..60 {
                assert!(stores.round().await);
            }
        });
        let histories = stores.histories();
        // What happens at the end is to be survived as well.
        drop(stores);
        let images = disk.with(|s| std::mem::take(&mut s.images));
        for (image, acknowledged) in some(images) {
            check_image(image, &acknowledged, &histories);
        }
        // Closed stores need no journal.
        let mut image = disk.image();
        prop_assert!(image["journal/0"].is_empty() && image["journal/1"].is_empty());
        image.retain(|name, _| name.starts_with("store"));
        let acknowledged = disk.with(|s| s.acknowledged.clone());
        check_image(image, &acknowledged, &histories);
    }

    /// Nothing is lost when the power goes again while stores are brought up to date.
    #[test]
    fn recovery_can_be_interrupted(seed in any::<u64>()) {
        let disk = Disk::default();
        let mut stores = Stores::open(&disk, 3, seed);
        runtime().block_on(async {
            for _ in 0..10 {
                assert!(stores.round().await);
            }
        });
        let histories = stores.histories();
        let (image, acknowledged) = (disk.image(), disk.with(|s| s.acknowledged.clone()));
        let again = Disk::of(image);
        again.with(|s| s.seed = seed / 2);
        again.with(|s| s.acknowledged = acknowledged.clone());
        let journal = again.journal();
        let opened: Vec<_> = histories.keys().map(|name| journal.open(name, &Options::default()).unwrap()).collect();
        drop(opened);
        for (image, _) in some(again.with(|s| std::mem::take(&mut s.images))) {
            check_image(image, &acknowledged, &histories);
        }
    }

    #[test]
    fn a_full_disk_fails_writes_and_keeps_what_was_acknowledged(seed in any::<u64>(), budget in 20..400_u64) {
        let disk = Disk::default();
        let mut stores = Stores::open(&disk, 2, seed);
        disk.with(|s| s.budget = Some(budget));
        runtime().block_on(async {
            for _ in 0..1000 {
                if !stores.round().await {
                    break;
                }
            }
        });
        let acknowledged = disk.with(|s| s.acknowledged.clone());
        let failing = runtime().block_on(async {
            let mut failing = 0;
            for (_, store, _) in &stores.stores {
                let again = store.write(put("/later", "x", Expect::Any)).await;
                failing += usize::from(matches!(again, Err(StorageError::Failed(_))));
            }
            failing
        });
        prop_assert!(failing > 0);
        let image = disk.image();
        check_image(image, &acknowledged, &stores.histories());
        // Room is made, and everything opened again.
        disk.with(|s| s.budget = None);
        let histories = stores.histories();
        drop(stores);
        check_image(disk.image(), &acknowledged, &histories);
    }
}

/// A store whose file takes nothing any more keeps its last writes beside it, and the others go on for ever.
#[test]
fn a_broken_store_does_not_stop_its_neighbours() {
    let disk = Disk::default();
    let mut stores = Stores::open(&disk, 3, 7);
    disk.with(|s| s.broken = Some("store1".into()));
    let mut rounds_after = 0;
    runtime().block_on(async {
        for _ in 0..200 {
            if !stores.round().await {
                let (_, broken, _) = stores.stores.remove(stores.stores.iter().position(|(name, ..)| name == "store1").unwrap_or(0));
                assert!(broken.write(put("/x", "y", Expect::Any)).await.is_err());
                std::mem::forget(broken);
                rounds_after = 1;
            } else if rounds_after > 0 {
                rounds_after += 1;
            }
        }
    });
    assert!(rounds_after > 50, "{rounds_after}");
    let journal: usize = disk.image().iter().filter(|(name, _)| name.starts_with("journal")).map(|(_, bytes)| bytes.len()).sum();
    assert!(journal < 150_000, "{journal}");
}

/// One store comes and goes while the others use the journal.
#[test]
fn a_closed_store_needs_nothing_of_the_journal() {
    let disk = Disk::default();
    let journal = disk.journal();
    let mut stores = Stores::open(&disk, 0, 3);
    for name in ["store0", "store1"] {
        stores.stores.push((name.into(), Arc::new(journal.open(name, &Options::default()).unwrap()), History::new()));
    }
    runtime().block_on(async {
        for round in 0..30 {
            assert!(stores.round().await);
            if round % 5 == 4 {
                stores.reopen(&journal, 1);
            }
        }
    });
    stores.stores[1].1.close();
    let (_, _, history) = stores.stores.remove(1);
    // Moved to another process, where another journal is.
    let alone = Disk::of(BTreeMap::from([("store1".to_string(), disk.image()["store1"].clone())]));
    let moved = alone.journal().open("store1", &Options::default()).unwrap();
    let last = *history.at.last_key_value().unwrap().0;
    assert_eq!(moved.load().unwrap().1, last);
    assert_eq!(contents(&moved), history.at[&last]);
    // Deleted here: the journal of a crashed process does not miss it.
    let mut image = disk.image();
    image.remove("store1");
    let acknowledged = disk.with(|s| s.acknowledged.clone());
    check_image(image, &acknowledged, &stores.histories());
}

/// The end of the shared log is torn at every byte of its last group.
#[test]
fn a_torn_journal_is_good_up_to_its_last_whole_group() {
    let disk = Disk::default();
    let mut stores = Stores::open(&disk, 2, 11);
    stores.big_bytes = 1000;
    let (mut before, mut least) = (0, Revisions::new());
    runtime().block_on(async {
        for _ in 0..30 {
            if disk.image()["journal/0"].len() > before.max(2000) {
                break;
            }
            before = disk.image()["journal/0"].len();
            least = disk.with(|s| s.acknowledged.clone());
            assert!(stores.round().await);
        }
    });
    let image = disk.image();
    let whole = image["journal/0"].clone();
    assert!(before < whole.len() && image["journal/1"].is_empty());
    let step = ((whole.len() - before) / 200).max(1);
    for cut in (before..whole.len()).step_by(step) {
        let mut torn = image.clone();
        torn.insert("journal/0".into(), whole[..cut].to_vec());
        check_image(torn, &least, &stores.histories());
    }
}
