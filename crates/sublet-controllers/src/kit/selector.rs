//! Label selectors as controllers hold them: the structured form of `metav1.LabelSelector` and the
//! plain map of services and replication controllers.

use serde_json::{Map, Value};
use sublet_machinery::ObjectExt;

/// A parsed selector. [`Selector::Nothing`] also stands for selectors that upstream cannot parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selector {
    Nothing,
    All(Vec<Requirement>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

impl Selector {
    /// `metav1.LabelSelector`: absent selects nothing, empty selects everything.
    pub(crate) fn parse(selector: Option<&Value>) -> Self {
        let Some(selector) = selector.filter(|s| s.is_object()) else { return Self::Nothing };
        let mut requirements = equalities(selector["matchLabels"].as_object());
        for expression in selector.array_at("/matchExpressions") {
            let values = || expression.array_at("/values").iter().filter_map(|v| v.as_str().map(str::to_string)).collect();
            let test = match expression["operator"].as_str().unwrap_or_default() {
                "In" => Test::In(values()),
                "NotIn" => Test::NotIn(values()),
                "Exists" => Test::Exists,
                "DoesNotExist" => Test::DoesNotExist,
                _ => return Self::Nothing,
            };
            requirements.push(Requirement { key: expression["key"].as_str().unwrap_or_default().to_string(), test });
        }
        Self::All(requirements)
    }

    /// A plain map of labels, as services and replication controllers have it; empty selects nothing.
    pub(crate) fn of_map(map: Option<&Map<String, Value>>) -> Self {
        match map {
            Some(map) if !map.is_empty() => Self::All(equalities(Some(map))),
            _ => Self::Nothing,
        }
    }

    /// Selects every object: no requirement at all.
    pub(crate) fn is_everything(&self) -> bool {
        matches!(self, Self::All(requirements) if requirements.is_empty())
    }

    pub(crate) fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        match self {
            Self::Nothing => false,
            Self::All(requirements) => requirements.iter().all(|r| r.matches(labels)),
        }
    }

    pub(crate) fn matches_object(&self, object: &Value) -> bool {
        self.matches(object.labels())
    }
}

impl Requirement {
    fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        let value = labels.and_then(|l| l.get(&self.key)).and_then(Value::as_str);
        match (&self.test, value) {
            (Test::In(values), Some(value)) => values.iter().any(|v| v == value),
            (Test::In(_) | Test::Exists, None) | (Test::DoesNotExist, Some(_)) => false,
            (Test::NotIn(values), Some(value)) => values.iter().all(|v| v != value),
            (Test::NotIn(_) | Test::DoesNotExist, None) | (Test::Exists, Some(_)) => true,
        }
    }
}

fn equalities(map: Option<&Map<String, Value>>) -> Vec<Requirement> {
    map.into_iter()
        .flatten()
        .map(|(key, value)| Requirement { key: key.clone(), test: Test::In(vec![value.as_str().unwrap_or_default().to_string()]) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn expressions_and_labels_must_all_hold() {
        let selector = Selector::parse(Some(&json!({
            "matchLabels": {"a": "1"},
            "matchExpressions": [
                {"key": "b", "operator": "NotIn", "values": ["x"]},
                {"key": "c", "operator": "Exists"},
                {"key": "d", "operator": "DoesNotExist"},
            ],
        })));
        let check = |labels: Value, expected| assert_eq!(selector.matches(labels.as_object()), expected, "{labels}");
        check(json!({"a": "1", "c": ""}), true);
        check(json!({"a": "1", "c": "", "b": "y"}), true);
        check(json!({"a": "1", "c": "", "b": "x"}), false);
        check(json!({"a": "2", "c": ""}), false);
        check(json!({"a": "1"}), false);
        check(json!({"a": "1", "c": "", "d": ""}), false);
    }

    #[test]
    fn absent_selects_nothing_and_empty_depends_on_the_form() {
        assert!(!Selector::parse(None).matches(None));
        assert!(Selector::parse(Some(&json!({}))).matches(None));
        assert!(!Selector::of_map(Some(&Map::new())).matches(None));
    }
}
