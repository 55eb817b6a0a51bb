//! Names, group and scope.

use super::super::view::{self, strings, text};
use super::not_supported;
use super::text::{dns1035_label, dns1123_subdomain};
use serde_json::Value;
use sublet_machinery::{FieldError, FieldPath, ObjectExt};

const APPROVED: &str = "api-approved.kubernetes.io";

pub(super) fn validate_name(crd: &Value) -> Vec<FieldError> {
    let expected = format!("{}.{}", text(&crd["spec"]["names"], "plural"), view::group(crd));
    let mut errors = Vec::new();
    for key in ["generateName", "name"] {
        let name = text(&crd["metadata"], key);
        if name != expected && !name.is_empty() {
            let detail = r#"must be spec.names.plural+"."+spec.group"#;
            errors.push(FieldError::invalid(&FieldPath::new("metadata").child(key), name, detail));
        }
    }
    errors.extend(validate_approval(crd, None));
    errors
}

pub(super) fn validate_group_and_scope(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let group = text(spec, "group");
    let wrong = dns1123_subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required(&path.child("group"), ""));
    } else if !wrong.is_empty() {
        errors.push(FieldError::invalid(&path.child("group"), group, wrong.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(&path.child("group"), group, "should be a domain with at least one dot"));
    }
    match text(spec, "scope") {
        "" => errors.push(FieldError::required(&path.child("scope"), "")),
        "Cluster" | "Namespaced" => {}
        other => errors.push(not_supported(&path.child("scope"), other, &["Cluster", "Namespaced"])),
    }
    errors
}

pub(super) fn validate_required(names: &Value, path: &FieldPath) -> Vec<FieldError> {
    let missing = ["plural", "singular", "kind", "listKind"].into_iter().filter(|key| text(names, key).is_empty());
    missing.map(|key| FieldError::required(&path.child(key), "")).collect()
}

/// Names of the spec, or those in force.
pub(super) fn validate(names: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for key in ["plural", "singular"] {
        let name = text(names, key);
        let wrong = dns1035_label(name);
        if !name.is_empty() && !wrong.is_empty() {
            errors.push(FieldError::invalid(&path.child(key), name, wrong.join(",")));
        }
    }
    for key in ["kind", "listKind"] {
        let name = text(names, key);
        let wrong = dns1035_label(&name.to_lowercase());
        if !name.is_empty() && !wrong.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
            errors.push(FieldError::invalid(&path.child(key), name, detail));
        }
    }
    let mut each = |key: &str| {
        for (index, name) in strings(&names[key]).iter().enumerate() {
            let wrong = dns1035_label(name);
            if !wrong.is_empty() {
                errors.push(FieldError::invalid(&path.child(key).index(index), name.as_str(), wrong.join(",")));
            }
        }
    };
    each("shortNames");
    each("categories");
    let (kind, list_kind) = (text(names, "kind"), text(names, "listKind"));
    if !kind.is_empty() && kind == list_kind {
        errors.push(FieldError::invalid(&path.child("listKind"), list_kind, "kind and listKind may not be the same"));
    }
    errors
}

/// Groups of the Kubernetes community, which are not for everybody.
pub(crate) fn is_protected_group(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"].iter().any(|owned| group == *owned || group.strip_suffix(owned).is_some_and(|g| g.ends_with('.')))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Approval {
    Approved,
    Bypassed,
    Missing,
    Invalid,
}

/// What the annotation about approval says, and the text for it.
pub(crate) fn approval_state(crd: &Value) -> (Approval, String) {
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let annotation = crd.annotation(APPROVED).unwrap_or_default();
    let has_host =
        annotation.split_once("://").is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.starts_with('/') && !rest.is_empty());
    if annotation.is_empty() {
        return (Approval::Missing, format!("protected groups must have approval annotation {APPROVED:?}, {SEE}"));
    }
    if annotation.starts_with("unapproved") {
        return (Approval::Bypassed, format!("not approved: {annotation:?}"));
    }
    if has_host {
        return (Approval::Approved, format!("approved in {annotation}"));
    }
    let detail = format!(
        "protected groups must have approval annotation {APPROVED:?} with either a URL or a reason starting with \"unapproved\", {SEE}"
    );
    (Approval::Invalid, detail)
}

/// On update an unchanged state is left alone.
pub(super) fn validate_approval(crd: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let (state, detail) = approval_state(crd);
    if !is_protected_group(view::group(crd)) || old.is_some_and(|old| approval_state(old).0 == state) {
        return Vec::new();
    }
    let path = FieldPath::new("metadata.annotations").key(APPROVED);
    match state {
        Approval::Approved | Approval::Bypassed => Vec::new(),
        Approval::Missing => vec![FieldError::required(&path, detail)],
        Approval::Invalid => vec![FieldError::invalid(&path, crd.annotation(APPROVED).unwrap_or_default(), detail)],
    }
}
