//! What the server sets and keeps on pods (as in registry/core/pod/strategy.go, 1.37).

use super::super::edit::{child, copy_or_remove, ensure, fill, is_zero, items, remove};
use super::super::quantities::{container_sum, is_huge_page, is_overcommit_allowed, is_pod_level, read_list};
use super::super::{keep_all_but_status, keep_status};
use super::qos;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use sublet_machinery::{ObjectExt, Quantity};

pub(crate) fn prepare_create(pod: &mut Value) {
    pod.metadata_mut().insert("generation".into(), json!(1));
    pod["status"] = json!({"phase": "Pending"});
    drop_gated(ensure(pod, "spec"), &Value::Null);
    if !is_zero(&pod["spec"]["schedulingGates"]) {
        pod["status"]["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastProbeTime": null, "lastTransitionTime": super::super::edit::now(),
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    merge_label_keys(pod);
    sync_app_armor(pod);
    default_pod_level(ensure(pod, "spec"));
    pod["status"]["qosClass"] = json!(qos::class(pod));
}

pub(crate) fn prepare_update(new: &mut Value, old: &Value) {
    keep_status(new, old);
    let spec = ensure(new, "spec");
    if !old["spec"]["resources"].is_null() {
        fill(spec, "resources", old["spec"]["resources"].clone());
    }
    drop_gated(spec, &old["spec"]);
    bump_generation(new, old);
}

pub(crate) fn prepare_status_update(new: &mut Value, old: &Value) {
    copy_or_remove(new, old, "spec");
    for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences", "generation"] {
        copy_or_remove(&mut new["metadata"], &old["metadata"], key);
    }
    let (status, before) = (ensure(new, "status"), &old["status"]);
    for key in ["qosClass", "resourceClaimStatuses", "extendedResourceClaimStatus", "observedGeneration"] {
        if is_zero(&status[key]) {
            copy_or_remove(status, before, key);
        }
    }
    let mut earlier: BTreeMap<String, std::vec::IntoIter<i64>> = BTreeMap::new();
    for condition in before["conditions"].as_array().into_iter().flatten() {
        let name = condition["type"].as_str().unwrap_or_default();
        let mut all: Vec<i64> = earlier.remove(name).map(Iterator::collect).unwrap_or_default();
        all.push(condition["observedGeneration"].as_i64().unwrap_or_default());
        earlier.insert(name.into(), all.into_iter());
    }
    for condition in items(status, "conditions") {
        let generation = earlier.get_mut(condition["type"].as_str().unwrap_or_default()).and_then(Iterator::next).unwrap_or_default();
        if generation != 0 {
            super::super::edit::fill_zero(condition, "observedGeneration", generation);
        }
    }
}

/// `/ephemeralcontainers` changes nothing else.
pub(crate) fn prepare_ephemeral_update(new: &mut Value, old: &Value) {
    let containers = new["spec"]["ephemeralContainers"].clone();
    keep_all_but_status(new, old);
    keep_status(new, old);
    let spec = ensure(new, "spec");
    if is_zero(&containers) {
        remove(spec, "ephemeralContainers");
    } else {
        spec["ephemeralContainers"] = containers;
    }
    drop_gated(spec, &old["spec"]);
    bump_generation(new, old);
}

/// `/resize` changes resources and resize policies; a body whose containers do not match is left for
/// validation to refuse.
pub(crate) fn prepare_resize_update(new: &mut Value, old: &Value) {
    const LISTS: [&str; 2] = ["containers", "initContainers"];
    let asked = new["spec"].clone();
    let count = |spec: &Value, list: &str| spec[list].as_array().map_or(0, Vec::len);
    if LISTS.iter().all(|list| count(&asked, list) == count(&old["spec"], list)) {
        keep_all_but_status(new, old);
        keep_status(new, old);
        let spec = ensure(new, "spec");
        for list in LISTS {
            let wanted = asked[list].as_array().cloned().unwrap_or_default();
            let names_match = items(spec, list).zip(&wanted).all(|(c, w)| c["name"] == w["name"]);
            if !names_match {
                spec[list] = json!(wanted);
                continue;
            }
            for (container, wanted) in items(spec, list).zip(&wanted) {
                copy_or_remove(container, wanted, "resources");
                copy_or_remove(container, wanted, "resizePolicy");
            }
        }
        copy_or_remove(spec, &asked, "resources");
    }
    let spec = ensure(new, "spec");
    if !old["spec"]["resources"].is_null() {
        fill(spec, "resources", old["spec"]["resources"].clone());
    }
    default_pod_level(spec);
    drop_gated(spec, &old["spec"]);
    bump_generation(new, old);
}

fn bump_generation(new: &mut Value, old: &Value) {
    let generation = old.generation() + i64::from(new["spec"] != old["spec"]);
    if generation > 0 {
        new.metadata_mut().insert("generation".into(), json!(generation));
    }
}

/// Fields behind gates that are off by default are dropped unless the old object has them.
pub(crate) fn drop_gated(spec: &mut Value, old: &Value) {
    for key in ["schedulingGroup", "evictionResponders"] {
        if old[key].is_null() {
            remove(spec, key);
        }
    }
    for volume in items(spec, "volumes") {
        if let Some(directory) = child(volume, "emptyDir") {
            remove(directory, "mode");
        }
        for source in ["secret", "configMap", "downwardAPI", "projected"] {
            if let Some(source) = child(volume, source) {
                remove(source, "defaultUser");
                drop_file_owners(source);
                items(source, "sources").for_each(drop_projected_owners);
            }
        }
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        items(spec, list).for_each(drop_gated_in_container);
    }
}

fn drop_file_owners(source: &mut Value) {
    for item in items(source, "items") {
        remove(item, "user");
    }
}

fn drop_projected_owners(projection: &mut Value) {
    for files in ["secret", "configMap", "downwardAPI"] {
        if let Some(source) = child(projection, files) {
            drop_file_owners(source);
        }
    }
    for file in ["serviceAccountToken", "clusterTrustBundle", "podCertificate"] {
        if let Some(source) = child(projection, file) {
            remove(source, "user");
        }
    }
}

fn drop_gated_in_container(container: &mut Value) {
    for handler in ["postStart", "preStop"] {
        if let Some(get) = child(container, "lifecycle").and_then(|l| child(l, handler)).and_then(|h| child(h, "httpGet")) {
            remove(get, "protocol");
        }
    }
    let signal = child(container, "lifecycle").and_then(|lifecycle| remove(lifecycle, "stopSignal"));
    if signal.is_some() && is_zero(&container["lifecycle"]) {
        remove(container, "lifecycle");
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = child(container, probe) {
            if let Some(get) = child(probe, "httpGet") {
                remove(get, "protocol");
            }
            if let Some(call) = child(probe, "grpc") {
                remove(call, "mode");
            }
        }
    }
    for mount in items(container, "volumeMounts") {
        remove(mount, "bindMountOptions");
    }
}

/// Label keys of affinity terms and spread constraints become requirements of their selectors, with the
/// labels that the pod has now.
fn merge_label_keys(pod: &mut Value) {
    let labels = pod["metadata"]["labels"].clone();
    let spec = ensure(pod, "spec");
    for constraint in items(spec, "topologySpreadConstraints") {
        merge_into_selector(constraint, "matchLabelKeys", "In", &labels);
    }
    let Some(affinity) = child(spec, "affinity") else { return };
    for side in ["podAffinity", "podAntiAffinity"] {
        let Some(side) = child(affinity, side) else { continue };
        let merge = |term: &mut Value| {
            merge_into_selector(term, "matchLabelKeys", "In", &labels);
            merge_into_selector(term, "mismatchLabelKeys", "NotIn", &labels);
        };
        items(side, "requiredDuringSchedulingIgnoredDuringExecution").for_each(merge);
        for preferred in items(side, "preferredDuringSchedulingIgnoredDuringExecution") {
            if let Some(term) = child(preferred, "podAffinityTerm") {
                merge(term);
            }
        }
    }
}

fn merge_into_selector(term: &mut Value, keys: &str, operator: &str, labels: &Value) {
    let keys: Vec<Value> = term[keys].as_array().cloned().unwrap_or_default();
    let Some(selector) = child(term, "labelSelector") else { return };
    let found: Vec<Value> = keys
        .iter()
        .filter_map(|key| {
            let value = labels.get(key.as_str()?)?;
            Some(json!({"key": key, "operator": operator, "values": [value]}))
        })
        .collect();
    if !found.is_empty() {
        super::super::edit::fill_zero(selector, "matchExpressions", json!([]));
        if let Some(expressions) = selector["matchExpressions"].as_array_mut() {
            expressions.extend(found);
        }
    }
}

/// The deprecated AppArmor annotations become fields.
fn sync_app_armor(pod: &mut Value) {
    if pod["spec"]["os"]["name"] == "windows" {
        return;
    }
    let annotations = pod["metadata"]["annotations"].clone();
    let spec = ensure(pod, "spec");
    let pod_profile = spec["securityContext"]["appArmorProfile"].clone();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in items(spec, list) {
            let key = format!("container.apparmor.security.beta.kubernetes.io/{}", container["name"].as_str().unwrap_or_default());
            let Some(profile) = annotations[key.as_str()].as_str().and_then(app_armor_profile) else { continue };
            if container["securityContext"]["appArmorProfile"].is_null() && profile != pod_profile {
                ensure(container, "securityContext")["appArmorProfile"] = profile;
            }
        }
    }
}

