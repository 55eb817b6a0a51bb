//! Nodes.

use super::super::edit::{ensure, fill, remove};
use super::super::field::{Errors, Field, Seen};
use super::super::pod::validate::resources::validate_quantity;
use super::super::pod::validate::validate_taints;
use super::super::quantities::round_up_list;
use super::super::status::keep_spec;
use super::super::{Strategy, keep_status};
use serde_json::{Value, json};
use sublet_machinery::{FieldError, FieldPath, names};

/// The status of a new node is kept: kubelets register with it.
pub(crate) const NODE: Strategy = Strategy {
    default,
    prepare_create: |node| {
        remove(&mut node["spec"], "configSource");
        // Behind a gate that is off.
        remove(&mut node["spec"], "podPreemptionPolicy");
    },
    prepare_update,
    prepare_status_update: keep_spec,
    validate,
    validate_update,
    validate_status_update: validate_update,
    warnings,
    fields,
    ..Strategy::PLAIN
};

/// The kubelet is not configured through its node any more; old objects may still say so.
fn prepare_update(new: &mut Value, old: &Value) {
    if old["spec"]["configSource"].is_null() {
        remove(&mut new["spec"], "configSource");
    }
    if old["spec"]["podPreemptionPolicy"].is_null() {
        remove(&mut new["spec"], "podPreemptionPolicy");
    }
    keep_status(new, old);
}

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

fn validate(node: &Value) -> Vec<FieldError> {
    let root = Field::root(node);
    let (spec, status) = (root.at("spec"), root.at("status"));
    Errors::of(|errors| {
        // Upstream tells taints below metadata.
        validate_taints(&Field::new(spec.at("taints").value, FieldPath::new("metadata.taints")), errors);
        for list in ["capacity", "allocatable"] {
            for (name, quantity) in status.at(list).value.as_object().into_iter().flatten() {
                validate_quantity(name, &Field::new(quantity, status.at(list).path.child(name)), errors);
            }
        }
        let cidrs = spec.at("podCIDRs");
        cidrs.items().for_each(|cidr| errors.cidr(&cidr));
        let families: Vec<bool> = cidrs.items().filter_map(|c| names::parse_cidr_sloppy(c.text())).map(|(ip, _)| ip.is_ipv4()).collect();
        if cidrs.len() > 1 && !(cidrs.len() == 2 && families.contains(&true) && families.contains(&false)) {
            errors.add(cidrs.invalid("may specify no more than one CIDR for each IP family"));
        }
    })
}

fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let root = Field::root(new);
    let (spec, before) = (root.at("spec"), &old["spec"]);
    Errors::of(|errors| {
        let mut seen = Seen::default();
        for address in root.at("status").at("addresses").items() {
            if seen.again(address.value.to_string()) {
                errors.add(address.duplicate());
            }
        }
        let cidrs = spec.at("podCIDRs");
        if before["podCIDRs"].as_array().is_some_and(|old| !old.is_empty() && before["podCIDRs"] != *cidrs.value) {
            errors.add(cidrs.forbidden("node updates may not change podCIDR except from \"\" to valid"));
        }
        let (provider, old_provider) = (spec.at("providerID"), before["providerID"].as_str().unwrap_or_default());
        if !old_provider.is_empty() && provider.is_zero() {
            errors.add(provider.invalid_unshown("field cannot be cleared once set"));
        } else if !old_provider.is_empty() && provider.text() != old_provider {
            errors.add(provider.invalid_unshown("field cannot be modified once set"));
        }
        let external = spec.at("externalID");
        if external.text() != before["externalID"].as_str().unwrap_or_default() {
            errors.add(external.forbidden("may not be updated"));
        }
    })
}

fn warnings(node: &Value) -> Vec<String> {
    let spec = Field::root(node).at("spec");
    let mut all = Vec::new();
    if spec.at("configSource").is_set() {
        all.push("spec.configSource: the feature is removed".into());
    }
    if !spec.at("externalID").is_zero() {
        all.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".into());
    }
    spec.at("podCIDRs").items().for_each(|cidr| all.extend(names::cidr_warnings(&cidr.path, cidr.text())));
    all
}
