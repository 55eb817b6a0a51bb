//! What a version says beside its schema: subresources, columns, selectable fields, deprecation.

use super::super::view::{self, text};
use serde_json::Value;
use sublet_machinery::{FieldError, FieldPath, SchemaNode, ValueType, structural};

const SELECTABLE_FIELDS_MAX: usize = 8;
const DEPRECATION_BYTES_MAX: usize = 256;

pub(super) fn has_status(version: &Value) -> bool {
    version.pointer("/subresources/status").is_some_and(Value::is_object)
}

pub(super) fn validate_deprecation(version: &Value, path: &FieldPath) -> Vec<FieldError> {
    let Some(warning) = version["deprecationWarning"].as_str() else { return Vec::new() };
    let mut errors: Vec<String> = Vec::new();
    if version["deprecated"] != true {
        errors.push("can only be set for deprecated versions".into());
    } else {
        if warning.len() > DEPRECATION_BYTES_MAX {
            errors.push(format!("must be <= {DEPRECATION_BYTES_MAX} characters long"));
        }
        if warning.is_empty() {
            errors.push("must not be an empty string".into());
        }
        if let Some((index, _)) = warning.char_indices().find(|(_, c)| c.is_control()) {
            errors.push(format!("must only contain printable UTF-8 characters; non-printable character found at index {index}"));
        }
    }
    errors.into_iter().map(|detail| FieldError::invalid(path, warning, detail)).collect()
}

pub(super) fn validate_subresources(version: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(scale) = version.pointer("/subresources/scale").filter(|s| s.is_object()) else { return errors };
    for (key, root) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let path = path.child(&format!("scale.{key}"));
        let stated = text(scale, key);
        if stated.is_empty() {
            errors.push(FieldError::required(&path, ""));
        } else if !stated.starts_with('.') {
            errors.push(FieldError::invalid(&path, stated, "must be a simple json path starting with ."));
        } else if !stated.starts_with(root) {
            let parent = root.trim_end_matches('.');
            errors.push(FieldError::invalid(&path, stated, format!("should be a json path under {parent}")));
        }
    }
    let selector = text(scale, "labelSelectorPath");
    let path = path.child("scale.labelSelectorPath");
    if !selector.is_empty() && !selector.starts_with('.') {
        errors.push(FieldError::invalid(&path, selector, "must be a simple json path starting with ."));
    } else if !selector.is_empty() && !selector.starts_with(".spec.") && !selector.starts_with(".status.") {
        errors.push(FieldError::invalid(&path, selector, "should be a json path under either .spec or .status"));
    }
    errors
}

