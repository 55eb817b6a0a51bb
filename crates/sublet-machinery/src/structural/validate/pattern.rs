//! Patterns of schemas.

use crate::pattern;

/// Whether the pattern, unanchored, occurs in the text. The error says why the pattern is none.
pub(super) fn is_match(pattern: &str, text: &str) -> Result<bool, String> {
    Ok(pattern::compiled(pattern)?.is_match(text))
}
