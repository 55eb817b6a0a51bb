//! Label and field selectors.

mod field;
mod object;
mod parse;

pub use field::{FieldSelector, FieldTerm};
pub use object::{LabelSelectorOptions, validate_label_requirement, validate_label_selector, validate_labels};

use crate::error::{FieldError, FieldPath};
use crate::names;
use serde_json::{Map, Value};
use std::fmt;

/// A selector that cannot be understood; the text is upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Equals,
    DoubleEquals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// One condition on a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    /// Sorted, as they are printed.
    values: Vec<String>,
}

/// Conditions on labels that must all hold, ordered by key.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Selector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

impl Requirement {
    /// Checks key, number of values, and values, and reports every fault.
    pub fn new(key: impl Into<String>, operator: Operator, values: Vec<String>) -> Result<Self, SelectorError> {
        let requirement = Self::unchecked(key.into(), operator, values);
        let errors = requirement.faults();
        match errors.as_slice() {
            [] => Ok(requirement),
            [one] => Err(SelectorError(one.to_string())),
            many => {
                let texts: Vec<String> = many.iter().map(ToString::to_string).collect();
                Err(SelectorError(format!("[{}]", texts.join(", "))))
            }
        }
    }

    fn unchecked(key: String, operator: Operator, mut values: Vec<String>) -> Self {
        values.sort();
        Self { key, operator, values }
    }

    fn faults(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let key_errors = names::qualified_name(&self.key);
        if !key_errors.is_empty() {
            errors.push(FieldError::invalid(&FieldPath::new("key"), self.key.as_str(), key_errors.join("; ")));
        }
        let path = FieldPath::new("values");
        let wrong_count = match self.operator {
            Operator::In | Operator::NotIn if self.values.is_empty() => Some("for 'in', 'notin' operators, values set can't be empty"),
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if self.values.len() != 1 => {
                Some("exact-match compatibility requires one single value")
            }
            Operator::Exists | Operator::DoesNotExist if !self.values.is_empty() => {
                Some("values set must be empty for exists and does not exist")
            }
            Operator::GreaterThan | Operator::LessThan if self.values.len() != 1 => {
                Some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
            _ => None,
        };
        if let Some(detail) = wrong_count {
            errors.push(FieldError::invalid(&path, self.values.clone(), detail));
        }
        if matches!(self.operator, Operator::GreaterThan | Operator::LessThan) {
            for (i, value) in self.values.iter().enumerate().filter(|(_, v)| v.parse::<i64>().is_err()) {
                errors.push(FieldError::invalid(&path.index(i), value.as_str(), "for 'Gt', 'Lt' operators, the value must be an integer"));
            }
        }
        for (i, value) in self.values.iter().enumerate() {
            let faults = names::label_value(value);
            if !faults.is_empty() {
                errors.push(FieldError::invalid(&path.index(i).key(&self.key), value.as_str(), faults.join("; ")));
            }
        }
        errors
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn operator(&self) -> Operator {
        self.operator
    }

    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Whether a label with this value, or its absence, fits.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let has = |value: &str| self.values.iter().any(|v| v == value);
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => value.is_some_and(has),
            Operator::NotIn | Operator::NotEquals => !value.is_some_and(has),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan | Operator::LessThan => {
                let (Some(Ok(value)), [limit]) = (value.map(str::parse::<i64>), self.values.as_slice()) else { return false };
                limit.parse().is_ok_and(|limit| if self.operator == Operator::GreaterThan { value > limit } else { value < limit })
            }
        }
    }
}

impl Selector {
    pub fn everything() -> Self {
        Self::default()
    }

    pub fn nothing() -> Self {
        Self { requirements: Vec::new(), nothing: true }
    }

