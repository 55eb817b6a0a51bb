//! Query parameters.

use std::num::ParseIntError;
use std::str::FromStr;
use sublet_machinery::ApiError;

/// Most parameters that a request may have.
const PARAMETERS_MAX: usize = 256;

/// The decoded parameters of a request, in order.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(query: Option<&str>) -> Self {
        let Some(query) = query else { return Self::default() };
        // A semicolon separates nothing and is part of nothing: Go leaves such pairs out.
        let pairs = query.split('&').filter(|pair| !pair.contains(';')).take(PARAMETERS_MAX);
        Self(pairs.flat_map(|pair| form_urlencoded::parse(pair.as_bytes())).map(|(k, v)| (k.into_owned(), v.into_owned())).collect())
    }

    /// The first value of a parameter; empty when there is none.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(k, _)| k == name).map_or("", |(_, v)| v)
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(k, _)| k == name)
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(k, _)| k == name).map(|(_, v)| v.as_str())
    }

    /// The parameters as they were read, for a request to another server.
    pub fn encoded(&self) -> String {
        form_urlencoded::Serializer::new(String::new()).extend_pairs(self.0.iter()).finish()
    }

    /// Go's strconv.ParseBool after upstream's rule: present without value, and anything but 0 and false, is true.
    pub fn bool(&self, name: &str) -> bool {
        self.has(name) && !matches!(self.get(name).to_ascii_lowercase().as_str(), "false" | "0")
    }

    pub fn number<T: FromStr<Err = ParseIntError>>(&self, name: &str) -> Result<Option<T>, ApiError> {
        match self.get(name) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|error| ApiError::bad_request(no_number("ParseInt", text, &error))),
        }
    }
}

/// Why a text is no number, in the words of Go's `function` of strconv.
pub fn no_number(function: &str, text: &str, error: &ParseIntError) -> String {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let why = if matches!(error.kind(), PosOverflow | NegOverflow) { "value out of range" } else { "invalid syntax" };
    format!("strconv.{function}: parsing {text:?}: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_true_unless_they_say_no() {
        let query = Query::parse(Some("watch&a=1&b=0&c=False&d=true&labelSelector=a%3Db"));
        assert_eq!(["watch", "a", "b", "c", "d", "e"].map(|n| query.bool(n)), [true, true, false, false, true, false]);
        assert_eq!(query.get("labelSelector"), "a=b");
        assert!(query.number::<i64>("labelSelector").is_err());
    }
}
