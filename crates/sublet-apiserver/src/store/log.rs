//! The recent events of one resource, from which watches are served and older lists rebuilt.

use super::entry::Entry;
use crate::protobuf::{self, ProtobufError};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

/// Most events kept per resource. A watcher that falls further behind must list again.
const EVENTS_MAX: usize = 4096;
/// Most bytes of superseded objects kept per resource.
const BYTES_MAX: usize = 8 << 20;

/// One committed change.
#[derive(Debug)]
pub struct LogEvent {
    pub revision: u64,
    /// The object after the change; for a delete, its last form at the delete's revision.
    pub entry: Arc<Entry>,
    pub previous: Option<Arc<Entry>>,
    pub deleted: bool,
    frames: [OnceLock<Bytes>; 3],
    protobuf_frames: [OnceLock<Bytes>; 3],
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
        Self { revision: entry.revision, entry, previous, deleted, frames: Default::default(), protobuf_frames: Default::default() }
    }

    /// The event as a line of a JSON watch, encoded once for all watchers.
    pub fn json_frame(&self, event_type: EventType) -> Bytes {
        self.frames[event_type as usize].get_or_init(|| frame(event_type.as_str(), &self.shown(event_type))).clone()
    }

    /// The event as a frame of a protobuf watch on the stored version, encoded once for all watchers.
    pub fn protobuf_frame(&self, event_type: EventType, api_version: &str, kind: &str) -> Result<Bytes, ProtobufError> {
        let cached = &self.protobuf_frames[event_type as usize];
        if let Some(frame) = cached.get() {
            return Ok(frame.clone());
        }
        let frame = protobuf::watch_event_json(event_type.as_str(), api_version, kind, &self.shown(event_type))?;
        Ok(cached.get_or_init(|| frame).clone())
    }

    /// The object as a watcher sees it in this event.
    fn shown(&self, event_type: EventType) -> Bytes {
        if event_type == EventType::Deleted && !self.deleted {
            // The object left the watcher's selection: it is shown as it was, at this revision.
            return self.previous.as_ref().unwrap_or(&self.entry).at_revision(self.revision).json;
        }
        self.entry.json.clone()
    }

    fn superseded_bytes(&self) -> usize {
        self.previous.as_ref().map_or(0, |p| p.json.len())
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
        self.events.push_back(event);
        while self.events.len() > EVENTS_MAX || (self.bytes > BYTES_MAX && self.events.len() > 1) {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= oldest.superseded_bytes();
            self.start = oldest.revision;
        }
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
            if let Some(oldest) = self.events.pop_front() {
                self.bytes -= oldest.superseded_bytes();
                self.start = self.start.max(oldest.revision);
            }
        }
        self.events.shrink_to_fit();
    }
}
