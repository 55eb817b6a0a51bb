//! The step from client-side to server-side apply: kubectl's annotation says what the user applied before.

use super::compare::compare;
use super::fields::fields_of;
use super::managers::Conflict;
use super::path::escape_html;
use super::set::FieldSet;
use super::types::Type;
use crate::metadata::ANNOTATIONS_BYTES_MAX;
use crate::object::ObjectExt;
use serde_json::Value;

/// Only kubectl's own manager takes part in this; others opt out by their name.
pub(super) const MANAGER: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The conflicts that are left when those over fields that the user applied from the client, and that
/// still have the applied value, are allowed. Empty means that the apply may be forced.
pub(super) fn without_allowed(conflicts: Vec<Conflict>, live: &Value, of: Type<'_>, api_version: &str) -> Vec<Conflict> {
    let Some(allowed) = allowed(live, of, api_version) else { return conflicts };
    let rest = conflicts.into_iter().map(|c| Conflict { set: c.set.difference(&allowed), ..c });
    rest.filter(|c| !c.set.is_empty()).collect()
}

fn allowed(live: &Value, of: Type<'_>, api_version: &str) -> Option<FieldSet> {
    let text = live.annotation(ANNOTATION).filter(|text| !text.is_empty())?;
    let last: Value = serde_json::from_str(text).ok()?;
    if last.api_version() != api_version {
        return None;
    }
    let changes = compare(&last, live, of);
    Some(fields_of(&last, of).difference(&changes.modified).difference(&changes.added).difference(&changes.removed))
}

/// Brings the annotation up to date, if there is one. True when it changed.
pub(super) fn refresh(object: &mut Value, config: &Value) -> bool {
    if object.annotation(ANNOTATION).is_none_or(str::is_empty) {
        return false;
    }
    let mut config = config.clone();
    if let Some(annotations) = config["metadata"].get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove(ANNOTATION);
    }
    let text = escape_html(config.to_string()) + "\n";
    if object.annotation(ANNOTATION) == Some(&text) {
        return false;
    }
    object.set_annotation(ANNOTATION, &text);
    let annotations = object.annotations().into_iter().flatten();
    let bytes: usize = annotations.map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum();
    if bytes > ANNOTATIONS_BYTES_MAX
        && let Some(annotations) = object["metadata"].get_mut("annotations").and_then(Value::as_object_mut)
    {
        annotations.remove(ANNOTATION);
    }
    true
}
