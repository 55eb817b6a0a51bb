//! Many operations, as fast as they go or at a rate, and the times they took.

use anyhow::Result;
use futures::stream::{self, StreamExt};
use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;

/// How operations are sent.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Operations under way at once.
    pub clients: usize,
    /// Operations a second; zero is as fast as they go.
    pub rate: f64,
}

/// Runs `count` operations. Each answer has the moment it was sent.
pub async fn run<T, F, Fut>(count: usize, pace: Pace, operation: F) -> Result<Vec<(Instant, T)>>
where
    F: Fn(usize) -> Fut,
    Fut: Future<Output = Result<T>>,
{
    let begin = Instant::now();
    let operation = &operation;
    let sent = stream::iter(0..count)
        .map(|i| async move {
            if pace.rate > 0.0 {
                tokio::time::sleep_until(begin + Duration::from_secs_f64(i as f64 / pace.rate)).await;
            }
            let sent = Instant::now();
            Ok((sent, operation(i).await?))
        })
        .buffer_unordered(pace.clients.max(1));
    sent.collect::<Vec<_>>().await.into_iter().collect()
}

/// Times in milliseconds, sorted.
#[derive(Clone, Debug, Default)]
pub struct Times(Vec<f64>);

impl Times {
    pub fn new(mut times_ms: Vec<f64>) -> Self {
        times_ms.sort_by(f64::total_cmp);
        Self(times_ms)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The time that this part of all (0 to 1) did not exceed.
    pub fn at(&self, part: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        self.0.get((last as f64 * part).round() as usize).copied().unwrap_or(f64::NAN)
    }

    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }
}
