//! Label and field selectors against stored entries.

use crate::registry::Resource;
use crate::store::entry::Entry;
use sublet_machinery::ApiError;
use sublet_machinery::selector::{FieldSelector, Selector};

/// What a list or watch selects, beside its namespace.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    labels: Option<Selector>,
    fields: Option<FieldSelector>,
}

impl Selection {
    pub fn parse(resource: &Resource, label_selector: &str, field_selector: &str) -> Result<Self, ApiError> {
        let labels = match label_selector {
            "" => None,
            text => Some(Selector::parse(text).map_err(|e| ApiError::bad_request(e.to_string()))?),
        };
        let fields = match field_selector {
            "" => None,
            text => Some(FieldSelector::parse(text).map_err(|e| ApiError::bad_request(e.to_string()))?),
        };
        let stored = |field: String, value: String| {
            let stored = (resource.strategy.field_named)(&field);
            if is_known(resource, stored) { Ok((stored.to_string(), value)) } else { Err(unknown_field(resource, &field)) }
        };
        let fields = fields.map(|fields| fields.try_map(stored)).transpose()?;
        Ok(Self { labels: labels.filter(|s| !s.is_empty()), fields: fields.filter(|s| !s.is_empty()) })
    }

    pub fn is_everything(&self) -> bool {
        self.labels.is_none() && self.fields.is_none()
    }

    /// The one name that a `metadata.name=x` selector asks for.
    pub fn exact_name(&self) -> Option<&str> {
        let fields = self.fields.as_ref()?;
        fields.terms().iter().find(|r| r.field == "metadata.name" && !r.negated).map(|r| r.value.as_str())
    }

    pub fn matches(&self, entry: &Entry) -> bool {
        if let Some(labels) = &self.labels
            && !labels.matches_with(|key| entry.label(key))
        {
            return false;
        }
        let Some(fields) = &self.fields else { return true };
        let (namespace, name) = entry.namespace_and_name();
        fields.terms().iter().all(|term| {
            let actual = match term.field.as_str() {
                "metadata.name" => name,
                "metadata.namespace" => namespace,
                field => entry.fields().find(|(k, _)| *k == field).map_or("", |(_, v)| v),
            };
            (actual == term.value) != term.negated
        })
    }
}

/// The fields that an object shows to selectors, beside its name and namespace.
pub fn fields_of(resource: &Resource, object: &serde_json::Value) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = (resource.strategy.fields)(object).into_iter().map(|(k, v)| (k.to_string(), v)).collect();
    if let Some(custom) = &resource.custom {
        for path in &custom.selectable_fields {
            let pointer = path.replace('.', "/");
            let text = match object.pointer(&pointer) {
                Some(serde_json::Value::String(text)) => text.clone(),
                None | Some(serde_json::Value::Null) => String::new(),
                Some(other) => other.to_string(),
            };
            fields.push((path.trim_start_matches('.').to_string(), text));
        }
    }
    fields
}

fn is_known(resource: &Resource, field: &str) -> bool {
    matches!(field, "metadata.name")
        || (field == "metadata.namespace" && (resource.namespaced || resource.custom.is_none()))
        || fields_of(resource, &serde_json::Value::Null).iter().any(|(k, _)| k == field)
}

/// Kinds with fields of their own answer differently from those that have just the general ones.
fn unknown_field(resource: &Resource, field: &str) -> ApiError {
    if resource.custom.is_some() || !fields_of(resource, &serde_json::Value::Null).is_empty() {
        return ApiError::bad_request(format!("field label not supported: {field}"));
    }
    ApiError::bad_request(format!(r#""{field}" is not a known field selector: only "metadata.name", "metadata.namespace""#))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Registry, builtin_rows};

    fn check(group: &str, field_selector: &str) -> Result<String, String> {
        let row = Registry::new(builtin_rows()).snapshot().find(group, "v1", "events").cloned().unwrap();
        let selection = Selection::parse(&row, "", field_selector).map_err(|e| e.message)?;
        Ok(selection.fields.unwrap().terms()[0].field.clone())
    }

    /// Both kinds of events are stored under the names of the core version.
    #[test]
    fn a_version_selects_by_its_own_names() {
        assert_eq!(check("events.k8s.io", "reportingController=c"), Ok("reportingComponent".into()));
        assert_eq!(check("events.k8s.io", "regarding.kind!=Pod"), Ok("involvedObject.kind".into()));
        assert_eq!(check("events.k8s.io", "source=c"), Err("field label not supported: source".into()));
        assert_eq!(check("", "source=c"), Ok("source".into()));
        assert_eq!(check("", "reportingController=c"), Err("field label not supported: reportingController".into()));
    }
}
