//! Upkeep of the store, off the path of requests: forgetting old events, giving back space.

use super::Server;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};

const INTERVAL: Duration = Duration::from_secs(30);
/// How long lists at a revision and watches from one stay possible, as upstream's compaction has it.
const HISTORY: Duration = Duration::from_secs(300);

impl Server {
    /// Runs until the server stops. A quiet server does next to nothing.
    pub(crate) async fn keep_up(self) {
        let mut marks: VecDeque<(Instant, u64)> = VecDeque::new();
        let mut compacted_at = 0;
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.stop_token().cancelled() => return,
            }
            crate::packed::forget_unused();
            let revision = self.store().revision();
            marks.push_back((Instant::now(), revision));
            let mut forgotten = None;
            while marks.front().is_some_and(|(at, _)| at.elapsed() >= HISTORY) {
                forgotten = marks.pop_front();
            }
            if let Some((_, old)) = forgotten {
                self.store().forget_before(old);
            }
            if revision != compacted_at {
                compacted_at = revision;
                self.compact().await;
            }
        }
    }

    async fn compact(&self) {
        loop {
            let backend = self.store().backend().clone();
            match tokio::task::spawn_blocking(move || backend.compact_step()).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return,
                Ok(Err(error)) => return tracing::warn!(server = self.name(), %error, "the store was not compacted"),
                Err(error) => return tracing::error!(server = self.name(), %error, "compaction panicked"),
            }
        }
    }
}
