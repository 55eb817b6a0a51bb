//! Annotations that once were fields, and must still make sense.

use super::super::super::field::{Errors, Field};
use super::paths::descending;
use super::{all_containers, is_mirror, scheduling};
use serde_json::Value;

const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const MIRROR: &str = "kubernetes.io/config.mirror";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

pub(super) fn validate(annotations: &Field<'_>, spec: &Value, errors: &mut Errors) {
    for (key, note) in annotations.entries() {
        match key {
            MIRROR if spec["nodeName"].as_str().unwrap_or_default().is_empty() => {
                errors.add(note.invalid("must set spec.nodeName if mirror pod annotation is set"));
            }
            TOLERATIONS if !note.is_zero() => validate_toleration_note(annotations, note.text(), errors),
            DELETION_COST if !is_deletion_cost(note.text()) => errors.add(note.invalid("must be a 32bit integer")),
            SECCOMP_POD => validate_seccomp(&annotations.at(key), errors),
            _ if key.starts_with(SECCOMP_CONTAINER) => validate_seccomp(&annotations.at(key), errors),
            _ if key.starts_with(APP_ARMOR) => validate_app_armor(&note, key, spec, errors),
            _ => {}
        }
    }
}

fn validate_toleration_note(annotations: &Field<'_>, text: &str, errors: &mut Errors) {
    match serde_json::from_str::<Value>(text) {
        Ok(list) => scheduling::validate_tolerations(&Field::new(&list, annotations.path.child(TOLERATIONS)), errors),
        Err(why) => errors.add(annotations.invalid_as(TOLERATIONS, why.to_string())),
    }
}

/// A 32 bit number without plus sign or leading zeros.
fn is_deletion_cost(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = digits == "0" || digits.starts_with(|c: char| ('1'..='9').contains(&c));
    plain && text.parse::<i32>().is_ok()
}

fn validate_seccomp(note: &Field<'_>, errors: &mut Errors) {
    match note.text() {
        "runtime/default" | "docker/default" | "unconfined" => {}
        text => match text.strip_prefix("localhost/") {
            Some(path) => {
                let path = Value::String(path.to_string());
                descending(&Field::new(&path, note.path.clone()), errors);
            }
            None => errors.add(note.invalid("must be a valid seccomp profile")),
        },
    }
}

fn validate_app_armor(note: &Field<'_>, key: &str, spec: &Value, errors: &mut Errors) {
    let container = key.strip_prefix(APP_ARMOR).unwrap_or_default();
    let spec = Field::root(spec);
    if !all_containers(&spec).iter().any(|c| c.at("name").text() == container) {
        errors.add(note.invalid_as(container, "container not found"));
    }
    let text = note.text();
    if !matches!(text, "" | "runtime/default" | "unconfined") && !text.starts_with("localhost/") {
        errors.add(note.invalid(format!("invalid AppArmor profile name: {text:?}")));
    }
}

/// Annotations and the fields that replaced them say the same.
pub(super) fn validate_fields_match(annotations: &Value, spec: &Field<'_>, errors: &mut Errors) {
    let pod_profile = spec.at("securityContext").at("seccompProfile");
    if let Some(note) = annotations[SECCOMP_POD].as_str() {
        matches(&pod_profile, note, "seccomp", errors);
    }
    for container in all_containers(spec) {
        let key = format!("{SECCOMP_CONTAINER}{}", container.at("name").text());
        if let Some(note) = annotations[key.as_str()].as_str() {
            matches(&container.at("securityContext").at("seccompProfile"), note, "seccomp", errors);
        }
    }
    if spec.at("os").at("name").text() == "windows" {
        return;
    }
    for container in all_containers(spec) {
        let key = format!("{APP_ARMOR}{}", container.at("name").text());
        let own = container.at("securityContext").at("appArmorProfile");
        let pod = spec.at("securityContext").at("appArmorProfile");
        let profile = if own.is_set() { own.clone() } else { Field::new(pod.value, own.path.clone()) };
        if let Some(note) = annotations[key.as_str()].as_str() {
            matches(&profile, note, "apparmor", errors);
        }
    }
}

fn matches(profile: &Field<'_>, note: &str, word: &str, errors: &mut Errors) {
    let same_type = match profile.at("type").text() {
        "Unconfined" => note == "unconfined",
        "RuntimeDefault" => note == "runtime/default" || (word == "seccomp" && note == "docker/default"),
        "Localhost" => note.starts_with("localhost/"),
        _ => return,
    };
    if !same_type {
        errors.add(profile.at("type").forbidden(format!("{word} type in annotation and field must match")));
    } else if profile.at("type").text() == "Localhost" && note.strip_prefix("localhost/") != Some(profile.at("localhostProfile").text()) {
        errors.add(profile.at("localhostProfile").forbidden(format!("{word} profile in annotation and field must match")));
    }
}

/// Some annotations stay as they were when the pod was made.
pub(super) fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    let root = Field::root(new);
    let (notes, before) = (root.at("metadata").at("annotations"), &old["metadata"]["annotations"]);
    for (key, value) in before.as_object().into_iter().flatten() {
        let path = Field::new(value, notes.path.key(key));
        if notes.value.get(key) == Some(value) {
            continue;
        }
        if key.starts_with(APP_ARMOR) {
            errors.add(path.forbidden("may not remove or update AppArmor annotations"));
        }
        if key == MIRROR {
            errors.add(path.forbidden("may not remove or update mirror pod annotation"));
        }
    }
    for (key, note) in notes.entries().filter(|(key, _)| before.get(*key).is_none()) {
        if key.starts_with(APP_ARMOR) {
            errors.add(note.forbidden("may not add AppArmor annotations"));
        }
        if key == MIRROR && is_mirror(new) {
            errors.add(note.forbidden("may not add mirror pod annotation"));
        }
    }
}
