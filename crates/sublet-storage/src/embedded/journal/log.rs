//! The journal's two files: groups are appended to one, while the stores catch up with the other.

use super::frame::FrameWriter;
use super::shared::Core;
use super::store::Part;
use super::volume::Segment;
use crate::backend::StorageError;
use crate::embedded::file::io_text;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How much is written to a file before the other one gets its turn, and how long at most.
#[derive(Clone, Copy, Debug)]
pub(in crate::embedded) struct Limits {
    pub segment_bytes: u64,
    pub segment_age: Duration,
    /// A file grows on while the other one cannot be given up, up to here; then nothing is written any more.
    pub segment_bytes_max: u64,
}

impl Limits {
    pub const USUAL: Self =
        Self { segment_bytes: 8 * 1024 * 1024, segment_age: Duration::from_secs(300), segment_bytes_max: 64 * 1024 * 1024 };
}

/// A buffer that grew beyond this for one group is not kept.
const BUFFER_BYTES_MAX: usize = 512 * 1024;

pub(super) struct Log {
    segments: [Box<dyn Segment>; 2],
    active: usize,
    length: u64,
    /// Where the next attempt is made to change files.
    turn_at: u64,
    limits: Limits,
    /// Tells the frames of this process from those that were there before.
    generation: u64,
    number: u64,
    /// When the first group was written to the active file.
    since: Option<Instant>,
    /// Sessions that the active file names.
    named: HashSet<u64>,
    frame: FrameWriter,
    failed: Option<String>,
}

impl Log {
    /// Begins in files that nobody needs.
    pub fn new(segments: [Box<dyn Segment>; 2], limits: Limits, generation: u64) -> Self {
        Self {
            segments,
            active: 0,
            length: 0,
            turn_at: limits.segment_bytes,
            limits,
            generation,
            number: 0,
            since: None,
            named: HashSet::new(),
            frame: FrameWriter::default(),
            failed: None,
        }
    }

    /// When the stores are to catch up, though little was written.
    pub fn deadline(&self) -> Option<Instant> {
        self.since.map(|since| since + self.limits.segment_age)
    }

    /// Makes the writes of a group durable.
    pub fn append(&mut self, core: &Core, parts: &[Part]) -> Result<(), StorageError> {
        if let Some(text) = &self.failed {
            return Err(StorageError::Failed(text.clone()));
        }
        let bytes: usize = parts.iter().map(|p| p.bytes).sum();
        if self.length > 0 && self.length + bytes as u64 > self.turn_at {
            self.turn(core)?;
        }
        self.frame.clear();
        for part in parts.iter().filter(|p| !p.events.is_empty()) {
            let session = part.store.mark.session;
            if self.named.insert(session) {
                self.frame.store(session, &part.store.name);
            }
            for (event, _) in &part.events {
                self.frame.write(session, event);
            }
            core.hold(self.active, &part.store);
        }
        self.number += 1;
        let frame = self.frame.finish(self.generation, self.number);
        let segment = &mut self.segments[self.active];
        segment.write_at(self.length, frame).and_then(|()| segment.sync()).map_err(|error| {
            let text = io_text(&error);
            // What is in the file now is not known.
            self.failed = Some(text.clone());
            StorageError::Failed(text)
        })?;
        self.length += frame.len() as u64;
        if self.frame.length() > BUFFER_BYTES_MAX {
            self.frame = FrameWriter::default();
        }
        self.since.get_or_insert_with(Instant::now);
        Ok(())
    }

    /// Lets the stores catch up, for nobody has written for a while.
    pub fn late(&mut self, core: &Core) {
        self.since = None;
        if self.length > 0 && self.turn(core).is_err() {
            self.since = Some(Instant::now());
        }
    }

    /// Goes on in the other file. When that one cannot be given up yet, this one grows on, within its bound.
    fn turn(&mut self, core: &Core) -> Result<(), StorageError> {
        let other = 1 - self.active;
        match core.wait_released(other) {
            Ok(()) => {
                core.release(self.active);
                self.active = other;
                self.length = 0;
                self.turn_at = self.limits.segment_bytes;
                self.named.clear();
                self.since = None;
                Ok(())
            }
            Err(_) if self.length < self.limits.segment_bytes_max => {
                self.turn_at = self.length + self.limits.segment_bytes;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Gives back the files, empty when nobody needs them.
    pub fn finish(mut self, core: &Arc<Core>) {
        if !core.is_released() {
            return;
        }
        for segment in &mut self.segments {
            if let Err(error) = segment.empty() {
                tracing::debug!(%error, "the journal is not emptied");
            }
        }
    }
}
