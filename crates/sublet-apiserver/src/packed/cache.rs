//! The pieces of lists that were answered lately, shared by all servers in the process.

use super::piece::Piece;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Compressed bytes kept in the process, keys included.
const CACHE_BYTES_MAX: usize = 32 << 20;
/// A piece that nobody asked for is kept at least this long, and about twice as long at most.
const UNUSED: Duration = Duration::from_secs(20);

/// What a piece holds. A revision stands for one object at one time, so equal keys are equal bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub store: u64,
    pub form: Arc<str>,
    pub revisions: Box<[u64]>,
}

impl Key {
    fn size_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.revisions)
    }
}

/// Two generations: what is used moves to the young one, and the old one is dropped when the young one is full or time has passed.
#[derive(Debug)]
pub struct Cache {
    young: HashMap<Key, Arc<Piece>>,
    old: HashMap<Key, Arc<Piece>>,
    young_bytes: usize,
    turned: Instant,
}

impl Cache {
    pub fn new(now: Instant) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), young_bytes: 0, turned: now }
    }

    pub fn get(&mut self, key: &Key, now: Instant) -> Option<Arc<Piece>> {
        if let Some(piece) = self.young.get(key) {
            return Some(piece.clone());
        }
        let (key, piece) = self.old.remove_entry(key)?;
        self.insert(key, piece.clone(), now);
        Some(piece)
    }

    pub fn insert(&mut self, key: Key, piece: Arc<Piece>, now: Instant) {
        let bytes = key.size_bytes() + piece.size_bytes();
        if bytes > CACHE_BYTES_MAX / 2 {
            return;
        }
        if self.young_bytes + bytes > CACHE_BYTES_MAX / 2 {
            self.turn(now);
        }
        if self.young.insert(key, piece).is_none() {
            self.young_bytes += bytes;
        }
    }

    /// Drops what was not used for a while.
    pub fn forget_unused(&mut self, now: Instant) {
        if now.saturating_duration_since(self.turned) >= UNUSED {
            self.turn(now);
        }
    }

    fn turn(&mut self, now: Instant) {
        self.old = std::mem::take(&mut self.young);
        self.young_bytes = 0;
        self.turned = now;
    }
}

pub fn cache() -> MutexGuard<'static, Cache> {
    static CACHE: OnceLock<Mutex<Cache>> = OnceLock::new();
    // Whoever panicked while holding it left a map that is whole.
    CACHE.get_or_init(|| Mutex::new(Cache::new(Instant::now()))).lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::piece::Packer;
    use super::*;

    fn key(revision: u64) -> Key {
        Key { store: 1, form: "v1/pods".into(), revisions: [revision].into() }
    }

    /// Bytes that do not shrink.
    fn piece() -> Arc<Piece> {
        let bytes: Vec<u8> = (0..250_000_u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        Arc::new(Packer::new().pack(&bytes))
    }

    fn bytes(cache: &Cache) -> usize {
        cache.young.iter().chain(&cache.old).map(|(k, p)| k.size_bytes() + p.size_bytes()).sum()
    }

    #[test]
    fn the_cache_stays_within_its_bound_and_keeps_what_is_used() {
        let (now, piece) = (Instant::now(), piece());
        let mut cache = Cache::new(now);
        for revision in 0..200 {
            cache.insert(key(revision), piece.clone(), now);
            assert!(bytes(&cache) <= CACHE_BYTES_MAX);
            assert!(cache.get(&key(0), now).is_some(), "after {revision}");
        }
        assert!(cache.get(&key(1), now).is_none());
        assert!(bytes(&cache) > CACHE_BYTES_MAX / 3);
    }

    #[test]
    fn what_nobody_asks_for_is_forgotten() {
        let (mut now, piece) = (Instant::now(), piece());
        let mut cache = Cache::new(now);
        cache.insert(key(1), piece.clone(), now);
        cache.insert(key(2), piece, now);
        for _ in 0..2 {
            cache.forget_unused(now + UNUSED / 2);
            now += UNUSED;
            cache.forget_unused(now);
            assert!(cache.get(&key(1), now).is_some());
        }
        assert!(cache.get(&key(2), now).is_none());
        cache.forget_unused(now + UNUSED);
        cache.forget_unused(now + UNUSED * 2);
        assert_eq!(bytes(&cache), 0);
    }
}
