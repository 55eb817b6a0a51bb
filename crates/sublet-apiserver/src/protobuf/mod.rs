//! Protobuf of the built-in kinds: one transcoder between wire bytes and JSON, driven by a table of messages.
//!
//! What Go's generated code does is a property of each field, and the table has it: fields that are no pointer are
//! always written, and reading gives the JSON that Go's encoder would show for the struct. Kinds have no code here;
//! the few types with a JSON form of their own are in `special`.

mod decode;
mod encode;
mod envelope;
mod special;
mod table;
mod wire;

pub use envelope::{ListEncoder, decode, encode, encode_json, knows, watch_event, watch_event_json};

use std::fmt;

/// Why bytes are no object of the kind they claim to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtobufError {
    /// Version and kind that the envelope names, when it was readable so far.
    pub of: Option<(String, String)>,
    pub why: String,
}

impl ProtobufError {
    fn new(why: impl Into<String>) -> Self {
        Self { of: None, why: why.into() }
    }
}

impl fmt::Display for ProtobufError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for ProtobufError {}

#[cfg(test)]
mod tests;
