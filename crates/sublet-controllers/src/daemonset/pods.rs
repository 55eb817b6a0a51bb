//! Pods of a daemon set: made for one node, and found again by it.

use crate::kit::history::POD_LABEL;
use crate::kit::{node_fit, pods, template};
use serde_json::{Map, Value, json};
use sublet_machinery::ObjectExt;

const GENERATION_LABEL: &str = "pod-template-generation";
const GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";

/// Troubles of a node that daemons live with: (taint, effect).
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// The tolerations of the template with those that every daemon has.
pub(super) fn tolerations(set: &Value) -> Vec<Value> {
    let mut all = set.array_at("/spec/template/spec/tolerations").to_vec();
    let on_host_network = set.bool_at("/spec/template/spec/hostNetwork").unwrap_or(false);
    let network = on_host_network.then_some(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    for (key, effect) in TOLERATED.into_iter().chain(network) {
        let entries = [("key", key), ("operator", "Exists"), ("effect", effect)];
        let toleration: Map<String, Value> = entries.into_iter().map(|(k, v)| (k.to_string(), json!(v))).collect();
        node_fit::add_toleration(&mut all, toleration);
    }
    all
}

pub(super) fn new_pod(set: &Value, hash: &str, tolerations: &[Value], node: &str) -> Value {
    let mut pod = template::pod(set, &super::DAEMON_SET, &set["spec"]["template"]);
    pod["spec"]["tolerations"] = json!(tolerations);
    pod.set_label(POD_LABEL, hash);
    if let Some(generation) = set.annotation(GENERATION_ANNOTATION) {
        pod.set_label(GENERATION_LABEL, generation);
    }
    // The scheduler binds it, but has one node to choose from.
    let terms = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]);
    pod.set_at("/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms", terms);
    pod
}

/// The node of a pod, or the one that it waits for.
pub(super) fn node_of(pod: &Value) -> Option<&str> {
    if !pods::node(pod).is_empty() {
        return Some(pods::node(pod));
    }
    let terms = pod.array_at("/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms");
    let fields = terms.iter().flat_map(|t| t.array_at("/matchFields"));
    let mut names = fields.filter(|f| f["key"] == "metadata.name" && f["operator"] == "In");
    match names.next()?.array_at("/values") {
        [name] => name.as_str(),
        _ => None,
    }
}

pub(super) fn is_updated(set: &Value, hash: &str, pod: &Value) -> bool {
    let generation = set.annotation(GENERATION_ANNOTATION).filter(|g| g.parse::<i64>().is_ok());
    pod.label(POD_LABEL) == Some(hash) || (generation.is_some() && pod.label(GENERATION_LABEL) == generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_made_for_its_node_and_found_by_it() {
        let set = json!({
            "metadata": {"name": "d", "uid": "u", "annotations": {GENERATION_ANNOTATION: "3"}},
            "spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"hostNetwork": true, "tolerations": [{"key": "x", "operator": "Exists"}]}}},
        });
        let tolerations = tolerations(&set);
        assert_eq!(tolerations.len(), 8);
        let pod = new_pod(&set, "h", &tolerations, "n1");
        assert_eq!(node_of(&pod), Some("n1"));
        assert_eq!(pod["metadata"]["labels"], json!({"a": "b", POD_LABEL: "h", GENERATION_LABEL: "3"}));
        assert!(is_updated(&set, "h", &pod) && is_updated(&set, "other", &pod));
        let mut older = pod.clone();
        older.set_label(GENERATION_LABEL, "2");
        assert!(!is_updated(&set, "other", &older));
    }
}
