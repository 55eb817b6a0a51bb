//! Connections kept for the next call.

use super::connect::Connected;
use super::tls::Trust;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Connections kept for all targets of a server; the one that waits longest goes first.
const IDLE_MAX: usize = 64;
/// As Go's transport has it.
const IDLE_TIME_MAX: Duration = Duration::from_secs(90);

/// Connections are alike when they lead to the same place, and the same is known of both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) address: String,
    pub(super) server_name: String,
    pub(super) trust: Trust,
    pub(super) identity: Option<[u8; 32]>,
}

#[derive(Debug, Default)]
pub(super) struct Pool {
    /// The idle connections, the one that waits longest first.
    idle: Mutex<Vec<(Connected, Instant)>>,
}

impl Pool {
    pub(super) fn take(&self, keys: impl Iterator<Item = Key>) -> Option<Connected> {
        let mut idle = self.idle.lock().expect("no holder of this lock panics");
        idle.retain(|(connected, since)| since.elapsed() < IDLE_TIME_MAX && !connected.sender.is_closed());
        for key in keys {
            if let Some(at) = idle.iter().rposition(|(connected, _)| connected.key == key) {
                return Some(idle.remove(at).0);
            }
        }
        None
    }

    /// Takes a connection back whose answer was read to its end.
    pub(super) async fn give_back(&self, mut connected: Connected) {
        if connected.sender.ready().await.is_err() {
            return;
        }
        let mut idle = self.idle.lock().expect("no holder of this lock panics");
        if idle.len() >= IDLE_MAX {
            idle.remove(0);
        }
        idle.push((connected, Instant::now()));
    }
}
