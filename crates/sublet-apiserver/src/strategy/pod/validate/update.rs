//! What may change on a pod: little.

use super::super::super::edit::{copy_or_remove, is_zero, items};
use super::super::super::field::{Errors, Field, diff, range};
use super::{annotations, is_mirror};
use serde_json::Value;
use sublet_machinery::{FieldError, FieldPath};

const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
                         `spec.tolerations` (only additions to existing tolerations),\
                         `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(crate) fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    Errors::of(|errors| {
        annotations::validate_update(new, old, errors);
        let (spec, before) = (Field::root(new).at("spec"), Field::root(old).at("spec"));
        for list in ["containers", "initContainers"] {
            if spec.at(list).len() != before.at(list).len() {
                return errors.add(spec.at(list).forbidden("pod updates may not add or remove containers"));
            }
        }
        if !validate_deadline(&spec.at("activeDeadlineSeconds"), before.value["activeDeadlineSeconds"].as_i64(), errors) {
            return;
        }
        validate_tolerations(&spec.at("tolerations"), before.at("tolerations").list(), errors);
        validate_gates(&spec.at("schedulingGates"), before.at("schedulingGates").list(), errors);
        if spec.value == before.value {
            return;
        }
        let mut munged = spec.value.clone();
        munge(&mut munged, before.value);
        if !before.at("schedulingGates").is_zero() {
            munge_gated(&mut munged, &spec, before.value, errors);
        }
        if munged != *before.value {
            let detail = format!("pod updates may not change fields other than {UPDATABLE}\n{}", diff(before.value, &munged));
            errors.add(spec.forbidden(detail));
        }
    })
}

/// A deadline may be set and shortened. False when nothing else is worth looking at.
fn validate_deadline(deadline: &Field<'_>, old: Option<i64>, errors: &mut Errors) -> bool {
    let Some(seconds) = deadline.value.as_i64() else {
        if old.is_some() {
            errors.add(deadline.invalid_as(Value::Null, "must not update from a positive integer to nil value"));
        }
        return true;
    };
    if !(0..=i64::from(i32::MAX)).contains(&seconds) {
        errors.add(deadline.invalid(range(0, i64::from(i32::MAX))));
        return false;
    }
    if old.is_some_and(|old| old < seconds) {
        errors.add(deadline.invalid("must be less than or equal to previous value"));
        return false;
    }
    true
}

fn validate_tolerations(new: &Field<'_>, old: &[Value], errors: &mut Errors) {
    let without_time = |toleration: &Value| {
        let mut copy = toleration.clone();
        if let Some(map) = copy.as_object_mut() {
            map.remove("tolerationSeconds");
        }
        copy
    };
    let kept = |old: &Value| new.list().iter().any(|n| without_time(n) == without_time(old));
    if !old.iter().all(kept) {
        errors.add(new.forbidden("existing toleration can not be modified except its tolerationSeconds"));
    }
}

fn validate_gates(new: &Field<'_>, old: &[Value], errors: &mut Errors) {
    for gate in new.items().map(|g| g.at("name")) {
        if !old.iter().any(|o| o["name"] == *gate.value) {
            errors.add(gate.forbidden(format!("only deletion is allowed, but found new scheduling gate '{}'", gate.text())));
        }
    }
}

/// Takes back what may change, so that the rest can be compared.
fn munge(spec: &mut Value, old: &Value) {
    for list in ["containers", "initContainers"] {
        let before = old[list].as_array().map_or(&[][..], Vec::as_slice);
        for (container, before) in items(spec, list).zip(before) {
            copy_or_remove(container, before, "image");
        }
    }
    for key in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        copy_or_remove(spec, old, key);
    }
    if old["terminationGracePeriodSeconds"].as_i64().is_some_and(|s| s < 0) && spec["terminationGracePeriodSeconds"] == 1 {
        copy_or_remove(spec, old, "terminationGracePeriodSeconds");
    }
}

/// While gated, node selection may be narrowed.
fn munge_gated(munged: &mut Value, spec: &Field<'_>, old: &Value, errors: &mut Errors) {
    let selector = spec.at("nodeSelector");
    let kept = |(key, value): (&String, &Value)| selector.value.get(key) == Some(value);
    if !old["nodeSelector"].as_object().is_none_or(|o| o.iter().all(kept)) {
        errors.add(selector.invalid("only additions to spec.nodeSelector are allowed (no mutations or deletions)"));
    }
    copy_or_remove(munged, old, "nodeSelector");
    let affinity = spec.at("affinity").at("nodeAffinity");
    let before = &old["affinity"]["nodeAffinity"];
    if affinity.value == before {
        return;
    }
    validate_affinity_additions(&affinity, before, errors);
    if before.is_null() {
        if let Some(map) = munged["affinity"].as_object_mut() {
            map.remove("nodeAffinity");
        }
        if is_zero(&munged["affinity"]) && old["affinity"].is_null() {
            copy_or_remove(munged, old, "affinity");
        }
    } else {
        munged["affinity"]["nodeAffinity"] = before.clone();
    }
}

fn validate_affinity_additions(new: &Field<'_>, old: &Value, errors: &mut Errors) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let terms = new.at(REQUIRED).at("nodeSelectorTerms");
    let before = old[REQUIRED]["nodeSelectorTerms"].as_array().map_or(&[][..], Vec::as_slice);
    if old[REQUIRED].is_null() {
        return;
    }
    if !before.is_empty() && before.len() != terms.len() {
        return errors.add(terms.invalid("no additions/deletions to non-empty NodeSelectorTerms list are allowed"));
    }
    for (term, before) in terms.items().zip(before) {
        let grows = |key: &str| {
            let old = before[key].as_array().map_or(&[][..], Vec::as_slice);
            term.at(key).list().starts_with(old)
        };
        let was_empty = is_zero(&before["matchExpressions"]) && is_zero(&before["matchFields"]);
        let is_empty = term.at("matchExpressions").is_zero() && term.at("matchFields").is_zero();
        if (was_empty && !is_empty) || !grows("matchExpressions") || !grows("matchFields") {
            errors.add(term.invalid("only additions are allowed (no mutations or deletions)"));
        }
    }
}

/// Ephemeral containers can be added, never changed or taken away.
pub(crate) fn validate_ephemeral_update(new: &Value, old: &Value) -> Vec<FieldError> {
    if is_mirror(old) {
        return vec![FieldError::forbidden(&FieldPath::root(), "static pods do not support ephemeral containers")];
    }
    Errors::of(|errors| {
        annotations::validate_update(new, old, errors);
        let list = Field::root(new).at("spec").at("ephemeralContainers");
        for before in old["spec"]["ephemeralContainers"].as_array().into_iter().flatten() {
            let name = before["name"].as_str().unwrap_or_default();
            match list.list().iter().find(|c| c["name"] == name) {
                None => errors.add(list.forbidden(format!("existing ephemeral containers {name:?} may not be removed\n"))),
                Some(now) if now != before => {
                    let detail = format!("existing ephemeral containers {name:?} may not be changed\n{}", diff(before, now));
                    errors.add(list.forbidden(detail));
                }
                Some(_) => {}
            }
        }
    })
}
