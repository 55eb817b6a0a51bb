//! The power goes at any moment: whatever the disk may hold then must open as a state that was current
//! once and has every acknowledged write.

use super::EmbeddedBackend;
use super::file::File;
use crate::suite::{contents, delete, put};
use crate::{Backend, Expect, StorageError};
use bytes::Bytes;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use redb::{Database, StorageBackend};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What is written in one piece or not at all.
const SECTOR_BYTES: usize = 512;

/// A disk that remembers what was synced and what was only written.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    now: Vec<u8>,
    synced: Vec<u8>,
    pending: Vec<Op>,
    /// Images of the disk after a loss of power, with the revision acknowledged by then.
    images: Vec<(Vec<u8>, u64)>,
    acknowledged: u64,
    seed: u64,
    /// Operations until the disk is full.
    budget: Option<u64>,
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

impl State {
    fn spend(&mut self) -> Result<(), std::io::Error> {
        match &mut self.budget {
            Some(0) => Err(std::io::ErrorKind::StorageFull.into()),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Some of the pending writes reached the disk, some only in part. Lengths are changed in order: file
    /// systems keep metadata ordered.
    fn crash_image(&mut self) {
        self.seed += 1;
        let mut random = StdRng::seed_from_u64(self.seed);
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
        self.images.push((image, self.acknowledged));
    }

    fn change(&mut self, op: Op) -> Result<(), std::io::Error> {
        self.spend()?;
        apply(&mut self.now, &op);
        self.pending.push(op);
        Ok(())
    }
}

impl Disk {
    fn with<T>(&self, action: impl FnOnce(&mut State) -> T) -> T {
        action(&mut self.0.lock().unwrap())
    }

    fn of(image: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(State { now: image.clone(), synced: image, ..State::default() })))
    }

    fn open(&self) -> Result<EmbeddedBackend, StorageError> {
        let database = Database::builder()
            .set_cache_size(256 * 1024)
            .create_with_backend(self.clone())
            .map_err(|error| StorageError::Failed(error.to_string()))?;
        let disk = self.clone();
        EmbeddedBackend::start(File::with_database(database, Box::new(move || disk.with(|s| s.now.len() as u64)))?)
    }
}

impl StorageBackend for Disk {
    fn try_lock_range(&self, _: std::ops::Bound<u64>, _: std::ops::Bound<u64>) -> Result<bool, redb::BackendError> {
        Ok(true)
    }

    fn unlock_range(&self, _: std::ops::Bound<u64>, _: std::ops::Bound<u64>) -> Result<(), redb::BackendError> {
        Ok(())
    }

    fn len(&self) -> Result<u64, std::io::Error> {
        Ok(self.with(|s| s.now.len() as u64))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), std::io::Error> {
        self.with(|s| match s.now.get(offset as usize..offset as usize + out.len()) {
            Some(data) => {
                out.copy_from_slice(data);
                Ok(())
            }
            None => Err(std::io::ErrorKind::UnexpectedEof.into()),
        })
    }

    fn set_len(&self, len: u64) -> Result<(), std::io::Error> {
        self.with(|s| s.change(Op::SetLen(len as usize)))
    }

    fn sync_data(&self) -> Result<(), std::io::Error> {
        self.with(|s| {
            s.spend()?;
            s.crash_image();
            s.crash_image();
            s.synced = s.now.clone();
            s.pending.clear();
            s.crash_image();
            Ok(())
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), std::io::Error> {
        self.with(|s| s.change(Op::Write(offset as usize, data.to_vec())))
    }
}

type Contents = Vec<(String, Bytes, u64)>;

/// Writes under a seed and returns the contents at each revision. Stops at the first failure.
async fn work(store: &EmbeddedBackend, disk: &Disk, seed: u64, writes: usize) -> BTreeMap<u64, Contents> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut now: BTreeMap<String, (Bytes, u64)> = BTreeMap::new();
    let mut history = BTreeMap::from([(1, Vec::new())]);
    for _ in 0..writes {
        let key = format!("/{}", random.random_range(0..20));
        let write = if random.random_bool(0.35) && now.contains_key(&key) {
            delete(&key, Expect::Any)
        } else {
            let big = random.random_bool(0.1);
            put(&key, vec![random.random(); random.random_range(0..if big { 20_000 } else { 300 })], Expect::Any)
        };
        // Known before it is acknowledged: a crash in between may or may not keep it.
        let revision = history.last_key_value().map_or(1, |(r, _)| *r) + 1;
        match &write.value {
            Some(value) => now.insert(key, (value.clone(), revision)),
            None => now.remove(&key),
        };
        history.insert(revision, now.iter().map(|(key, (value, revision))| (key.clone(), value.clone(), *revision)).collect());
        match store.write(write).await {
            Ok(acknowledged) => {
                assert_eq!(acknowledged, revision);
                disk.with(|s| s.acknowledged = acknowledged);
            }
            Err(error) => {
                assert!(error.to_string().contains("no space is left"), "{error}");
                return history;
            }
        }
        if random.random_bool(0.1) {
            store.compact_step().unwrap();
        }
    }
    history
}

fn check_images(disk: &Disk, history: &BTreeMap<u64, Contents>) {
    let images = disk.with(|s| std::mem::take(&mut s.images));
    for (image, acknowledged) in images {
        let store = Disk::of(image).open().unwrap_or_else(|error| panic!("after revision {acknowledged}: {error}"));
        let revision = store.load().unwrap().1;
        assert!(revision >= acknowledged, "revision {acknowledged} was acknowledged, {revision} is there");
        assert_eq!(&contents(&store), &history[&revision], "at revision {revision}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, max_shrink_iters: 0, ..ProptestConfig::default() })]
    #[test]
    fn acknowledged_writes_survive_a_loss_of_power(seed in any::<u64>()) {
        let disk = Disk::default();
        let store = disk.open().unwrap();
        // A file gets its name when it is complete, so there are no images of half a new one.
        disk.with(|s| { s.seed = seed / 2; s.images.clear() });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let history = runtime.block_on(work(&store, &disk, seed, 60));
        check_images(&disk, &history);
    }

    #[test]
    fn a_full_disk_fails_writes_and_keeps_what_was_acknowledged(seed in any::<u64>(), budget in 20..400_u64) {
        let disk = Disk::default();
        let store = disk.open().unwrap();
        disk.with(|s| { s.seed = seed / 2; s.budget = Some(budget); s.images.clear() });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let history = runtime.block_on(work(&store, &disk, seed, 200));
        let again = runtime.block_on(store.write(put("/later", "x", Expect::Any)));
        prop_assert!(matches!(again, Err(StorageError::Failed(_))), "{again:?}");
        let (acknowledged, image) = disk.with(|s| { s.budget = None; (s.acknowledged, s.now.clone()) });
        let store = Disk::of(image).open().unwrap();
        let revision = store.load().unwrap().1;
        prop_assert!(revision >= acknowledged.max(1));
        prop_assert_eq!(&contents(&store), &history[&revision]);
    }
}
