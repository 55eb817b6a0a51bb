//! Label selectors and node selectors, compiled once and matched against the labels of JSON objects.

use serde_json::{Map, Value};
use sublet_machinery::ObjectExt;

pub(crate) type Labels = Map<String, Value>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

impl Requirement {
    fn equals(key: &str, value: &str) -> Self {
        Self { key: key.into(), operator: Operator::In, values: vec![value.into()] }
    }

    fn parse(expression: &Value) -> Option<Self> {
        let operator = match expression["operator"].as_str()? {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::Gt,
            "Lt" => Operator::Lt,
            _ => return None,
        };
        let values = expression.array_at("/values").iter().filter_map(Value::as_str).map(str::to_string).collect();
        Some(Self { key: expression["key"].as_str()?.into(), operator, values })
    }

    fn matches(&self, value: Option<&str>) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        let compare = |holds: fn(&i64, &i64) -> bool| {
            let pair = value.and_then(number).zip(self.values.first().and_then(|v| number(v)));
            pair.is_some_and(|(have, want)| holds(&have, &want))
        };
        match self.operator {
            Operator::In => value.is_some_and(|v| self.values.iter().any(|w| w == v)),
            Operator::NotIn => value.is_none_or(|v| self.values.iter().all(|w| w != v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => compare(i64::gt),
            Operator::Lt => compare(i64::lt),
        }
    }
}

/// A `metav1.LabelSelector`: all requirements must hold.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Selector {
    requirements: Vec<Requirement>,
    /// No selector at all, or an unreadable one.
    nothing: bool,
}

impl Selector {
    /// A missing selector matches nothing, an empty one everything.
    pub(crate) fn parse(selector: &Value) -> Self {
        if !selector.is_object() {
            return Self { requirements: Vec::new(), nothing: true };
        }
        let mut parsed = Self::default();
        for (key, value) in selector.object_at("/matchLabels").into_iter().flatten() {
            parsed.requirements.push(Requirement::equals(key, value.as_str().unwrap_or_default()));
        }
        for expression in selector.array_at("/matchExpressions") {
            match Requirement::parse(expression) {
                Some(requirement) => parsed.requirements.push(requirement),
                None => parsed.nothing = true,
            }
        }
        parsed
    }

    /// Adds the values that `labels` has under the keys (`matchLabelKeys`), or their opposite.
    pub(crate) fn with_keys(mut self, keys: &[Value], labels: Option<&Labels>, differ: bool) -> Self {
        for key in keys.iter().filter_map(Value::as_str) {
            if let Some(value) = labels.and_then(|l| l.get(key)).and_then(Value::as_str) {
                let operator = if differ { Operator::NotIn } else { Operator::In };
                self.requirements.push(Requirement { key: key.into(), operator, values: vec![value.into()] });
            }
        }
        self
    }

    pub(crate) fn matches(&self, labels: Option<&Labels>) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches(labels.and_then(|l| l.get(&r.key)).and_then(Value::as_str)))
    }
}

/// One term of a node selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeTerm {
    labels: Vec<Requirement>,
    names: Vec<Requirement>,
}

impl NodeTerm {
    pub(crate) fn parse(term: &Value) -> Option<Self> {
        let requirements = |list: &str| term.array_at(list).iter().map(Requirement::parse).collect::<Option<Vec<_>>>();
        let parsed = Self { labels: requirements("/matchExpressions")?, names: requirements("/matchFields")? };
        // A term without requirements matches no node.
        (!parsed.labels.is_empty() || !parsed.names.is_empty()).then_some(parsed)
    }

    pub(crate) fn matches(&self, name: &str, labels: Option<&Labels>) -> bool {
        self.names.iter().all(|r| r.key == "metadata.name" && r.matches(Some(name)))
            && self.labels.iter().all(|r| r.matches(labels.and_then(|l| l.get(&r.key)).and_then(Value::as_str)))
    }

    /// The only nodes that the term can match, when it names them.
    fn only_names(&self) -> Option<&[String]> {
        self.names.iter().find(|r| r.key == "metadata.name" && r.operator == Operator::In).map(|r| r.values.as_slice())
    }
}

/// A `NodeSelector`: one of the terms must hold.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct NodeSelector {
    terms: Vec<NodeTerm>,
}

impl NodeSelector {
    pub(crate) fn parse(selector: &Value) -> Self {
        Self { terms: selector.array_at("/nodeSelectorTerms").iter().filter_map(NodeTerm::parse).collect() }
    }

    pub(crate) fn matches(&self, name: &str, labels: Option<&Labels>) -> bool {
        self.terms.iter().any(|t| t.matches(name, labels))
    }

    /// The nodes that can match at all, when every term names its nodes (as daemon sets do).
    pub(crate) fn only_names(&self) -> Option<Vec<&str>> {
        let mut names = Vec::new();
        for term in &self.terms {
            names.extend(term.only_names()?.iter().map(String::as_str));
        }
        (!self.terms.is_empty()).then_some(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_match_as_upstreams() {
        let labels = json!({"a": "1", "b": "x"});
        let check = |selector: Value, expected: bool| {
            assert_eq!(Selector::parse(&selector).matches(labels.as_object()), expected, "{selector}");
        };
        check(Value::Null, false);
        check(json!({}), true);
        check(json!({"matchLabels": {"a": "1"}}), true);
        check(json!({"matchLabels": {"a": "1", "b": "y"}}), false);
        check(json!({"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["y"]}]}), true);
        check(json!({"matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["y"]}]}), true);
        check(json!({"matchExpressions": [{"key": "c", "operator": "Exists"}]}), false);
        check(json!({"matchExpressions": [{"key": "c", "operator": "DoesNotExist"}]}), true);
        let by_key = Selector::parse(&json!({})).with_keys(&[json!("a")], labels.as_object(), false);
        assert!(by_key.matches(labels.as_object()) && !by_key.matches(json!({"a": "2"}).as_object()));
    }

    #[test]
    fn node_terms_know_names_and_numbers() {
        let labels = json!({"gen": "7"});
        let check = |terms: Value, expected: bool| {
            let selector = NodeSelector::parse(&json!({"nodeSelectorTerms": terms}));
            assert_eq!(selector.matches("n1", labels.as_object()), expected, "{terms}");
        };
        check(json!([]), false);
        check(json!([{}]), false);
        check(json!([{"matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["6"]}]}]), true);
        check(json!([{"matchExpressions": [{"key": "gen", "operator": "Lt", "values": ["6"]}]}]), false);
        check(json!([{}, {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]), true);
        let named = json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]});
        assert_eq!(NodeSelector::parse(&named).only_names(), Some(vec!["n1"]));
    }
}
