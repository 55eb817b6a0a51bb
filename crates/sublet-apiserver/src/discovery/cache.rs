//! The bytes of documents, shared by all servers in the process.

use super::documents::{Document, lock};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// Documents by ETag; those unused for longest make room.
#[derive(Debug, Default)]
pub(super) struct Cache {
    documents: BTreeMap<Arc<str>, (u64, Arc<Document>)>,
    bytes: usize,
    /// Rises with every use, to tell what was used long ago.
    clock: u64,
}

impl Cache {
    pub(super) fn get(&mut self, etag: &str) -> Option<Arc<Document>> {
        self.clock += 1;
        let (used, document) = self.documents.get_mut(etag)?;
        *used = self.clock;
        Some(document.clone())
    }

    pub(super) fn insert(&mut self, document: Arc<Document>) {
        self.clock += 1;
        self.bytes += document.gzip.len();
        if let Some((_, old)) = self.documents.insert(document.etag.clone(), (self.clock, document)) {
            self.bytes -= old.gzip.len();
        }
        while self.bytes > CACHE_BYTES_MAX && self.documents.len() > 1 {
            let Some(oldest) = self.documents.iter().min_by_key(|(_, (used, _))| *used).map(|(etag, _)| etag.clone()) else { break };
            if let Some((_, old)) = self.documents.remove(&oldest) {
                self.bytes -= old.gzip.len();
            }
        }
    }
}

pub(super) fn cache() -> MutexGuard<'static, Cache> {
    static CACHE: OnceLock<Mutex<Cache>> = OnceLock::new();
    lock(CACHE.get_or_init(Mutex::default))
}

/// Compressed bytes kept in the process. All documents of the built-in resources together take less than 1 MiB.
const CACHE_BYTES_MAX: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_makes_room() {
        let mut cache = Cache::default();
        let document = |name: &str| Arc::new(Document { etag: name.into(), gzip: vec![0; CACHE_BYTES_MAX / 2].into() });
        cache.insert(document("a"));
        cache.insert(document("b"));
        assert!(cache.get("a").is_some());
        cache.insert(document("c"));
        assert_eq!(cache.documents.keys().map(|k| k.to_string()).collect::<Vec<_>>(), ["a", "c"]);
        assert!(cache.bytes <= CACHE_BYTES_MAX);
    }
}
