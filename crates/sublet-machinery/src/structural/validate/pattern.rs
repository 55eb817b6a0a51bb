//! Regular expressions of schemas, compiled once.

use regex::{Regex, RegexBuilder};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Patterns kept compiled; when there are more, all are forgotten.
const PATTERNS_MAX: usize = 2048;
/// Memory that one compiled pattern may take.
const PATTERN_BYTES_MAX: usize = 4 << 20;

/// Whether the pattern, unanchored, occurs in the text. The error says why the pattern is none.
pub(super) fn is_match(pattern: &str, text: &str) -> Result<bool, String> {
    // The lock guards the map; matching happens outside of it.
    static COMPILED: LazyLock<Mutex<HashMap<String, Regex>>> = LazyLock::new(Mutex::default);
    let found = COMPILED.lock().unwrap_or_else(PoisonError::into_inner).get(pattern).cloned();
    if let Some(regex) = found {
        return Ok(regex.is_match(text));
    }
    let regex = compile(pattern)?;
    let matched = regex.is_match(text);
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if compiled.len() >= PATTERNS_MAX {
        compiled.clear();
    }
    compiled.insert(pattern.to_string(), regex);
    Ok(matched)
}

pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "expression is too large".to_string(),
        // The last line of the message says what is wrong; the ones before draw the place.
        other => other.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_string(),
    })
}