    /// Reads `a=b,c in (d,e),!f`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        Ok(Self::new(parse::parse(text)?))
    }

    pub fn new(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements, nothing: false }
    }

    /// The selector of a plain map of labels, unchecked: a Service's, a ReplicationController's.
    pub fn from_set(labels: &Map<String, Value>) -> Self {
        let equals = |(key, value): (&String, &Value)| {
            Requirement::unchecked(key.clone(), Operator::Equals, vec![value.as_str().unwrap_or_default().to_string()])
        };
        Self::new(labels.iter().map(equals).collect())
    }

    /// Reads a `LabelSelector` object. `null` selects nothing, an empty one everything.
    pub fn from_object(selector: &Value) -> Result<Self, SelectorError> {
        object::from_object(selector)
    }

    /// Matches every set of labels.
    pub fn is_empty(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Matches no set of labels, whatever they are.
    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    pub fn add(&mut self, requirement: Requirement) {
        if !self.nothing {
            let at = self.requirements.partition_point(|r| r.key <= requirement.key);
            self.requirements.insert(at, requirement);
        }
    }

    /// Matches with a lookup of the caller's.
    pub fn matches_with<'a>(&self, lookup: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches(lookup(&r.key)))
    }

    /// Matches the map under `metadata.labels`.
    pub fn matches(&self, labels: &Map<String, Value>) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches(labels.get(&r.key).and_then(Value::as_str)))
    }

    /// Matches an object; one without labels has the empty set.
    pub fn matches_object(&self, object: &Value) -> bool {
        self.matches_with(|key| object["metadata"]["labels"][key].as_str())
    }

    pub fn matches_pairs<'a>(&self, pairs: impl IntoIterator<Item = (&'a str, &'a str)> + Clone) -> bool {
        self.matches_with(|key| pairs.clone().into_iter().find(|(k, _)| *k == key).map(|(_, value)| value))
    }

    /// The one value that the label must have, when the selector says so: for indexes.
    pub fn requires_exact_match(&self, key: &str) -> Option<&str> {
        let requirement = self.requirements.iter().find(|r| r.key == key)?;
        match (requirement.operator, requirement.values.as_slice()) {
            (Operator::Equals | Operator::DoubleEquals | Operator::In, [value]) => Some(value),
            _ => None,
        }
    }
}

impl std::str::FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        Self::parse(text)
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, between, open, close) = match self.operator {
            Operator::DoesNotExist => return write!(f, "!{}", self.key),
            Operator::Exists => return f.write_str(&self.key),
            Operator::Equals => ("", "=", "", ""),
            Operator::DoubleEquals => ("", "==", "", ""),
            Operator::NotEquals => ("", "!=", "", ""),
            Operator::GreaterThan => ("", ">", "", ""),
            Operator::LessThan => ("", "<", "", ""),
            Operator::In => (" ", "in ", "(", ")"),
            Operator::NotIn => (" ", "notin ", "(", ")"),
        };
        write!(f, "{}{before}{between}{open}", self.key)?;
        for (i, value) in self.values.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            f.write_str(value)?;
        }
        f.write_str(close)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{requirement}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn matches(selector: &str, labels: &Value) -> bool {
        Selector::parse(selector).unwrap().matches(labels.as_object().unwrap())
    }

    #[test]
    fn every_operator_decides() {
        let labels = json!({"a": "b", "n": "5", "e": ""});
        for selector in ["", "a=b", "a==b", "a!=c", "x!=c", "a in (b,c)", "a notin (c)", "x notin (c)", "a", "!x", "n>4", "n<6", "e=", "e"]
        {
            assert!(matches(selector, &labels), "{selector}");
        }
        for selector in ["a=c", "x=b", "a!=b", "a in (c)", "a notin (b)", "x", "!a", "n>5", "n<5", "a>1", "x<1", "a=b,x"] {
            assert!(!matches(selector, &labels), "{selector}");
        }
        assert!(!Selector::nothing().matches(labels.as_object().unwrap()));
        assert!(Selector::parse("a=b,n>4").unwrap().matches_pairs([("n", "5"), ("a", "b")]));
        assert!(Selector::parse("!a").unwrap().matches_object(&json!({})));
    }

    #[test]
    fn text_is_ordered_by_key_and_value() {
        for (text, canonical) in [
            ("z in (b,a),a", "a,z in (a,b)"),
            (" x = a , y != b ", "x=a,y!=b"),
            ("x in ()", "x in ()"),
            ("x in (a,,a)", "x in (,a)"),
            ("in in (in,notin)", "in in (in,notin)"),
            ("!x,y>1", "!x,y>1"),
        ] {
            assert_eq!(Selector::parse(text).unwrap().to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn an_exact_value_is_known() {
        let selector = Selector::parse("a=b,c in (d),e in (f,g),h").unwrap();
        assert_eq!(["a", "c", "e", "h"].map(|k| selector.requires_exact_match(k)), [Some("b"), Some("d"), None, None]);
    }
}
