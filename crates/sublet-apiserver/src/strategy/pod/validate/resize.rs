//! The `/resize` subresource: cpu and memory of running containers.

use super::super::super::edit::{ensure, is_zero, items};
use super::super::super::field::{Errors, Field};
use super::super::qos;
use super::is_mirror;
use serde_json::{Value, json};
use sublet_machinery::{FieldError, FieldPath};

const LISTS: [&str; 2] = ["initContainers", "containers"];

pub(crate) fn validate_resize(new: &Value, old: &Value) -> Vec<FieldError> {
    let refuse = |why: &str| vec![FieldError::forbidden(&FieldPath::root(), why)];
    if is_mirror(old) {
        return refuse("static pods cannot be resized");
    }
    if old["spec"]["os"]["name"] == "windows" {
        return refuse("windows pods cannot be resized");
    }
    Errors::of(|errors| check(&Field::root(new).at("spec"), new, old, errors))
}

fn check(spec: &Field<'_>, new: &Value, old: &Value, errors: &mut Errors) {
    let class = old["status"]["qosClass"].as_str().filter(|c| !c.is_empty()).unwrap_or_else(|| qos::class(old));
    if class != qos::class(new) {
        let shown = new["status"]["qosClass"].as_str().unwrap_or_default();
        errors.add(spec.invalid_as(shown, "Pod QOS Class may not change as a result of resizing"));
    }
    if !node_supports_resize(old) {
        errors.add(spec.forbidden("Pod running on node without support for resize"));
    }
    let mut rest = spec.value.clone();
    if !is_zero(&old["spec"]["resources"]) || !spec.at("resources").is_zero() {
        check_pod_level(spec, &mut rest, &old["spec"]["resources"], errors);
    }
    if !same_containers(spec, old, errors) {
        return;
    }
    for list in LISTS {
        check_containers(spec, list, &mut rest, old, errors);
    }
    if spec.at("volumes").value != &old["spec"]["volumes"] {
        let detail = "volumes are immutable on resize when InPlacePodVerticalScalingMemoryBackedVolumes feature gate is disabled";
        errors.add(spec.at("volumes").forbidden(detail));
    }
    if errors.0.is_empty() && rest != old["spec"] {
        errors.add(spec.forbidden("only cpu and memory resources are mutable"));
    }
}

/// A kubelet that can resize tells the resources of running containers.
fn node_supports_resize(pod: &Value) -> bool {
    let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    statuses.into_iter().find(|s| s["state"]["running"].is_object()).is_none_or(|s| s["resources"].is_object())
}

fn check_pod_level(spec: &Field<'_>, rest: &mut Value, old: &Value, errors: &mut Errors) {
    let resources = spec.at("resources");
    if old.is_object() && !resources.is_set() {
        return errors.add(resources.forbidden("pod-level resources cannot be removed"));
    }
    for part in ["requests", "limits"] {
        if old.is_object() && removed(resources.at(part).value, &old[part]) {
            errors.add(resources.at(part).forbidden(format!("pod-level resource {part} cannot be removed")));
        }
    }
    let mut own = resources.value.clone();
    take_back(&mut own, old);
    if is_zero(&own) && old.is_null() {
        if let Some(map) = rest.as_object_mut() {
            map.remove("resources");
        }
    } else {
        if own != *old {
            errors.add(spec.forbidden("only cpu and memory resources are mutable at pod-level"));
        }
        rest["resources"] = old.clone();
    }
}

fn same_containers(spec: &Field<'_>, old: &Value, errors: &mut Errors) -> bool {
    let found = errors.0.len();
    for list in ["containers", "initContainers"] {
        let before = old["spec"][list].as_array().map_or(&[][..], Vec::as_slice);
        if spec.at(list).len() != before.len() {
            errors.add(spec.at(list).forbidden(format!("{list} may not be added or removed on resize")));
            continue;
        }
        for (container, before) in spec.at(list).items().zip(before) {
            if *container.at("name").value != before["name"] {
                errors.add(container.at("name").forbidden(format!("{list} may not be renamed or reordered on resize")));
            }
        }
    }
    errors.0.len() == found
}

fn check_containers(spec: &Field<'_>, list: &str, rest: &mut Value, old: &Value, errors: &mut Errors) {
    let before = old["spec"][list].as_array().map_or(&[][..], Vec::as_slice);
    for ((container, copy), before) in spec.at(list).items().zip(items(rest, list)).zip(before) {
        let resources = container.at("resources");
        for part in ["requests", "limits"] {
            if removed(resources.at(part).value, &before["resources"][part]) {
                errors.add(resources.at(part).forbidden(format!("resource {part} cannot be removed")));
            }
        }
        take_back(ensure(copy, "resources"), &before["resources"]);
        if list == "containers" {
            if copy != before {
                errors.add(spec.forbidden("only cpu and memory resources are mutable"));
            }
            continue;
        }
        if copy != before {
            errors.add(container.forbidden("only cpu and memory resources for init or sidecar containers are mutable"));
        }
        let changed = container.value != before;
        if changed && container.at("restartPolicy").text() != "Always" {
            for _ in container.at("resizePolicy").items().filter(|p| p.at("restartPolicy").text() == "RestartContainer") {
                errors.add(container.forbidden("non-sidecar init containers with a resize policy of RestartContainer cannot be resized"));
            }
        }
        *copy = before.clone();
    }
}

fn removed(new: &Value, old: &Value) -> bool {
    old.as_object().is_some_and(|old| old.keys().any(|name| new.get(name).is_none()))
}

/// Gives cpu and memory their old amounts, so that the rest can be compared.
fn take_back(resources: &mut Value, old: &Value) {
    for part in ["requests", "limits"] {
        let mut list = resources[part].clone();
        if list.is_null() && old[part].is_null() {
            continue;
        }
        for name in ["cpu", "memory"] {
            match old[part].get(name) {
                Some(amount) => ensure_map(&mut list)[name] = amount.clone(),
                None => {
                    if let Some(map) = list.as_object_mut() {
                        map.remove(name);
                    }
                }
            }
        }
        if is_zero(&list) && is_zero(&old[part]) {
            if let Some(map) = resources.as_object_mut() {
                map.remove(part);
            }
        } else {
            ensure_map(resources)[part] = list;
        }
    }
}

fn ensure_map(value: &mut Value) -> &mut Value {
    if !value.is_object() {
        *value = json!({});
    }
    value
}
