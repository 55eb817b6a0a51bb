//! Pods that wait for a node: ready ones by priority and age, tried ones until their back-off ends,
//! refused ones until something changes that could let them in.

use super::filter::cause;
use super::pod::PodInfo;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use sublet_runtime::Key;
use tokio::time::Instant;

const BACKOFF_FIRST: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// Refused pods are tried again after this time, whatever happened.
const REFUSED_MAX: Duration = Duration::from_secs(300);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// With the position in the ready set.
    Ready(Position),
    Backoff(Instant),
    Refused {
        causes: u8,
        since: Instant,
    },
    /// Taken out by `pop`; `missed` are changes seen meanwhile.
    InWork {
        missed: u8,
    },
}

type Position = (Reverse<i64>, u64);

#[derive(Debug)]
struct Waiting {
    pod: Arc<PodInfo>,
    attempts: u32,
    tried_at: Option<Instant>,
    /// Order of arrival, kept over retries.
    arrival: u64,
    place: Place,
}

/// One entry per unscheduled pod, so its bound is the number of pods.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: HashMap<Key, Waiting>,
    ready: BTreeSet<(Position, Key)>,
    backoff: BTreeSet<(Instant, Key)>,
    in_work: HashSet<Key>,
    /// Refused pods by cause (one bit each), so that most changes cost nothing.
    refused_by: [usize; 8],
    arrivals: u64,
}

