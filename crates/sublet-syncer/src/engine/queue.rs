//! The work queue of one tenant: each key once, one worker at a time, delays and back-off.

use crate::engine::ItemKey;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// After a failure of the network or a conflict.
const RETRY_FIRST: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// After a refusal: a quick burst, for causes that go at once, then about six a minute.
const REFUSED_FIRST: Duration = Duration::from_millis(250);
const REFUSED_MAX: Duration = Duration::from_secs(10);

/// Holds each key at most once ready and once delayed, so its bound is the number of objects.
#[derive(Clone, Default)]
pub struct TenantQueue {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    ready: VecDeque<ItemKey>,
    /// Ready, or to be ready again once its worker is done.
    dirty: HashSet<ItemKey>,
    in_work: HashSet<ItemKey>,
    /// Delayed keys by time, and the time of each.
    delayed: BTreeSet<(Instant, ItemKey)>,
    delayed_at: HashMap<ItemKey, Instant>,
    failures: HashMap<ItemKey, u32>,
    /// Keys that the host refused, and when it may be asked again.
    refused: HashMap<ItemKey, Instant>,
    closed: bool,
}

impl TenantQueue {
    pub fn add(&self, key: ItemKey) {
        if self.lock().add(key) {
            self.shared.changed.notify_one();
        }
    }

    /// Adds the key later; of several delays the earliest counts.
    pub fn add_after(&self, key: ItemKey, delay: Duration) {
        self.lock().delay(key, Instant::now() + delay);
        self.shared.changed.notify_one();
    }

    /// Adds the key after a back-off that doubles with each failure in a row.
    pub fn retry(&self, key: ItemKey) {
        let delay = self.lock().back_off(&key, RETRY_FIRST, RETRY_MAX);
        self.add_after(key, delay);
    }

    /// As [`Self::retry`], at the pace for refusals. The key is remembered for [`Self::hurry_refused`].
    pub fn refused(&self, key: ItemKey) {
        let delay = {
            let mut state = self.lock();
            let delay = state.back_off(&key, REFUSED_FIRST, REFUSED_MAX);
            state.refused.insert(key.clone(), Instant::now() + delay);
            delay
        };
        self.add_after(key, delay);
    }

    /// What the host refused may pass now: its back-off ends.
    pub fn hurry_refused(&self) {
        let mut state = self.lock();
        let now = Instant::now();
        let keys: Vec<ItemKey> = state.refused.keys().cloned().collect();
        for key in keys {
            state.refused.insert(key.clone(), now);
            state.add(key);
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// The key succeeded: its back-off starts anew.
    pub fn forget(&self, key: &ItemKey) {
        let mut state = self.lock();
        state.failures.remove(key);
        state.refused.remove(key);
    }

    /// How long the host is not to be asked again about a key that it refused. Changes of the object
    /// bring the key back sooner, for everything but that.
    pub fn refused_for(&self, key: &ItemKey) -> Option<Duration> {
        self.lock().refused.get(key).map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// The next key, in work until [`Self::done`]. `None` when the queue is closed.
    pub async fn next(&self) -> Option<ItemKey> {
        loop {
            let changed = self.shared.changed.notified();
            let wake_at = {
                let mut state = self.lock();
                if state.closed {
                    return None;
                }
                state.ripen(Instant::now());
                if let Some(key) = state.ready.pop_front() {
                    state.dirty.remove(&key);
                    state.in_work.insert(key.clone());
                    return Some(key);
                }
                state.delayed.first().map(|(at, _)| *at)
            };
            match wake_at {
                Some(at) => tokio::select! {
                    () = changed => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => changed.await,
            }
        }
    }

    pub fn done(&self, key: &ItemKey) {
        let mut state = self.lock();
        state.in_work.remove(key);
        if state.dirty.contains(key) {
            state.ready.push_back(key.clone());
            drop(state);
            self.shared.changed.notify_one();
        }
    }

    pub fn close(&self) {
        self.lock().closed = true;
        self.shared.changed.notify_waiters();
        self.shared.changed.notify_one();
    }

    /// Keys that wait to be worked on now, or are.
    pub fn len(&self) -> usize {
        let state = self.lock();
        state.ready.len() + state.in_work.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.shared.state.lock().expect("no holder of this lock panics")
    }
}

impl State {
    /// Whether a reader has to be woken.
    fn add(&mut self, key: ItemKey) -> bool {
        if let Some(at) = self.delayed_at.remove(&key) {
            self.delayed.remove(&(at, key.clone()));
        }
        if !self.dirty.insert(key.clone()) || self.in_work.contains(&key) {
            return false;
        }
        self.ready.push_back(key);
        true
    }

    fn delay(&mut self, key: ItemKey, at: Instant) {
        if let Some(earlier) = self.delayed_at.get(&key).copied() {
            if earlier <= at {
                return;
            }
            self.delayed.remove(&(earlier, key.clone()));
        }
        self.delayed_at.insert(key.clone(), at);
        self.delayed.insert((at, key));
    }

    fn ripen(&mut self, now: Instant) {
        while let Some((at, key)) = self.delayed.first().cloned() {
            if at > now {
                break;
            }
            self.delayed.pop_first();
            self.delayed_at.remove(&key);
            self.add(key);
        }
    }

    fn back_off(&mut self, key: &ItemKey, first: Duration, max: Duration) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        *failures = failures.saturating_add(1);
        first.saturating_mul(1 << (*failures - 1).min(16)).min(max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::KindId;
    use crate::translate::TenantKey;

    fn key(name: &str) -> ItemKey {
        ItemKey::new(KindId::Pod, TenantKey::new("n", name))
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_added_in_work_comes_back_once() {
        let queue = TenantQueue::default();
        queue.add(key("a"));
        queue.add(key("a"));
        let a = queue.next().await.expect("open");
        queue.add(key("a"));
        queue.done(&a);
        assert_eq!(queue.next().await, Some(key("a")));
        queue.done(&a);
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_delay_counts_and_an_add_ends_it() {
        let queue = TenantQueue::default();
        let start = Instant::now();
        queue.add_after(key("a"), Duration::from_secs(9));
        queue.add_after(key("a"), Duration::from_secs(3));
        queue.add_after(key("a"), Duration::from_secs(5));
        let a = queue.next().await.expect("open");
        assert_eq!(start.elapsed().as_secs(), 3);
        queue.done(&a);
        queue.add_after(key("a"), Duration::from_secs(9));
        queue.add(key("a"));
        queue.next().await;
        assert_eq!(start.elapsed().as_secs(), 3);
        assert!(queue.lock().delayed.is_empty());
    }

    /// At most about six tries a minute once the first burst is over.
    #[tokio::test(start_paused = true)]
    async fn refusals_settle_at_six_a_minute() {
        let queue = TenantQueue::default();
        let start = Instant::now();
        let mut tries = Vec::new();
        for _ in 0..20 {
            queue.refused(key("a"));
            let a = queue.next().await.expect("open");
            tries.push(start.elapsed());
            queue.done(&a);
        }
        let late = tries.iter().filter(|t| (60..120).contains(&t.as_secs())).count();
        assert!(late <= 6, "{late}");
        assert!(tries[4].as_secs() < 8, "the first burst is quick: {:?}", tries[4]);
        queue.refused(key("a"));
        queue.hurry_refused();
        let before = start.elapsed();
        queue.next().await;
        assert_eq!(start.elapsed(), before);
    }
}
