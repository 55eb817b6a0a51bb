//! What a broken rule tells.

use serde_json::Value;
use sublet_machinery::schema::CelRule;
use sublet_machinery::{FieldError, FieldErrorKind, FieldPath, SchemaNode, ValueType};

pub(super) fn type_name(node: SchemaNode<'_>) -> &'static str {
    match node.value_type {
        ValueType::Any => "",
        ValueType::Object => "object",
        ValueType::Array => "array",
        ValueType::String => "string",
        ValueType::Integer => "integer",
        ValueType::Number => "number",
        ValueType::Boolean => "boolean",
    }
}

/// The rule as errors name it.
pub(super) fn rule_text(rule: &CelRule) -> &str {
    if rule.message.is_empty() { rule.rule.trim() } else { rule.message.trim() }
}

pub(super) fn default_message(rule: &CelRule) -> String {
    if rule.message.is_empty() { format!("failed rule: {}", rule_text(rule)) } else { rule.message.trim().into() }
}

/// The error for the reason that a rule states. Objects and lists are not shown.
pub(super) fn reason_error(reason: &str, path: &FieldPath, node: SchemaNode<'_>, value: &Value, detail: String) -> FieldError {
    let is_shown = !matches!(node.value_type, ValueType::Object | ValueType::Array);
    let shown = is_shown.then(|| value.clone());
    match reason {
        "FieldValueForbidden" => FieldError::forbidden(path, detail),
        "FieldValueRequired" => FieldError::required(path, detail),
        "FieldValueDuplicate" => FieldError::new(FieldErrorKind::Duplicate, path, shown, ""),
        _ => FieldError::new(FieldErrorKind::Invalid, path, shown, detail),
    }
}