pub(super) fn validate_columns(version: &Value, path: &FieldPath) -> Vec<FieldError> {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    let mut errors = Vec::new();
    let columns = version["additionalPrinterColumns"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (index, column) in columns.iter().enumerate() {
        let path = path.index(index);
        if text(column, "name").is_empty() {
            errors.push(FieldError::required(&path.child("name"), ""));
        }
        let (value_type, format, json_path) = (text(column, "type"), text(column, "format"), text(column, "jsonPath"));
        let types = format!("must be one of {}", TYPES.join(","));
        if value_type.is_empty() {
            errors.push(FieldError::required(&path.child("type"), types));
        } else if !TYPES.contains(&value_type) {
            errors.push(FieldError::invalid(&path.child("type"), value_type, types));
        }
        if !format.is_empty() && !FORMATS.contains(&format) {
            errors.push(FieldError::invalid(&path.child("format"), format, format!("must be one of {}", FORMATS.join(","))));
        }
        if json_path.is_empty() {
            errors.push(FieldError::required(&path.child("JSONPath"), ""));
        } else if !json_path.starts_with('.') {
            errors.push(FieldError::invalid(&path.child("JSONPath"), json_path, "must be a simple json path starting with ."));
        }
    }
    errors
}

pub(super) fn validate_selectable_fields(version: &Value, path: &FieldPath) -> Vec<FieldError> {
    let fields = version["selectableFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut errors = Vec::new();
    let (Some(schema), false) = (view::schema(version), fields.is_empty()) else { return errors };
    let schema = structural::build_plain(schema);
    let mut seen: Vec<String> = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        let path = path.index(index).child("jsonPath");
        let json_path = text(field, "jsonPath");
        if json_path.is_empty() {
            errors.push(FieldError::required(&path, ""));
            continue;
        }
        let (found_path, node) = match field_path(json_path, schema.node(), false) {
            Ok(found) => found,
            Err(error) => {
                errors.push(FieldError::invalid(&path, json_path, format!("is an invalid path: {error}")));
                continue;
            }
        };
        if json_path == ".metadata" || json_path.starts_with(".metadata.") {
            errors.push(FieldError::invalid(&path, json_path, "must not point to fields in metadata"));
        }
        if !matches!(node.value_type, ValueType::String | ValueType::Boolean | ValueType::Integer) {
            let detail =
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.push(FieldError::invalid(&path, json_path, detail));
        }
        if seen.contains(&found_path) {
            errors.push(FieldError::duplicate(&path, json_path));
        } else {
            seen.push(found_path);
        }
    }
    if seen.len() > SELECTABLE_FIELDS_MAX {
        errors.push(FieldError::too_many(path, seen.len(), SELECTABLE_FIELDS_MAX));
    }
    errors
}

/// Why a path does not lead to a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct FieldPathError(String);

/// Follows a path of fields and map keys (`.spec.map['key']`) and returns it in upstream's notation
/// with the schema it leads to.
pub(crate) fn field_path<'a>(path: &str, node: SchemaNode<'a>, brackets: bool) -> Result<(String, SchemaNode<'a>), FieldPathError> {
    let fail = |text: &str| FieldPathError(text.into());
    let mut node = node;
    let mut found = FieldPath::root();
    let mut rest = path;
    while !rest.is_empty() {
        let (name, after) = if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            if end == 0 {
                let next = after.chars().next().map(String::from);
                // A delimiter where a name should be is taken as the name, and leads nowhere.
                return Err(fail(if next.is_some() { "does not refer to a valid field" } else { "unexpected end of JSON path" }));
            }
            (after[..end].to_string(), &after[end..])
        } else if let Some(after) = rest.strip_prefix('[') {
            if !brackets {
                return Err(fail("array notation is not allowed"));
            }
            quoted(after)?
        } else {
            let token = rest.split(['.', '[', ']']).next().filter(|t| !t.is_empty()).unwrap_or("]");
            return Err(FieldPathError(format!("expected [ or . but got: {token}")));
        };
        let is_struct = !node.properties.is_empty();
        found = if is_struct { found.child(&name) } else { found.key(&name) };
        node = if is_struct { node.property(&name) } else { node.additional() }.ok_or_else(|| fail("does not refer to a valid field"))?;
        rest = after;
    }
    Ok((if path.is_empty() { String::new() } else { found.to_string() }, node))
}

/// The text between `'` and `']`, and what follows.
fn quoted(text: &str) -> Result<(String, &str), FieldPathError> {
    let Some(inner) = text.strip_prefix('\'') else {
        let token = text.split(['.', '[', ']']).next().unwrap_or_default();
        return Err(FieldPathError(if text.is_empty() {
            "unexpected end of JSON path".into()
        } else {
            format!("expected single quoted string but got {token}")
        }));
    };
    let mut name = String::new();
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' => {
                let after = &inner[at + 1..];
                return match after.strip_prefix(']') {
                    Some(rest) => Ok((name, rest)),
                    None if after.is_empty() => Err(FieldPathError("unexpected end of JSON path".into())),
                    None => Err(FieldPathError(format!("expected ] but got {}", after.split(['.', '[', ']']).next().unwrap_or_default()))),
                };
            }
            '\\' => match chars.next().map(|(_, c)| c) {
                Some('n') => name.push('\n'),
                Some('r') => name.push('\r'),
                Some('t') => name.push('\t'),
                Some('a') => name.push('\u{7}'),
                Some('b') => name.push('\u{8}'),
                Some('f') => name.push('\u{c}'),
                Some('v') => name.push('\u{b}'),
                Some(c @ ('\'' | '\\')) => name.push(c),
                other => {
                    let other = other.map(String::from).unwrap_or_default();
                    return Err(FieldPathError(format!("invalid string literal: invalid escape char \\{other}")));
                }
            },
            c => name.push(c),
        }
    }
    Err(FieldPathError(format!("expected single quoted string but got {text}")))
}
