//! The recent events of one resource, from which watches are served and older lists rebuilt.

use super::entry::Entry;
use crate::protobuf::{self, ProtobufError};
use bytes::Bytes;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

/// Most events kept per resource. A watcher that falls further behind must list again.
const EVENTS_MAX: usize = 4096;
/// Most bytes of superseded objects kept per resource.
const BYTES_MAX: usize = 8 << 20;
/// Events whose encoded frames are kept per resource: watchers that keep up share them.
const FRAMES_EVENTS_MAX: usize = 128;
/// Bytes of the objects of those events; a frame of each form is about as long.
const FRAMES_BYTES_MAX: usize = 4 << 20;

/// One committed change.
#[derive(Debug)]
pub struct LogEvent {
    pub revision: u64,
    /// The object after the change; for a delete, its last form at the delete's revision.
    pub entry: Arc<Entry>,
    pub previous: Option<Arc<Entry>>,
    pub deleted: bool,
    /// By representation and type of event; `None` when the event is so old that nothing is kept.
    frames: Mutex<Option<Frames>>,
}

#[derive(Debug, Default)]
struct Frames {
    json: [Option<Bytes>; 3],
    protobuf: [Option<Bytes>; 3],
}

/// The type of a watch event, as a watcher with its selectors sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Added,
    Modified,
    Deleted,
}

impl EventType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

impl LogEvent {
    pub fn new(entry: Arc<Entry>, previous: Option<Arc<Entry>>, deleted: bool) -> Self {
        Self { revision: entry.revision, entry, previous, deleted, frames: Mutex::new(Some(Frames::default())) }
    }

    /// The event as a line of a JSON watch, encoded once for all watchers.
    pub fn json_frame(&self, event_type: EventType) -> Bytes {
        let frame =
            self.cached(|f| &mut f.json[event_type as usize], || Ok::<_, Infallible>(frame(event_type.as_str(), &self.shown(event_type))));
        frame.unwrap_or_else(|never| match never {})
    }

    /// The event as a frame of a protobuf watch on the stored version, encoded once for all watchers.
    pub fn protobuf_frame(&self, event_type: EventType, api_version: &str, kind: &str) -> Result<Bytes, ProtobufError> {
        let encode = || protobuf::watch_event_json(event_type.as_str(), api_version, kind, &self.shown(event_type));
        self.cached(|f| &mut f.protobuf[event_type as usize], encode)
    }

    fn cached<E>(
        &self,
        slot: impl FnOnce(&mut Frames) -> &mut Option<Bytes>,
        encode: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        // Others who want this event wait for the encoding rather than doing it too.
        let mut frames = self.frames.lock().expect("encoding does not panic");
        let Some(frames) = frames.as_mut() else { return encode() };
        let slot = slot(frames);
        if let Some(frame) = slot {
            return Ok(frame.clone());
        }
        Ok(slot.insert(encode()?).clone())
    }

    fn forget_frames(&self) {
        *self.frames.lock().expect("encoding does not panic") = None;
    }

    /// The object as a watcher sees it in this event.
    fn shown(&self, event_type: EventType) -> Bytes {
        if event_type == EventType::Deleted && !self.deleted {
            // The object left the watcher's selection: it is shown as it was, at this revision.
            return self.previous.as_ref().unwrap_or(&self.entry).at_revision(self.revision).json;
        }
        self.entry.json.clone()
    }

    /// What the log alone holds of it: the form of before, and of a deleted object the last one.
    fn superseded_bytes(&self) -> usize {
        self.previous.as_ref().map_or(0, |p| p.json.len()) + if self.deleted { self.entry.json.len() } else { 0 }
    }

    fn framed_bytes(&self) -> usize {
        self.entry.json.len()
    }
}

/// `{"type":"ADDED","object":{...}}` and a line end.
pub fn frame(event_type: &str, object: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(object.len() + 32);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(event_type.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.into()
}

#[derive(Debug, Default)]
pub struct Log {
    events: VecDeque<Arc<LogEvent>>,
    bytes: usize,
    /// How many of the newest events keep their frames, and the bytes of their objects.
    framed: usize,
    framed_bytes: usize,
    /// Everything after this revision is in `events`.
    pub start: u64,
}

impl Log {
    /// An empty log; everything after `start` will be in it.
    pub fn starting_at(start: u64) -> Self {
        Self { start, ..Self::default() }
    }

    pub fn push(&mut self, event: Arc<LogEvent>) {
        self.bytes += event.superseded_bytes();
        self.framed_bytes += event.framed_bytes();
        self.framed += 1;
        self.events.push_back(event);
        while self.framed > FRAMES_EVENTS_MAX || (self.framed_bytes > FRAMES_BYTES_MAX && self.framed > 1) {
            let oldest = &self.events[self.events.len() - self.framed];
            oldest.forget_frames();
            self.framed_bytes -= oldest.framed_bytes();
            self.framed -= 1;
        }
        while self.events.len() > EVENTS_MAX || (self.bytes > BYTES_MAX && self.events.len() > 1) {
            self.pop();
        }
    }

    /// What is held for the log alone, encoded frames included.
    pub fn bytes(&self) -> usize {
        self.bytes + self.framed_bytes
    }

    /// Forgets the older half, but for one event; the bytes that this gave back.
    pub fn forget_half(&mut self) -> usize {
        let before = self.bytes();
        for _ in 0..self.events.len() / 2 {
            self.pop();
        }
        before - self.bytes()
    }

    fn pop(&mut self) {
        if self.framed == self.events.len()
            && let Some(oldest) = self.events.front()
        {
            self.framed_bytes -= oldest.framed_bytes();
            self.framed -= 1;
        }
        let Some(oldest) = self.events.pop_front() else { return };
        self.bytes -= oldest.superseded_bytes();
        self.start = self.start.max(oldest.revision);
    }

    /// The events after `revision`, or `None` when some of them are forgotten.
    pub fn after(&self, revision: u64) -> Option<impl DoubleEndedIterator<Item = &Arc<LogEvent>>> {
        if revision < self.start {
            return None;
        }
        let from = self.events.partition_point(|e| e.revision <= revision);
        Some(self.events.range(from..))
    }

    /// Forgets events older than `revision`.
    pub fn forget_before(&mut self, revision: u64) {
        while self.events.front().is_some_and(|e| e.revision <= revision) {
            self.pop();
        }
        self.events.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::Encoded;
    use super::*;
    use serde_json::json;

    fn event(revision: u64) -> Arc<LogEvent> {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let entry = Entry::compose("configmaps/ns/a".into(), revision, &Encoded::new(&object, &[]).stored).unwrap();
        Arc::new(LogEvent::new(Arc::new(entry), None, false))
    }

    #[test]
    fn watchers_share_frames_as_long_as_they_keep_up() {
        let first = event(1);
        let mut log = Log::starting_at(0);
        log.push(first.clone());
        let frames = || (first.json_frame(EventType::Added), first.protobuf_frame(EventType::Added, "v1", "ConfigMap").unwrap());
        let (kept, again) = (frames(), frames());
        assert_eq!((kept.0.as_ptr(), kept.1.as_ptr()), (again.0.as_ptr(), again.1.as_ptr()));
        for revision in 2..=FRAMES_EVENTS_MAX as u64 + 1 {
            log.push(event(revision));
        }
        let late = frames();
        assert_eq!(kept, late);
        assert_ne!(kept.0.as_ptr(), late.0.as_ptr());
    }
}
