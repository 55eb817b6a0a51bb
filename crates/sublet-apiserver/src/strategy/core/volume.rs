//! Persistent volumes and claims.

use super::super::edit::{copy_or_remove, ensure, fill, fill_zero, is_zero, now, remove};
use super::super::field::{Errors, Field};
use super::super::pod::volumes::{default_claim_spec, default_source};
use super::super::quantities::round_up_list;
use super::super::status::keep_spec;
use super::super::{Strategy, keep_status};
use super::volume_rules;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

pub(crate) const PERSISTENT_VOLUME: Strategy = Strategy {
    default: default_volume,
    prepare_create: prepare_volume,
    prepare_update: keep_status,
    prepare_status_update: prepare_volume_status,
    validate: volume_rules::validate,
    validate_update: volume_rules::validate_update,
    warnings: volume_rules::warnings,
    fields: name_field,
    ..Strategy::PLAIN
};

pub(crate) const PERSISTENT_VOLUME_CLAIM: Strategy = Strategy {
    default: default_claim,
    prepare_create: prepare_claim,
    prepare_update: prepare_claim_update,
    validate: |claim| Errors::of(|errors| validate_claim_spec(&Field::root(claim).at("spec"), errors)),
    validate_update: volume_rules::validate_claim_update,
    validate_status_update: volume_rules::validate_claim_status,
    warnings: volume_rules::claim_warnings,
    prepare_status_update: keep_spec,
    fields: name_field,
    ..Strategy::PLAIN
};

fn default_volume(volume: &mut Value) {
    fill_zero(ensure(volume, "status"), "phase", "Pending");
    let spec = ensure(volume, "spec");
    fill_zero(spec, "persistentVolumeReclaimPolicy", "Retain");
    fill(spec, "volumeMode", "Filesystem");
    round_up_list(spec, "capacity");
    default_source(spec);
}

fn prepare_volume(volume: &mut Value) {
    volume["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": now()});
}

/// The time of the last change of phase is the server's when the client gives none of its own.
fn prepare_volume_status(new: &mut Value, old: &Value) {
    keep_spec(new, old);
    let (status, before) = (ensure(new, "status"), &old["status"]);
    let unset = status["lastPhaseTransitionTime"].is_null();
    if status["phase"] == before["phase"] {
        if unset {
            copy_or_remove(status, before, "lastPhaseTransitionTime");
        }
    } else if unset || status["lastPhaseTransitionTime"] == before["lastPhaseTransitionTime"] {
        status["lastPhaseTransitionTime"] = json!(now());
    }
}

pub(crate) fn default_claim(claim: &mut Value) {
    fill_zero(ensure(claim, "status"), "phase", "Pending");
    default_claim_spec(ensure(claim, "spec"));
    let status = ensure(claim, "status");
    round_up_list(status, "capacity");
    round_up_list(status, "allocatedResources");
}

fn prepare_claim(claim: &mut Value) {
    claim["status"] = json!({"phase": "Pending"});
    sync_data_sources(ensure(claim, "spec"), &Value::Null);
}

fn prepare_claim_update(new: &mut Value, old: &Value) {
    keep_status(new, old);
    sync_data_sources(ensure(new, "spec"), &old["spec"]);
}

/// `dataSource` and `dataSourceRef` say the same; what the old field may not name is dropped from it
/// (as in api/persistentvolumeclaim/util.go). A reference into another namespace needs a gate that is off.
fn sync_data_sources(spec: &mut Value, old: &Value) {
    if !is_zero(&spec["dataSourceRef"]["namespace"]) && is_zero(&old["dataSourceRef"]) {
        remove(spec, "dataSourceRef");
    }
    let in_use = |s: &Value| !s["dataSource"].is_null() || !s["dataSourceRef"].is_null();
    if !in_use(old) && spec["dataSourceRef"].is_null() && !is_claim_or_snapshot(&spec["dataSource"]) {
        remove(spec, "dataSource");
    }
    if spec["dataSource"].is_object() && spec["dataSourceRef"].is_null() {
        fill(&mut spec["dataSource"], "apiGroup", Value::Null);
        spec["dataSourceRef"] = spec["dataSource"].clone();
    } else if spec["dataSourceRef"].is_object() && is_zero(&spec["dataSourceRef"]["namespace"]) && spec["dataSource"].is_null() {
        let mut source = spec["dataSourceRef"].clone();
        remove(&mut source, "namespace");
        fill(&mut source, "apiGroup", Value::Null);
        spec["dataSource"] = source;
    }
}

