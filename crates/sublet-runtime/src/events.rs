//! Events on objects, so that `kubectl describe` tells what a loop did. Repeats are counted, not piled up.

use crate::client::Client;
use crate::clock::Clock;
use crate::resources::EVENTS;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use sublet_machinery::ObjectExt;

/// Distinct events remembered for counting; the oldest half is forgotten beyond it.
const SERIES_MAX: usize = 1024;
const MESSAGE_BYTES_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    Normal,
    Warning,
}

/// Writes Events. Failures to write one are logged at debug level and cost the caller nothing.
#[derive(Clone)]
pub struct EventRecorder {
    client: Client,
    clock: Clock,
    component: &'static str,
    /// Guards the series seen so far: (object uid, reason, message) to event name and count.
    series: Arc<Mutex<HashMap<SeriesKey, Series>>>,
}

type SeriesKey = (String, &'static str, String, String);

#[derive(Clone)]
struct Series {
    name: String,
    count: i64,
    last: i64,
}

impl EventRecorder {
    pub fn new(client: Client, clock: Clock, component: &'static str) -> Self {
        Self { client, clock, component, series: Arc::default() }
    }

    /// Records an event about `object`.
    pub async fn record(&self, object: &Value, kind: EventKind, reason: &str, message: &str) {
        let message = truncate(message);
        let now = self.clock.rfc3339();
        let namespace = if object.namespace().is_empty() { "default" } else { object.namespace() };
        let type_name = match kind {
            EventKind::Normal => "Normal",
            EventKind::Warning => "Warning",
        };
        let key = (object.uid().to_string(), type_name, reason.to_string(), message.to_string());
        let series = self.count(key, object.name());
        if series.count > 1 {
            let patch = json!({"count": series.count, "lastTimestamp": now});
            match self.client.merge_patch(&EVENTS, namespace, &series.name, patch).await {
                Ok(_) => return,
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    tracing::debug!(%error, reason, "event not counted");
                    return;
                }
            }
        }
        let event = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": series.name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": object.api_version(), "kind": object.kind(), "namespace": object.namespace(), "name": object.name(),
                "uid": object.uid(), "resourceVersion": object.resource_version(),
            },
            "type": type_name, "reason": reason, "message": message, "source": {"component": self.component},
            "reportingComponent": self.component, "firstTimestamp": now, "lastTimestamp": now, "count": series.count,
        });
        if let Err(error) = self.client.create(&EVENTS, &event).await {
            tracing::debug!(%error, reason, "event not written");
        }
    }

    fn count(&self, key: SeriesKey, object_name: &str) -> Series {
        let at = self.clock.now().as_nanosecond();
        let mut all = self.series.lock().expect("no holder panics");
        if all.len() >= SERIES_MAX {
            let mut times: Vec<i64> = all.values().map(|s| s.last).collect();
            times.sort_unstable();
            let middle = times[times.len() / 2];
            all.retain(|_, s| s.last > middle);
        }
        let series = all.entry(key).or_insert_with(|| {
            let prefix = object_name.get(..object_name.len().min(230)).unwrap_or("event");
            Series { name: format!("{prefix}.{:x}{:04x}", at as u64, rand::random::<u16>()), count: 0, last: 0 }
        });
        series.count += 1;
        series.last = i64::try_from(at / 1_000_000).unwrap_or(i64::MAX);
        series.clone()
    }
}

fn truncate(message: &str) -> &str {
    let mut end = message.len().min(MESSAGE_BYTES_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}