impl Queue {
    /// Adds a pod, or takes in its new form; a refused pod whose wishes changed is tried again.
    pub(crate) fn put(&mut self, pod: Arc<PodInfo>, now: Instant) {
        match self.waiting.get_mut(&pod.key) {
            None => {
                self.arrivals += 1;
                let key = pod.key.clone();
                let entry = Waiting { pod, attempts: 0, tried_at: None, arrival: self.arrivals, place: Place::Backoff(now) };
                self.waiting.insert(key.clone(), entry);
                self.make_ready(&key);
            }
            Some(entry) => {
                let changed =
                    entry.pod.uid() != pod.uid() || entry.pod.object["spec"] != pod.object["spec"] || entry.pod.labels() != pod.labels();
                let key = pod.key.clone();
                entry.pod = pod;
                if changed {
                    self.wake_one(&key, cause::ANY, now);
                }
            }
        }
    }

    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.waiting.contains_key(key)
    }

    /// A refused pod lost what it waited for and has to look again.
    pub(crate) fn retry(&mut self, key: &Key, now: Instant) {
        self.wake_one(key, cause::ANY, now);
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.waiting.remove(key) {
            self.unlist(key, &entry.place);
        }
    }

    /// The next pod to decide on. It stays known until [`Self::remove`] or [`Self::refused`].
    pub(crate) fn pop(&mut self) -> Option<Arc<PodInfo>> {
        let (_, key) = self.ready.pop_first()?;
        let entry = self.waiting.get_mut(&key)?;
        entry.attempts = entry.attempts.saturating_add(1);
        entry.place = Place::InWork { missed: 0 };
        self.in_work.insert(key);
        Some(entry.pod.clone())
    }

    /// No node took the pod; a change with one of the causes may help.
    pub(crate) fn refused(&mut self, key: &Key, causes: u8, now: Instant) {
        let Some(entry) = self.waiting.get_mut(key) else { return };
        let Place::InWork { missed } = entry.place else { return };
        entry.tried_at = Some(now);
        entry.place = Place::Refused { causes, since: now };
        self.in_work.remove(key);
        self.count_refused(causes, true);
        if missed & causes != 0 {
            self.wake_one(key, missed, now);
        }
    }

    /// The attempt failed for another reason: once more after the back-off.
    pub(crate) fn failed(&mut self, key: &Key, now: Instant) {
        let Some(entry) = self.waiting.get_mut(key) else { return };
        entry.tried_at = Some(now);
        self.back_off(key, now);
    }

    /// Something changed in the cluster.
    pub(crate) fn wake(&mut self, causes: u8, now: Instant) {
        for key in &self.in_work {
            if let Some(Waiting { place: Place::InWork { missed }, .. }) = self.waiting.get_mut(key) {
                *missed |= causes;
            }
        }
        if !(0..8).any(|bit| causes & (1 << bit) != 0 && self.refused_by[bit] > 0) {
            return;
        }
        let helped = |w: &Waiting| matches!(w.place, Place::Refused { causes: c, .. } if c & causes != 0);
        let keys: Vec<Key> = self.waiting.iter().filter(|(_, w)| helped(w)).map(|(k, _)| k.clone()).collect();
        for key in keys {
            self.back_off(&key, now);
        }
    }

    fn wake_one(&mut self, key: &Key, causes: u8, now: Instant) {
        let Some(entry) = self.waiting.get_mut(key) else { return };
        match &mut entry.place {
            Place::InWork { missed } => *missed |= causes,
            Place::Refused { causes: c, .. } if *c & causes != 0 => self.back_off(key, now),
            _ => {}
        }
    }

    /// Moves pods whose time has come to the ready ones.
    pub(crate) fn flush(&mut self, now: Instant) {
        while let Some((at, key)) = self.backoff.first().cloned()
            && at <= now
        {
            self.backoff.pop_first();
            self.make_ready(&key);
        }
    }

    /// Pods that were refused long ago; seldom called, for it looks at all of them.
    pub(crate) fn flush_refused(&mut self, now: Instant) {
        let old = |w: &Waiting| matches!(w.place, Place::Refused { since, .. } if now.duration_since(since) >= REFUSED_MAX);
        let keys: Vec<Key> = self.waiting.iter().filter(|(_, w)| old(w)).map(|(k, _)| k.clone()).collect();
        for key in keys {
            self.back_off(&key, now);
        }
    }

    /// When the next back-off ends.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        self.backoff.first().map(|(at, _)| *at)
    }

    #[cfg(test)]
    fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    fn count_refused(&mut self, causes: u8, more: bool) {
        for bit in (0..8).filter(|bit| causes & (1 << bit) != 0) {
            let count = &mut self.refused_by[bit];
            *count = if more { *count + 1 } else { count.saturating_sub(1) };
        }
    }

    fn back_off(&mut self, key: &Key, now: Instant) {
        let Some(place) = self.waiting.get(key).map(|w| w.place.clone()) else { return };
        self.unlist(key, &place);
        let Some(entry) = self.waiting.get_mut(key) else { return };
        let delay = BACKOFF_FIRST.saturating_mul(1 << entry.attempts.saturating_sub(1).min(8)).min(BACKOFF_MAX);
        let due = entry.tried_at.map_or(now, |at| at + delay);
        if due <= now {
            return self.make_ready(key);
        }
        entry.place = Place::Backoff(due);
        self.backoff.insert((due, key.clone()));
    }

    fn make_ready(&mut self, key: &Key) {
        let Some(entry) = self.waiting.get_mut(key) else { return };
        let position = (Reverse(entry.pod.priority), entry.arrival);
        entry.place = Place::Ready(position);
        self.ready.insert((position, key.clone()));
    }

    fn unlist(&mut self, key: &Key, place: &Place) {
        match place {
            Place::Ready(position) => {
                self.ready.remove(&(*position, key.clone()));
            }
            Place::Backoff(at) => {
                self.backoff.remove(&(*at, key.clone()));
            }
            Place::Refused { causes, .. } => self.count_refused(*causes, false),
            Place::InWork { .. } => {
                self.in_work.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, priority: i64) -> Arc<PodInfo> {
        Arc::new(PodInfo::parse(Arc::new(json!({"metadata": {"name": name, "uid": name}, "spec": {"priority": priority}}))))
    }

    fn pop(queue: &mut Queue) -> Option<String> {
        queue.pop().map(|p| p.key.name.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn priority_first_then_age() {
        let mut queue = Queue::default();
        for (name, priority) in [("old", 0), ("new", 0), ("high", 5)] {
            queue.put(pod(name, priority), Instant::now());
        }
        queue.remove(&Key::new("", "old"));
        queue.put(pod("last", 0), Instant::now());
        assert_eq!(
            [pop(&mut queue), pop(&mut queue), pop(&mut queue), pop(&mut queue)],
            [Some("high".into()), Some("new".into()), Some("last".into()), None]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn refused_pods_wait_for_a_change_that_helps() {
        let mut queue = Queue::default();
        let key = Key::new("", "a");
        queue.put(pod("a", 0), Instant::now());
        pop(&mut queue);
        queue.refused(&key, cause::RESOURCES, Instant::now());
        queue.wake(cause::VOLUMES, Instant::now());
        queue.flush(Instant::now() + BACKOFF_MAX);
        assert!(!queue.has_ready());
        queue.wake(cause::RESOURCES, Instant::now());
        queue.flush(Instant::now());
        assert!(!queue.has_ready(), "the back-off comes first");
        assert_eq!(queue.next_wake(), Some(Instant::now() + BACKOFF_FIRST));
        queue.flush(Instant::now() + BACKOFF_FIRST);
        assert_eq!(pop(&mut queue), Some("a".into()));
        // A change during the attempt is not missed.
        queue.wake(cause::RESOURCES, Instant::now());
        queue.refused(&key, cause::RESOURCES, Instant::now());
        assert!(queue.next_wake().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_pod_is_tried_again_but_a_status_write_is_none() {
        let mut queue = Queue::default();
        let key = Key::new("", "a");
        queue.put(pod("a", 0), Instant::now());
        pop(&mut queue);
        queue.refused(&key, cause::NODE, Instant::now());
        queue.put(pod("a", 0), Instant::now());
        assert_eq!(queue.next_wake(), None);
        tokio::time::advance(BACKOFF_FIRST).await;
        queue.put(pod("a", 7), Instant::now());
        assert!(queue.has_ready());
        tokio::time::advance(REFUSED_MAX).await;
        pop(&mut queue);
        queue.refused(&key, cause::NODE, Instant::now());
        tokio::time::advance(REFUSED_MAX).await;
        queue.flush_refused(Instant::now());
        assert!(queue.has_ready());
    }
}
