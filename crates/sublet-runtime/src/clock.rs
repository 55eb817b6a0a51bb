//! Wall-clock time for timestamps. Waiting uses `tokio::time`, which tests can pause.

use jiff::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Tells the time of day. Tests hold the hands themselves.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    #[default]
    System,
    /// Seconds since the epoch, set by the test.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    pub fn manual(seconds: i64) -> Self {
        Self::Manual(Arc::new(AtomicI64::new(seconds)))
    }

    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::now(),
            Self::Manual(seconds) => Timestamp::from_second(seconds.load(Ordering::Relaxed)).unwrap_or(Timestamp::UNIX_EPOCH),
        }
    }

    pub fn advance(&self, seconds: i64) {
        if let Self::Manual(now) = self {
            now.fetch_add(seconds, Ordering::Relaxed);
        }
    }

    /// `metav1.Time`: whole seconds, `2026-01-02T03:04:05Z`.
    pub fn rfc3339(&self) -> String {
        format_seconds(self.now())
    }

    /// `metav1.MicroTime`: `2026-01-02T03:04:05.000000Z`.
    pub fn rfc3339_micro(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
    }
}

/// A timestamp as `metav1.Time` writes it.
pub fn format_seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_kubernetes_writes_them() {
        let clock = Clock::manual(1_767_323_045);
        assert_eq!(clock.rfc3339(), "2026-01-02T03:04:05Z");
        assert_eq!(clock.rfc3339_micro(), "2026-01-02T03:04:05.000000Z");
    }
}
