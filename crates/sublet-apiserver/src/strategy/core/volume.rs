//! Persistent volumes and claims.

use super::super::edit::{copy_or_remove, ensure, fill, fill_zero, is_zero, now, remove};
use super::super::pod::volumes::{default_claim_spec, default_source};
use super::super::quantities::round_up_list;
use super::super::status::keep_spec;
use super::super::{Strategy, keep_status};
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

pub(crate) const PERSISTENT_VOLUME: Strategy = Strategy {
    default: default_volume,
    prepare_create: prepare_volume,
    prepare_update: keep_status,
    prepare_status_update: prepare_volume_status,
    fields: name_field,
    ..Strategy::PLAIN
};

pub(crate) const PERSISTENT_VOLUME_CLAIM: Strategy = Strategy {
    default: default_claim,
    prepare_create: prepare_claim,
    prepare_update: prepare_claim_update,
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
