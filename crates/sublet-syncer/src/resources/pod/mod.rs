//! Pods: the whole spec in the host's terms, and the host's status in the tenant's.

pub mod bundle;
pub mod certificate;
mod containers;
mod downward;
mod fields;
mod network;
mod rejection;
mod scheduling;
mod status;
pub mod token;
mod volumes;

use super::{KindId, Refusal, SyncedKind, Translation};
use crate::translate::NAME_BYTES_MAX_POD;
use serde_json::{Value, json};
use sublet_api::marks;
use sublet_machinery::ObjectExt;

pub use status::{gate_conditions, gone, has_run, is_terminal};

pub const POD: SyncedKind = SyncedKind {
    name_bytes_max: NAME_BYTES_MAX_POD,
    fields: &fields::FIELDS,
    hook: to_host,
    update_view,
    to_tenant: status::up,
    ..SyncedKind::core_v1(KindId::Pod, "Pod", "pods")
};

/// Labels of a pod that its API server copies from the node.
const WRITTEN_WHEN_BOUND: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

fn to_host(host: &mut Value, tenant: &Value, translation: &Translation<'_>) -> Result<(), Refusal> {
    if !tenant.array_at("/spec/resourceClaims").is_empty() {
        return Err(Refusal::new("spec.resourceClaims", "dynamic resources are not available to virtual clusters"));
    }
    if tenant["spec"]["schedulingGroup"].is_object() {
        return Err(Refusal::new("spec.schedulingGroup", "pod groups are not available to virtual clusters"));
    }
    // The token in the host's name would be one for the host's API server.
    host["spec"]["automountServiceAccountToken"] = json!(false);
    host["spec"]["enableServiceLinks"] = json!(false);
    host.set_annotation(marks::SERVICE_ACCOUNT, tenant.str_at("/spec/serviceAccountName").unwrap_or("default"));
    containers::translate(host, tenant, translation);
    volumes::translate(host, tenant, translation)?;
    downward::carry(host, tenant);
    scheduling::translate(host, tenant, translation)?;
    network::translate(host, tenant, translation)?;
    let pulls: Vec<Value> = tenant
        .array_at("/spec/imagePullSecrets")
        .iter()
        .filter_map(|pull| pull["name"].as_str().filter(|n| !n.is_empty()))
        .map(|name| json!({"name": translation.refer(&super::secret::SECRET, tenant.namespace(), name)}))
        .collect();
    if !pulls.is_empty() {
        host["spec"]["imagePullSecrets"] = Value::Array(pulls);
    }
    Ok(())
}

/// What of a pod can change by update. Resources change by the `resize` subresource, ephemeral
/// containers by their own, and all else never: services and namespaces that went into the pod's
/// environment and selectors are those of its first day, as with a kubelet. Where it runs both sides write
/// by themselves when it is bound.
fn update_view(desired: Value) -> Value {
    let mut view = json!({"apiVersion": "v1", "kind": "Pod", "metadata": desired["metadata"]});
    if let Some(labels) = view["metadata"]["labels"].as_object_mut() {
        labels.retain(|key, _| !WRITTEN_WHEN_BOUND.contains(&key.as_str()));
    }
    for list in ["containers", "initContainers"] {
        let images: Vec<Value> =
            desired["spec"][list].as_array().into_iter().flatten().map(|c| json!({"name": c["name"], "image": c["image"]})).collect();
        if !images.is_empty() {
            view["spec"][list] = Value::Array(images);
        }
    }
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates", "terminationGracePeriodSeconds"] {
        let value = &desired["spec"][field];
        if !value.is_null() {
            view["spec"][field] = value.clone();
        }
    }
    view
}

/// Whether the pod has files that a kubelet would ask the API server for: they come from the tenant's.
pub fn wants_secret(pod: &Value) -> bool {
    !token::wanted(pod).is_empty() || !bundle::wanted(pod).is_empty() || !certificate::wanted(pod).is_empty()
}

/// The live pod's tolerations, with what the wanted pod says of them and adds to them.
pub fn keep_tolerations(desired: &mut Value, live: &Value) {
    let same = |a: &Value, b: &Value| {
        let text = |v: &Value, field: &str, default: &str| v[field].as_str().filter(|t| !t.is_empty()).unwrap_or(default).to_string();
        text(a, "operator", "Equal") == text(b, "operator", "Equal")
            && ["key", "value", "effect"].iter().all(|f| text(a, f, "") == text(b, f, ""))
    };
    let mut all = live.array_at("/spec/tolerations").to_vec();
    for wanted in desired.array_at("/spec/tolerations") {
        match all.iter_mut().find(|t| same(t, wanted)) {
            Some(present) => *present = wanted.clone(),
            None => all.push(wanted.clone()),
        }
    }
    desired["spec"]["tolerations"] = Value::Array(all);
}

/// The resources of each container, for `resize`.
pub fn resources(pod: &Value) -> Value {
    let mut out = json!({});
    for list in ["initContainers", "containers"] {
        let items: Vec<Value> = pod["spec"][list]
            .as_array()
            .into_iter()
            .flatten()
            .map(|c| json!({"name": c["name"], "resources": if c["resources"].is_null() { json!({}) } else { c["resources"].clone() }}))
            .collect();
        if !items.is_empty() {
            out[list] = Value::Array(items);
        }
    }
    if pod["spec"]["resources"].is_object() {
        out["resources"] = pod["spec"]["resources"].clone();
    }
    out
}

/// Ephemeral containers of the wanted pod that the host pod lacks, by name.
pub fn missing_ephemeral(desired: &Value, host: &Value) -> Vec<Value> {
    let present = host.array_at("/spec/ephemeralContainers");
    desired.array_at("/spec/ephemeralContainers").iter().filter(|c| !present.iter().any(|p| p["name"] == c["name"])).cloned().collect()
}

/// What the host's copy keeps of a pod in memory: marks, node, status, and what subresources change.
pub fn slim_host_pod(pod: &mut Value) {
    let spec = pod["spec"].take();
    let mut kept = json!({});
    if let Some(node) = spec.str_at("/nodeName") {
        kept["nodeName"] = json!(node);
    }
    let ephemeral: Vec<Value> = spec.array_at("/ephemeralContainers").iter().map(|c| json!({"name": c["name"]})).collect();
    if !ephemeral.is_empty() {
        kept["ephemeralContainers"] = Value::Array(ephemeral);
    }
    pod["spec"] = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tenant's binding brought these labels, and they went down as two writes of every pod.
    #[test]
    fn where_a_pod_runs_is_no_change_of_it() {
        let view = |labels: Value| update_view(json!({"metadata": {"name": "x", "labels": labels}, "spec": {}}));
        let zone = "topology.kubernetes.io/zone";
        assert_eq!(view(json!({"app": "a", zone: "z", "topology.kubernetes.io/region": "r"})), view(json!({"app": "a"})));
        assert_ne!(view(json!({"app": "a"})), view(json!({"app": "b"})));
    }

    #[test]
    fn tolerations_of_others_stay_and_ours_change_their_time() {
        let live = json!({"spec": {"tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 300}, {"key": "mesh", "operator": "Exists"}]}});
        let mut desired =
            json!({"spec": {"tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 60}, {"key": "b", "value": "x"}]}});
        keep_tolerations(&mut desired, &live);
        assert_eq!(
            desired["spec"]["tolerations"],
            json!([{"key": "a", "operator": "Exists", "tolerationSeconds": 60}, {"key": "mesh", "operator": "Exists"}, {"key": "b", "value": "x"}])
        );
    }
}
