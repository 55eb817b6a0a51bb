//! What a pod asks for: main containers and sidecars together, or the largest moment of its
//! initialization, with what a resize in progress has already been given.

use super::usage::{ResourceList, read};
use serde_json::Value;
use sublet_machinery::ObjectExt;

pub(super) fn requests(pod: &Value) -> ResourceList {
    let infeasible = is_resize_infeasible(pod);
    let stated = |c: &Value| read(&c["resources"]["requests"]);
    let allocated = |c: &Value| match status(pod, c).filter(|s| s["allocatedResources"].is_object()) {
        Some(status) => read(&status["allocatedResources"]),
        None if infeasible => ResourceList::new(),
        None => stated(c),
    };
    let actuated = |c: &Value| match status(pod, c).filter(|s| s.pointer("/resources/requests").is_some_and(Value::is_object)) {
        Some(status) => read(&status["resources"]["requests"]),
        None => allocated(c),
    };
    let mut total = sum(pod, &allocated);
    max(&mut total, &sum(pod, &actuated));
    if !infeasible {
        max(&mut total, &sum(pod, &stated));
    }
    total.extend(pod_level(pod, "requests"));
    add(&mut total, &read(&pod["spec"]["overhead"]));
    total
}

pub(super) fn limits(pod: &Value) -> ResourceList {
    let infeasible = is_resize_infeasible(pod);
    let stated = |c: &Value| read(&c["resources"]["limits"]);
    let actuated = |c: &Value| match status(pod, c).filter(|s| s.pointer("/resources/limits").is_some_and(Value::is_object)) {
        Some(status) => read(&status["resources"]["limits"]),
        None if infeasible => ResourceList::new(),
        None => stated(c),
    };
    let mut total = sum(pod, &actuated);
    if !infeasible {
        max(&mut total, &sum(pod, &stated));
    }
    total.extend(pod_level(pod, "limits"));
    // Without a limit there is nothing that overhead could raise.
    for (name, overhead) in read(&pod["spec"]["overhead"]) {
        if let Some(limit) = total.get_mut(&name).filter(|l| !l.is_zero()) {
            limit.add(&overhead);
        }
    }
    total
}

fn pod_level(pod: &Value, part: &str) -> ResourceList {
    let mut list = read(&pod["spec"]["resources"][part]);
    list.retain(|name, _| matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-"));
    list
}

fn is_resize_infeasible(pod: &Value) -> bool {
    let pending = pod.condition("PodResizePending");
    pending.is_some_and(|c| c["reason"] == "Infeasible")
}

fn status<'a>(pod: &'a Value, container: &Value) -> Option<&'a Value> {
    let all = pod.array_at("/status/containerStatuses").iter().chain(pod.array_at("/status/initContainerStatuses"));
    all.into_iter().find(|s| s["name"] == container["name"])
}

fn sum(pod: &Value, of: &dyn Fn(&Value) -> ResourceList) -> ResourceList {
    let mut total = ResourceList::new();
    for container in pod.array_at("/spec/containers") {
        add(&mut total, &of(container));
    }
    let (mut sidecars, mut start) = (ResourceList::new(), ResourceList::new());
    for container in pod.array_at("/spec/initContainers") {
        let own = of(container);
        if container["restartPolicy"] == "Always" {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            max(&mut start, &sidecars);
        } else {
            let mut moment = own;
            add(&mut moment, &sidecars);
            max(&mut start, &moment);
        }
    }
    max(&mut total, &start);
    total
}

fn add(to: &mut ResourceList, from: &ResourceList) {
    for (name, quantity) in from {
        to.entry(name.clone()).and_modify(|q| q.add(quantity)).or_insert_with(|| quantity.clone());
    }
}

fn max(to: &mut ResourceList, from: &ResourceList) {
    for (name, quantity) in from {
        let held = to.entry(name.clone()).or_insert_with(|| quantity.clone());
        if *quantity > *held {
            *held = quantity.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cpu(list: &ResourceList) -> String {
        list.get("cpu").map(ToString::to_string).unwrap_or_default()
    }

    #[test]
    fn initialization_counts_as_a_moment_and_sidecars_all_the_time() {
        let container = |cpu: &str| json!({"name": cpu, "resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = container("1");
        sidecar["restartPolicy"] = json!("Always");
        let pod =
            json!({"spec": {"containers": [container("2")], "initContainers": [sidecar, container("3")], "overhead": {"cpu": "500m"}}});
        assert_eq!(cpu(&requests(&pod)), "4500m");
    }

    #[test]
    fn a_resize_counts_with_the_larger_side_until_it_is_done() {
        let mut pod = json!({
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "2"}}}]},
        });
        assert_eq!(cpu(&requests(&pod)), "2");
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("9");
        assert_eq!(cpu(&requests(&pod)), "9");
        pod["status"]["conditions"] = json!([{"type": "PodResizePending", "reason": "Infeasible"}]);
        assert_eq!(cpu(&requests(&pod)), "2");
    }

    #[test]
    fn pod_level_values_stand_above_the_containers() {
        let pod =
            json!({"spec": {"resources": {"limits": {"cpu": "4"}}, "containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]}});
        assert_eq!(cpu(&limits(&pod)), "4");
    }
}
