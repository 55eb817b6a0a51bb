//! The identity of a member: its name, its labels and its volumes.

use crate::kit::history::POD_LABEL;
use crate::kit::template;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// The parts of `NAME-ORDINAL`.
fn split(pod: &Value) -> Option<(&str, i64)> {
    let (parent, ordinal) = pod.name().rsplit_once('-')?;
    let is_number = !ordinal.is_empty() && ordinal.bytes().all(|b| b.is_ascii_digit());
    Some((parent, if is_number { i64::from(ordinal.parse::<i32>().ok()?) } else { return None }))
}

/// The name of the set that the pod's name belongs to; empty when it belongs to none.
pub(super) fn parent(pod: &Value) -> &str {
    split(pod).map_or("", |(parent, _)| parent)
}

pub(super) fn ordinal(pod: &Value) -> Option<i64> {
    split(pod).map(|(_, ordinal)| ordinal)
}

pub(super) fn claim_templates(set: &Value) -> &[Value] {
    set.array_at("/spec/volumeClaimTemplates")
}

pub(super) fn claim_name(set: &Value, claim_template: &Value, ordinal: i64) -> String {
    format!("{}-{}-{ordinal}", claim_template.name(), set.name())
}

/// A new member from the template of a revision.
pub(super) fn new_pod(set: &Value, pod_template: &Value, revision: &str, ordinal: i64) -> Value {
    let mut pod = template::pod(set, &super::STATEFUL_SET, pod_template);
    pod.remove_at("/metadata/generateName");
    pod["metadata"]["name"] = json!(format!("{}-{ordinal}", set.name()));
    take_identity(&mut pod);
    pod.set_label(POD_LABEL, revision);
    pod["spec"]["hostname"] = json!(pod.name());
    if let Some(service) = set.str_at("/spec/serviceName").filter(|s| !s.is_empty()) {
        pod["spec"]["subdomain"] = json!(service);
    }
    take_storage(set, &mut pod);
    pod
}

fn take_identity(pod: &mut Value) {
    let name = pod.name().to_string();
    pod.set_label(POD_NAME_LABEL, &name);
    pod.set_label(POD_INDEX_LABEL, &ordinal(pod).unwrap_or_default().to_string());
}

/// The volumes of the claim templates come first and take the place of others of their name.
fn take_storage(set: &Value, pod: &mut Value) {
    let Some(ordinal) = ordinal(pod) else { return };
    let templates = claim_templates(set);
    let mut volumes: Vec<Value> =
        templates.iter().map(|t| json!({"name": t.name(), "persistentVolumeClaim": {"claimName": claim_name(set, t, ordinal)}})).collect();
    let is_claimed = |volume: &&Value| templates.iter().any(|t| volume["name"] == t.name());
    volumes.extend(pod.array_at("/spec/volumes").iter().filter(|v| !is_claimed(v)).cloned());
    if !volumes.is_empty() {
        pod["spec"]["volumes"] = Value::Array(volumes);
    }
}

fn has_identity(pod: &Value) -> bool {
    pod.label(POD_NAME_LABEL) == Some(pod.name())
}

fn has_storage(set: &Value, pod: &Value) -> bool {
    let Some(ordinal) = ordinal(pod) else { return false };
    claim_templates(set).iter().all(|t| {
        let volume = pod.array_at("/spec/volumes").iter().find(|v| v["name"] == t.name());
        volume.is_some_and(|v| v.str_at("/persistentVolumeClaim/claimName") == Some(&claim_name(set, t, ordinal)))
    })
}

/// The pod with the identity that it lost; `None` when it has it all.
pub(super) fn repaired(set: &Value, pod: &Value) -> Option<Value> {
    if has_identity(pod) && has_storage(set, pod) {
        return None;
    }
    let mut pod = pod.clone();
    take_identity(&mut pod);
    if !has_storage(set, &pod) {
        take_storage(set, &mut pod);
    }
    Some(pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_carry_name_place_and_volumes() {
        let set = json!({
            "metadata": {"name": "db", "namespace": "n", "uid": "u"},
            "spec": {"serviceName": "svc", "volumeClaimTemplates": [{"metadata": {"name": "data"}}]},
        });
        let pod_template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]}});
        let pod = new_pod(&set, &pod_template, "db-hash", 3);
        assert_eq!(pod["metadata"]["labels"], json!({"a": "b", POD_NAME_LABEL: "db-3", POD_INDEX_LABEL: "3", POD_LABEL: "db-hash"}));
        assert_eq!(
            pod["spec"]["volumes"],
            json!([
                {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-3"}}, {"name": "tmp", "emptyDir": {}},
            ])
        );
        assert_eq!((pod["spec"]["hostname"].as_str(), pod["spec"]["subdomain"].as_str()), (Some("db-3"), Some("svc")));
        assert_eq!(repaired(&set, &pod), None);
        let mut lost = pod.clone();
        lost.remove_at("/metadata/labels/statefulset.kubernetes.io~1pod-name");
        assert_eq!(repaired(&set, &lost).map(|p| p["metadata"]["labels"].clone()), Some(pod["metadata"]["labels"].clone()));
    }

    #[test]
    fn ordinals_are_the_number_at_the_end_of_the_name() {
        let check = |name: &str, expected| assert_eq!(split(&json!({"metadata": {"name": name}})), expected, "{name}");
        check("db-0", Some(("db", 0)));
        check("db-a-12", Some(("db-a", 12)));
        check("db", None);
        check("db-x", None);
        check("db-99999999999", None);
    }
}
