//! The field and label selectors of access reviews: what is wrong with them, and what of them nobody understands.
//!
//! Rights never depend on them, so that dropping one asks for more and never allows more.

use serde_json::Value;
use sublet_machinery::selector::{FieldSelector, LabelSelectorOptions, Operator, Requirement, Selector, validate_label_requirement};
use sublet_machinery::{FieldError, FieldPath, ObjectExt};

const FIELDS: &str = "fieldSelector";
const LABELS: &str = "labelSelector";

/// What is wrong with the selectors of `resourceAttributes`.
pub(super) fn errors(attributes: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for kind in [FIELDS, LABELS] {
        let (selector, path) = (&attributes[kind], FieldPath::new(format!("spec.resourceAttributes.{kind}")));
        if !selector.is_object() {
            continue;
        }
        let raw = selector["rawSelector"].as_str().unwrap_or_default();
        let requirements = selector.array_at("/requirements");
        match (raw.is_empty(), requirements.is_empty()) {
            (false, false) => {
                errors.push(FieldError::invalid(&path.child("rawSelector"), raw, "may not specified at the same time as requirements"));
            }
            (true, true) => {
                let detail = format!("when {path} is specified, requirements or rawSelector is required");
                errors.push(FieldError::required(&path.child("requirements"), detail));
            }
            _ => {}
        }
        for (index, requirement) in requirements.iter().enumerate() {
            let path = path.child("requirements").index(index);
            if kind == LABELS {
                // Operators that this server does not know may come from newer clients.
                let options = LabelSelectorOptions { allow_unknown_operators: true, ..LabelSelectorOptions::default() };
                errors.extend(validate_label_requirement(requirement, options, &path));
            } else {
                field_errors(requirement, &path, &mut errors);
            }
        }
    }
    errors
}

fn field_errors(requirement: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if requirement["key"].as_str().unwrap_or_default().is_empty() {
        errors.push(FieldError::required(&path.child("key"), "must be specified"));
    }
    let values = path.child("values");
    match (requirement["operator"].as_str().unwrap_or_default(), requirement.array_at("/values").is_empty()) {
        ("In" | "NotIn", true) => errors.push(FieldError::required(&values, "must be specified when `operator` is 'In' or 'NotIn'")),
        ("Exists" | "DoesNotExist", false) => {
            errors.push(FieldError::forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
        }
        _ => {}
    }
}

/// What of the selectors was left out of the question, as the answer tells it.
pub(super) fn ignored(attributes: &Value) -> Vec<String> {
    let told = |kind: &str, understood: Option<(usize, usize)>| {
        let (good, all) = understood?;
        let part = if good > 0 { "partially " } else { "" };
        (good < all).then(|| format!("spec.resourceAttributes.{kind} {part}ignored due to parse error"))
    };
    let fields = understood(&attributes[FIELDS], |raw| FieldSelector::parse(raw).is_ok(), is_field_requirement);
    let labels = understood(&attributes[LABELS], |raw| Selector::parse(raw).is_ok(), is_label_requirement);
    [told(FIELDS, fields), told(LABELS, labels)].into_iter().flatten().collect()
}

/// How many requirements are understood, of how many; of a text all or none.
fn understood(selector: &Value, text: impl Fn(&str) -> bool, requirement: impl Fn(&Value) -> bool) -> Option<(usize, usize)> {
    let requirements = selector.array_at("/requirements");
    if !requirements.is_empty() {
        return Some((requirements.iter().filter(|r| requirement(r)).count(), requirements.len()));
    }
    let raw = selector["rawSelector"].as_str().filter(|raw| !raw.is_empty())?;
    Some((usize::from(text(raw)), 1))
}

/// Field selectors know one value, and whether it is the field's.
fn is_field_requirement(requirement: &Value) -> bool {
    matches!(requirement["operator"].as_str(), Some("In" | "NotIn")) && requirement.array_at("/values").len() == 1
}

fn is_label_requirement(requirement: &Value) -> bool {
    let operator = match requirement["operator"].as_str().unwrap_or_default() {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        _ => return false,
    };
    let values = requirement.array_at("/values").iter().filter_map(|value| value.as_str().map(str::to_string)).collect();
    Requirement::new(requirement["key"].as_str().unwrap_or_default(), operator, values).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(attributes: &Value, wrong: &[&str], left_out: &[&str]) {
        assert_eq!(errors(attributes).iter().map(|e| e.path.to_string()).collect::<Vec<_>>(), wrong, "{attributes}");
        assert_eq!(ignored(attributes), left_out, "{attributes}");
    }

    #[test]
    fn selectors_are_judged_and_what_is_not_understood_is_told() {
        let of = |kind: &str, requirement: Value| json!({kind: {"requirements": [requirement]}});
        check(&of(LABELS, json!({"key": "a", "operator": "In", "values": ["x"]})), &[], &[]);
        check(&of(FIELDS, json!({"key": "a", "operator": "In", "values": ["x"]})), &[], &[]);
        let path = "spec.resourceAttributes.labelSelector.requirements[0]";
        check(
            &of(LABELS, json!({"key": "a", "operator": "In", "values": ["-"]})),
            &[&format!("{path}.values[0]")],
            &["spec.resourceAttributes.labelSelector ignored due to parse error"],
        );
        let newer = json!({"key": "a", "operator": "Newer"});
        check(&of(LABELS, newer.clone()), &[], &["spec.resourceAttributes.labelSelector ignored due to parse error"]);
        let two = json!({FIELDS: {"requirements": [newer, {"key": "a", "operator": "NotIn", "values": ["x"]}]}});
        check(&two, &[], &["spec.resourceAttributes.fieldSelector partially ignored due to parse error"]);
        check(
            &of(FIELDS, json!({"operator": "Exists", "values": ["x"]})),
            &["spec.resourceAttributes.fieldSelector.requirements[0].key", "spec.resourceAttributes.fieldSelector.requirements[0].values"],
            &["spec.resourceAttributes.fieldSelector ignored due to parse error"],
        );
        check(&json!({LABELS: {}}), &["spec.resourceAttributes.labelSelector.requirements"], &[]);
        check(&json!({LABELS: {"rawSelector": "a in (x"}}), &[], &["spec.resourceAttributes.labelSelector ignored due to parse error"]);
        check(&json!({FIELDS: {"rawSelector": "a=x"}}), &[], &[]);
    }
}