fn is_claim_or_snapshot(source: &Value) -> bool {
    (source["kind"] == "PersistentVolumeClaim" && is_zero(&source["apiGroup"]))
        || (source["kind"] == "VolumeSnapshot" && source["apiGroup"] == "snapshot.storage.k8s.io")
}

/// The rules of a claim's spec, also inside pods.
pub(crate) fn validate_claim_spec(spec: &Field<'_>, errors: &mut Errors) {
    validate_access_modes(spec, "at least 1 access mode is required", errors);
    errors.label_selector(&spec.at("selector"));
    let storage = Field::new(&spec.value["resources"]["requests"]["storage"], spec.at("resources").path.key("storage"));
    if !storage.is_set() {
        errors.add(storage.required(""));
    } else if storage.quantity().sign() <= 0 {
        errors.add(storage.invalid_as(storage.quantity().to_string(), "must be greater than zero"));
    }
    if !spec.at("storageClassName").is_zero() {
        errors.dns_subdomain(&spec.at("storageClassName"));
    }
    errors.one_of_if_set(&spec.at("volumeMode"), &["Block", "Filesystem"]);
    for key in ["dataSource", "dataSourceRef"] {
        validate_data_source(&spec.at(key), errors);
    }
    let (source, reference) = (spec.at("dataSource"), spec.at("dataSourceRef"));
    if !reference.at("namespace").is_zero() {
        errors.dns_label(&reference.at("namespace"));
        if source.is_set() {
            errors.add(spec.invalid_as(json!({}), "may not be specified when dataSourceRef.namespace is specified"));
        }
    } else if source.is_set() && reference.is_set() {
        let same = |key: &str| source.at(key).value == reference.at(key).value || (source.at(key).is_zero() && reference.at(key).is_zero());
        if !["apiGroup", "kind", "name"].into_iter().all(same) {
            errors.add(spec.invalid_as(json!({}), "must match dataSourceRef"));
        }
    }
    if !spec.at("volumeAttributesClassName").is_zero() {
        errors.dns_subdomain(&spec.at("volumeAttributesClassName"));
    }
}

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

pub(super) fn validate_access_modes(spec: &Field<'_>, missing: &str, errors: &mut Errors) {
    let modes = spec.at("accessModes");
    if modes.is_zero() {
        errors.add(modes.required(missing));
    }
    for mode in modes.items() {
        errors.one_of(&Field::new(mode.value, modes.path.clone()), &ACCESS_MODES);
    }
    let once = modes.list().iter().any(|m| m == "ReadWriteOncePod");
    let other = modes.list().iter().any(|m| m != "ReadWriteOncePod" && ACCESS_MODES.iter().any(|known| m == known));
    if once && other {
        errors.add(modes.forbidden("may not use ReadWriteOncePod with other access modes"));
    }
}

fn validate_data_source(source: &Field<'_>, errors: &mut Errors) {
    if !source.is_set() {
        return;
    }
    errors.require_all(source, &["name", "kind"]);
    let (group, kind) = (source.at("apiGroup"), source.at("kind"));
    if group.is_zero() && kind.text() != "PersistentVolumeClaim" {
        errors.add(source.invalid_as(kind.text(), "must be 'PersistentVolumeClaim' when referencing the default apiGroup"));
    }
    if !group.is_zero() {
        errors.dns_subdomain(&group);
    }
}

fn name_field(object: &Value) -> Vec<(&'static str, String)> {
    vec![("name", object.name().into())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_data_sources_say_the_same() {
        let mut claim = json!({"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "a"}}});
        prepare_claim(&mut claim);
        assert_eq!(claim["spec"]["dataSourceRef"], claim["spec"]["dataSource"]);
        let mut claim = json!({"spec": {"dataSource": {"kind": "Pod", "name": "a"}}});
        prepare_claim(&mut claim);
        assert_eq!(claim["spec"], json!({}));
    }

    #[test]
    fn a_changed_phase_is_stamped() {
        let old = json!({"metadata": {}, "status": {"phase": "Pending", "lastPhaseTransitionTime": "2020-01-01T00:00:00Z"}});
        let mut new = json!({"metadata": {}, "status": {"phase": "Pending"}});
        prepare_volume_status(&mut new, &old);
        assert_eq!(new["status"]["lastPhaseTransitionTime"], "2020-01-01T00:00:00Z");
        new["status"]["phase"] = json!("Bound");
        prepare_volume_status(&mut new, &old);
        assert_ne!(new["status"]["lastPhaseTransitionTime"], "2020-01-01T00:00:00Z");
    }
}
