//! Resource claims of a pod, and their use by containers.

use super::super::super::field::{Errors, Field, Seen};
use super::is_mirror;
use serde_json::Value;
use std::collections::BTreeSet;
use sublet_machinery::{FieldError, FieldPath};

/// Checks the claims and returns their names.
pub(super) fn validate(claims: &Field<'_>, pod: Option<&Value>, errors: &mut Errors) -> BTreeSet<String> {
    let mut seen = Seen::default();
    for claim in claims.items() {
        if pod.is_some_and(is_mirror) {
            errors.add(FieldError::forbidden(&FieldPath::root(), "static pods do not support resource claims"));
            continue;
        }
        let name = claim.at("name");
        if errors.require(&name) {
            if seen.again(name.text()) {
                errors.add(name.duplicate());
            } else {
                errors.dns_label(&name);
            }
        }
        let (direct, template) = (claim.at("resourceClaimName"), claim.at("resourceClaimTemplateName"));
        match (direct.is_set(), template.is_set()) {
            (true, true) => {
                errors.add(claim.invalid("at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"));
            }
            (false, false) => {
                errors.add(claim.invalid("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"));
            }
            _ => {}
        }
        for reference in [direct, template] {
            if reference.is_set() {
                errors.dns_subdomain(&reference);
            }
        }
    }
    claims.items().map(|c| c.at("name").text().to_string()).filter(|n| !n.is_empty()).collect()
}

/// The claims a container uses are among those of the pod.
pub(super) fn validate_use(used: &Field<'_>, known: &BTreeSet<String>, errors: &mut Errors) {
    let mut names: BTreeSet<String> = BTreeSet::new();
    for claim in used.items() {
        let (name, request) = (claim.at("name").text(), claim.at("request"));
        if name.is_empty() {
            errors.add(claim.required(""));
            continue;
        }
        if names.contains(name) {
            errors.add(FieldError::duplicate(&claim.path, name));
        } else {
            let mut key = name.to_string();
            if !request.is_zero() {
                errors.dns_label(&request);
                key = format!("{name}/{}", request.text());
            }
            if names.contains(&key) {
                errors.add(FieldError::duplicate(&claim.path, key.as_str()));
            } else if request.is_zero() {
                let parts = names.iter().filter(|other| other.split_once('/').is_some_and(|(head, _)| head == name)).count();
                errors.extend((0..parts).map(|_| FieldError::duplicate(&claim.path, name)));
            }
            names.insert(key);
        }
        if !known.contains(name) {
            let mut error = FieldError::not_found(&claim.path, name);
            error.detail = if known.is_empty() {
                "must be one of the names in pod.spec.resourceClaims which is empty".into()
            } else {
                let list: Vec<&str> = known.iter().map(String::as_str).collect();
                format!("must be one of the names in pod.spec.resourceClaims: {}", list.join(", "))
            };
            errors.add(error);
        }
    }
}
