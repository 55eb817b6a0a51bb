//! The process that tenants share.

use crate::lane::Lane;
use crate::turn::Share;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// How long a tenant counts as one who asks for something.
const ACTIVE_MS: u64 = 2000;
/// The number that no tenant has.
const NOBODY: u64 = 0;
/// Heavy work under way in the process, for each thread of its runtime.
const HEAVY_PER_WORKER: usize = 4;

/// What the tenants of a process have in common. Cheap to clone.
#[derive(Clone, Debug)]
pub struct House {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    workers: usize,
    next: AtomicU64,
    /// The two tenants that asked last. A race between two of them costs one visit.
    recent: [Visit; 2],
    began: Instant,
    pub heavy: Lane,
}

/// A tenant, and when it asked, in milliseconds since the house began.
#[derive(Debug, Default)]
struct Visit {
    tenant: AtomicU64,
    at_ms: AtomicU64,
}

impl House {
    /// A house whose runtime has so many threads.
    pub fn new(workers: usize) -> Self {
        let inner = Inner {
            workers: workers.max(1),
            next: AtomicU64::new(NOBODY + 1),
            recent: Default::default(),
            began: Instant::now(),
            heavy: Lane::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The house of the runtime that this is called in.
    pub fn of_runtime() -> Self {
        Self::new(tokio::runtime::Handle::current().metrics().num_workers())
    }

    /// The one house of a process that has one runtime.
    pub fn of_process() -> Self {
        static HOUSE: OnceLock<House> = OnceLock::new();
        HOUSE.get_or_init(Self::of_runtime).clone()
    }

    /// A tenant's part of it.
    pub fn share(&self) -> Share {
        Share::new(self.clone(), self.inner.next.fetch_add(1, Ordering::Relaxed))
    }
}

impl Inner {
    /// A tenant asks for something.
    pub fn visit(&self, tenant: u64) {
        let [first, second] = &self.recent;
        if first.tenant.load(Ordering::Relaxed) != tenant {
            second.tenant.store(first.tenant.load(Ordering::Relaxed), Ordering::Relaxed);
            second.at_ms.store(first.at_ms.load(Ordering::Relaxed), Ordering::Relaxed);
            first.tenant.store(tenant, Ordering::Relaxed);
        }
        first.at_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    /// Whether another tenant asked for something lately.
    fn has_others(&self, tenant: u64) -> bool {
        let since = self.now_ms().saturating_sub(ACTIVE_MS);
        let is_other = |visit: &Visit| {
            let other = visit.tenant.load(Ordering::Relaxed);
            other != NOBODY && other != tenant && visit.at_ms.load(Ordering::Relaxed) >= since
        };
        self.recent.iter().any(is_other)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Turns that a tenant may have at once: half of the threads when others ask too.
    pub fn turns(&self, tenant: u64) -> usize {
        if self.has_others(tenant) { self.heavy_turns() } else { self.workers }
    }

    /// Heavy turns of one tenant.
    pub fn heavy_turns(&self) -> usize {
        (self.workers / 2).max(1)
    }

    /// Heavy turns of all tenants.
    pub fn heavy_places(&self) -> usize {
        self.workers * HEAVY_PER_WORKER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_alone_has_all_turns() {
        let house = House::new(8);
        let turns = |tenant| house.inner.turns(tenant);
        assert_eq!((turns(1), turns(2)), (8, 8));
        house.inner.visit(1);
        assert_eq!((turns(1), turns(2)), (8, 4));
        house.inner.visit(2);
        house.inner.visit(1);
        house.inner.visit(1);
        assert_eq!((turns(1), turns(2)), (4, 4));
    }
}
