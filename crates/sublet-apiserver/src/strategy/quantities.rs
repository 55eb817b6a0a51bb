//! Lists of resources: `{"cpu": "500m", "memory": "1Gi"}`.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use sublet_machinery::Quantity;

pub(crate) type ResourceList = BTreeMap<String, Quantity>;

/// Rounds the quantities of a resource list up to thousandths, which is as fine as upstream keeps them.
pub(crate) fn round_up_list(object: &mut Value, key: &str) {
    let Some(list) = object.get_mut(key).and_then(Value::as_object_mut) else { return };
    for value in list.values_mut() {
        let Ok(mut quantity) = Quantity::from_json(value) else { continue };
        quantity.round_up(-3);
        let text = quantity.to_string();
        if value.as_str() != Some(text.as_str()) {
            *value = json!(text);
        }
    }
}

/// The readable quantities of a list; what cannot be read is validation's matter.
pub(crate) fn read_list(list: &Value) -> ResourceList {
    let entries = list.as_object().into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), Quantity::from_json(value).ok()?))).collect()
}

pub(crate) fn add_list(to: &mut ResourceList, from: &ResourceList) {
    for (name, quantity) in from {
        to.entry(name.clone()).and_modify(|q| q.add(quantity)).or_insert_with(|| quantity.clone());
    }
}

pub(crate) fn max_list(to: &mut ResourceList, from: &ResourceList) {
    for (name, quantity) in from {
        let entry = to.entry(name.clone()).or_insert_with(|| quantity.clone());
        if quantity > entry {
            *entry = quantity.clone();
        }
    }
}

/// What the containers of a pod need together: all main containers and restartable init containers at
/// once, or the largest moment of initialization. `part` is `requests` or `limits`.
pub(crate) fn container_sum(spec: &Value, part: &str) -> ResourceList {
    let mut total = ResourceList::new();
    for container in spec["containers"].as_array().into_iter().flatten() {
        add_list(&mut total, &read_list(&container["resources"][part]));
    }
    let (mut restartable, mut init) = (ResourceList::new(), ResourceList::new());
    for container in spec["initContainers"].as_array().into_iter().flatten() {
        let own = read_list(&container["resources"][part]);
        if container["restartPolicy"] == "Always" {
            add_list(&mut total, &own);
            add_list(&mut restartable, &own);
            max_list(&mut init, &restartable);
        } else {
            let mut moment = own;
            add_list(&mut moment, &restartable);
            max_list(&mut init, &moment);
        }
    }
    max_list(&mut total, &init);
    total
}

/// What a pod needs: pod level values where stated, else the sum of the containers, plus overhead.
pub(crate) fn pod_sum(spec: &Value, part: &str) -> ResourceList {
    let mut total = container_sum(spec, part);
    for (name, quantity) in read_list(&spec["resources"][part]) {
        if is_pod_level(&name) {
            total.insert(name, quantity);
        }
    }
    let overhead = read_list(&spec["overhead"]);
    for (name, quantity) in &overhead {
        match total.get_mut(name) {
            Some(sum) if part == "requests" || !sum.is_zero() => sum.add(quantity),
            None if part == "requests" => {
                total.insert(name.clone(), quantity.clone());
            }
            _ => {}
        }
    }
    total
}

/// The resources that a pod as a whole can ask for.
pub(crate) fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_page(name)
}

pub(crate) fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Resources of Kubernetes itself may be promised more than once, except huge pages.
pub(crate) fn is_overcommit_allowed(name: &str) -> bool {
    (!name.contains('/') || name.contains("kubernetes.io/")) && !is_huge_page(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_rounded_up_to_thousandths() {
        let mut object = json!({"limits": {"cpu": "0.0001", "memory": "1.5Gi", "x": 2}});
        round_up_list(&mut object, "limits");
        assert_eq!(object, json!({"limits": {"cpu": "1m", "memory": "1536Mi", "x": "2"}}));
    }

    #[test]
    fn init_containers_count_as_a_moment_and_sidecars_all_the_time() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = container("1");
        sidecar["restartPolicy"] = json!("Always");
        let spec = json!({"containers": [container("1")], "initContainers": [sidecar, container("3")]});
        assert_eq!(container_sum(&spec, "requests")["cpu"], Quantity::parse("4").expect("a quantity"));
    }
}
