//! What a store's file does not have yet.

use crate::backend::Event;
use crate::embedded::file::{Changes, Marking};
use std::collections::HashMap;
use std::sync::Arc;

/// Writes since the file was last brought up to date, the last one of each key.
#[derive(Default)]
pub(super) struct Pending {
    changes: HashMap<Arc<str>, Change>,
    /// Of the last write, also when nothing of it is left to be done.
    revision: u64,
}

struct Change {
    event: Event,
    /// The revision under which the file has the key.
    in_file: Option<u64>,
}

/// Changes on their way to the file.
pub(super) struct Taken {
    changes: Vec<Change>,
    events: Vec<Event>,
    replaced: Vec<u64>,
    revision: u64,
}

impl Pending {
    pub fn at(revision: u64) -> Self {
        Self { revision, ..Self::default() }
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Takes in a write that replaced the value of revision `replaced`.
    pub fn add(&mut self, event: &Event, replaced: Option<u64>) {
        self.revision = event.revision;
        let before = self.changes.remove(&event.key);
        // What is not here is in the file, or is being written to it.
        let in_file = before.map_or(replaced, |before| before.in_file);
        if event.value.is_some() || in_file.is_some() {
            self.insert(Change { event: event.clone(), in_file });
        }
    }

    fn insert(&mut self, change: Change) {
        self.changes.insert(change.event.key.clone(), change);
    }

    /// Takes all of it.
    pub fn take(&mut self) -> Taken {
        let mut changes: Vec<Change> = std::mem::take(&mut self.changes).into_values().collect();
        changes.sort_unstable_by_key(|c| c.event.revision);
        let events = changes.iter().map(|c| c.event.clone()).collect();
        let replaced = changes.iter().filter_map(|c| c.in_file).collect();
        Taken { changes, events, replaced, revision: self.revision }
    }

    /// Takes back what did not reach the file.
    pub fn put_back(&mut self, taken: Taken) {
        for old in taken.changes {
            match self.changes.get_mut(&old.event.key) {
                Some(newer) => newer.in_file = old.in_file,
                None => self.insert(old),
            }
        }
    }

    /// The writes by revision; the last one has the revision of all.
    pub fn events(&self) -> Vec<Event> {
        let mut events: Vec<Event> = self.changes.values().map(|c| c.event.clone()).collect();
        events.sort_unstable_by_key(|e| e.revision);
        if events.last().is_none_or(|e| e.revision < self.revision) {
            events.push(Event { revision: self.revision, key: "".into(), value: None });
        }
        events
    }
}

impl Taken {
    pub fn changes<'a>(&'a self, mark: Marking<'a>) -> Changes<'a> {
        Changes { events: &self.events, replaced: &self.replaced, revision: self.revision, mark }
    }
}
