//! Rules for persistent volumes, and for changes of claims.

use super::super::edit::{copy_or_remove, is_zero, remove};
use super::super::field::{Errors, Field, diff};
use super::super::pod::validate::resources::validate_quantity;
use super::super::pod::validate::{VolumeKind, node_selector, validate_sources};
use super::super::pod::warnings;
use super::volume::validate_access_modes;
use serde_json::{Value, json};
use sublet_machinery::{FieldError, FieldErrorKind, FieldPath, ObjectExt, Quantity, names};

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) fn validate(volume: &Value) -> Vec<FieldError> {
    let spec = Field::root(volume).at("spec");
    Errors::of(|errors| {
        validate_access_modes(&spec, "", errors);
        validate_capacity(&spec.at("capacity"), errors);
        errors.one_of(&spec.at("persistentVolumeReclaimPolicy"), &["Delete", "Recycle", "Retain"]);
        let affinity = spec.at("nodeAffinity");
        if affinity.is_set() {
            if affinity.at("required").is_set() {
                node_selector::validate(&affinity.at("required"), errors);
            } else {
                errors.add(affinity.at("required").required("must specify required node constraints"));
            }
        }
        validate_sources(&spec, VolumeKind::Persistent { name: volume.name() }, errors);
        let policy = spec.at("persistentVolumeReclaimPolicy");
        let root_path = spec.at("hostPath").at("path").text().split('/').all(|part| part.is_empty() || part == ".");
        if spec.at("hostPath").is_set() && root_path && !spec.at("hostPath").at("path").is_zero() && policy.text() == "Recycle" {
            errors.add(policy.forbidden("may not be 'recycle' for a hostPath mount of '/'"));
        }
        if !spec.at("storageClassName").is_zero() {
            errors.dns_subdomain(&spec.at("storageClassName"));
        }
        errors.one_of_if_set(&spec.at("volumeMode"), &["Block", "Filesystem"]);
        let class = spec.at("volumeAttributesClassName");
        if class.is_set() {
            if class.is_zero() {
                errors.add(class.required("an empty string is disallowed"));
            } else {
                errors.dns_subdomain(&class);
            }
            if !spec.at("csi").is_set() {
                errors.add(spec.at("csi").required("has to be specified when using volumeAttributesClassName"));
            }
        }
    })
}

fn validate_capacity(capacity: &Field<'_>, errors: &mut Errors) {
    if capacity.is_zero() {
        errors.add(capacity.required(""));
    }
    if capacity.value.get("storage").is_none() || capacity.len() > 1 {
        let shown = capacity.value.clone();
        errors.add(FieldError::new(FieldErrorKind::NotSupported, &capacity.path, Some(shown), "supported values: \"storage\""));
    }
    for (_, amount) in capacity.entries() {
        let quantity = amount.quantity();
        if quantity.sign() < 0 {
            errors.add(amount.invalid_as(quantity.value(), "must be a valid resource quantity"));
        }
        if quantity.sign() <= 0 {
            errors.add(amount.invalid_as(quantity.to_string(), "must be greater than zero"));
        }
    }
}

/// Fields of a spec that are not its source.
const NOT_SOURCES: [&str; 9] = [
    "capacity",
    "accessModes",
    "claimRef",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "mountOptions",
    "volumeMode",
    "nodeAffinity",
    "volumeAttributesClassName",
];

pub(super) fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let source = |spec: &Value| -> Value {
        let mut copy = spec.clone();
        NOT_SOURCES.iter().for_each(|key| drop(remove(&mut copy, key)));
        copy
    };
    let (mut now, before) = (source(&new["spec"]), source(&old["spec"]));
    if before["csi"].is_object() && before["csi"]["controllerExpandSecretRef"].is_null() && now["csi"].is_object() {
        remove(&mut now["csi"], "controllerExpandSecretRef");
    }
    let spec = Field::root(new).at("spec");
    Errors::of(|errors| {
        if now != before {
            let detail = format!("spec.persistentvolumesource is immutable after creation\n{}", diff(&before, &now));
            errors.add(FieldError::forbidden(&FieldPath::new("spec.persistentvolumesource"), detail));
        }
        errors.immutable(&Field::new(spec.at("volumeMode").value, FieldPath::new("volumeMode")), &old["spec"]["volumeMode"]);
        let affinity = &old["spec"]["nodeAffinity"];
        if !affinity.is_null() && !same_but_renamed(spec.at("nodeAffinity").value, affinity) {
            let place = Field::new(spec.at("nodeAffinity").value, FieldPath::new("nodeAffinity"));
            errors.add(place.invalid("field is immutable, except for updating from beta label to GA"));
        }
        if !old["spec"]["volumeAttributesClassName"].is_null() && !spec.at("volumeAttributesClassName").is_set() {
            errors.add(spec.at("volumeAttributesClassName").forbidden("update from non-nil value to nil is forbidden"));
        }
    })
}

/// Equal, where old names of node labels may have become the new ones.
fn same_but_renamed(new: &Value, old: &Value) -> bool {
    const RENAMED: [(&str, &str); 5] = [
        ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
        ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
        ("beta.kubernetes.io/os", "kubernetes.io/os"),
        ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
        ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
    ];
    match (new, old) {
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(key, value)| match (key.as_str(), b.get(key)) {
                    ("key", Some(before)) => value == before || RENAMED.iter().any(|(beta, stable)| before == beta && value == stable),
                    (_, Some(before)) => same_but_renamed(value, before),
                    (_, None) => false,
                })
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(x, y)| same_but_renamed(x, y)),
        (a, b) => a == b,
    }
}

