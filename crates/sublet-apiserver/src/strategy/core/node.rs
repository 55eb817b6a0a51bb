//! Nodes.

use super::super::edit::{ensure, fill};
use super::super::quantities::round_up_list;
use super::super::status::keep_spec;
use super::super::{Strategy, keep_status};
use serde_json::{Value, json};

/// The status of a new node is kept: kubelets register with it.
pub(crate) const NODE: Strategy =
    Strategy { default, prepare_update: keep_status, prepare_status_update: keep_spec, fields, ..Strategy::PLAIN };

fn default(node: &mut Value) {
    default_pod_cidrs(ensure(node, "spec"));
    let status = ensure(node, "status");
    if status["capacity"].is_object() {
        let capacity = status["capacity"].clone();
        fill(status, "allocatable", capacity);
    }
    round_up_list(status, "capacity");
    round_up_list(status, "allocatable");
    fill(status, "daemonEndpoints", json!({"kubeletEndpoint": {"Port": 0}}));
    let info = ensure(status, "nodeInfo");
    for text in [
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ] {
        fill(info, text, "");
    }
}

fn default_pod_cidrs(spec: &mut Value) {
    let single = spec["podCIDR"].as_str().unwrap_or_default().to_string();
    let first = spec["podCIDRs"][0].as_str().unwrap_or_default().to_string();
    match (single.is_empty(), first.is_empty()) {
        (false, _) if single != first => spec["podCIDRs"] = json!([single]),
        (true, false) => spec["podCIDR"] = json!(first),
        _ => {}
    }
}

fn fields(node: &Value) -> Vec<(&'static str, String)> {
    vec![("spec.unschedulable", node["spec"]["unschedulable"].as_bool().unwrap_or_default().to_string())]
}
