//! Validation of CustomResourceDefinitions, as upstream validates its internal form: what all versions
//! have in common is judged once and told at the top of the spec (`spec.validation`,
//! `spec.subresources`, `spec.additionalPrinterColumns`, `spec.selectableFields`).

mod conversion;
mod defaults;
mod names;
mod schema;
mod structure;
pub(crate) mod text;
mod version;

pub(crate) use conversion::{is_ca_bundle, validate_service, validate_url};
pub(super) use names::{Approval, approval_state, is_protected_group};
pub(crate) use version::field_path;

use super::view;
use serde_json::Value;
use sublet_machinery::{FieldError, FieldErrorKind, FieldPath, ObjectExt};

/// Everything that is wrong with a new definition.
pub fn validate(crd: &Value) -> Vec<FieldError> {
    let mut errors = names::validate_name(crd);
    errors.extend(validate_lasting(crd));
    errors
}

/// What is wrong with a definition whatever was there before.
fn validate_lasting(crd: &Value) -> Vec<FieldError> {
    let spec = &crd["spec"];
    let path = FieldPath::new("spec");
    let mut errors = names::validate_group_and_scope(spec, &path);
    errors.extend(validate_versions(spec, &path));
    errors.extend(names::validate_required(&spec["names"], &path.child("names")));
    errors.extend(names::validate(&spec["names"], &path.child("names")));
    errors.extend(validate_common(spec, &path));
    errors.extend(conversion::validate(&spec["conversion"], crd.is_condition_true("Established"), &path.child("conversion")));
    errors.extend(validate_status(crd));
    errors.extend(validate_stored_versions(crd));
    if spec["preserveUnknownFields"] == true {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid(&path.child("preserveUnknownFields"), true, detail));
    }
    errors
}

/// Everything that is wrong with a definition that takes the place of another.
pub fn validate_update(crd: &Value, old: &Value) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    let mut errors = validate_lasting(crd);
    let mut immutable = |pointer: &str, at: &[&str]| {
        if crd.pointer(pointer) != old.pointer(pointer) {
            let at = at.iter().fold(path.clone(), |path, part| path.child(part));
            errors.push(FieldError::invalid(&at, crd.pointer(pointer).cloned().unwrap_or_default(), "field is immutable"));
        }
    };
    // These decide where objects are stored, so they are fixed once there can be any.
    if old.is_condition_true("Established") {
        immutable("/spec/scope", &["scope"]);
        immutable("/spec/names/kind", &["names", "kind"]);
    }
    immutable("/spec/group", &["group"]);
    immutable("/spec/names/plural", &["names", "plural"]);
    errors.extend(names::validate_approval(crd, Some(old)));
    errors
}

pub fn validate_status_update(crd: &Value, _old: &Value) -> Vec<FieldError> {
    validate_status(crd)
}

fn validate_status(crd: &Value) -> Vec<FieldError> {
    names::validate(&crd["status"]["acceptedNames"], &FieldPath::new("status.acceptedNames"))
}

fn validate_stored_versions(crd: &Value) -> Vec<FieldError> {
    let path = FieldPath::new("status.storedVersions");
    let stored = view::strings(&crd["status"]["storedVersions"]);
    if stored.is_empty() {
        return vec![FieldError::invalid(&path, Value::Null, "must have at least one stored version")];
    }
    let mut errors = Vec::new();
    let known: Vec<&str> = view::versions(crd).iter().map(view::version_name).collect();
    for version in view::versions(crd).iter().filter(|v| v["storage"] == true).map(view::version_name) {
        if !stored.iter().any(|s| s == version) {
            errors.push(FieldError::invalid(&path, stored.clone(), format!("must have the storage version {version}")));
        }
    }
    for (index, version) in stored.iter().enumerate().filter(|(_, v)| !known.contains(&v.as_str())) {
        let detail = format!(
            "missing from spec.versions; {version} was previously a storage version, and must remain in spec.versions until a storage \
             migration ensures no data remains persisted in {version} and removes {version} from status.storedVersions"
        );
        errors.push(FieldError::invalid(&path.index(index), version.as_str(), detail));
    }
    errors
}

/// What the versions say in common, so that it is told once.
struct Common {
    schema: bool,
    subresources: bool,
    columns: bool,
    selectable_fields: bool,
}

