//! Services whose copies on the host are ahead of the tenant's objects: made or changed for a write that is about
//! to be committed. Until the local copy shows that write, the engine leaves the key alone.

use super::ItemKey;
use super::syncer::Inner;
use crate::resources::KindId;
use crate::translate::TenantKey;
use serde_json::Value;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// How long a copy on the host waits for its tenant Service to be committed.
const PENDING_MAX: Duration = Duration::from_secs(30);
/// How long the copy of a change that failed stays as it is: it may be tried again at once, over a newer object.
const FAILED_PAUSE: Duration = Duration::from_millis(250);

/// The writes under way: one for each request in flight that asked the host.
#[derive(Default)]
pub(super) struct Pending {
    /// Guards the writes of each key; one leaves when its end is seen, or by time.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    writes: HashMap<TenantKey, Vec<Write>>,
    last: u64,
}

struct Write {
    number: u64,
    since: Instant,
    /// The revision that the write replaces; 0 for an object that is about to be.
    over: u64,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    Committed,
    Failed(Instant),
}

/// One write under way. Dropped before it is committed, it failed: the key is the engine's again.
pub(super) struct Hold {
    inner: Arc<Inner>,
    key: TenantKey,
    number: u64,
}

impl Hold {
    /// `old` is what the write replaces, if it replaces anything.
    pub fn new(inner: &Arc<Inner>, key: &TenantKey, old: Option<&Value>) -> Self {
        let number = inner.pending.add(key, old.map_or(0, super::execute::revision));
        Self { inner: inner.clone(), key: key.clone(), number }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn committed(self) {
        self.inner.pending.committed(&self.key, self.number);
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hold({}, {})", self.key, self.number)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(pause) = self.inner.pending.failed(&self.key, self.number) {
            self.inner.queue.add_after(ItemKey::new(KindId::Service, self.key.clone()), pause);
        }
    }
}

impl Pending {
    fn add(&self, key: &TenantKey, over: u64) -> u64 {
        let mut state = self.lock();
        state.last += 1;
        let number = state.last;
        state.writes.entry(key.clone()).or_default().push(Write { number, since: Instant::now(), over, stage: Stage::Open });
        number
    }

    fn committed(&self, key: &TenantKey, number: u64) {
        self.lock().retain(key, |write| {
            if write.number == number {
                write.stage = Stage::Committed;
            }
            // An object that was not there is told from one that is gone by a live read.
            write.stage == Stage::Open || write.stage == Stage::Committed && write.over != 0
        });
    }

    /// When the engine may look at the key, if this write was still open.
    fn failed(&self, key: &TenantKey, number: u64) -> Option<Duration> {
        let mut pause = None;
        self.lock().retain(key, |write| {
            if write.number == number && write.stage == Stage::Open {
                write.stage = Stage::Failed(Instant::now());
                pause = Some(if write.over == 0 { Duration::ZERO } else { FAILED_PAUSE });
                return write.over != 0;
            }
            true
        });
        pause
    }

    /// Whether a Service of the key may be committed at any moment.
    pub fn contains(&self, key: &TenantKey) -> bool {
        self.lock().retain(key, |_| true)
    }

    /// Whether a write of the key is on its way that is older than the one of this number.
    pub fn has_open_before(&self, key: &TenantKey, number: u64) -> bool {
        let mut open = false;
        self.lock().retain(key, |write| {
            open |= write.stage == Stage::Open && write.number < number;
            true
        });
        open
    }

    /// Whether the host's copy is ahead of this local copy of the tenant's object.
    pub fn is_ahead_of(&self, key: &TenantKey, seen: Option<&Value>) -> bool {
        let seen = seen.map_or(u64::MAX, super::execute::revision);
        let mut ahead = false;
        self.lock().retain(key, |write| {
            let under_way = match write.stage {
                Stage::Open => true,
                Stage::Committed => seen <= write.over,
                Stage::Failed(at) => at.elapsed() < FAILED_PAUSE,
            };
            ahead |= under_way && write.over != 0;
            under_way
        });
        ahead
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

impl State {
    /// Keeps those writes of the key whose time is not over and that `keep` wants; whether there are any.
    fn retain(&mut self, key: &TenantKey, mut keep: impl FnMut(&mut Write) -> bool) -> bool {
        let Some(writes) = self.writes.get_mut(key) else { return false };
        writes.retain_mut(|write| write.since.elapsed() < PENDING_MAX && keep(write));
        let some = !writes.is_empty();
        if !some {
            self.writes.remove(key);
        }
        some
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service(revision: u64) -> Value {
        json!({"metadata": {"resourceVersion": revision.to_string()}})
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_ahead_until_it_is_seen() {
        let (pending, key) = (Pending::default(), TenantKey::new("prod", "web"));
        assert!(!pending.is_ahead_of(&key, Some(&service(7))));
        let number = pending.add(&key, 7);
        assert!(pending.is_ahead_of(&key, Some(&service(7))));
        pending.committed(&key, number);
        assert!(pending.is_ahead_of(&key, Some(&service(6))));
        assert!(pending.is_ahead_of(&key, Some(&service(7))));
        assert_eq!(pending.failed(&key, number), None, "it was committed");
        assert!(!pending.is_ahead_of(&key, Some(&service(9))));
        assert!(!pending.contains(&key));
    }

    /// A change that met another writer of the tenant's object is tried again by the API server. In between the
    /// engine wrote the earlier form.
    #[tokio::test(start_paused = true)]
    async fn a_change_that_failed_may_be_tried_again() {
        let (pending, key) = (Pending::default(), TenantKey::new("prod", "web"));
        let first = pending.add(&key, 7);
        assert_eq!(pending.failed(&key, first), Some(FAILED_PAUSE));
        assert!(pending.is_ahead_of(&key, Some(&service(8))));
        let second = pending.add(&key, 8);
        pending.committed(&key, second);
        assert!(!pending.is_ahead_of(&key, Some(&service(9))), "the failed one has no more to say");
        let third = pending.add(&key, 9);
        pending.failed(&key, third);
        tokio::time::advance(FAILED_PAUSE).await;
        assert!(!pending.is_ahead_of(&key, Some(&service(9))));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_about_to_be_guards_the_copy_alone() {
        let (pending, key) = (Pending::default(), TenantKey::new("prod", "web"));
        let number = pending.add(&key, 0);
        assert!(pending.contains(&key) && !pending.is_ahead_of(&key, None));
        pending.committed(&key, number);
        assert!(!pending.contains(&key));
        let number = pending.add(&key, 0);
        assert_eq!(pending.failed(&key, number), Some(Duration::ZERO));
        assert!(!pending.contains(&key));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever() {
        let (pending, key) = (Pending::default(), TenantKey::new("prod", "web"));
        pending.add(&key, 7);
        tokio::time::advance(PENDING_MAX).await;
        assert!(!pending.is_ahead_of(&key, Some(&service(7))) && !pending.contains(&key));
    }
}
