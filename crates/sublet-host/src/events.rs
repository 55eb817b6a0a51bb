//! Events of the simulated kubelets and of the scheduler, written beside the work, not in its way.
//!
//! As upstream's recorder, a queue that is full drops events: they are news, not state.

use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Mutex;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::EVENTS;
use sublet_runtime::{Client, Clock};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Events that may wait to be written.
const EVENTS_QUEUED_MAX: usize = 20_000;
/// Distinct events remembered for counting; the oldest half is forgotten beyond it.
const SERIES_MAX: usize = 4096;
const MESSAGE_BYTES_MAX: usize = 1024;
const WRITERS: usize = 4;

/// One event, without the object that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) field_path: String,
}

impl Notice {
    pub(crate) fn normal(reason: &'static str, message: String) -> Self {
        Self { warning: false, reason, message, field_path: String::new() }
    }

    pub(crate) fn warning(reason: &'static str, message: String) -> Self {
        Self { warning: true, ..Self::normal(reason, message) }
    }

    pub(crate) fn at(mut self, field_path: String) -> Self {
        self.field_path = field_path;
        self
    }
}

/// Takes events; cheap to clone.
#[derive(Clone)]
pub(crate) struct EventSink {
    sender: mpsc::Sender<Value>,
    clock: Clock,
}

/// The writing end of a sink.
pub(crate) struct EventWriter {
    receiver: tokio::sync::Mutex<mpsc::Receiver<Value>>,
    /// Guards the events written lately: (object, reason, message) to name and count.
    series: Mutex<HashMap<(String, String, String), (String, i64, u64)>>,
    turn: std::sync::atomic::AtomicU64,
}

pub(crate) fn channel(clock: Clock) -> (EventSink, EventWriter) {
    let (sender, receiver) = mpsc::channel(EVENTS_QUEUED_MAX);
    let writer = EventWriter { receiver: tokio::sync::Mutex::new(receiver), series: Mutex::default(), turn: Default::default() };
    (EventSink { sender, clock }, writer)
}

impl EventSink {
    /// Records a notice about `object`; `host` is the node it comes from, if any.
    pub(crate) fn record(&self, object: &Value, component: &str, host: &str, notice: &Notice) {
        let now = self.clock.rfc3339();
        let namespace = if object.namespace().is_empty() { "default" } else { object.namespace() };
        let mut message = notice.message.clone();
        if message.len() > MESSAGE_BYTES_MAX {
            let end = (0..=MESSAGE_BYTES_MAX).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
            message.truncate(end);
        }
        let mut event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"namespace": namespace},
            "involvedObject": {
                "apiVersion": object.api_version(), "kind": object.kind(), "namespace": object.namespace(), "name": object.name(),
                "uid": object.uid(), "resourceVersion": object.resource_version(),
            },
            "type": if notice.warning { "Warning" } else { "Normal" }, "reason": notice.reason, "message": message,
            "source": {"component": component}, "reportingComponent": component, "reportingInstance": host,
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
        });
        if !host.is_empty() {
            event["source"]["host"] = json!(host);
        }
        if !notice.field_path.is_empty() {
            event["involvedObject"]["fieldPath"] = json!(notice.field_path);
        }
        if self.sender.try_send(event).is_err() {
            tracing::debug!(reason = notice.reason, "event dropped: too many wait");
        }
    }
}

impl EventWriter {
    /// Writes until cancelled.
    pub(crate) async fn run(&self, client: Client, cancel: CancellationToken) {
        let writers = (0..WRITERS).map(|_| self.write_all(&client, &cancel));
        futures::future::join_all(writers).await;
    }

    async fn write_all(&self, client: &Client, cancel: &CancellationToken) {
        loop {
            let next = async { self.receiver.lock().await.recv().await };
            let event = tokio::select! {
                event = next => event,
                () = cancel.cancelled() => return,
            };
            let Some(event) = event else { return };
            if let Err(error) = self.write(client, event).await {
                tracing::debug!(%error, "event not written");
            }
        }
    }

    async fn write(&self, client: &Client, mut event: Value) -> Result<(), sublet_runtime::ClientError> {
        let (name, count) = self.count(&event);
        let namespace = event.namespace().to_string();
        if count > 1 {
            let patch = json!({"count": count, "lastTimestamp": event["lastTimestamp"]});
            match client.merge_patch(&EVENTS, &namespace, &name, patch).await {
                Err(error) if error.is_not_found() => {}
                other => return other.map(drop),
            }
        }
        event["metadata"]["name"] = json!(name);
        event["count"] = json!(count);
        client.create(&EVENTS, &event).await.map(drop)
    }

    fn count(&self, event: &Value) -> (String, i64) {
        let about = &event["involvedObject"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let object = format!("{}{}{}", text(&about["uid"]), text(&about["name"]), text(&about["fieldPath"]));
        let key = (object, text(&event["reason"]), text(&event["message"]));
        let turn = self.turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut series = self.series.lock().expect("no holder panics");
        if series.len() >= SERIES_MAX {
            let mut turns: Vec<u64> = series.values().map(|s| s.2).collect();
            turns.sort_unstable();
            let middle = turns[turns.len() / 2];
            series.retain(|_, s| s.2 > middle);
        }
        let entry = series.entry(key).or_insert_with(|| {
            let prefix: String = text(&about["name"]).chars().take(230).collect();
            (format!("{prefix}.{:016x}", rand::random::<u64>()), 0, 0)
        });
        entry.1 += 1;
        entry.2 = turn;
        (entry.0.clone(), entry.1)
    }
}