fn app_armor_profile(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        other => {
            let name = other.strip_prefix("localhost/")?;
            (!name.is_empty() && name.trim() == name && name.len() <= 4096).then(|| json!({"type": "Localhost", "localhostProfile": name}))
        }
    }
}

/// Pod level requests and limits complete each other and follow the containers.
fn default_pod_level(spec: &mut Value) {
    let set = |part: &str| !is_zero(&spec["resources"][part]);
    if !set("requests") && !set("limits") {
        return;
    }
    let (mut requests, mut limits) = (read_list(&spec["resources"]["requests"]), read_list(&spec["resources"]["limits"]));
    let (requested, limited) = (container_sum(spec, "requests"), container_sum(spec, "limits"));
    for (name, sum) in &limited {
        if is_huge_page(name) && !requests.contains_key(name) {
            limits.entry(name.clone()).or_insert_with(|| sum.clone());
        }
    }
    for (name, sum) in &requested {
        if is_pod_level(name) && is_overcommit_allowed(name) {
            requests.entry(name.clone()).or_insert_with(|| sum.clone());
        }
    }
    for (name, limit) in &limits {
        if is_pod_level(name) {
            requests.entry(name.clone()).or_insert_with(|| limit.clone());
        }
    }
    // A limit of the pod makes sense only where every container has one.
    let all_limited = |name: &str| {
        let lists = ["initContainers", "containers"].iter().flat_map(|list| spec[*list].as_array().into_iter().flatten());
        lists.into_iter().all(|c| !c["resources"]["limits"][name].is_null())
    };
    for (name, request) in &requests {
        if is_pod_level(name)
            && !limits.contains_key(name)
            && all_limited(name)
            && let Some(sum) = limited.get(name)
        {
            limits.insert(name.clone(), sum.max(request).clone());
        }
    }
    for (part, list) in [("requests", requests), ("limits", limits)] {
        let known: Vec<(String, Quantity)> =
            list.into_iter().filter(|(name, _)| spec["resources"][part][name.as_str()].is_null()).collect();
        for (name, quantity) in known {
            ensure(ensure(spec, "resources"), part)[name.as_str()] = json!(quantity.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_pod_is_pending_with_its_class() {
        let mut pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Running"}});
        prepare_create(&mut pod);
        assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
        assert_eq!(pod.generation(), 1);
    }

    #[test]
    fn label_keys_become_requirements() {
        let mut pod = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"topologySpreadConstraints": [
            {"matchLabelKeys": ["a", "b"], "labelSelector": {"matchLabels": {"x": "y"}}}, {"matchLabelKeys": ["a"]}]}});
        merge_label_keys(&mut pod);
        assert_eq!(
            pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"],
            json!([{"key": "a", "operator": "In", "values": ["1"]}])
        );
        assert!(pod["spec"]["topologySpreadConstraints"][1]["labelSelector"].is_null());
    }

    #[test]
    fn a_changed_spec_bumps_the_generation_of_a_pod() {
        let old = json!({"metadata": {"generation": 1}, "spec": {"a": 1}, "status": {}});
        let mut new = json!({"metadata": {"generation": 1}, "spec": {"a": 2}});
        prepare_update(&mut new, &old);
        assert_eq!((new.generation(), &new["status"]), (2, &json!({})));
    }

    #[test]
    fn resize_changes_resources_alone() {
        let old = json!({"metadata": {"name": "p", "generation": 1}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i", "resources": {}}]}});
        let mut new = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "other", "resources": {"requests": {"cpu": "1"}}}]}});
        prepare_resize_update(&mut new, &old);
        assert_eq!(
            new["spec"],
            json!({"nodeName": "n", "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]})
        );
        assert_eq!(new.generation(), 2);
    }

    #[test]
    fn pod_level_limits_become_requests() {
        let mut spec = json!({"resources": {"limits": {"cpu": "2"}}, "containers": [{"resources": {"requests": {"memory": "1Gi"}}}]});
        default_pod_level(&mut spec);
        assert_eq!(spec["resources"], json!({"limits": {"cpu": "2"}, "requests": {"cpu": "2", "memory": "1Gi"}}));
    }
}
