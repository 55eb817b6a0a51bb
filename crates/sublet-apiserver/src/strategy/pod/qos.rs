//! The quality of service class: how surely a pod gets what it asks for.

use super::super::quantities::{is_pod_level, read_list};
use serde_json::Value;
use sublet_machinery::Quantity;

const COMPUTE: [&str; 2] = ["cpu", "memory"];

pub(crate) fn class(pod: &Value) -> &'static str {
    let spec = &pod["spec"];
    let has_pod_level = ["requests", "limits"]
        .iter()
        .any(|part| spec["resources"][part].as_object().is_some_and(|list| list.keys().any(|name| is_pod_level(name))));
    if has_pod_level {
        return of_resources(&spec["resources"]);
    }
    let containers = ["initContainers", "containers"].iter().flat_map(|list| spec[*list].as_array().into_iter().flatten());
    agreed(containers.map(|c| of_resources(&c["resources"]))).unwrap_or("BestEffort")
}

fn of_resources(resources: &Value) -> &'static str {
    let (requests, limits) = (read_list(&resources["requests"]), read_list(&resources["limits"]));
    if requests.is_empty() && limits.is_empty() {
        return "BestEffort";
    }
    let zero = Quantity::default();
    let of_resource = |name: &str| {
        let (request, limit) = (requests.get(name).unwrap_or(&zero), limits.get(name).unwrap_or(&zero));
        match (request == limit, request.is_zero()) {
            (false, _) => "Burstable",
            (true, true) => "BestEffort",
            (true, false) => "Guaranteed",
        }
    };
    agreed(COMPUTE.into_iter().map(of_resource)).unwrap_or("BestEffort")
}

/// All parts agree, or the whole is burstable.
fn agreed(mut classes: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let first = classes.next()?;
    Some(if classes.all(|c| c == first) { first } else { "Burstable" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_class_follows_requests_and_limits() {
        let all = json!({"cpu": "1", "memory": "1Gi"});
        for (resources, expected) in [
            (json!([{}]), "BestEffort"),
            (json!([{"requests": all, "limits": all}]), "Guaranteed"),
            (json!([{"requests": {"cpu": "1"}}]), "Burstable"),
            (json!([{"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}]), "Burstable"),
            (json!([{"requests": all, "limits": all}, {}]), "Burstable"),
            (json!([{"requests": {"example.com/gpu": "1"}}]), "BestEffort"),
        ] {
            let containers: Vec<_> = resources.as_array().into_iter().flatten().map(|r| json!({"resources": r})).collect();
            assert_eq!(class(&json!({"spec": {"containers": containers}})), expected, "{resources}");
        }
        assert_eq!(class(&json!({"spec": {"resources": {"requests": all, "limits": all}, "containers": [{}]}})), "Guaranteed");
    }
}