pub(super) fn warnings(volume: &Value) -> Vec<String> {
    let root = Field::root(volume);
    let spec = root.at("spec");
    let mut all = Vec::new();
    for (key, message) in [
        (CLASS_ANNOTATION, "deprecated since v1.8; use \"storageClassName\" attribute instead"),
        ("volume.beta.kubernetes.io/mount-options", "deprecated since v1.31; use \"mountOptions\" attribute instead"),
    ] {
        if volume.annotation(key).is_some() {
            all.push(format!("metadata.annotations[{key}]: {message}"));
        }
    }
    if spec.at("persistentVolumeReclaimPolicy").text() == "Recycle" {
        all.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning."
                .into(),
        );
    }
    for term in spec.at("nodeAffinity").at("required").at("nodeSelectorTerms").items() {
        warnings::node_selector_term(&term, &mut all);
    }
    let mut sources = Vec::new();
    warnings::volume_sources(&spec, &mut sources);
    all.extend(sources.into_iter().filter(|w| !w.contains("flocker") && !w.contains("quobyte")));
    all
}

/// A bound claim may ask for more space and another class of attributes; nothing else changes.
pub(super) fn validate_claim_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let spec = Field::root(new).at("spec");
    let (mut now, mut before) = (new["spec"].clone(), old["spec"].clone());
    if is_zero(&before["volumeName"]) {
        copy_or_remove(&mut before, &new["spec"], "volumeName");
    }
    Errors::of(|errors| {
        let (class, old_class) = (&new["spec"]["storageClassName"], &old["spec"]["storageClassName"]);
        let note = old.annotation(CLASS_ANNOTATION);
        let new_note = new.annotation(CLASS_ANNOTATION);
        let from_note = note.is_some() && old_class.is_null() && class.as_str() == note && new_note.is_none_or(|n| Some(n) == note);
        if !from_note && note != new_note {
            let path = FieldPath::new("metadata.annotations").child(CLASS_ANNOTATION);
            errors.add(FieldError::invalid(&path, new_note.unwrap_or_default(), "field is immutable"));
        }
        let from_nothing = old_class.is_null() && class.is_string() && note.is_none_or(|n| class == n);
        if from_note || from_nothing {
            copy_or_remove(&mut now, &before, "storageClassName");
        }
        let bound = new["status"]["phase"] == "Bound";
        if bound {
            copy_or_remove(&mut now, &before, "volumeAttributesClassName");
            if now["resources"]["requests"].is_object() {
                now["resources"]["requests"]["storage"] = before["resources"]["requests"]["storage"].clone();
            }
        }
        if now != before {
            let detail = format!(
                "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{}",
                diff(&before, &now)
            );
            errors.add(spec.forbidden(detail));
        }
        let size = |value: &Value| Quantity::from_json(value).unwrap_or_default();
        let wanted = size(&new["spec"]["resources"]["requests"]["storage"]);
        let path = FieldPath::new("spec.resources.requests.storage");
        if wanted < size(&old["spec"]["resources"]["requests"]["storage"]) && wanted <= size(&old["status"]["capacity"]["storage"]) {
            errors.add(FieldError::forbidden(&path, "field can not be less than status.capacity"));
        }
        errors.immutable(&Field::new(spec.at("volumeMode").value, FieldPath::new("volumeMode")), &old["spec"]["volumeMode"]);
        let attributes = spec.at("volumeAttributesClassName");
        if *attributes.value != old["spec"]["volumeAttributesClassName"] && !old["status"]["currentVolumeAttributesClassName"].is_null() {
            let word = if attributes.is_set() { "empty string" } else { "nil" };
            if attributes.is_zero() {
                errors.add(
                    attributes.forbidden(format!("update to {word} is forbidden when status.currentVolumeAttributesClassName is not nil")),
                );
            }
        }
    })
}

pub(super) fn validate_claim_status(new: &Value, _: &Value) -> Vec<FieldError> {
    const STATES: [&str; 5] =
        ["ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress", "NodeResizeInfeasible", "NodeResizePending"];
    let status = Field::root(new).at("status");
    let known = |name: &str, place: &Field<'_>, errors: &mut Errors| {
        let wrong = names::qualified_name(name);
        let native = !name.contains('/') || name.contains("kubernetes.io/");
        if wrong.is_empty() && native && name != "storage" {
            let shown = json!(name);
            errors.add(Field::new(&shown, place.path.clone()).unsupported(&["storage"]));
        }
        errors.extend(wrong.into_iter().map(|m| place.invalid_as(name, m)));
    };
    Errors::of(|errors| {
        for (_, amount) in status.at("capacity").entries() {
            if amount.quantity().sign() < 0 {
                errors.add(amount.invalid_as(amount.quantity().value(), "must be a valid resource quantity"));
            }
        }
        let states = status.at("allocatedResourceStatuses");
        for (name, state) in states.entries() {
            known(name, &states, errors);
            if !STATES.contains(&state.text()) {
                let shown = json!(name);
                errors.add(Field::new(&shown, states.path.clone()).unsupported(&STATES));
            }
        }
        let allocated = status.at("allocatedResources");
        for (name, amount) in allocated.entries() {
            known(name, &allocated, errors);
            validate_quantity("storage", &amount, errors);
        }
    })
}

pub(super) fn claim_warnings(claim: &Value) -> Vec<String> {
    let mut all = Vec::new();
    if claim.annotation(CLASS_ANNOTATION).is_some() {
        let message = "deprecated since v1.8; use \"storageClassName\" attribute instead";
        all.push(format!("metadata.annotations[{CLASS_ANNOTATION}]: {message}"));
    }
    warnings::claim_spec(&Field::root(claim).at("spec"), &mut all);
    all
}
