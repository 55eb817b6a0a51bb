//! The `LabelSelector` object: `matchLabels` and `matchExpressions`.

use super::{Operator, Requirement, Selector, SelectorError};
use crate::error::{FieldError, FieldPath};
use crate::names;
use serde_json::{Map, Value};

/// Leniency for objects that were stored before a rule.
#[derive(Clone, Copy, Debug, Default)]
pub struct LabelSelectorOptions {
    pub allow_invalid_values: bool,
    pub allow_unknown_operators: bool,
}

pub(super) fn from_object(selector: &Value) -> Result<Selector, SelectorError> {
    if selector.is_null() {
        return Ok(Selector::nothing());
    }
    let labels = selector["matchLabels"].as_object();
    let expressions = expressions(selector);
    let mut requirements = Vec::with_capacity(labels.map_or(0, Map::len) + expressions.len());
    for (key, value) in labels.into_iter().flatten() {
        requirements.push(Requirement::new(key, Operator::Equals, vec![text(value)])?);
    }
    for expression in expressions {
        let operator = match expression["operator"].as_str().unwrap_or_default() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            other => return Err(SelectorError(format!("{other:?} is not a valid label selector operator"))),
        };
        requirements.push(Requirement::new(text(&expression["key"]), operator, values(expression).iter().map(text).collect())?);
    }
    Ok(Selector::new(requirements))
}

/// Checks a `LabelSelector` at `path`.
pub fn validate_label_selector(selector: &Value, options: LabelSelectorOptions, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(labels) = selector["matchLabels"].as_object() {
        errors.extend(validate_labels(labels, &path.child("matchLabels")));
    }
    for (i, expression) in expressions(selector).iter().enumerate() {
        errors.extend(validate_label_requirement(expression, options, &path.child("matchExpressions").index(i)));
    }
    errors
}

/// Checks a map of labels at `path`.
pub fn validate_labels(labels: &Map<String, Value>, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels {
        let value = value.as_str().unwrap_or_default();
        errors.extend(names::qualified_name(key).into_iter().map(|e| FieldError::invalid(path, key.as_str(), e)));
        errors.extend(names::label_value(value).into_iter().map(|e| FieldError::invalid(path, value, e)));
    }
    errors
}

/// Checks one of `matchExpressions` at `path`.
pub fn validate_label_requirement(expression: &Value, options: LabelSelectorOptions, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let values = values(expression);
    let operator = expression["operator"].as_str().unwrap_or_default();
    let values_path = path.child("values");
    match (operator, values.is_empty()) {
        ("In" | "NotIn", true) => {
            errors.push(FieldError::required(&values_path, "must be specified when `operator` is 'In' or 'NotIn'"));
        }
        ("Exists" | "DoesNotExist", false) => {
            errors.push(FieldError::forbidden(&values_path, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
        }
        ("In" | "NotIn" | "Exists" | "DoesNotExist", _) => {}
        _ if options.allow_unknown_operators => {}
        _ => errors.push(FieldError::invalid(&path.child("operator"), operator, "not a valid selector operator")),
    }
    let key = expression["key"].as_str().unwrap_or_default();
    errors.extend(names::qualified_name(key).into_iter().map(|e| FieldError::invalid(&path.child("key"), key, e)));
    let judged = if options.allow_invalid_values { &[] } else { values };
    for (i, value) in judged.iter().enumerate() {
        let value = value.as_str().unwrap_or_default();
        let faults = names::label_value(value);
        errors.extend(faults.into_iter().map(|e| FieldError::invalid(&values_path.index(i), value, e)));
    }
    errors
}

fn expressions(selector: &Value) -> &[Value] {
    selector["matchExpressions"].as_array().map_or(&[], Vec::as_slice)
}

fn values(expression: &Value) -> &[Value] {
    expression["values"].as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_reads_as_the_same_selector_as_its_text() {
        let object = json!({"matchLabels": {"b": "c"}, "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]}, {"key": "d", "operator": "DoesNotExist"}]});
        assert_eq!(Selector::from_object(&object).unwrap().to_string(), "a in (x,y),b=c,!d");
        assert!(Selector::from_object(&Value::Null).unwrap().is_nothing());
        assert!(Selector::from_object(&json!({})).unwrap().is_empty());
        let unknown = json!({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]});
        assert_eq!(Selector::from_object(&unknown).unwrap_err().0, "\"Gt\" is not a valid label selector operator");
    }

    #[test]
    fn every_fault_is_reported_with_its_path() {
        let object = json!({"matchLabels": {"-": "ok"}, "matchExpressions": [
            {"key": "a", "operator": "In"}, {"key": "", "operator": "Exists", "values": ["_"]}, {"key": "b", "operator": "x"}]});
        let errors = validate_label_selector(&object, LabelSelectorOptions::default(), &FieldPath::new("spec.selector"));
        let paths: Vec<&str> = errors.iter().map(|e| e.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "spec.selector.matchLabels",
                "spec.selector.matchExpressions[0].values",
                "spec.selector.matchExpressions[1].values",
                "spec.selector.matchExpressions[1].key",
                "spec.selector.matchExpressions[1].key",
                "spec.selector.matchExpressions[1].values[0]",
                "spec.selector.matchExpressions[2].operator",
            ]
        );
    }
}
