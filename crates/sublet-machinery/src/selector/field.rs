//! Field selectors: `metadata.name=web,status.phase!=Running`.

use super::SelectorError;
use std::fmt;

/// One condition on a field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldTerm {
    pub field: String,
    /// `!=` instead of `=`.
    pub negated: bool,
    pub value: String,
}

/// Conditions on fields that must all hold.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

impl FieldSelector {
    pub fn everything() -> Self {
        Self::default()
    }

    pub fn new(terms: Vec<FieldTerm>) -> Self {
        Self { terms }
    }

    /// Reads terms with `=`, `==` and `!=`; in values `\`, `,` and `=` are escaped with `\`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::with_capacity(parts.len());
        for part in parts.into_iter().filter(|p| !p.is_empty()) {
            let Some((field, negated, value)) = split_term(part) else {
                return Err(SelectorError(format!("invalid selector: '{text}'; can't understand '{part}'")));
            };
            let value = unescape(value)?;
            if !(field.is_empty() && value.is_empty()) {
                terms.push(FieldTerm { field: field.to_string(), negated, value });
            }
        }
        Ok(Self { terms })
    }

    /// Renames or checks every term; terms whose field and value both become empty are dropped.
    pub fn try_map<E>(self, mut map: impl FnMut(String, String) -> Result<(String, String), E>) -> Result<Self, E> {
        let mut terms = Vec::with_capacity(self.terms.len());
        for term in self.terms {
            let (field, value) = map(term.field, term.value)?;
            if !(field.is_empty() && value.is_empty()) {
                terms.push(FieldTerm { field, negated: term.negated, value });
            }
        }
        Ok(Self { terms })
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    /// Matches against a lookup that gives the empty text for a field that is not set.
    pub fn matches_with<'a>(&self, lookup: impl Fn(&str) -> &'a str) -> bool {
        self.terms.iter().all(|term| (lookup(&term.field) == term.value) != term.negated)
    }

    pub fn matches_pairs<'a>(&self, pairs: impl IntoIterator<Item = (&'a str, &'a str)> + Clone) -> bool {
        self.matches_with(|field| pairs.clone().into_iter().find(|(f, _)| *f == field).map_or("", |(_, value)| value))
    }

    /// The one value that the field must have, when the selector says so.
    pub fn requires_exact_match(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|t| !t.negated && t.field == field).map(|t| t.value.as_str())
    }
}

impl std::str::FromStr for FieldSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        Self::parse(text)
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        for (i, term) in self.terms.iter().enumerate() {
            if i > 0 {
                f.write_char(',')?;
            }
            write!(f, "{}{}", term.field, if term.negated { "!=" } else { "=" })?;
            for c in term.value.chars() {
                if matches!(c, '\\' | ',' | '=') {
                    f.write_char('\\')?;
                }
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}

/// Splits at commas that no backslash precedes.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (i, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Field, whether negated, and escaped value.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let bytes = term.as_bytes();
    let at = (0..bytes.len()).find(|i| bytes[*i] == b'=' || bytes[*i..].starts_with(b"!="))?;
    let (negated, length) = match (bytes[at], bytes.get(at + 1)) {
        (b'!', _) => (true, 2),
        (_, Some(b'=')) => (false, 2),
        _ => (false, 1),
    };
    Some((&term[..at], negated, &term[at + length..]))
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut text = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => text.push(c),
                other => {
                    let sequence = other.map_or(String::new(), String::from);
                    return Err(SelectorError(format!("invalid field selector: invalid escape sequence: \\{sequence}")));
                }
            },
            // Upstream prints the number of the character.
            ',' | '=' => return Err(SelectorError(format!("invalid field selector: unescaped character in value: {}", u32::from(c)))),
            c => text.push(c),
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_decide_and_unset_fields_are_empty() {
        let pairs = [("metadata.name", "web"), ("status.phase", "Running")];
        for text in ["", "metadata.name=web", "metadata.name==web", "metadata.name!=x,status.phase=Running", "spec.x=", "spec.x!=a"] {
            assert!(FieldSelector::parse(text).unwrap().matches_pairs(pairs), "{text}");
        }
        for text in ["metadata.name=x", "metadata.name!=web", "spec.x=a", "spec.x!="] {
            assert!(!FieldSelector::parse(text).unwrap().matches_pairs(pairs), "{text}");
        }
    }

    #[test]
    fn values_are_escaped_both_ways() {
        let selector = FieldSelector::parse(r"b=\\,a!=x\,y\=z").unwrap();
        assert_eq!(selector.to_string(), r"a!=x\,y\=z,b=\\");
        assert_eq!(selector.requires_exact_match("b"), Some("\\"));
        assert_eq!(selector.requires_exact_match("a"), None);
        for (text, message) in [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap_err().0, message);
        }
    }

    #[test]
    fn terms_can_be_dropped_or_refused() {
        let selector = FieldSelector::parse("a=b,c=d").unwrap();
        let kept = selector.clone().try_map(|f, v| Ok::<_, ()>(if f == "a" { (String::new(), String::new()) } else { (f, v) }));
        assert_eq!(kept.unwrap().to_string(), "c=d");
        assert_eq!(selector.try_map(|f, _| Err(f)).unwrap_err(), "a");
    }
}
