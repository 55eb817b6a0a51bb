//! Regular expressions that others wrote: of schemas, and of expressions. Read as Go reads them, bounded in what they
//! take, and compiled once.

use regex::{Regex, RegexBuilder};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Memory that one compiled pattern may take.
const PATTERN_BYTES_MAX: usize = 4 << 20;
/// Memory for the states of one pattern that are worked out while it is used. One that needs more is slower.
const STATES_BYTES_MAX: usize = 256 << 10;
/// About what a small pattern takes with its states; most are small.
const SMALL_BYTES: usize = 64 << 10;
/// Memory that all kept patterns of the process may take.
const KEPT_BYTES_MAX: usize = 48 << 20;
/// Text of a pattern. Go knows no such bound; nobody reads as much.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// A pattern, compiled now or lately. The error says why it is none.
pub fn compiled(pattern: &str) -> Result<Regex, String> {
    static KEPT: LazyLock<Mutex<Kept>> = LazyLock::new(Mutex::default);
    let kept = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = kept().get(pattern) {
        return Ok(found);
    }
    let (regex, bytes) = compile(pattern)?;
    kept().insert(pattern, regex.clone(), bytes);
    Ok(regex)
}

/// Whether a pattern is one; it is not kept.
pub fn check(pattern: &str) -> Result<(), String> {
    compile(pattern).map(|_| ())
}

/// Two generations: what is used moves to the young one, and the old one is dropped when the young one is full.
#[derive(Default)]
struct Kept {
    young: HashMap<String, (Regex, usize)>,
    old: HashMap<String, (Regex, usize)>,
    young_bytes: usize,
}

impl Kept {
    fn get(&mut self, pattern: &str) -> Option<Regex> {
        if let Some((regex, _)) = self.young.get(pattern) {
            return Some(regex.clone());
        }
        let (regex, bytes) = self.old.remove(pattern)?;
        self.insert(pattern, regex.clone(), bytes);
        Some(regex)
    }

    fn insert(&mut self, pattern: &str, regex: Regex, bytes: usize) {
        let bytes = bytes + pattern.len();
        if self.young_bytes + bytes > KEPT_BYTES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if self.young.insert(pattern.to_string(), (regex, bytes)).is_none() {
            self.young_bytes += bytes;
        }
    }
}

/// The pattern, and about the memory that it takes.
fn compile(pattern: &str) -> Result<(Regex, usize), String> {
    if pattern.len() > TEXT_BYTES_MAX {
        return Err(TOO_LARGE.into());
    }
    let text = as_go_reads(pattern);
    // How large a pattern is can only be asked this way.
    for bytes in [SMALL_BYTES, PATTERN_BYTES_MAX] {
        match RegexBuilder::new(&text).size_limit(bytes).dfa_size_limit(STATES_BYTES_MAX).build() {
            Ok(regex) => return Ok((regex, bytes)),
            Err(regex::Error::CompiledTooBig(_)) => {}
            // The last line of the message says what is wrong; the ones before draw the place.
            Err(other) => return Err(other.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_string()),
        }
    }
    Err(TOO_LARGE.into())
}

const TOO_LARGE: &str = "expression is too large";

/// Go's classes are those of ASCII. Written out, they are small as well.
fn as_go_reads(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('d') => out.push_str("[0-9]"),
            Some('D') => out.push_str("[^0-9]"),
            Some('w') => out.push_str("[0-9A-Za-z_]"),
            Some('W') => out.push_str("[^0-9A-Za-z_]"),
            Some('s') => out.push_str(r"[\t\n\x0c\r ]"),
            Some('S') => out.push_str(r"[^\t\n\x0c\r ]"),
            Some('b') => out.push_str(r"(?-u:\b)"),
            Some('B') => out.push_str(r"(?-u:\B)"),
            // Between these everything stands for itself.
            Some('Q') => {
                let rest = chars.as_str();
                let (literal, after) = rest.split_once(r"\E").unwrap_or((rest, ""));
                out.push_str(&regex::escape(literal));
                chars = after.chars();
            }
            Some('E') => {}
            other => {
                out.push('\\');
                out.extend(other);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_go() {
        let matches = |pattern: &str, text: &str| compiled(pattern).unwrap().is_match(text);
        for (pattern, yes, no) in [
            (r"^\w+$", "aZ_9", "é"),
            (r"^[\w-]+$", "a-b", "é"),
            (r"^[^\s\d]+$", "ab", "a1"),
            (r"^\d$", "7", "٣"),
            (r"^\W$", "é", "a"),
            (r"^\\w$", r"\w", "a"),
            (r"^\Qa.b\E.$", "a.bc", "axbc"),
            (r"^é\b", "éa", "é"),
            (r"\p{Greek}", "δ", "d"),
        ] {
            assert!(matches(pattern, yes), "{pattern} {yes}");
            assert!(!matches(pattern, no), "{pattern} {no}");
        }
    }

    #[test]
    fn patterns_are_bounded() {
        for large in [r"(\pL{1,200}){50}".to_string(), "a".repeat(TEXT_BYTES_MAX + 1), r"((a{1,100}){1,100}){1,100}".into()] {
            assert_eq!(compiled(&large).unwrap_err(), TOO_LARGE, "{:.40}", large);
        }
        for fine in [r"^\w{1,253}$", r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)*$", r"^.{0,1000}$"] {
            compiled(fine).unwrap();
        }
    }

    /// Schemas with thousands of patterns held gigabytes, for each was counted as one, whatever its size.
    #[test]
    fn what_is_kept_is_counted_in_bytes() {
        let mut kept = Kept::default();
        let regex = Regex::new("a").unwrap();
        for i in 0..1000 {
            kept.insert(&i.to_string(), regex.clone(), PATTERN_BYTES_MAX);
            assert!(kept.young_bytes <= KEPT_BYTES_MAX / 2);
            assert!(kept.get("0").is_some(), "after {i}");
        }
        assert!(kept.young.len() + kept.old.len() <= KEPT_BYTES_MAX / PATTERN_BYTES_MAX);
    }
}
