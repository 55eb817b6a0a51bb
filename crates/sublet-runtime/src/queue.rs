//! The work queue of one controller: each key is queued once and worked on by one worker at a time.

use crate::Key;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

const BACKOFF_FIRST: Duration = Duration::from_millis(5);
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// A queue with upstream's workqueue semantics: a key added while in work comes back when its worker
/// is done. It holds each key once, so its bound is the number of objects.
#[derive(Clone, Default)]
pub struct WorkQueue {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    ready: Notify,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Key>,
    /// Queued, or to be queued again once its worker is done.
    dirty: HashSet<Key>,
    in_work: HashSet<Key>,
    failures: HashMap<Key, u32>,
    /// The earliest time at which a key is to be added; later wishes for it are covered by that.
    delayed: HashMap<Key, Instant>,
    closed: bool,
}

impl WorkQueue {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn add(&self, key: Key) {
        let mut state = self.lock();
        if !state.dirty.insert(key.clone()) || state.in_work.contains(&key) {
            return;
        }
        state.ready.push_back(key);
        drop(state);
        self.shared.ready.notify_one();
    }

    /// Adds the key after a delay. The delay is forgotten when the process ends; level-triggered
    /// reconcilers find the work again from the objects.
    pub fn add_after(&self, key: Key, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let at = Instant::now() + delay;
        {
            let mut state = self.lock();
            if state.delayed.get(&key).is_some_and(|earlier| *earlier <= at) {
                return;
            }
            state.delayed.insert(key.clone(), at);
        }
        let weak = Arc::downgrade(&self.shared);
        tokio::spawn(async move {
            tokio::time::sleep_until(at).await;
            let Some(shared) = weak.upgrade() else { return };
            let queue = Self { shared };
            let due = {
                let mut state = queue.lock();
                let due = state.delayed.get(&key) == Some(&at);
                if due {
                    state.delayed.remove(&key);
                }
                due
            };
            if due {
                queue.add(key);
            }
        });
    }

    /// Adds the key again after a back-off that doubles with each failure in a row.
    pub fn retry(&self, key: Key) {
        let failures = {
            let mut state = self.lock();
            let count = state.failures.entry(key.clone()).or_default();
            *count = count.saturating_add(1);
            *count
        };
        let delay = BACKOFF_FIRST.saturating_mul(1 << (failures - 1).min(20)).min(BACKOFF_MAX);
        self.add_after(key, delay);
    }

    /// The key succeeded: its back-off starts anew.
    pub fn forget(&self, key: &Key) {
        self.lock().failures.remove(key);
    }

    /// The next key, which is in work until [`Self::done`]. `None` when the queue is closed.
    pub async fn next(&self) -> Option<Key> {
        loop {
            let notified = self.shared.ready.notified();
            {
                let mut state = self.lock();
                if state.closed {
                    return None;
                }
                if let Some(key) = state.pop() {
                    if !state.ready.is_empty() {
                        self.shared.ready.notify_one();
                    }
                    return Some(key);
                }
            }
            notified.await;
        }
    }

    /// As [`Self::next`], without waiting.
    pub fn try_next(&self) -> Option<Key> {
        let mut state = self.lock();
        if state.closed { None } else { state.pop() }
    }

    pub fn done(&self, key: &Key) {
        let mut state = self.lock();
        state.in_work.remove(key);
        if state.dirty.contains(key) {
            state.ready.push_back(key.clone());
            drop(state);
            self.shared.ready.notify_one();
        }
    }

    pub fn close(&self) {
        self.lock().closed = true;
        self.shared.ready.notify_waiters();
        self.shared.ready.notify_one();
    }

    /// Keys that wait or are in work.
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
    fn pop(&mut self) -> Option<Key> {
        let key = self.ready.pop_front()?;
        self.dirty.remove(&key);
        self.in_work.insert(key.clone());
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("", name)
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_added_in_work_comes_back_once() {
        let queue = WorkQueue::new();
        queue.add(key("a"));
        queue.add(key("a"));
        let a = queue.next().await.expect("open");
        queue.add(key("a"));
        queue.add(key("a"));
        queue.done(&a);
        assert_eq!(queue.next().await, Some(key("a")));
        queue.done(&a);
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn retries_back_off_and_forget_resets() {
        let queue = WorkQueue::new();
        let start = tokio::time::Instant::now();
        for _ in 0..4 {
            queue.retry(key("a"));
            let a = queue.next().await.expect("open");
            queue.done(&a);
        }
        assert_eq!(start.elapsed().as_millis(), 5 + 10 + 20 + 40);
        queue.forget(&key("a"));
        let start = tokio::time::Instant::now();
        queue.retry(key("a"));
        queue.next().await;
        assert_eq!(start.elapsed().as_millis(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_of_several_delays_counts() {
        let queue = WorkQueue::new();
        let start = Instant::now();
        for millis in [50, 20, 80] {
            queue.add_after(key("a"), Duration::from_millis(millis));
        }
        let a = queue.next().await.expect("open");
        queue.done(&a);
        assert_eq!(start.elapsed().as_millis(), 20);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(queue.is_empty());
    }

    #[tokio::test]
    async fn close_wakes_every_waiter() {
        let queue = WorkQueue::new();
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                tokio::spawn({
                    let q = queue.clone();
                    async move { q.next().await }
                })
            })
            .collect();
        tokio::task::yield_now().await;
        queue.close();
        for waiter in waiters {
            assert_eq!(waiter.await.expect("no panic"), None);
        }
    }
}
