//! Writers of one object who were beaten by a faster one take turns, so that each is beaten only by those who have just come.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};

/// Objects share queues: what waits for another object's writer for once loses little.
const QUEUES: usize = 64;
/// Who is at work may be waiting for a webhook that writes the same object: nobody waits for one turn longer than this.
const TURN_MAX: Duration = Duration::from_millis(100);

pub(super) struct Turns {
    queues: [Queue; QUEUES],
    hasher: RandomState,
}

#[derive(Default)]
struct Queue {
    /// Held for a turn.
    turn: Mutex<()>,
    /// How many turns were had: those who wait see that it goes on.
    had: AtomicU64,
}

impl Default for Turns {
    fn default() -> Self {
        Self { queues: std::array::from_fn(|_| Queue::default()), hasher: RandomState::default() }
    }
}

impl Turns {
    pub async fn wait(&self, bucket: &str, namespace: &str, name: &str) -> Option<MutexGuard<'_, ()>> {
        let queue = self.hasher.hash_one((bucket, namespace, name)) as usize % QUEUES;
        self.queues[queue].wait().await
    }
}

impl Queue {
    /// In the order of asking, for as long as turns end.
    async fn wait(&self) -> Option<MutexGuard<'_, ()>> {
        let mut turn = std::pin::pin!(self.turn.lock());
        loop {
            let had = self.had.load(Ordering::Relaxed);
            match tokio::time::timeout(TURN_MAX, turn.as_mut()).await {
                Ok(turn) => {
                    self.had.fetch_add(1, Ordering::Relaxed);
                    return Some(turn);
                }
                Err(_) if self.had.load(Ordering::Relaxed) == had => return None,
                Err(_) => {}
            }
        }
    }
}

impl super::Server {
    /// For a writer who was beaten: what it gets it holds while it tries again.
    pub(crate) async fn turn(&self, bucket: &str, namespace: &str, name: &str) -> Option<MutexGuard<'_, ()>> {
        self.inner.turns.wait(bucket, namespace, name).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_who_wait_have_their_turn_while_turns_end() {
        let turns = Turns::default();
        let one = || async {
            let turn = turns.wait("configmaps", "n", "a").await;
            tokio::time::sleep(TURN_MAX / 10).await;
            turn.is_some()
        };
        let had = futures::future::join_all((0..30).map(|_| one())).await;
        assert_eq!(had.into_iter().filter(|had| *had).count(), 30);
    }

    #[tokio::test]
    async fn a_turn_that_does_not_end_is_not_waited_for() {
        let turns = Turns::default();
        let _held = turns.wait("configmaps", "n", "a").await.expect("nobody has it");
        assert!(turns.wait("configmaps", "n", "a").await.is_none());
    }
}
