//! Which container is meant.

use serde_json::Value;
use sublet_machinery::{ApiError, ObjectExt};

const LISTS: [&str; 3] = ["/spec/initContainers", "/spec/containers", "/spec/ephemeralContainers"];

/// Checks that the container exists, or that there is one alone when none is named.
pub(super) fn container(pod: &Value, wanted: &str) -> Result<(), ApiError> {
    let all = || LISTS.iter().flat_map(|list| pod.array_at(list)).filter_map(|c| c["name"].as_str());
    if !wanted.is_empty() {
        let found = all().any(|name| name == wanted);
        return if found { Ok(()) } else { Err(ApiError::bad_request(format!("container {wanted} is not valid for pod {}", pod.name()))) };
    }
    let must = format!("a container name must be specified for pod {}", pod.name());
    match pod.array_at("/spec/containers").len() {
        1 => Ok(()),
        0 => Err(ApiError::bad_request(must)),
        _ => Err(ApiError::bad_request(format!("{must}, choose one of: [{}]", all().collect::<Vec<_>>().join(" ")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_container_need_not_be_named_and_more_must_be() {
        let named = |list: &[&str]| list.iter().map(|n| json!({"name": n})).collect::<Vec<_>>();
        let pod = |containers: &[&str]| json!({"metadata": {"name": "p"}, "spec": {"containers": named(containers), "initContainers": named(&["i"]), "ephemeralContainers": named(&["e"])}});
        let told = |containers: &[&str], wanted: &str| container(&pod(containers), wanted).err().map(|e| e.message);
        assert_eq!([told(&["a"], ""), told(&["a"], "i"), told(&["a", "b"], "e")], [None, None, None]);
        assert_eq!(told(&["a"], "x").as_deref(), Some("container x is not valid for pod p"));
        assert_eq!(told(&["a", "b"], "").as_deref(), Some("a container name must be specified for pod p, choose one of: [i a b e]"));
    }
}