impl Common {
    fn of(versions: &[Value]) -> Self {
        let same = |key: &str| versions.windows(2).all(|pair| pair[0].get(key) == pair[1].get(key));
        Self {
            schema: same("schema"),
            subresources: same("subresources"),
            columns: same("additionalPrinterColumns"),
            selectable_fields: same("selectableFields"),
        }
    }
}

fn validate_versions(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let common = Common::of(versions);
    let path = path.child("versions");
    let mut errors = Vec::new();
    for (index, version) in versions.iter().enumerate() {
        if view::schema(version).is_none() {
            errors.push(FieldError::required(&path.index(index).child("schema").child("openAPIV3Schema"), ""));
        }
    }
    for (index, version) in versions.iter().enumerate() {
        let path = path.index(index);
        let name = view::version_name(version);
        let wrong = text::dns1035_label(name);
        if !wrong.is_empty() {
            errors.push(FieldError::invalid(&path.child("name"), name, wrong.join(",")));
        }
        errors.extend(version::validate_deprecation(version, &path.child("deprecationWarning")));
        if !common.schema
            && let Some(schema) = view::schema(version)
        {
            errors.extend(schema::validate(schema, version::has_status(version), &path.child("schema").child("openAPIV3Schema")));
        }
        if !common.subresources {
            errors.extend(version::validate_subresources(version, &path.child("subresources")));
        }
        if !common.columns {
            errors.extend(version::validate_columns(version, &path.child("additionalPrinterColumns")));
        }
        if !common.selectable_fields {
            errors.extend(version::validate_selectable_fields(version, &path.child("selectableFields")));
        }
    }
    let shown = shown_versions(versions);
    let all = |detail: &str| FieldError::new(FieldErrorKind::Invalid, &path, None, format!("{shown}: {detail}"));
    let names: Vec<&str> = versions.iter().map(view::version_name).collect();
    if names.iter().enumerate().any(|(index, name)| names[..index].contains(name)) {
        errors.push(all("must contain unique version names"));
    }
    if versions.iter().filter(|v| v["storage"] == true).count() != 1 {
        errors.push(all("must have exactly one version marked as storage version"));
    }
    // Internally the name of the first version is a member of its own.
    let first = names.first().copied().unwrap_or_default();
    let wrong = text::dns1035_label(first);
    if !first.is_empty() && !wrong.is_empty() {
        errors.push(FieldError::invalid(&FieldPath::new("spec.version"), first, wrong.join(",")));
    }
    errors
}

/// Versions as upstream shows them: its internal form with Go's names, without what all have in common.
fn shown_versions(versions: &[Value]) -> String {
    let one = |version: &Value| {
        format!(
            r#"{{"Name":{},"Served":{},"Storage":{},"Deprecated":{},"DeprecationWarning":{},"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,"SelectableFields":null}}"#,
            Value::from(view::version_name(version)),
            version["served"] == true,
            version["storage"] == true,
            version["deprecated"] == true,
            version["deprecationWarning"],
        )
    };
    format!("[{}]", versions.iter().map(one).collect::<Vec<_>>().join(","))
}

fn validate_common(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(first) = versions.first() else { return Vec::new() };
    let common = Common::of(versions);
    let mut errors = Vec::new();
    if common.schema
        && let Some(schema) = view::schema(first)
    {
        let any_status = versions.iter().any(version::has_status);
        errors.extend(schema::validate(schema, any_status, &path.child("validation").child("openAPIV3Schema")));
    }
    if common.subresources {
        errors.extend(version::validate_subresources(first, &path.child("subresources")));
    }
    if common.columns {
        errors.extend(version::validate_columns(first, &path.child("additionalPrinterColumns")));
    }
    if common.selectable_fields {
        errors.extend(version::validate_selectable_fields(first, &path.child("selectableFields")));
    }
    errors
}

/// Texts for the Warning header: formats that nobody checks, sets that nobody can merge.
pub fn warnings(crd: &Value) -> Vec<String> {
    let mut formats = Vec::new();
    let mut sets = std::collections::BTreeSet::new();
    for schema in view::versions(crd).iter().filter_map(view::schema) {
        schema::warnings(schema, &mut formats, &mut sets);
    }
    formats.into_iter().chain(sets).collect()
}

/// `NotSupported` with the supported values in the order given.
fn not_supported(path: &FieldPath, value: &str, supported: &[&str]) -> FieldError {
    let listed: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
    let detail = format!("supported values: {}", listed.join(", "));
    FieldError::new(FieldErrorKind::NotSupported, path, Some(Value::from(value)), detail)
}

#[cfg(test)]
mod tests;
