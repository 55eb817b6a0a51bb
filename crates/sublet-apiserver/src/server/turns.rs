//! Writers of one object who were beaten by a faster one take turns, so that each is beaten only by those who have just come.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};

/// Objects share queues: what waits for another object's writer for once loses little.
const QUEUES: usize = 64;
/// Who is at work may be waiting for a webhook that writes the same object: nobody waits for it longer than this.
const WAIT_MAX: Duration = Duration::from_millis(100);

pub(super) struct Turns {
    queues: [Mutex<()>; QUEUES],
    hasher: RandomState,
}

impl Default for Turns {
    fn default() -> Self {
        Self { queues: std::array::from_fn(|_| Mutex::default()), hasher: RandomState::default() }
    }
}

impl Turns {
    pub async fn wait(&self, bucket: &str, namespace: &str, name: &str) -> Option<MutexGuard<'_, ()>> {
        let queue = self.hasher.hash_one((bucket, namespace, name)) as usize % QUEUES;
        tokio::time::timeout(WAIT_MAX, self.queues[queue].lock()).await.ok()
    }
}

impl super::Server {
    /// For a writer who was beaten: what it gets it holds while it tries again.
    pub(crate) async fn turn(&self, bucket: &str, namespace: &str, name: &str) -> Option<MutexGuard<'_, ()>> {
        self.inner.turns.wait(bucket, namespace, name).await
    }
}
